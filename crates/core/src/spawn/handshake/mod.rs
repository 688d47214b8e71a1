//! The files exchanged with the new process: arguments and response. The response is untrusted.

pub mod arguments;
pub mod properties;
pub mod response;
