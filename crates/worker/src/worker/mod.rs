//! A child that serves: accept, stages, runtime, finish, account, again or retire.
//!
//! Every worker, whoever forked it, is given a [`Kit`] (what its generation shares) and a [`Seat`] (what is its own)
//! and runs the same loop, [`run()`]. A [`Runtime`] only turns a [`Request`] into a response. Knows no master.
//!
//! How kept connections are dealt with so that none pins a worker is told in `held` and `minder`.

mod access;
mod begin;
mod builtin;
mod companion;
mod concurrent;
mod connection;
mod cpu;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod gauge;
mod held;
mod kit;
mod lobby;
mod look;
mod memory;
mod minder;
pub mod order;
mod out_of_band;
mod outlook;
mod promotion;
mod relay;
mod request;
mod routed;
mod run;
mod said;
mod service;
mod settle;
pub mod snapshot;
mod tell;
mod time_up;
mod transfer;

pub use access::Recorder;
pub use begin::begin;
pub use companion::{Companion, Doing, Sight, Standing};
pub use concurrent::{Concurrent, Piece, Sent};
pub use kit::{Kit, KitError, Seat, Settings};
pub use promotion::{PROMOTE, Promotion};
pub use relay::{Peer, Sink, Stop, relay};
pub use request::description;
pub use request::{ClientGone, Request};
pub use run::{Worker, run};
pub use settle::{SettleError, environment, settle, settle_environment, settle_output, settle_own};
pub use tell::{IS_SEASONED, IS_UP};

/// How requests are answered.
pub trait Runtime {
    /// Answers one request: reads its body, writes headers and body as a CGI response (RFC 3875 section 6). When it
    /// returns, what it wrote is sent and the answer is ended.
    fn answer(&mut self, request: &mut Request<'_>);

    /// Makes what the process can't make once it is what its pool says: it still has the master's rights and root
    /// directory, and no thread. `has_elder`: workers of an earlier generation serve the pool, too.
    ///
    /// # Errors
    /// A system call failed; the process has to end.
    fn prepare(&mut self, has_elder: bool) -> Result<(), crate::sys::Error> {
        let _ = has_elder;
        Ok(())
    }

    /// Does the out-of-band work that the application has asked for ([`Request::want_work`]); no client waits meanwhile.
    ///
    /// # Errors
    /// What went wrong, for the log. The worker goes on.
    fn work(&mut self) -> Result<(), String> {
        Ok(())
    }

    /// What has to be looked after between requests.
    fn companion(&mut self) -> Option<&mut dyn Companion> {
        None
    }
}

/// A function is a runtime: it answers what is not the pool's status or ping path.
impl<F: FnMut(&mut Request<'_>)> Runtime for F {
    fn answer(&mut self, request: &mut Request<'_>) {
        if request.is_for_application() {
            self(request);
        }
    }
}
