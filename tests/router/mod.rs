//! The router of an application pool: the real loop and real workers, with the example `router_stand` in the master's
//! place, which says why it is there.

mod faults;
mod hostile;
mod limits;
mod requests;
mod stand;
mod syscalls;
