//! A process that serves requests: accept, stages, runtime, finish, account, repeat or exit.
//!
//! Every worker receives a [`GenerationContext`] and a [`WorkerContext`] and runs the same loop, [`run()`]; a
//! [`Runtime`] turns a [`Request`] into a response. `keepalive` and `idle_watch` keep connections from pinning a
//! worker.
#![deny(unsafe_code)]

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
mod dead_work;
#[cfg(any(test, fuzzing))]
#[path = "../fuzz/targets.rs"]
pub mod fuzz;
mod gauge;
mod hand_off;
mod idle_watch;
mod keepalive;
pub mod lanes;
mod memory;
mod memory_pace;
mod out_of_band;
mod page;
mod pool_view;
mod process_settings;
mod promotion;
mod relay;
mod release;
mod request;
mod request_start;
mod restart_file;
mod rewound;
mod route;
mod routed;
mod router_channel;
mod run_queue;
mod samples;
mod sequential;
mod service;
pub mod service_order;
pub mod snapshot;
mod stderr_errors;
mod tally;
pub mod timeout_response;
mod transfer;
mod triage;
mod turns;
mod unrun;
mod wear;

pub use accept_notify::tell_restart;
pub use access::Recorder;
pub use backend::{Backend, BackendStage, BackendState, BackendStatus};
pub use begin::{EXIT_SOFTWARE, begin, begin_concurrent};
pub use concurrent::accepting;
pub use concurrent::{
    Concurrent, Event, OWN, Piece, Records, Sent, Several, Threads, When, Wish, is_of_worker,
};
pub use context::{ContextError, GenerationContext, Settings, WorkerContext, needs_entrance};
pub use forkyard_base::tick::Tick;
pub use forkyard_protocol::accept_notify::RestartReason;
pub use forkyard_protocol::refusals::RefusalCause;
pub use out_of_band::WorkError;
pub use process_settings::PATH;
pub use process_settings::{
    ProcessSettingsError, apply_environment, apply_process_settings, apply_process_settings_in_child,
    begin_group, environment, redirect_output,
};
pub use promotion::Promotion;
pub use relay::{Peer, Sink, Stop, relay};
pub use request::description;
pub use request::{CLIENT_CLOSED, ClientGone, Request};
pub use restart_file::RestartMark;
pub use rewound::CARRIED;
pub use sequential::{Worker, run};
pub use timeout_response::install_handlers;
pub use unrun::Unrun;

/// Answers requests.
pub trait Runtime {
    /// Answers one request: reads its body and writes headers and body as a CGI response (RFC 3875 section 6). When it
    /// returns, the answer is flushed and ended.
    fn answer(&mut self, request: &mut Request<'_>);

    /// Prepares what needs the master's rights and root directory; the process has one thread. `has_elder`: an earlier
    /// generation also serves the pool.
    ///
    /// # Errors
    /// A system call failed; the process must exit.
    fn prepare(&mut self, has_elder: bool) -> Result<(), forkyard_sys::Error> {
        let _ = has_elder;
        Ok(())
    }

    /// The helper to poll between requests.
    fn backend(&mut self) -> Option<&mut dyn Backend> {
        None
    }
}

/// Answers everything except the pool's status and ping paths.
impl<F: FnMut(&mut Request<'_>)> Runtime for F {
    fn answer(&mut self, request: &mut Request<'_>) {
        if request.is_for_application() {
            self(request);
        }
    }
}
