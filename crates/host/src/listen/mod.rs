//! Opens listening sockets. A reload keeps the open sockets that are still configured.

mod bind;
mod fpm_sockets;
mod inherited;
mod pause;
mod peers;
mod tenants;

pub use bind::{ListenError, Listener, ListenerState, bind};
pub use inherited::{Inherited, fpm_variables};
pub use pause::{ACCEPT_PAUSE, AcceptPause};
pub use peers::{disallowed, may_connect};
pub use tenants::local_address;
