//! A journey's work directory, for arguments and the response.
//!
//! The top directory is opened before another user can write to it. Later reads are bounded, resolve each name from
//! there and follow no symbolic link.

mod effects;

pub(super) use effects::WorkDirectory;
pub use effects::base::parent;
pub(super) use effects::base::{Base, make_given, one_by_one, remove_given, sweep, unmount_given};
