//! An application pool's router: the real loop and real workers, with the example `router_stand` as master.

mod faults;
mod hostile;
mod limits;
mod requests;
mod stand;
mod syscalls;
