//! What the new process and we write to each other: the arguments that it is given, and its response.
//!
//! Everything in a response is written by the application and may be wrong on purpose.

pub mod arguments;
pub mod properties;
pub mod response;
