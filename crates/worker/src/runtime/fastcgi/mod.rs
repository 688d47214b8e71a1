//! A program that speaks FastCGI, one for each worker: FastCGI in front, FastCGI behind.
//!
//! The program finds a listening socket as its standard input (FCGI_LISTENSOCK_FILENO, FastCGI Specification section 2.2) and
//! is the worker's child. [`FastCgi`] is the runtime. `program_socket` is the socket, `program` the process, `probe` asks whether it
//! takes requests, `start` is a start that is under way, `supervisor` has the program's life as a table and looks after it
//! between requests, `exchange` passes one request on and its answer back, `recorded` writes its records.
//!
//! The program is not trusted: what it answers is checked, what it leaves open is bounded.

mod exchange;
mod head_end;
mod probe;
mod program;
mod program_socket;
mod recorded;
mod run;
mod start;
mod supervisor;

pub use run::{FastCgi, plan};
