//! The router of an application pool: the real loop and real workers, with the example `router_stand` in the master's place,
//! which says why it is there.

#![allow(unreachable_pub, reason = "a test program has no public interface")]

mod faults;
mod hostile;
mod limits;
#[path = "../random/mod.rs"]
mod random;
mod requests;
mod stand;
#[path = "../it/support/mod.rs"]
#[allow(dead_code, reason = "shared with the other tests")]
mod support;
mod syscalls;
