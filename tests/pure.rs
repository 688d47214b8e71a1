//! Every test that needs nothing but the library: hostile input, files of configuration, and the rules of the source.
//! `scripts/check` runs these, the unit tests, and the simulations in `crates/core/tests`; `suite.rs` has the others.

mod config;
mod hostile_input;
mod mutations;
mod random;
mod tidy;
