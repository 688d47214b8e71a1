//! The process manager and the application pool in simulated worlds.

mod applications_sim;
#[path = "../../../tests/random/mod.rs"]
mod random;
mod sim;
