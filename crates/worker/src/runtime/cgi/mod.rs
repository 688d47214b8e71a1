//! CGI/1.1 (RFC 3875): a process for each request.
//!
//! [`Cgi`] is a runtime for a worker. `target` finds the program and `meta` makes its environment, both from the
//! request's parameters; `head` reads the header of its answer; `run` starts it and passes bytes both ways.

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod head;
mod meta;
mod run;
mod target;

pub use run::Cgi;
