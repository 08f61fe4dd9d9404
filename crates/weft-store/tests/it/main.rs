//! Both stores, side by side; what only the shared one can suffer is in `shared` and `faults`.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod faults;
mod foreign;
mod model;
mod shared;
mod support;
