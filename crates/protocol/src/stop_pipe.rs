//! The master's messages on a worker's stop pipe. Any other message, and the pipe's end, mean exit.

/// Create a preloader. Comes with [`PROMOTION_DESCRIPTORS`].
pub const PROMOTE: &[u8] = b"p";
/// The preloader's channel to the master, its output, and /dev/null, which a chroot may lack.
pub const PROMOTION_DESCRIPTORS: usize = 3;
/// End the longest request, for workers with several.
pub const TERMINATE: &[u8] = b"t";
