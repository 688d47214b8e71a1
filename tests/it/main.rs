//! End-to-end tests: the real daemon, real front ends, real PHP.

#![allow(unreachable_pub, reason = "a test program has no public interface")]

mod applications;
mod births;
mod documents;
mod faults;
mod keeper;
mod kept;
mod logs;
mod processes;
mod protocol;
mod reload;
mod runtimes;
mod scoreboard;
mod security;
mod service_manager;
mod signals;
mod storm;
mod support;
mod syscalls;
mod upgrade;
