//! Simulations of the process manager and the application pool.

mod applications_sim;
mod autopilot_sim;
#[path = "../../../tests/random/mod.rs"]
mod random;
mod sim;
mod zygotes_sim;
