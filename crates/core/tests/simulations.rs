//! Simulations of the process manager, the application pool, and deployments.

mod applications_sim;
mod autopilot_sim;
#[path = "../../../tests/random/mod.rs"]
mod random;
mod release_sim;
mod sim;
mod zygotes_sim;
