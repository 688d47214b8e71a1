//! One request at a time: bytes from the connection to the protocol, answers back, stages to the scoreboard.

mod reading;
mod writing;

use super::access::Recorder;
use super::connection::Connection;
use super::context::Settings;
use super::cpu::Cost;
use super::idle_watch::IdleWatch;
use super::memory::Scale;
use super::out_of_band::Want;
use super::routed::Channel;
use super::timeout_response::TimeoutResponse;
use crate::scoreboard::slot_writer::{Description, SlotWriter};
use crate::scoreboard::{Reader, RequestStage, Slot};
use crate::sys::{clock, identity};
use crate::tick::Tick;
use fastcgi::{Output, Params};
use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// Bytes read at once: a request with its parameters and a small body comes with one call.
const INPUT_BYTES: usize = 64 * 1024;
/// Idle connections that a worker may hold at least.
const LEAST_IDLE: usize = 8;
/// Closed connections whose buffers are kept for the next.
const SPARE_CONNECTIONS: usize = 8;

/// Why there is no (further) request on a connection.
#[derive(Debug)]
pub(super) enum NoRequest {
    /// Nothing has come; it may still.
    Silent,
    /// The client closed it between requests.
    Closed,
    /// The caller logs this.
    Failed(String),
}

/// The worker's half that serves.
#[derive(Debug)]
pub(super) struct Service {
    pub(super) settings: Settings,
    pub(super) listener: Arc<OwnedFd>,
    pub(super) board: Arc<Reader>,
    pub(super) idle_watch: IdleWatch,
    slot: Slot,
    pub(super) input: Box<[u8]>,
    pub(super) start: usize,
    pub(super) end: usize,
    output: Output,
    /// The connection whose request is being served; gone once it was closed or kept.
    current: Option<Box<Connection>>,
    #[expect(
        clippy::vec_box,
        reason = "the same boxes come from and go to the held connections"
    )]
    spare: Vec<Box<Connection>>,
    /// Memory for a next request's parameters.
    pub(super) spare_params: Params,
    /// A piece of the body that was decoded and not read yet: `input[from..to]`.
    body: (usize, usize),
    pub(super) body_ended: bool,
    finished: bool,
    client_gone: bool,
    /// Whether the application has asked for out-of-band work.
    pub(super) want: Want,
    /// The runtime wants the worker to end.
    pub(super) leaving: bool,
    /// How many idle connections the scoreboard shows.
    pub(super) kept: Cell<u64>,
    pub(super) taken: Tick,
    /// How long the last two requests took.
    pub(super) took: [Duration; 2],
    pub(super) cpu_micros: u64,
    pub(super) cost: Cost,
    /// Used by a program on behalf of the request.
    pub(super) program_micros: u64,
    /// The access log, if there is one.
    pub(super) recorder: Option<Box<Recorder>>,
    /// What the end of the answer says.
    pub(super) app_status: u32,
    timeout_response: TimeoutResponse,
    /// Where a router gives the worker its connections.
    pub(super) channel: Option<Channel>,
    /// The process of the backend, as last seen, or the one that the last request was passed on to; 0: there is none.
    pub(super) program: i32,
    /// How much memory is used, where that matters.
    pub(super) scale: Option<Scale>,
    /// Idle connections that are held at a time.
    pub(super) most_idle: usize,
}

/// Half of the descriptors that the process may have.
fn most_idle() -> usize {
    let soft = identity::most_descriptors().unwrap_or(0);
    usize::try_from(soft / 2).unwrap_or(usize::MAX).max(LEAST_IDLE)
}

