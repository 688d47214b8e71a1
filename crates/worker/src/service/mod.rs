//! Serves one request at a time: reads from the connection, writes answers, updates the scoreboard.

mod reading;
mod writing;

use super::access::Recorder;
use super::connection::Connection;
use super::context::{Settings, most_descriptors};
use super::cpu::Cost;
use super::idle_watch::IdleWatch;
use super::page::Page;
use super::release::ReleasePaths;
use super::routed;
use super::router_channel::{Router, Session};
use super::tally::Tally;
use super::timeout_response::TimeoutResponse;
use super::wear::Wear;
use fastcgi::{Output, Params};
use forkyard_base::tick::Tick;
use forkyard_scoreboard::RequestStage;
use forkyard_scoreboard::slot_writer::{Description, SlotWriter};
use forkyard_sys::{clock, received};
use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// Bytes per read; usually holds a request's parameters and a small body.
const INPUT_BYTES: usize = 64 * 1024;
const LEAST_IDLE: usize = 8;
const SPARE_CONNECTIONS: usize = 8;

#[derive(Debug)]
pub(super) enum NoRequest {
    Silent,
    Closed,
    Failed(String),
}

#[derive(Debug)]
pub(super) struct Service {
    pub(super) settings: Settings,
    pub(super) release: ReleasePaths,
    pub(super) listener: Arc<OwnedFd>,
    pub(super) page: Page,
    pub(super) idle_watch: IdleWatch,
    pub(super) input: Box<[u8]>,
    pub(super) start: usize,
    pub(super) end: usize,
    output: Output,
    pub(super) current: Option<Box<Connection>>,
    #[expect(
        clippy::vec_box,
        reason = "the same boxes come from and go to the held connections"
    )]
    spare: Vec<Box<Connection>>,
    pub(super) spare_params: Option<Box<Params>>,
    /// Decoded body data not yet read: `input[from..to]`.
    body: (usize, usize),
    pub(super) body_ended: bool,
    pub(super) finished: bool,
    /// The client has closed its side in the middle of the body.
    input_ended: bool,
    pub(super) client_gone: bool,
    pub(super) tally: Tally,
    /// Idle connections shown in the scoreboard.
    pub(super) kept: Cell<u64>,
    pub(super) taken: Tick,
    /// The durations of the last two requests.
    pub(super) took: [Duration; 2],
    pub(super) cpu_micros: u64,
    pub(super) cost: Cost,
    pub(super) program_micros: u64,
    pub(super) recorder: Option<Box<Recorder>>,
    pub(super) app_status: u32,
    timeout_response: TimeoutResponse,
    pub(super) router: Router,
    /// The router has given the connection.
    pub(super) session: Option<Session>,
    pub(super) wear: Wear,
    /// The most idle connections to hold.
    pub(super) most_idle: usize,
}

impl Service {
    pub(super) fn new(
        settings: Settings,
        listener: Arc<OwnedFd>,
        page: Page,
        router: Router,
        idle_watch: IdleWatch,
        recorder: Option<Box<Recorder>>,
    ) -> Service {
        let input_bytes = if router.is_there() {
            routed::INPUT_BYTES
        } else {
            INPUT_BYTES
        };
        Service {
            wear: Wear::new(&settings),
            release: ReleasePaths::of(&settings),
            settings,
            listener,
            page,
            idle_watch,
            input: vec![0; input_bytes].into_boxed_slice(),
            start: 0,
            end: 0,
            output: Output::new(),
            current: None,
            spare: Vec::new(),
            spare_params: None,
            body: (0, 0),
            body_ended: false,
            finished: true,
            input_ended: false,
            client_gone: false,
            tally: Tally::default(),
            kept: Cell::new(0),
            taken: Tick::ZERO,
            took: [Duration::ZERO; 2],
            cpu_micros: clock::process_cpu_micros(),
            program_micros: 0,
            cost: Cost::default(),
            recorder,
            app_status: 0,
            timeout_response: TimeoutResponse::default(),
            router,
            session: None,
            most_idle: (most_descriptors() / 2).max(LEAST_IDLE),
        }
    }

    pub(super) fn slot_writer(&self) -> SlotWriter<'_> {
        self.page.writer()
    }

    pub(super) fn has_input(&self) -> bool {
        self.start < self.end
    }

    pub(super) fn current(&self) -> Option<&Connection> {
        self.current.as_deref()
    }

    pub(super) fn current_mut(&mut self) -> Option<&mut Connection> {
        self.current.as_deref_mut()
    }

    /// Maps the paths of the request to the generation's release.
    pub(super) fn map_release(&mut self) {
        if let Some(connection) = self.current.as_deref_mut() {
            self.release.apply(connection.responder.params_mut(), &self.page);
        }
    }

    pub(super) fn describe(&mut self, about: &Description<'_>, params: &Params) {
        self.slot_writer().describe(about);
        self.find_route(about, params);
        if let Some(recorder) = &mut self.recorder {
            let connection = self.current.as_deref_mut().filter(|_| recorder.wants_peer());
            recorder.describe(about, params, connection.and_then(|it| it.client.peer()));
        }
    }

    pub(super) fn memory(&mut self, bytes: u64) {
        self.tally.growth = self.slot_writer().memory(bytes);
        self.tally.memory = Some(bytes);
        if let Some(recorder) = &mut self.recorder {
            recorder.memory(bytes);
        }
    }

    pub(super) fn attach(&mut self, connection: Box<Connection>) {
        (self.start, self.end) = (0, 0);
        // Output of an earlier connection must not go to this one.
        self.output.abandon();
        self.current = Some(connection);
    }

    pub(super) fn detach(&mut self) -> Option<Box<Connection>> {
        self.timeout_response.disarm();
        self.current.take()
    }

    pub(super) fn begin(&mut self, now: Tick) {
        self.taken = now;
        self.cost.begin(self.took[0]);
        super::samples::begin(&self.page, now);
        self.app_status = 0;
        self.tally.begin();
        self.slot_writer().reading(now);
        if let Some(recorder) = &mut self.recorder {
            recorder.begin(now);
        }
    }

    /// The likely duration of the next request; one of two may have been delayed.
    pub(super) fn likely_time(&self) -> Duration {
        self.took[0].min(self.took[1])
    }

    pub(super) fn close(&mut self, mut connection: Box<Connection>) {
        self.idle_watch
            .keepalive()
            .close(&connection, self.idle_watch.epoll());
        connection.client.hang_up();
        if self.spare.len() < SPARE_CONNECTIONS {
            self.spare.push(connection);
        }
    }

    pub(super) fn connection(&mut self, socket: OwnedFd) -> Box<Connection> {
        Connection::begin(self.spare.pop(), socket, &self.settings)
    }

    pub(super) fn stage(&mut self, stage: RequestStage) {
        self.slot_writer().stage(stage);
        if let (RequestStage::End, Some(recorder)) = (stage, &mut self.recorder) {
            recorder.end(*self.tally.ended.get_or_insert_with(clock::now));
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        received::end();
    }
}
