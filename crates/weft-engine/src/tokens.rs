//! Making tokens of the HTTP API.

use sha2::{Digest, Sha256};
use uuid::Uuid;
use weft_store::{Scope, StoreError, TokenRow};

use crate::{Engine, now};

impl Engine {
    /// Makes a token of 244 random bits; returns its id and the token, of which only the hash is kept.
    ///
    /// # Errors
    /// Where the store cannot be written.
    pub fn create_token(
        &self,
        scope: Scope,
        name: &str,
        repositories: Vec<String>,
    ) -> Result<(String, String), StoreError> {
        let token = format!(
            "weft_{}{}",
            Uuid::new_v4().simple(),
            Uuid::new_v4().simple()
        );
        let hash: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        let row = TokenRow {
            id: Uuid::new_v4().simple().to_string()[..12].to_owned(),
            name: name.to_owned(),
            scope,
            repositories,
            created_at: now(),
        };
        self.store.put_token(hash, &row)?;
        Ok((row.id, token))
    }
}
