//! End-to-end tests: the real daemon, real front ends, real PHP.

#![allow(unreachable_pub, reason = "a test program has no public interface")]

mod accepts;
mod access;
mod applications;
mod births;
mod check;
mod control;
mod documents;
mod emergency;
mod faults;
mod glance;
mod keeper;
mod kept;
mod logs;
mod numbers;
mod on_error;
mod order;
mod preloader_shared;
mod processes;
mod protocol;
#[path = "../random/mod.rs"]
mod random;
mod reload;
mod reporter;
mod runtimes;
mod scoreboard;
mod scrapers;
mod security;
mod service_manager;
mod signals;
mod sites;
#[path = "../skip/mod.rs"]
mod skip;
mod slow;
mod sockets;
mod spawning;
mod starts;
mod storm;
mod support;
mod syscalls;
mod terminate;
mod upgrade;
mod web_servers;
