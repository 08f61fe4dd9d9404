//! Where the database is and how it is spoken to: the DSN, and TLS with or without a check of the
//! server's certificate.

use std::path::PathBuf;
use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use postgres::config::SslMode;
use postgres::{Client, Config, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::pool::{Fail, PgResult};
use crate::StoreError;

/// How long a connection attempt may take.
const CONNECT: Duration = Duration::from_secs(5);

/// A DSN with its password made unreadable.
pub fn redacted(dsn: &str) -> String {
    let mut out = dsn.to_owned();
    if let Some(start) = out.find("://").map(|i| i + 3) {
        let end = out[start..]
            .find(['/', '?'])
            .map_or(out.len(), |n| start + n);
        if let Some(at) = out[start..end].rfind('@').map(|n| start + n)
            && let Some(colon) = out[start..at].find(':').map(|n| start + n)
        {
            out.replace_range(colon + 1..at, "xxxxx");
        }
    }
    let mut from = 0;
    while let Some(n) = out[from..].find("password=") {
        let start = from + n + "password=".len();
        let rest = &out[start..];
        let end = if let Some(quoted) = rest.strip_prefix('\'') {
            quoted.find('\'').map_or(out.len(), |n| start + n + 2)
        } else {
            rest.find(['&', ' ']).map_or(out.len(), |n| start + n)
        };
        out.replace_range(start..end, "xxxxx");
        from = start + 5;
    }
    out
}

/// Takes one setting out of a DSN of either form.
fn take(dsn: &str, key: &str) -> (String, Option<String>) {
    let separators: &[char] = if dsn.contains("://") {
        &['?', '&']
    } else {
        &[' ']
    };
    let needle = format!("{key}=");
    for (i, _) in dsn.match_indices(&needle) {
        if i > 0 && !dsn[..i].ends_with(separators) {
            continue;
        }
        let value_at = i + needle.len();
        let end = dsn[value_at..]
            .find(['&', ' '])
            .map_or(dsn.len(), |n| value_at + n);
        let value = dsn[value_at..end].trim_matches('\'').to_owned();
        let mut rest = dsn[..i].to_owned();
        rest.push_str(dsn[end..].trim_start_matches(['&', ' ']));
        let rest = rest.trim_end_matches(['?', '&', ' ']).to_owned();
        return (rest, Some(value));
    }
    (dsn.to_owned(), None)
}

/// What a connection needs beside its address.
pub(crate) enum Tls {
    Off,
    On(Box<MakeRustlsConnect>),
}

/// Reads a DSN: a `postgres://` address or `key=value` words, as libpq takes them.
///
/// # Errors
/// What is wrong with it; the DSN itself is not told, it may hold a password.
pub(crate) fn read(dsn: &str) -> Result<(Config, Tls), StoreError> {
    let refuse = |what: String| StoreError::BadDsn(what);
    let (dsn, root) = take(dsn, "sslrootcert");
    let (dsn, mode) = take(&dsn, "sslmode");
    let mut config = Config::from_str(&dsn).map_err(|e| {
        let cause = std::error::Error::source(&e).map(ToString::to_string);
        refuse(cause.unwrap_or_else(|| e.to_string()))
    })?;
    if config.get_hosts().is_empty() {
        return Err(refuse("it names no host".into()));
    }
    // As libpq: what the DSN leaves open is taken from the environment.
    if config.get_password().is_none()
        && let Ok(password) = std::env::var("PGPASSWORD")
    {
        config.password(password);
    }
    if config.get_application_name().is_none() {
        config.application_name("weft");
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(CONNECT);
    }
    config.keepalives_idle(Duration::from_secs(30));
    let tls = match mode.as_deref().unwrap_or("prefer") {
        "disable" => {
            config.ssl_mode(SslMode::Disable);
            return Ok((config, Tls::Off));
        }
        "allow" | "prefer" => {
            config.ssl_mode(SslMode::Prefer);
            client(root.as_deref(), root.is_some())
        }
        "require" => {
            config.ssl_mode(SslMode::Require);
            // As libpq: encrypted; checked only against a certificate that was given.
            client(root.as_deref(), root.is_some())
        }
        "verify-ca" | "verify-full" => {
            config.ssl_mode(SslMode::Require);
            client(root.as_deref(), true)
        }
        other => return Err(refuse(format!("sslmode {other:?} is not known"))),
    }
    .map_err(refuse)?;
    Ok((config, Tls::On(Box::new(MakeRustlsConnect::new(tls)))))
}

fn client(root: Option<&str>, verify: bool) -> Result<rustls::ClientConfig, String> {
    use rustls::pki_types::pem::PemObject as _;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?;
    if !verify {
        return Ok(builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Unchecked(provider)))
            .with_no_client_auth());
    }
    let mut roots = rustls::RootCertStore::empty();
    match root.filter(|r| *r != "system") {
        Some(path) => {
            let path = PathBuf::from(path);
            let told = |e: &dyn std::fmt::Display| format!("sslrootcert {}: {e}", path.display());
            let found =
                rustls::pki_types::CertificateDer::pem_file_iter(&path).map_err(|e| told(&e))?;
            for c in found {
                roots.add(c.map_err(|e| told(&e))?).map_err(|e| told(&e))?;
            }
            if roots.is_empty() {
                return Err(told(&"it holds no certificate"));
            }
        }
        None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
    }
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// Accepts every certificate, as libpq does with `sslmode=require`; signatures are checked.
#[derive(Debug)]
struct Unchecked(Arc<rustls::crypto::CryptoProvider>);

