//! Safe wrappers of system calls. They own what they open and name the call that failed.
//!
//! Every unsafe block states its reason.

pub mod accounts;
pub mod acl;
pub mod beneath;
pub mod clock;
pub mod diag;
pub mod dir;
pub mod entry;
pub mod error;
pub mod external;
pub mod fd;
pub mod file;
pub mod guarded;
pub mod heap;
pub mod identity;
pub mod image;
pub mod inherited;
pub mod invocation;
pub mod keyring;
pub mod link;
pub mod lock;
pub mod memfile;
pub mod mounts;
pub mod notify;
pub mod origin;
pub mod other_end;
pub mod peer;
pub mod pidfd;
pub mod process;
pub mod program;
pub mod question;
pub mod received;
pub mod rights;
pub mod sched;
pub mod sender;
pub mod session;
pub mod shared_mappings;
pub mod shm;
pub mod signal;
pub mod socket;
pub mod terminal;
pub mod timeout;
pub mod timeout_responder;
pub mod title;
pub mod tree;

pub use error::{Error, Result};
