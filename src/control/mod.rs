//! Talks to the running daemon: one JSON object a line, over a unix socket.
//!
//! Only root and the user that the daemon runs as may ask for everything; the kernel says who asks. Owners of applications have
//! a socket of their own. Knows no master: the master carries out what is asked.
//! `docs/reference/control.md` describes it for others than forkyard's own command line.

pub mod client;
mod guests;
mod session;

pub use forkyard_protocol::changes;
pub use forkyard_protocol::control as protocol;
pub use forkyard_protocol::last_reload;
pub use forkyard_protocol::logs;
pub use forkyard_protocol::program;
pub use forkyard_protocol::refusals;
pub use guests::{Guests, MOST_GUESTS, owners_socket};
pub use session::{MOST_SESSIONS, Session, SessionInput};
