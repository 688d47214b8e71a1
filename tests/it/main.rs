//! End-to-end tests: the real daemon, real front ends, real PHP.

mod applications;
mod documents;
mod faults;
mod kept;
mod processes;
mod protocol;
mod reload;
mod scoreboard;
mod signals;
mod support;
