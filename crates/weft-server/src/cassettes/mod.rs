//! The cassettes that are configured: where their documents come from, and which of them are served now.
//!
//! Each document is fetched again and again; what fails to refresh stays as it was and is called stale.

mod call;
mod fetch;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::Uri;
use tokio_util::sync::CancellationToken;
use weft_core::cassette::{Document, Tool};

pub(crate) use call::{Failure, forward, tool};
use fetch::Fetched;

use crate::client::{HttpClient, client};

/// Sources at most.
const MAX_SOURCES: usize = 64;
/// How long a connection to a cassette may take.
const CONNECT: Duration = Duration::from_secs(10);
/// At the start, sources that do not answer yet are asked again this often, and for this long.
const FIRST_RETRY: Duration = Duration::from_millis(500);
const FIRST_TRIES: Duration = Duration::from_secs(15);
/// Names whose routes are served here.
const OWN: [&str; 2] = ["export", "search"];

/// The address of a document, and with it where requests go.
#[derive(Clone, Debug)]
struct Source {
    url: String,
    uri: Uri,
    /// Scheme, host and port.
    origin: String,
}

impl Source {
    fn parse(text: &str) -> Result<Self, String> {
        let bad = |why: &str| format!("invalid cassette URL {text:?}: {why}");
        if text.contains('#') {
            return Err(bad("it must not have a fragment"));
        }
        let uri: Uri = text
            .parse()
            .map_err(|e| bad(&format!("want the address of an OpenAPI document: {e}")))?;
        let scheme = match uri.scheme_str() {
            Some(s @ ("http" | "https")) => s,
            _ => return Err(bad("it has to begin with http:// or https://")),
        };
        let authority = uri.authority().ok_or_else(|| bad("it has no host"))?;
        if authority.as_str().contains('@') {
            return Err(bad("a name and password in it are not taken"));
        }
        if authority.host().is_empty() {
            return Err(bad("it has no host"));
        }
        Ok(Self {
            url: text.to_owned(),
            origin: format!("{scheme}://{authority}"),
            uri,
        })
    }
}

/// A source and what is known of it.
#[derive(Debug)]
struct Slot {
    source: Source,
    document: Option<Arc<Document>>,
    etag: Option<String>,
    problem: Option<String>,
    /// Ends its refreshing.
    stop: CancellationToken,
}

impl Slot {
    fn new(source: Source) -> Self {
        Self {
            source,
            document: None,
            etag: None,
            problem: None,
            stop: CancellationToken::new(),
        }
    }
}

/// A cassette that is served.
#[derive(Clone, Debug)]
pub(crate) struct Installed {
    pub(crate) document: Arc<Document>,
    /// Where its requests go: scheme, host and port.
    pub(crate) origin: String,
    /// Whether the last refresh failed.
    pub(crate) stale: bool,
}

impl Installed {
    pub(crate) fn name(&self) -> &str {
        &self.document.manifest.name
    }
}

/// All cassettes at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fleet {
    /// By name.
    pub(crate) installed: Vec<Installed>,
    /// Subject and reason, in order.
    pub(crate) problems: Vec<(String, String)>,
}

impl Fleet {
    pub(crate) fn get(&self, name: &str) -> Option<&Installed> {
        self.installed.iter().find(|c| c.name() == name)
    }

    /// The cassette and the tool that have a full name.
    pub(crate) fn tool(&self, name: &str) -> Option<(&Installed, &Tool)> {
        self.installed
            .iter()
            .find_map(|c| Some((c, c.document.tools.iter().find(|t| t.name == name)?)))
    }
}

#[derive(Default)]
struct Inner {
    refresh: Option<Duration>,
    /// In the order of the configuration.
    slots: Mutex<Vec<Slot>>,
    fleet: RwLock<Arc<Fleet>>,
    /// Made with the first source: it reads the machine's certificates.
    client: OnceLock<HttpClient<Body>>,
    /// Until when sources are followed, once they are.
    following: OnceLock<CancellationToken>,
}

/// The cassettes of a server; without sources there are none.
#[derive(Clone, Default)]
pub struct Cassettes(Arc<Inner>);

impl std::fmt::Debug for Cassettes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let urls = self.slots(|s| s.iter().map(|s| s.source.url.clone()).collect::<Vec<_>>());
        f.debug_tuple("Cassettes").field(&urls).finish()
    }
}

