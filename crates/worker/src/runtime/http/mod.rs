//! A gateway to a program that speaks HTTP/1.1 (RFC 9112): FastCGI in front, kept connections behind.
//!
//! `head` writes a request's head from its parameters, `answer` reads the answer's head and body, `gateway` connects them.
//! Where the program's processes are started for the pool, `table` says where they are and how busy.

mod answer;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
pub mod gateway;
mod head;
mod mount;
mod share;
mod table;

pub use share::{Share, table_pages};
