//! Tests of weft-code over its public interface.

mod languages;
mod walking;
