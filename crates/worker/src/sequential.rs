//! A worker's loop.

use super::acceptor::{Acceptor, FIRST_KEEPALIVE, Work};
use super::backend::{Backend, BackendState, show, stand_by};
use super::context::{GenerationContext, WorkerContext};
use super::dead_work::Dead;
use super::idle_watch::IdleWatch;
use super::lanes::LaneQueues;
use super::memory::Occasion;
use super::out_of_band::{WorkError, report};
use super::page::Page;
use super::promotion::Promotion;
use super::request::Request;
use super::router_channel::Router;
use super::service::{NoRequest, Service};
use super::stderr_errors;
use super::timeout_response::install_handlers;
use super::turns::TurnQueues;
use super::{EXIT_SOFTWARE, Runtime};
use forkyard_base::tick::Tick;
use forkyard_config::{Pool, ProcessManager};
use forkyard_protocol::accept_notify::RestartReason;
use forkyard_protocol::counters::ExitCause;
use forkyard_scoreboard::{LaneMapping, RequestStage, header};
use forkyard_sys::error::Named;
use forkyard_sys::fd::{unread, unread_by_peer};
use forkyard_sys::{Error, clock};
use nix::sys::epoll::{Epoll, EpollCreateFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

/// How long to wait for a new connection's first byte. Web servers write right after connecting, so this usually saves
/// a registration.
pub(super) const FIRST_BYTE_TIMEOUT: Duration = Duration::from_millis(1);

/// Serves until told to exit; returns the exit code. Signals must be at their defaults, identity and environment set,
/// and the application loaded.
pub fn run(context: GenerationContext, own: WorkerContext, runtime: &mut dyn Runtime) -> i32 {
    match Worker::begin(context, own) {
        Ok(mut worker) => {
            worker.watch_backend(runtime.backend());
            loop {
                while worker.advance_with(runtime.backend()) {
                    let mut request = worker.request();
                    runtime.answer(&mut request);
                    request.release();
                }
                // The next call reports the work as unsupported.
                if !worker.has_out_of_band_work() {
                    break;
                }
            }
            if let Some(backend) = runtime.backend() {
                backend.leave();
            }
            worker.exit_code()
        }
        Err(error) => {
            log::error!("worker failed to initialize: {error}");
            EXIT_SOFTWARE
        }
    }
}

/// A worker for callers with their own loop: [`Worker::advance`], [`Worker::request`], repeat. [`run`] is such a loop.
#[derive(Debug)]
pub struct Worker {
    pub(super) service: Service,
    pub(super) acceptor: Acceptor,
    /// Whether the master logs its output.
    caught: bool,
    pub(super) phase: WorkerPhase,
    /// It holds no connection during a request.
    pub(super) releases: bool,
}

/// A worker's state between two calls.
///
/// ```text
///            connection            request
///   Waiting ───────────────▶ Connection ──────▶ Request
///     ▲ ▲                   │      ▲           │
///     │ └──── no request ───┘      └─ another ─┤
///     └──────── nothing more was sent ─────────┘      Waiting or Request, told to exit or worn out: Ended
///                                                     Waiting, told to create a preloader: Aside, then Ended
///                                                     Waiting, out-of-band work: Working, then Waiting
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WorkerPhase {
    Waiting,
    Connection,
    Request,
    /// About to create a preloader.
    Aside,
    Working,
    Ended(i32),
}

/// Whether workers may leave new connections to siblings. Not if the master forks for waiting connections.
fn may_leave_connections(pool: &Pool) -> bool {
    let has_siblings = pool.pm.max_children() > 1;
    let forks_for_connections = matches!(
        pool.pm,
        ProcessManager::Ondemand { .. } | ProcessManager::Ordered { .. }
    );
    pool.serving.wait_for_cpu && has_siblings && !forks_for_connections
}

impl Worker {
    /// See [`run`] for the requirements.
    ///
    /// # Errors
    /// A system call failed; the process must exit.
    pub fn begin(mut context: GenerationContext, own: WorkerContext) -> Result<Worker, Error> {
        stderr_errors::at_begin(&context.settings.pool);
        context.keep_accept_from_waiting();
        install_handlers(&context, own.slot);
        let page = Page::open(&context, own.slot)?;
        let slots = context.settings.slots as usize;
        let turns = TurnQueues::of(&mut context);
        let lanes = match context.settings.pool.load.lanes {
            Some(_) => LaneMapping::map(context.board_writable.as_fd(), slots)?,
            None => None,
        };
        let lanes = LaneQueues::new(&context.settings, context.lanes, lanes, own.slot as usize);
        drop(context.board_writable);
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).named("epoll_create1", "")?;
        let listener = Arc::new(context.listener);
        let time_limit = context.settings.pool.serving.request_terminate_timeout;
        let (for_watch, its_board) = (Arc::clone(&listener), Arc::clone(&page.board));
        let idle_watch = IdleWatch::new(epoll, context.queue_in, for_watch, its_board, time_limit)
            .named("eventfd2", "")?;
        let recorder = page.recorder(&context.settings, context.access);
        let router = Router::new(own.channel);
        let mut service = Service::new(context.settings, listener, page, router, idle_watch, recorder);
        if !service.router.is_there() && may_leave_connections(&service.settings.pool) {
            service.cost.measure();
        }
        service.page.begin();
        let acceptor = Acceptor::open(
            &service,
            own.slot,
            own.stop_pipe,
            (context.queue_out, lanes, turns),
            context.accept_notify,
        )
        .named("epoll_ctl", "")?;
        Ok(Worker {
            service,
            acceptor,
            caught: own.output.is_some(),
            phase: WorkerPhase::Waiting,
            releases: false,
        })
    }

    fn watch_backend(&mut self, backend: Option<&mut dyn Backend>) {
        let Some(backend) = backend else { return };
        if let Err(errno) = self.acceptor.watch_backend(&self.service, backend.watch()) {
            log::error!("worker can't go on: epoll_ctl: {errno}");
            self.phase = WorkerPhase::Ended(EXIT_SOFTWARE);
        }
    }

    /// Ends the current request and waits for the next. Returns false if the process must exit, create a preloader
    /// ([`Worker::must_promote`]) or do out-of-band work ([`Worker::has_out_of_band_work`]). After the last two, call it again;
    /// after a promotion it returns false and the process exits.
    pub fn advance(&mut self) -> bool {
        self.advance_with(None)
    }

    fn advance_with(&mut self, mut backend: Option<&mut dyn Backend>) -> bool {
        loop {
            self.phase = match self.phase {
                WorkerPhase::Waiting => {
                    let phase = match &mut backend {
                        None => self.wait(None),
                        Some(backend) => self.wait_with(*backend),
                    };
                    if matches!(phase, WorkerPhase::Aside | WorkerPhase::Working) {
                        self.phase = phase;
                        return false;
                    }
                    phase
                }
                WorkerPhase::Aside => {
                    self.acceptor.promotion = None;
                    self.end(0)
                }
                WorkerPhase::Working => {
                    self.out_of_band_done(Err(WorkError::Unsupported));
                    WorkerPhase::Waiting
                }
                WorkerPhase::Connection => match self.begin_request() {
                    Ok(()) if self.is_dead() => WorkerPhase::Request,
                    Ok(()) => {
                        self.phase = WorkerPhase::Request;
                        return true;
                    }
                    Err(none) => self.leave_connection(Err(none)),
                },
                WorkerPhase::Request => self.end_request(),
                WorkerPhase::Ended(_) => return false,
            };
        }
    }

    /// The request that [`Worker::advance`] found. Release it before the next, to reuse its memory.
    pub fn request(&mut self) -> Request<'_> {
        Request::new(&mut self.service)
    }

    /// Whether the process should create a preloader. It has no request and no thread of this library.
    pub fn must_promote(&self) -> bool {
        self.phase == WorkerPhase::Aside && self.acceptor.promotion.is_some()
    }

    /// Whether the process should do out-of-band work and then call [`Worker::out_of_band_done`].
    pub fn has_out_of_band_work(&self) -> bool {
        self.phase == WorkerPhase::Working
    }

    /// Ends out-of-band work, if any; an error is logged.
    pub fn out_of_band_done(&mut self, outcome: Result<(), WorkError>) {
        if !self.has_out_of_band_work() {
            return;
        }
        let is_well = report(outcome);
        let service = &mut self.service;
        let took = clock::now().since(service.taken);
        service.slot_writer().finished(took.as_micros() as u64, 0);
        service.idle_watch.end();
        if self.caught {
            self.end_output();
        }
        let service = &mut self.service;
        service.router.end_work(is_well);
        self.phase = WorkerPhase::Waiting;
    }

    /// The descriptors for the preloader.
    pub fn take_promotion(&mut self) -> Option<Promotion> {
        self.acceptor.promotion.take()
    }

    /// Requests new processes, because the code dates from `since`. Repeat between requests while this holds: the
    /// master may be busy.
    pub fn ask_restart(&mut self, why: RestartReason, since: Tick) {
        self.acceptor.notifier.ask_restart(why, clock::now(), since);
    }

    /// Why the worker is about to exit on its own: its limit of requests or memory.
    pub fn is_worn_by(&self) -> Option<ExitCause> {
        let wear = &self.service.wear;
        match wear.has_served_all() {
            true => Some(ExitCause::LoopRequests),
            false => wear.is_over.then_some(ExitCause::LoopMemory),
        }
    }

    /// Makes the worker exit if the runtime's heap alone exceeds the memory limit. All memory is measured only now and
    /// then.
    pub fn limit_heap(&mut self, bytes: u64) {
        let limit = self.service.settings.pool.retirement.memory_limit;
        if !self.service.wear.is_over && limit.is_some_and(|limit| bytes > limit) {
            super::memory::say_replaced(bytes >> 20);
            self.service.wear.is_over = true;
        }
    }

    /// Records in the slot why the worker exits, for the master. `reason`: the code of why it could not be rewound.
    pub fn record_exit_cause(&self, cause: ExitCause, reason: Option<u8>) {
        self.service.slot_writer().leaving(cause, reason);
    }

    /// The exit code, after the last request.
    pub fn exit_code(&self) -> i32 {
        match self.phase {
            WorkerPhase::Ended(code) => code,
            _ => EXIT_SOFTWARE,
        }
    }

    fn wait_with(&mut self, backend: &mut dyn Backend) -> WorkerPhase {
        show(backend, &mut self.service);
        match stand_by(backend, &self.acceptor, &mut self.service) {
            Ok(()) => {}
            Err(BackendState::Lost) => return self.end(EXIT_SOFTWARE),
            Err(BackendState::Ready | BackendState::Pending) => return self.end(0),
        }
        let phase = self.wait(backend.deadline());
        if phase == WorkerPhase::Waiting {
            backend.poll();
        }
        phase
    }

    fn wait(&mut self, backend: Option<Tick>) -> WorkerPhase {
        match self.acceptor.next(&mut self.service, backend) {
            Work::Backend => WorkerPhase::Waiting,
            Work::Connection(mut connection) => {
                if let Some(waiting) = connection.waiting.take() {
                    self.service.tally.waited = clock::now().since(waiting.since);
                }
                let Some(connection) = self.acceptor.sort(&mut self.service, connection) else {
                    return WorkerPhase::Waiting;
                };
                self.service.attach(connection);
                self.acceptor.part_with_new(&mut self.service);
                let new = self.service.current().is_some_and(|c| !c.client.spoken);
                let timeout = if new { FIRST_BYTE_TIMEOUT } else { Duration::ZERO };
                match self.service.fill(timeout) {
                    Ok(()) => WorkerPhase::Connection,
                    Err(none) => self.leave_connection(Err(none)),
                }
            }
            Work::Promote => {
                self.service.idle_watch.pause();
                WorkerPhase::Aside
            }
            Work::OutOfBand => {
                self.service.idle_watch.begin(clock::now());
                WorkerPhase::Working
            }
            Work::Attached if self.service.has_input() => WorkerPhase::Connection,
            Work::Attached => match self.service.fill(FIRST_BYTE_TIMEOUT) {
                Ok(()) => WorkerPhase::Connection,
                Err(none) => self.leave_connection(Err(none)),
            },
            Work::Retire => self.end(0),
            Work::Failed(failure) => {
                log::error!("worker can't go on: {failure}");
                self.end(EXIT_SOFTWARE)
            }
        }
    }

    pub(super) fn end(&mut self, code: i32) -> WorkerPhase {
        self.acceptor.hand_off_all(&mut self.service);
        self.acceptor.leave_parked(&self.service);
        self.service.page.rest(clock::now());
        WorkerPhase::Ended(code)
    }

    fn begin_request(&mut self) -> Result<(), NoRequest> {
        let begun = clock::now();
        if self.releases {
            self.part_with_held();
        }
        let service = &mut self.service;
        service.begin(begun);
        service.idle_watch.begin(begun);
        if let Err(none) = service.read_request() {
            service.idle_watch.end();
            return Err(none);
        }
        if let Some(connection) = service.current_mut() {
            connection.asked = true;
        }
        service.map_release();
        service.stage(RequestStage::Info);
        Ok(())
    }

    /// Answers a request that must not begin.
    fn is_dead(&mut self) -> bool {
        let lanes = self.acceptor.lanes.as_deref_mut();
        let is_refused = lanes.is_some_and(|lanes| std::mem::take(&mut lanes.is_refused));
        let low = self.acceptor.lanes.as_deref().filter(|lanes| lanes.is_low());
        let dead = match self.service.judge(low) {
            None if is_refused => Some(Dead::Overload),
            dead => dead,
        };
        let Some(dead) = dead else {
            if let Some(lanes) = &self.acceptor.lanes {
                lanes.count(self.service.tally.waited);
            }
            return false;
        };
        let now = clock::now();
        let mut request = self.request();
        request.describe_from_params();
        request.die(dead, now);
        request.release();
        true
    }

    pub(super) fn end_request(&mut self) -> WorkerPhase {
        let service = &mut self.service;
        service.stage(RequestStage::End);
        let _ = service.finish();
        let is_dead = service.tally.dead.is_some();
        if !is_dead {
            service.wear.served += 1;
            service.limit_memory(self.releases);
        }
        let ended = clock::now();
        service.account(ended);
        if let Some(lanes) = &mut self.acceptor.lanes {
            lanes.end(ended);
        }
        service.idle_watch.end();
        if self.caught {
            self.end_output();
        }
        let service = &mut self.service;
        if !is_dead && service.wear.is_candidate() {
            self.acceptor.notifier.tell_mold_candidate();
        }
        if service.router.is_there() || !service.has_input() || service.wear.is_worn_out() {
            return self.leave_connection(Ok(()));
        }
        self.acceptor.take_up(&mut self.service);
        WorkerPhase::Connection
    }

    fn leave_connection(&mut self, outcome: Result<(), NoRequest>) -> WorkerPhase {
        if let Some(lanes) = &mut self.acceptor.lanes {
            lanes.end(clock::now());
        }
        let may_go_on = matches!(outcome, Ok(()) | Err(NoRequest::Silent));
        if let Err(NoRequest::Failed(why)) = outcome {
            log::warn!("a connection was closed: {why}");
        }
        if self.service.router.is_there() {
            self.service.give_back(may_go_on);
        } else if may_go_on && !self.service.has_input() {
            self.service.hold_current();
        } else {
            self.close();
        }
        if self.service.wear.is_worn_out() {
            return self.end(0);
        }
        WorkerPhase::Waiting
    }

    fn end_output(&self) {
        let (output, error) = (io::stdout(), io::stderr());
        let has_unread = |fd: BorrowedFd<'_>| unread_by_peer(fd).unwrap_or_else(|| unread(fd)) > 0;
        let is_unread = has_unread(output.as_fd()) || has_unread(error.as_fd());
        if is_unread || header::has_unfinished(self.service.page.board.header()) {
            let _ = nix::unistd::write(error.as_fd(), b"\n");
        }
    }

    pub(super) fn close(&mut self) {
        if let Some(connection) = self.service.detach() {
            self.service.close(connection);
        }
        self.service.correct_kept();
    }
}

