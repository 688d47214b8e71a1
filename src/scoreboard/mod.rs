//! The scoreboard: what everybody can see of each worker, in shared memory.
pub mod stage;
