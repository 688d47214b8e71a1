//! What a client of the control sockets may do.

/// The rights of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rights {
    /// Everything: root and the daemon's own user.
    All,
    /// The user's own applications.
    Own(u32),
}
