//! Configuration: what the operator wrote, turned into what it means.

mod model;

pub use model::*;
