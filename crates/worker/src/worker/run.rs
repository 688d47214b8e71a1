//! The loop of a worker.

use super::Runtime;
use super::acceptor::{Acceptor, FIRST_KEEPALIVE, Work};
use super::access::Recorder;
use super::backend::{Backend, BackendState, show, stand_by};
use super::context::{GenerationContext, WorkerContext};
use super::idle_watch::IdleWatch;
use super::memory::Occasion;
use super::promotion::Promotion;
use super::request::Request;
use super::service::{NoRequest, Service};
use super::stderr_errors;
use super::timeout_response::install_handlers;
use crate::config::{Pool, ProcessManager};
use crate::master::pool_restart::RestartReason;
use crate::scoreboard::counters::ExitCause;
use crate::scoreboard::{Reader, RequestStage, Slot, header};
use crate::sys::fd::{unread, unread_by_peer};
use crate::sys::{Error, clock};
use crate::tick::Tick;
use forkyard_base::spread;
use nix::sys::epoll::{Epoll, EpollCreateFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

/// Exit code of a worker that could not begin or go on (sysexits.h, EX_SOFTWARE).
const EXIT_SOFTWARE: i32 = 70;
/// How long a new connection may be silent before the worker looks elsewhere. A web server writes right after it has
/// connected, so this is nearly always long enough and saves registering the connection.
const FIRST_BYTE_TIMEOUT: Duration = Duration::from_millis(1);

/// Serves until told to retire; says the exit code. The process has its signals at their defaults, its identity and
/// its environment; the application is loaded.
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
                if !worker.has_out_of_band_work() {
                    break;
                }
                let outcome = runtime.work();
                worker.out_of_band_done(outcome);
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

/// A worker that is asked for one request after the other: [`Worker::advance`], [`Worker::request`], and so on until there is
/// none. [`run`] is that loop; a program with a loop of its own asks by itself.
#[derive(Debug)]
pub struct Worker {
    pub(super) service: Service,
    pub(super) acceptor: Acceptor,
    pub(super) served: u64,
    /// Requests after which it ends.
    most: Option<u64>,
    /// Standard output and error are the master's to log.
    caught: bool,
    /// It is to make a preloader, before anything else.
    promotion: Option<Promotion>,
    pub(super) phase: WorkerPhase,
    /// It holds no connection while a request runs ([`Worker::lets_go_of_connections`]).
    pub(super) releases: bool,
}

/// Where a worker is between two calls.
///
/// ```text
///            connection            request
///   Waiting ───────────────▶ Connection ──────▶ Request
///     ▲ ▲                   │      ▲           │
///     │ └──── no request ───┘      └─ another ─┤
///     └──────── nothing more was sent ─────────┘      from Waiting or Request, told to or worn out: Ended
///                                                     from Waiting, told to make a preloader: Aside, and then Ended
///                                                     from Waiting, to do out-of-band work: Working, and then Waiting
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WorkerPhase {
    /// Has no connection.
    Waiting,
    /// Has one on which a request has begun to come.
    Connection,
    /// Has a request.
    Request,
    /// Has no connection and is to make a preloader.
    Aside,
    /// Has no connection and does the application's out-of-band work.
    Working,
    /// Is done; the exit code.
    Ended(i32),
}

/// Whether workers of the pool leave new connections to siblings. Where the master forks because a connection waits, none is to
/// wait on purpose.
fn may_leave_connections(pool: &Pool) -> bool {
    let has_siblings = pool.pm.max_children() > 1;
    let forks_for_connections = match pool.pm {
        ProcessManager::Static { .. } | ProcessManager::Dynamic { .. } => false,
        ProcessManager::Ondemand { .. } | ProcessManager::Ordered { .. } => true,
    };
    pool.wait_for_cpu && has_siblings && !forks_for_connections
}

impl Worker {
    /// Takes the contexts. As for [`run`].
    ///
    /// # Errors
    /// A system call failed; the process has to end.
    pub fn begin(context: GenerationContext, own: WorkerContext) -> Result<Worker, Error> {
        stderr_errors::at_begin(&context.settings.pool);
        context.keep_accept_from_waiting();
        // Whatever the runtime has made of SIGTERM; one that has to see the handlers before has installed them itself.
        install_handlers(&context, own.slot);
        let slots = context.settings.slots as usize;
        let board = Arc::new(Reader::map(context.board_readable.as_fd(), slots)?);
        let slot = Slot::map(context.board_writable.as_fd(), own.slot as usize)?;
        slot.note_senders();
        // The descriptor that could map the other pages for writing is closed here.
        drop(context.board_writable);
        let failed = |errno| Error::new("epoll_create1", "", errno);
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(failed)?;
        let listener = Arc::new(context.listener);
        let failed = |errno| Error::new("eventfd2", "", errno);
        let time_limit = context.settings.pool.request_terminate_timeout;
        let (for_watch, its_board) = (Arc::clone(&listener), Arc::clone(&board));
        let idle_watch =
            IdleWatch::new(epoll, context.queue_in, for_watch, its_board, time_limit).map_err(failed)?;
        let settings = &context.settings;
        let access = settings.pool.access.clone().zip(context.access);
        let recorder = access.map(|(access, shelf)| {
            let name = settings.pool.name.clone();
            let recorder = Recorder::new(access, name, settings.log_limit, shelf, board.header());
            Box::new(recorder)
        });
        let mut service = Service::new(context.settings, listener, board, slot, idle_watch, recorder);
        if let Some(channel) = own.channel {
            service.route(channel);
        } else if may_leave_connections(&service.settings.pool) {
            service.cost.measure();
        }
        service
            .slot_writer()
            .begin(std::process::id() as i32, clock::epoch_seconds(), clock::now());
        let failed = |errno| Error::new("epoll_ctl", "", errno);
        let acceptor = Acceptor::open(
            &service,
            own.slot,
            own.stop_pipe,
            context.queue_out,
            context.accept_notify,
        )
        .map_err(failed)?;
        let most = most_requests(&service.settings.pool);
        Ok(Worker {
            service,
            acceptor,
            served: 0,
            most,
            caught: own.output.is_some(),
            promotion: None,
            phase: WorkerPhase::Waiting,
            releases: false,
        })
    }

    /// Watches what the runtime keeps beside the worker.
    fn watch_backend(&mut self, backend: Option<&mut dyn Backend>) {
        let Some(backend) = backend else { return };
        if let Err(errno) = self.acceptor.watch_backend(&self.service, backend.watch()) {
            log::error!("worker can't go on: epoll_ctl: {errno}");
            self.phase = WorkerPhase::Ended(EXIT_SOFTWARE);
        }
    }

    /// Ends the request before, if there is one, and waits for the next. False: the process has to end, unless it is to make
    /// a preloader first ([`Worker::must_promote`]) and then to ask again, which ends it: what it has closed for the sake of
    /// the copy need not be opened again; or to do out-of-band work first ([`Worker::has_out_of_band_work`]) and then to ask again.
    pub fn advance(&mut self) -> bool {
        self.advance_with(None)
    }

    /// The same, looking after what the runtime keeps beside the worker meanwhile.
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
                    // A runtime that does not know how lets go of it.
                    self.promotion = None;
                    self.end(0)
                }
                WorkerPhase::Working => {
                    // A runtime that does not know how has done nothing.
                    self.out_of_band_done(Err("the runtime can't do it".into()));
                    WorkerPhase::Waiting
                }
                WorkerPhase::Connection => match self.begin_request() {
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

    /// The request that [`Worker::advance`] has found. To be released before the next one is asked for, so that its memory is
    /// used again.
    pub fn request(&mut self) -> Request<'_> {
        Request::new(&mut self.service)
    }

    /// Whether the process is to make a preloader. It has no other thread of this library's then, and no request.
    pub fn must_promote(&self) -> bool {
        self.phase == WorkerPhase::Aside && self.promotion.is_some()
    }

    /// Whether the process is to do the application's out-of-band work now, and then to say [`Worker::out_of_band_done`].
    pub fn has_out_of_band_work(&self) -> bool {
        self.phase == WorkerPhase::Working
    }

    /// The out-of-band work is done; or what went wrong, for the log. Nothing if none was to be done.
    pub fn out_of_band_done(&mut self, outcome: Result<(), String>) {
        if !self.has_out_of_band_work() {
            return;
        }
        if let Err(problem) = &outcome {
            log::error!("out-of-band work failed: {problem}");
        }
        let service = &mut self.service;
        service.end_work();
        service.idle_watch.end();
        if self.caught {
            self.end_output();
        }
        if self.service.channel.is_some() {
            self.service.tell_worked(outcome.is_ok());
        }
        self.phase = WorkerPhase::Waiting;
    }

    /// What the preloader is to be given.
    pub fn take_promotion(&mut self) -> Option<Promotion> {
        self.promotion.take()
    }

    /// The pool needs new processes, for its code is as old as this moment. To be said again as long as that is
    /// so, between two requests: the master may have no time for it.
    pub fn ask_restart(&mut self, why: RestartReason, since: Tick) {
        self.acceptor.ask_restart(why, since);
    }

    /// Why it ends by itself, if it is about to: it has served as many requests as it may, or uses too much memory.
    pub fn is_worn_by(&self) -> Option<ExitCause> {
        match self.most.is_some_and(|most| self.served >= most) {
            true => Some(ExitCause::LoopRequests),
            false => self.service.leaving.then_some(ExitCause::LoopMemory),
        }
    }

    /// Has the worker end if the runtime's own heap alone is more memory than it may use. All of its memory is measured now and then
    /// only.
    pub fn limit_heap(&mut self, bytes: u64) {
        let limit = self.service.settings.pool.memory_limit;
        if !self.service.leaving && limit.is_some_and(|limit| bytes > limit) {
            super::memory::say_replaced(bytes >> 20);
            self.service.leaving = true;
        }
    }

    /// Leaves word for the master why it ends by itself. `reason`: the number of why it could not be put back.
    pub fn record_exit_cause(&self, cause: ExitCause, reason: Option<u8>) {
        self.service.slot_writer().leaving(cause, reason);
    }

    /// The exit code, once there is no request any more.
    pub fn exit_code(&self) -> i32 {
        match self.phase {
            WorkerPhase::Ended(code) => code,
            WorkerPhase::Waiting
            | WorkerPhase::Connection
            | WorkerPhase::Request
            | WorkerPhase::Aside
            | WorkerPhase::Working => EXIT_SOFTWARE,
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

    /// Waits for a connection on which something comes, or until the backend has to be looked after.
    fn wait(&mut self, backend: Option<Tick>) -> WorkerPhase {
        match self.acceptor.next(&mut self.service, backend) {
            Work::Backend => WorkerPhase::Waiting,
            Work::Connection(connection) => {
                self.service.attach(connection);
                self.acceptor.part_with_new(&mut self.service);
                let new = self.service.current().is_some_and(|c| !c.spoken);
                let timeout = if new { FIRST_BYTE_TIMEOUT } else { Duration::ZERO };
                match self.service.fill(timeout) {
                    Ok(()) => WorkerPhase::Connection,
                    Err(none) => self.leave_connection(Err(none)),
                }
            }
            Work::Promote(promotion) => {
                self.service.idle_watch.pause();
                self.promotion = Some(promotion);
                WorkerPhase::Aside
            }
            Work::OutOfBand => {
                // What it holds is others' to serve meanwhile.
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
        WorkerPhase::Ended(code)
    }

    /// `max_requests` or `memory_limit` is reached: the worker ends before its next request, and the master replaces it
    /// (`exited` in `crates/core/src/master/departure.rs`). A worker with several requests counts in `concurrent/leave.rs`,
    /// that of a program that speaks HTTP in `runtime/http/gateway/links.rs`. For an application pool the router counts
    /// (`crates/core/src/applications/serving.rs`), and the worker has no limit.
    fn is_worn_out(&self) -> bool {
        self.service.leaving || self.most.is_some_and(|most| self.served >= most)
    }

    /// Reads the request that the input begins with.
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
        service.stage(RequestStage::Info);
        Ok(())
    }

    /// Ends the answer where the runtime has not, and says where to go on.
    pub(super) fn end_request(&mut self) -> WorkerPhase {
        let service = &mut self.service;
        service.stage(RequestStage::End);
        // A client that is gone has no use for being told.
        let _ = service.finish();
        self.served += 1;
        service.limit_memory(self.releases);
        service.account(clock::now());
        service.idle_watch.end();
        if self.caught {
            self.end_output();
        }
        let refork_at = self.service.settings.refork_at;
        if refork_at.is_some_and(|requests| requests > 0 && self.served % requests == 0) {
            self.acceptor.tell_mold_candidate();
        }
        let is_routed = self.service.channel.is_some();
        if is_routed || !self.service.has_input() || self.is_worn_out() {
            return self.leave_connection(Ok(()));
        }
        // The next one was sent along with it: work that was taken up now.
        self.acceptor.take_up(&mut self.service);
        WorkerPhase::Connection
    }

    /// Keeps or closes the current connection; the worker ends if it is worn out.
    fn leave_connection(&mut self, outcome: Result<(), NoRequest>) -> WorkerPhase {
        let may_go_on = matches!(outcome, Ok(()) | Err(NoRequest::Silent));
        if let Err(NoRequest::Failed(why)) = outcome {
            log::warn!("a connection was closed: {why}");
        }
        if self.service.channel.is_some() {
            self.service.give_back(may_go_on);
        } else if may_go_on {
            self.keep();
        } else {
            self.close();
        }
        if self.is_worn_out() {
            return self.end(0);
        }
        WorkerPhase::Waiting
    }

    /// Ends a line that the request has left unfinished on standard output or error, if there is one; an empty line
    /// is not logged.
    fn end_output(&self) {
        let (output, error) = (io::stdout(), io::stderr());
        // They are sockets or pipes.
        let has_unread = |fd: BorrowedFd<'_>| unread_by_peer(fd).unwrap_or_else(|| unread(fd)) > 0;
        let is_unread = has_unread(output.as_fd()) || has_unread(error.as_fd());
        if is_unread || header::has_unfinished(self.service.board.header()) {
            // Where no process reads any more, there is no line to end.
            let _ = nix::unistd::write(error.as_fd(), b"\n");
        }
    }

    /// The current connection, if it is still there, waits for its next request.
    fn keep(&mut self) {
        if self.service.has_input() {
            // Only a worker that is worn out leaves input behind; it can't be handed over.
            return self.close();
        }
        self.service.hold_current();
    }

    pub(super) fn close(&mut self) {
        if let Some(connection) = self.service.detach() {
            self.service.close(connection);
        }
        self.service.correct_kept();
    }
}

/// How many requests this worker serves: another number for each process where the pool has a jitter.
pub(super) fn most_requests(pool: &Pool) -> Option<u64> {
    let seed = clock::now().as_nanos() ^ (u64::from(std::process::id()) << 40);
    let jitter = spread::within(seed, pool.max_requests_jitter);
    pool.max_requests.map(|most| most.saturating_add(jitter))
}

impl Service {
    /// Has the worker end if it uses more memory than it may. A router decides by what it is told.
    fn limit_memory(&mut self, is_put_back: bool) {
        let occasion = if is_put_back {
            Occasion::PutBack
        } else {
            Occasion::Request
        };
        let scale = self.scale.as_mut().filter(|_| self.channel.is_none());
        if let Some(used) = scale.and_then(|scale| scale.beyond_limit(self.program, occasion)) {
            super::memory::say_replaced(used);
            self.slot_writer().leaving(ExitCause::Memory, None);
            self.leaving = true;
        }
    }

    /// Holds the current connection until its next request comes, for as long as it may be idle.
    pub(super) fn hold_current(&mut self) {
        if self.channel.is_some() {
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

    /// Holds an idle connection.
    pub(super) fn hold(&mut self, mut connection: Box<super::connection::Connection>, now: Tick) {
        let pool = &self.settings.pool;
        if std::mem::take(&mut connection.asked) {
            connection.expires = now + pool.keepalive_timeout;
        } else if connection.expires == Tick::ZERO {
            connection.expires = now + pool.client_timeout;
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

    /// Closes what has been idle for the longest, so that the worker has descriptors left for everything else.
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

    /// Tells the scoreboard how many connections are held.
    pub(super) fn publish_kept(&self) {
        let idle = self.idle_watch.keepalive().idle() as u64;
        self.kept.set(idle);
        self.slot_writer().kept(idle);
    }

    /// The same after a connection was closed that may have been held before its request, or while others were passed on. The
    /// last worker of a pool stays as long as it shows one.
    fn correct_kept(&self) {
        if self.kept.get() > 0 {
            self.publish_kept();
        }
    }
}