impl Service {
    pub(super) fn new(
        settings: Settings,
        listener: Arc<OwnedFd>,
        board: Arc<Reader>,
        slot: Slot,
        idle_watch: IdleWatch,
        recorder: Option<Box<Recorder>>,
    ) -> Service {
        let scale = Scale::new(&settings.pool);
        Service {
            scale,
            settings,
            listener,
            board,
            idle_watch,
            slot,
            input: vec![0; INPUT_BYTES].into_boxed_slice(),
            start: 0,
            end: 0,
            output: Output::new(),
            current: None,
            spare: Vec::new(),
            spare_params: Params::new(),
            body: (0, 0),
            body_ended: false,
            finished: true,
            client_gone: false,
            want: Want::Nothing,
            leaving: false,
            kept: Cell::new(0),
            taken: Tick::ZERO,
            took: [Duration::ZERO; 2],
            cpu_micros: clock::process_cpu_micros(),
            program_micros: 0,
            cost: Cost::default(),
            recorder,
            app_status: 0,
            timeout_response: TimeoutResponse::default(),
            channel: None,
            program: 0,
            most_idle: most_idle(),
        }
    }

    /// The worker's pen.
    pub(super) fn slot_writer(&self) -> SlotWriter<'_> {
        SlotWriter::new(self.slot.words())
    }

    /// Bytes that were read and belong to a request after the current one.
    pub(super) fn has_input(&self) -> bool {
        self.start < self.end
    }

    pub(super) fn current(&self) -> Option<&Connection> {
        self.current.as_deref()
    }

    pub(super) fn current_mut(&mut self) -> Option<&mut Connection> {
        self.current.as_deref_mut()
    }

    pub(super) fn is_finished(&self) -> bool {
        self.finished
    }

    /// The request is known.
    pub(super) fn describe(&mut self, about: &Description<'_>, params: &Params) {
        self.slot_writer().describe(about);
        if let Some(recorder) = &mut self.recorder {
            let connection = self.current.as_deref_mut().filter(|_| recorder.wants_peer());
            recorder.describe(about, params, connection.and_then(Connection::peer));
        }
    }

    /// Peak memory of the request, bytes.
    pub(super) fn memory(&mut self, bytes: u64) {
        self.slot_writer().memory(bytes);
        if let Some(recorder) = &mut self.recorder {
            recorder.memory(bytes);
        }
    }

    /// Makes `connection` the current one, its first bytes still to be read.
    pub(super) fn attach(&mut self, connection: Box<Connection>) {
        (self.start, self.end) = (0, 0);
        // Whatever became of the connection before, nothing that was meant for it goes out on this one.
        self.output.abandon();
        self.current = Some(connection);
    }

    /// Takes the current connection back.
    pub(super) fn detach(&mut self) -> Option<Box<Connection>> {
        self.timeout_response.disarm();
        self.current.take()
    }

    /// A request begins with the bytes that were just read.
    pub(super) fn begin(&mut self, now: Tick) {
        self.taken = now;
        self.cost.begin(self.took[0]);
        self.app_status = 0;
        self.slot_writer().reading(now);
        if let Some(recorder) = &mut self.recorder {
            recorder.begin(now);
        }
    }

    /// How long the next request will take, most likely: one of two may have been held up.
    pub(super) fn likely_time(&self) -> Duration {
        self.took[0].min(self.took[1])
    }

    /// Closes a connection, keeping its buffers for the next.
    pub(super) fn close(&mut self, mut connection: Box<Connection>) {
        self.idle_watch
            .keepalive()
            .close(&connection, self.idle_watch.epoll());
        connection.hang_up();
        if self.spare.len() < SPARE_CONNECTIONS {
            self.spare.push(connection);
        }
    }

    /// A connection for a new socket.
    pub(super) fn connection(&mut self, socket: OwnedFd) -> Box<Connection> {
        match self.spare.pop() {
            Some(mut spare) => {
                spare.reuse(socket);
                spare
            }
            None => Box::new(Connection::new(
                socket,
                &self.settings.pool.limits,
                self.settings.repeated(),
            )),
        }
    }

    /// Sets the stage.
    pub(super) fn stage(&mut self, stage: RequestStage) {
        self.slot_writer().stage(stage);
        if let (RequestStage::End, Some(recorder)) = (stage, &mut self.recorder) {
            recorder.end();
        }
    }
}
