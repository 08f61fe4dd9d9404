//! What moving from one store to another needs beside the reads and writes of every day.

use crate::vectors::{ModelInfo, StoredVectors};
use crate::{NewTurn, Result, TokenRow};

/// Reading a store whole, and writing it so that a broken-off run goes on where it was.
pub trait Transfer {
    /// Turns behind an id, whole and in order, without their session blocks' rows.
    fn turns_after(&self, after: i64, limit: usize) -> Result<Vec<(i64, NewTurn)>>;

    /// Stores turns of another store and notes, in the same transaction, up to which of its ids they
    /// reach. Returns how many were new.
    fn put_transferred(&self, from: &str, turns: Vec<(i64, NewTurn)>) -> Result<usize>;

    /// The id up to which turns of another store have arrived; 0 = none.
    fn transferred(&self, from: &str) -> Result<i64>;

    /// All tokens with their hashes.
    fn token_hashes(&self) -> Result<Vec<([u8; 32], TokenRow)>>;

    /// Repositories of which anything is kept.
    fn repository_ids(&self) -> Result<Vec<String>>;

    /// The vectors of texts, of those that have any.
    fn vectors_of(&self, model: &ModelInfo, hashes: &[[u8; 32]]) -> Result<Vec<StoredVectors>>;
}
