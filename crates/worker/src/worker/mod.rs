//! A child that serves: accept, stages, runtime, finish, account, again or retire.
//!
//! Every worker, whether the master or a preloader forked it, is given a [`GenerationContext`] (what its generation shares) and a [`WorkerContext`] (what is its own)
//! and runs the same loop, [`run()`]. A [`Runtime`] only turns a [`Request`] into a response. Knows no master.
//!
//! `keepalive` and `idle_watch` describe how kept connections are dealt with, so that none pins a worker.

mod accept_notify;
mod acceptor;
mod access;
mod backend;
mod begin;
mod builtin;
mod choose;
mod concurrent;
mod connection;
mod context;
mod cpu;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod gauge;
mod idle_watch;
mod keepalive;
mod memory;
mod memory_pace;
mod out_of_band;
mod pool_view;
mod process_settings;
mod promotion;
mod relay;
mod request;
mod restart_file;
mod rewound;
mod routed;
mod run;
mod run_queue;
mod service;
pub mod service_order;
pub mod snapshot;
mod stderr_errors;
pub(crate) mod timeout_response;
mod transfer;
mod unrun;

pub use crate::master::pool_restart::RestartReason;
pub use crate::tick::Tick;
pub use accept_notify::{IS_CANDIDATE, IS_UP, restart_reason, slot, tell_restart};
pub use access::Recorder;
pub use backend::{Backend, BackendStage, BackendState, BackendStatus};
pub use begin::{EXIT_SOFTWARE, begin, begin_concurrent};
pub use concurrent::{Concurrent, Event, OWN, Piece, Records, Sent, Threads, When, Wish, is_of_worker};
pub use context::{ContextError, GenerationContext, Settings, WorkerContext, needs_entrance};
pub use forkyard_protocol::refusals::RefusalCause;
pub(crate) use process_settings::PATH;
pub use process_settings::{
    ProcessSettingsError, apply_environment, apply_process_settings, apply_process_settings_in_child,
    begin_group, environment, redirect_output,
};
pub use promotion::{PROMOTE, Promotion, TERMINATE};
pub use relay::{Peer, Sink, Stop, relay};
pub use request::description;
pub use request::{ClientGone, Request};
pub use restart_file::RestartMark;
pub use rewound::CARRIED;
pub use run::{Worker, run};
pub use timeout_response::install_handlers;
pub use unrun::Unrun;

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
    fn backend(&mut self) -> Option<&mut dyn Backend> {
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
