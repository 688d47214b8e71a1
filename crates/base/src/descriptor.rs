//! Kinds of descriptors that a master passes to its successor.

/// Kind of a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A listening stream socket.
    Listener,
    Stream,
    /// A SOCK_SEQPACKET socket.
    Packets,
    /// Read end of a pipe.
    PipeOut,
    /// Write end of a pipe.
    PipeIn,
    /// A memory file of fixed size, in pages.
    Memory(usize),
    Other,
}
