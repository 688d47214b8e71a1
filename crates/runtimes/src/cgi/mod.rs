//! CGI/1.1 (RFC 3875): runs one process per request.
//!
//! `target` finds the program, `meta` builds its environment, `run` starts it and passes data both ways, and `head`
//! parses the header of its answer.

#[cfg(any(test, fuzzing))]
#[path = "../../fuzz/cgi.rs"]
pub(crate) mod fuzz;
mod head;
mod meta;
mod program;
mod target;

pub use program::Cgi;
