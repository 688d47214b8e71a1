//! Tests that run programs or need other software, in one program: each test program links the whole library.

#![allow(unreachable_pub, reason = "a test program has no public interface")]

#[macro_use]
mod skip;

mod compat;
mod fastcgi_peers;
mod fpm;
mod it;
mod random;
mod router;
mod status_pages;
mod support;
