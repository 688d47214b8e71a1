//! A child that serves: accept, stages, runtime, finish, account, again or retire.
//!
//! Every worker, whoever forked it, is given a [`Kit`] (what its generation shares) and a [`Seat`] (what is its own)
//! and runs the same loop, [`run`]. A [`Runtime`] only turns a [`Request`] into a response. Knows no master.
//!
//! How kept connections are dealt with so that none pins a worker is told in `held` and `minder`.

mod access;
mod builtin;
mod connection;
mod held;
mod kit;
mod lobby;
mod minder;
mod promotion;
mod relay;
mod request;
mod run;
mod service;
mod settle;
pub mod snapshot;
mod time_up;
mod transfer;

pub use kit::{Kit, KitError, Seat, Settings};
pub use lobby::{IS_SEASONED, IS_UP};
pub use promotion::{PROMOTE, Promotion};
pub use relay::{Peer, Sink, Stop, relay};
pub use request::{ClientGone, Request};
pub use run::{Worker, run};
pub use settle::{SettleError, environment, settle, settle_environment, settle_output, settle_own};

/// How requests are answered.
pub trait Runtime {
    /// Answers one request: reads its body, writes headers and body as a CGI response (RFC 3875 section 6). When it
    /// returns, what it wrote is sent and the answer is ended.
    fn answer(&mut self, request: &mut Request<'_>);
}

/// A function is a runtime: it answers what is not the pool's status or ping path.
impl<F: FnMut(&mut Request<'_>)> Runtime for F {
    fn answer(&mut self, request: &mut Request<'_>) {
        if request.is_for_application() {
            self(request);
        }
    }
}
