//! The control protocol: one JSON object per line over a unix socket, documented in `docs/reference/control.md`.
//!
//! Only root and the daemon's user may send every request; the kernel provides the peer's credentials. Application
//! owners have a separate socket. The master executes the requests.

pub(crate) mod clients;
pub(crate) mod end_request;
mod guests;
pub(crate) mod meant;
mod session;

pub use guests::{Guests, MOST_GUESTS};
pub use session::{MOST_SESSIONS, Session, SessionInput};