impl rustls::client::danger::ServerCertVerifier for Unchecked {
    fn verify_server_cert(
        &self,
        _: &rustls::pki_types::CertificateDer<'_>,
        _: &[rustls::pki_types::CertificateDer<'_>],
        _: &rustls::pki_types::ServerName<'_>,
        _: &[u8],
        _: rustls::pki_types::UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &rustls::pki_types::CertificateDer<'_>,
        dss: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(
            message,
            cert,
            dss,
            &self.0.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &rustls::pki_types::CertificateDer<'_>,
        dss: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(
            message,
            cert,
            dss,
            &self.0.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

impl Tls {
    pub(crate) fn connect(&self, config: &Config) -> PgResult<Client> {
        let connected = match self {
            Self::Off => config.connect(NoTls),
            Self::On(tls) => config.connect((**tls).clone()),
        };
        connected.map_err(|e| match Fail::from(e) {
            // Whoever cannot be trusted, or does not want the password, is there all the same.
            Fail::Lost(text) | Fail::Store(StoreError::Other(text))
                if ["TLS", "password", "authentication"]
                    .iter()
                    .any(|w| text.contains(w)) =>
            {
                Fail::Store(StoreError::Refused(text))
            }
            // An address that nothing answers at is no broken connection to try again on.
            Fail::Lost(text) => Fail::Store(StoreError::Unavailable(text)),
            f => f,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_not_shown() {
        for (dsn, shown) in [
            ("postgres://u:p@ss@h:5/db", "postgres://u:xxxxx@h:5/db"),
            (
                "postgres://u@h/db?password=s&a=b",
                "postgres://u@h/db?password=xxxxx&a=b",
            ),
            (
                "host=h password='a b' user=u",
                "host=h password=xxxxx user=u",
            ),
            ("postgres://h/db", "postgres://h/db"),
        ] {
            assert_eq!(redacted(dsn), shown);
        }
    }

    #[test]
    fn what_libpq_takes_is_taken() {
        for dsn in [
            "postgres://u:p@h:5432/db?sslmode=disable",
            "postgresql://u@h/db?sslmode=verify-full&application_name=x",
            "host=h user=u dbname=d sslmode=require",
            "postgres://h/db",
        ] {
            assert!(read(dsn).is_ok(), "{dsn}");
        }
        for dsn in [
            "",
            "postgres://",
            "postgres://h/db?sslmode=what",
            "nonsense",
            "postgres://h/d?sslrootcert=/nowhere&sslmode=verify-ca",
        ] {
            let e = read(dsn).err().map(|e| e.to_string()).unwrap_or_default();
            assert!(e.starts_with("invalid PostgreSQL DSN"), "{dsn}: {e}");
        }
    }
}
