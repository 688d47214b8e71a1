//! Every test that runs programs or needs what others wrote, in one program: each program of tests links the whole library.
//! What needs neither is in `pure.rs`.
//!
//! A part alone: `cargo test --test suite router::`, and so on for the names below.

#![allow(unreachable_pub, reason = "a test program has no public interface")]

mod compat;
mod fastcgi_peers;
mod fpm;
mod it;
mod random;
mod router;
mod skip;
mod status_pages;
mod support;
