//! Runs a FastCGI program as the worker's child and passes requests to it.
//!
//! The program's standard input is a listening socket (FCGI_LISTENSOCK_FILENO, FastCGI Specification section 2.2). The
//! program is not trusted: its answers are checked and everything it sends is bounded.

mod exchange;
mod head_end;
mod probe;
mod program;
mod program_socket;
mod recorded;
mod runtime;
mod start;
mod supervisor;

pub use runtime::{FastCgi, plan};
