//! How a request is answered.

pub mod php;
