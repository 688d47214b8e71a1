//! Every test that needs nothing but the library: the simulations, hostile input, files of configuration, and the rules of the
//! house. `scripts/check` runs these; `suite.rs` has the others.

mod applications_sim;
mod config;
mod hostile_input;
mod mutations;
mod random;
mod sim;
mod tidy;
