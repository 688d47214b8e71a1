//! Every test that runs programs or needs what others wrote, in one program: each program of tests links the whole
//! library.

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
