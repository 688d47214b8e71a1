//! A journey's work directory, for arguments and the response.
//!
//! The top directory is opened before another user can write to it. Later reads are bounded, resolve each name from
//! there and follow no symbolic link.

mod directory;

pub(super) use directory::WorkDirectory;
pub use directory::base::parent;
pub(super) use directory::base::{Base, make_given, one_by_one, remove_given, sweep, unmount_given};
