//! What a descriptor is, as far as it matters to what a daemon leaves to the next one.

/// What a descriptor is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A stream socket that listens.
    Listener,
    Stream,
    /// A socket that keeps messages apart, in order (SOCK_SEQPACKET).
    Packets,
    /// A pipe's end to read from.
    PipeOut,
    /// A pipe's end to write to.
    PipeIn,
    /// A memory file that can neither grow nor shrink, of so many whole pages.
    Memory(usize),
    Other,
}
