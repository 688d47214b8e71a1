//! A gateway to a program that speaks HTTP/1.1 (RFC 9112): FastCGI in front, kept connections behind.
//!
//! If the pool starts the program's processes, `table` contains their addresses and load.

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

/// Parses a chunk size with its extensions. Returns the bytes used and the size. `None`: no digit, or the line ends
/// with a bare LF, which other parsers may read differently (RFC 9112 section 7.1).
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