impl Cassettes {
    /// The cassettes whose documents have these addresses; refreshed at each `refresh`, `None` = only at
    /// the start.
    ///
    /// # Errors
    /// As [`Self::replace`].
    pub fn new(urls: &[String], refresh: Option<Duration>) -> Result<Self, String> {
        let this = Self(Arc::new(Inner {
            refresh,
            ..Inner::default()
        }));
        this.replace(urls)?;
        Ok(this)
    }

    /// Makes these the sources: what is known of those that stay is kept, the cassettes of others are gone.
    ///
    /// # Errors
    /// An address that is none, or is there twice; too many. Nothing changes then.
    pub fn replace(&self, urls: &[String]) -> Result<(), String> {
        if urls.len() > MAX_SOURCES {
            return Err(format!("{} cassettes: at most {MAX_SOURCES}", urls.len()));
        }
        let mut sources = Vec::new();
        let mut seen = BTreeSet::new();
        for url in urls {
            if !seen.insert(url) {
                return Err(format!("cassette URL {url:?} is there twice"));
            }
            sources.push(Source::parse(url)?);
        }
        if !sources.is_empty() && self.0.client.get().is_none() {
            let made = client(CONNECT).map_err(|e| e.to_string())?;
            // Another thread's is as good.
            let _ = self.0.client.set(made);
        }
        let new: Vec<String> = self.slots(|slots| {
            let mut old = std::mem::take(slots);
            let mut new = Vec::new();
            for source in sources {
                match old.iter().position(|s| s.source.url == source.url) {
                    Some(at) => slots.push(old.swap_remove(at)),
                    None => {
                        new.push(source.url.clone());
                        slots.push(Slot::new(source));
                    }
                }
            }
            for gone in old {
                gone.stop.cancel();
            }
            self.publish(slots);
            new
        });
        if self.0.following.get().is_some() {
            new.iter().for_each(|url| self.start(url));
        }
        Ok(())
    }