impl Service {
    /// Makes the worker exit if it exceeds the memory limit. With a router, the router decides.
    fn limit_memory(&mut self, is_put_back: bool) {
        let occasion = if is_put_back {
            Occasion::PutBack
        } else {
            Occasion::Request
        };
        if !self.router.is_there()
            && let Some(used) = self.wear.beyond_limit(occasion)
        {
            super::memory::say_replaced(used);
            self.slot_writer().leaving(ExitCause::Memory, None);
            self.wear.is_over = true;
        }
    }

    pub(super) fn hold_current(&mut self) {
        if self.router.is_there() {
            return self.release();
        }
        match self.detach() {
            Some(connection) => {
                self.hold(connection, clock::now());
                self.idle_watch.wake_if_serving();
            }
            None => self.correct_kept(),
        }
    }

    pub(super) fn hold(&mut self, mut connection: Box<super::connection::Connection>, now: Tick) {
        let pool = &self.settings.pool;
        if std::mem::take(&mut connection.asked) {
            connection.expires = now + pool.serving.keepalive_timeout;
        } else if connection.expires == Tick::ZERO {
            connection.expires = now + pool.serving.client_timeout;
        }
        self.make_room_to_hold();
        let result = self
            .idle_watch
            .keepalive()
            .hold(connection, self.idle_watch.epoll(), FIRST_KEEPALIVE);
        if let Err(errno) = result {
            log::error!("can't keep a connection: epoll_ctl: {errno}");
        }
        self.publish_kept();
    }

    fn make_room_to_hold(&mut self) {
        while self.idle_watch.keepalive().idle() >= self.most_idle {
            let oldest = self.idle_watch.keepalive().take_oldest();
            let Some(oldest) = oldest else { return };
            log::debug!(
                "closed the connection that was idle for the longest: {} are held",
                self.most_idle
            );
            self.close(oldest);
        }
    }

    pub(super) fn publish_kept(&self) {
        let idle = self.idle_watch.keepalive().idle() as u64;
        self.kept.set(idle);
        self.slot_writer().kept(idle);
    }

    /// [`Service::publish_kept`] after connections were closed or passed on. A pool's last worker stays while it shows
    /// one.
    fn correct_kept(&self) {
        if self.kept.get() > 0 {
            self.publish_kept();
        }
    }
}
