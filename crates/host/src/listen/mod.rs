//! Listening sockets: which are to be there, and bringing them into being.
//!
//! The plan is pure; `effects` binds. A socket that is wanted and already open is adopted as it is, so that a reload
//! never closes one that goes on being served.

mod effects;
mod fpm_sockets;
mod inherited;
mod pause;
mod peers;
mod tenants;

pub use effects::{ListenError, Listener, ListenerState, bind};
pub use inherited::{Inherited, fpm_variables};
pub use pause::{ACCEPT_PAUSE, AcceptPause};
pub use peers::{disallowed, may_connect};
pub use tenants::local_address;