    /// What is served now.
    pub(crate) fn fleet(&self) -> Arc<Fleet> {
        self.0
            .fleet
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn client(&self) -> Option<&HttpClient<Body>> {
        self.0.client.get()
    }

    /// Fetches the documents in the background until `stop`, each source by itself. Nothing waits for it.
    pub(crate) fn follow(&self, stop: CancellationToken) {
        if self.0.following.set(stop).is_err() {
            return;
        }
        let urls: Vec<String> = self.slots(|s| s.iter().map(|s| s.source.url.clone()).collect());
        urls.iter().for_each(|url| self.start(url));
    }

    /// Follows one source.
    fn start(&self, url: &str) {
        let ends = self.slots(|s| at(s, url).map(|s| s.stop.clone()));
        let (Some(ends), Some(stop)) = (ends, self.0.following.get().cloned()) else {
            return;
        };
        let (this, url) = (self.clone(), url.to_owned());
        tokio::spawn(async move {
            tokio::select! {
                () = this.follow_one(&url) => {}
                () = ends.cancelled() => {}
                () = stop.cancelled() => {}
            }
        });
    }

    async fn follow_one(&self, url: &str) {
        let began = Instant::now();
        while !self.refresh(url).await && began.elapsed() < FIRST_TRIES {
            tokio::time::sleep(FIRST_RETRY).await;
        }
        let Some(every) = self.0.refresh else { return };
        loop {
            tokio::time::sleep(every).await;
            self.refresh(url).await;
        }
    }

    /// Fetches one document; whether it came.
    async fn refresh(&self, url: &str) -> bool {
        let known = self.slots(|s| at(s, url).map(|s| (s.source.clone(), s.etag.clone())));
        let (Some(client), Some((source, etag))) = (self.client(), known) else {
            return true;
        };
        let fetched = fetch::document(client, &source, etag.as_deref()).await;
        // Under one lock, so that what is served is never older than what is known.
        self.slots(|slots| {
            let Some(slot) = at(slots, url) else {
                return true;
            };
            slot.take(fetched);
            let came = slot.problem.is_none();
            self.publish(slots);
            came
        })
    }

    fn publish(&self, slots: &[Slot]) {
        let now = Arc::new(fleet(slots));
        *self.0.fleet.write().unwrap_or_else(PoisonError::into_inner) = now;
    }

    fn slots<T>(&self, f: impl FnOnce(&mut Vec<Slot>) -> T) -> T {
        f(&mut self.0.slots.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The slot of a source.
fn at<'a>(slots: &'a mut [Slot], url: &str) -> Option<&'a mut Slot> {
    slots.iter_mut().find(|s| s.source.url == url)
}

impl Slot {
    /// Takes what a fetch brought; what fails leaves the document as it was.
    fn take(&mut self, fetched: Result<Fetched, String>) {
        let problem = match fetched {
            Ok(Fetched::Same) => None,
            Ok(Fetched::New { document, etag }) => match self.admit(document) {
                Ok(()) => {
                    self.etag = etag;
                    None
                }
                Err(e) => Some(e),
            },
            Err(e) => Some(e),
        };
        if problem != self.problem {
            match &problem {
                Some(why) => tracing::warn!(source = self.source.url, "cassette: {why}"),
                None => tracing::info!(source = self.source.url, "cassette: its document is fresh"),
            }
        }
        self.problem = problem;
    }

    fn admit(&mut self, document: Box<Document>) -> Result<(), String> {
        let name = &document.manifest.name;
        if let Some(held) = &self.document
            && held.manifest.name != *name
        {
            return Err(format!(
                "the source was admitted as {:?} and now calls itself {name:?}",
                held.manifest.name
            ));
        }
        if OWN.contains(&name.as_str()) {
            return Err(format!("the routes of {name:?} are served by weft itself"));
        }
        self.document = Some(Arc::from(document));
        Ok(())
    }
}

/// What is served: of two sources with one name the earlier.
fn fleet(slots: &[Slot]) -> Fleet {
    let mut out = Fleet::default();
    for slot in slots {
        let source = &slot.source;
        if let Some(p) = &slot.problem {
            out.problems.push((source.url.clone(), p.clone()));
        }
        let Some(document) = &slot.document else {
            continue;
        };
        let name = &document.manifest.name;
        if let Some(other) = out.get(name) {
            out.problems.push((
                source.url.clone(),
                format!("the name {name:?} is that of {} already", other.origin),
            ));
            continue;
        }
        out.installed.push(Installed {
            document: document.clone(),
            origin: source.origin.clone(),
            stale: slot.problem.is_some(),
        });
    }
    out.installed.sort_by(|a, b| a.name().cmp(b.name()));
    out.problems.sort();
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(name: &str) -> Box<Document> {
        let text = format!(
            r#"{{"openapi":"3.1.0","x-tapes-cassette":{{"kind":"cassette/v1alpha1","cassette":{{"name":"{name}","version":"1"}},"depends":{{"core":"v1"}}}}}}"#
        );
        Box::new(Document::read(text.as_bytes()).expect("document"))
    }

    fn new(name: &str) -> Result<Fetched, String> {
        Ok(Fetched::New {
            document: document(name),
            etag: None,
        })
    }

    #[test]
    fn a_source_is_an_absolute_address_without_secrets() {
        for bad in [
            "",
            "/openapi",
            "localhost:80/openapi",
            "ftp://x/openapi",
            "http:///openapi",
            "http://a:b@x/openapi",
            "http://x/openapi#y",
        ] {
            assert!(Source::parse(bad).is_err(), "{bad}");
        }
        let s = Source::parse("http://127.0.0.1:9999/openapi?x=1").expect("source");
        assert_eq!(s.origin, "http://127.0.0.1:9999");
        let two = ["http://a/".to_owned(), "http://a/".to_owned()];
        assert!(Cassettes::new(&two, None).is_err());
    }

    #[test]
    fn what_fails_stays_as_it_was_and_is_told() {
        let mut slots: Vec<Slot> = ["http://a/o", "http://b/o", "http://c/o"]
            .iter()
            .map(|u| Slot::new(Source::parse(u).expect("source")))
            .collect();
        slots[0].take(new("one"));
        slots[1].take(new("one"));
        slots[2].take(Err("connection refused".into()));
        let f = fleet(&slots);
        assert_eq!(
            (f.installed.len(), f.installed[0].origin.as_str()),
            (1, "http://a")
        );
        assert_eq!(f.problems.len(), 2);
        assert!(!f.installed[0].stale);
        // The first source fails: its document is still served. It calls itself otherwise: refused.
        slots[0].take(Err("timed out".into()));
        assert!(fleet(&slots).installed[0].stale);
        slots[0].take(new("two"));
        let f = fleet(&slots);
        assert!(f.get("two").is_none() && f.get("one").is_some_and(|c| c.stale));
        slots[0].take(Ok(Fetched::Same));
        assert!(!fleet(&slots).installed[0].stale);
        slots[2].take(new("search"));
        assert!(
            fleet(&slots)
                .problems
                .iter()
                .any(|p| p.1.contains("weft itself"))
        );
    }
}
