//! Every test that needs nothing but the library: hostile input, fuzz targets, files of configuration, and the rules of the source.
//! `scripts/check` runs these, the unit tests, and the simulations in `crates/core/tests`; `suite.rs` has the others.

mod config;
mod fuzz;
mod hostile_input;
mod mutations;
mod random;
mod tidy;
