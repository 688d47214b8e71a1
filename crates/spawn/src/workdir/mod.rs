//! The work directory of a journey: where arguments are found and the response is written.
//!
//! Its top is opened while no other user can write to it. What is read later is looked up from there, name by name, and
//! no symbolic link is followed. What is read is bounded.

mod effects;

pub(super) use effects::WorkDirectory;
pub use effects::base::parent;
pub(super) use effects::base::{Base, make_given, one_by_one, remove_given, sweep, unmount_given};
