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

use httparse::Status;

/// Reads a chunk's size with its extensions: the bytes used, and the size. `None`: it is none, or another reader could find another
/// (RFC 9112 section 7.1): it has no digit, or a line ends in it by a line feed alone.
fn chunk_size(bytes: &[u8]) -> Option<Status<(usize, u64)>> {
    if bytes.first().is_some_and(|byte| !byte.is_ascii_hexdigit()) {
        return None;
    }
    let read = httparse::parse_chunk_size(bytes).ok()?;
    let line = match read {
        Status::Complete((used, _)) => &bytes[..used.saturating_sub(1)],
        Status::Partial => bytes,
    };
    (!line.contains(&b'\n')).then_some(read)
}
