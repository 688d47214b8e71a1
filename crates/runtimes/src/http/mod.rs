//! A gateway to a program that speaks HTTP/1.1 (RFC 9112): FastCGI in front, kept connections behind.
//!
//! If the pool starts the program's processes, `table` contains their addresses and load.

mod answer;
mod chunks;
#[cfg(any(test, fuzzing))]
#[path = "../../fuzz/http.rs"]
pub(crate) mod fuzz;
pub mod gateway;
mod head;
mod mount;
mod share;
mod table;

pub use share::{Share, table_pages};
