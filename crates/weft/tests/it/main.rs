//! The program as its users run it: command lines, servers on sockets, kills.
#![allow(clippy::unwrap_used, reason = "tests")]

mod agents;
mod cassettes;
mod cli;
mod clients;
mod code;
mod conformance;
mod contract;
mod decisions;
mod http;
mod kills;
mod mcp;
mod postgres;
mod proxy;
mod support;
