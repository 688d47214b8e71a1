//! A gateway to a program that speaks HTTP/1.1 (RFC 9112): FastCGI in front, a kept connection behind.
//!
//! `head` writes a request's head from its parameters, `answer` reads the answer's head and body, `run` connects them.
//! Where the program's processes are started for the pool, `table` says where they are and how busy; `program` chooses.

mod answer;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod head;
mod program;
mod run;
mod share;
mod table;

pub use run::Http;
pub use share::{Share, table_pages};
