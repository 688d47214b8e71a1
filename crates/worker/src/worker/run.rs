//! The loop of a worker.

use super::Runtime;
use super::access::Recorder;
use super::companion::{Companion, Standing, show, stand_by};
use super::kit::{Kit, Seat};
use super::lobby::{FIRST_HELD, Lobby, Work};
use super::minder::Minder;
use super::promotion::Promotion;
use super::request::Request;
use super::said;
use super::service::{NoRequest, Service};
use crate::config::Pool;
use crate::scoreboard::{Reader, Slot, Stage, header};
use crate::sys::fd::unread;
use crate::sys::{Error, clock, last_word};
use crate::tick::Tick;
use forkyard_base::spread;
use nix::sys::epoll::{Epoll, EpollCreateFlags};
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

/// Exit code of a worker that could not begin or go on (sysexits.h, EX_SOFTWARE).
const EXIT_SOFTWARE: i32 = 70;
/// How long a new connection may be silent before the worker looks elsewhere. A web server writes right after it has
/// connected, so this is nearly always long enough and saves registering the connection.
const FIRST_BYTE_PATIENCE: Duration = Duration::from_millis(1);

/// Serves until told to retire; says the exit code. The process has its signals at their defaults, its identity and
/// its environment; the application is loaded.
pub fn run(kit: Kit, seat: Seat, runtime: &mut dyn Runtime) -> i32 {
    said::at_begin(&kit.settings.pool);
    match Worker::begin(kit, seat) {
        Ok(mut worker) => {
            worker.accompany(runtime.companion());
            loop {
                while worker.advance_with(runtime.companion()) {
                    let mut request = worker.request();
                    runtime.answer(&mut request);
                    request.release();
                }
                if !worker.is_to_work() {
                    break;
                }
                let outcome = runtime.work();
                worker.worked(outcome);
            }
            if let Some(companion) = runtime.companion() {
                companion.leave();
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
    service: Service,
    lobby: Lobby,
    served: u64,
    /// Requests after which it ends.
    most: Option<u64>,
    /// Standard output and error are the master's to log.
    caught: bool,
    /// It is to make a preloader, before anything else.
    promotion: Option<Promotion>,
    place: Place,
}

/// Where a worker is between two calls.
///
/// ```text
///            connection            request
///   Lobby ──────────────▶ Connection ──────▶ Request
///     ▲ ▲                   │      ▲           │
///     │ └──── no request ───┘      └─ another ─┤
///     └──────── nothing more was sent ─────────┘      from Lobby or Request, told to or worn out: Ended
///                                                     from Lobby, told to make a preloader: Aside, and then Ended
///                                                     from Lobby, to do out-of-band work: Working, and then Lobby
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Has no connection.
    Lobby,
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

impl Worker {
    /// Takes the seat. As for [`run`].
    ///
    /// # Errors
    /// A system call failed; the process has to end.
    pub fn begin(kit: Kit, seat: Seat) -> Result<Worker, Error> {
        // Whatever the runtime has made of this signal; one that has to see the handler before has installed it itself.
        if kit.settings.pool.request_terminate_timeout.is_some() {
            last_word::install();
        }
        let slots = kit.settings.slots as usize;
        let board = Arc::new(Reader::map(kit.board_readable.as_fd(), slots)?);
        let slot = Slot::map(kit.board_writable.as_fd(), seat.slot as usize)?;
        // The descriptor that could map the other pages for writing is closed here.
        drop(kit.board_writable);
        let failed = |errno| Error::new("epoll_create1", "", errno);
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(failed)?;
        let listener = Arc::new(kit.listener);
        let failed = |errno| Error::new("eventfd2", "", errno);
        let time_limit = kit.settings.pool.request_terminate_timeout;
        let (for_minder, its_board) = (Arc::clone(&listener), Arc::clone(&board));
        let minder = Minder::new(epoll, kit.queue_in, for_minder, its_board, time_limit).map_err(failed)?;
        let settings = &kit.settings;
        let access = settings.pool.access.clone().zip(kit.access);
        let recorder = access.map(|(access, shelf)| {
            let name = settings.pool.name.clone();
            let recorder = Recorder::new(access, name, settings.log_limit, shelf, board.header());
            Box::new(recorder)
        });
        let mut service = Service::new(kit.settings, listener, board, slot, minder, recorder);
        if let Some(channel) = seat.channel {
            service.route(channel);
        }
        service
            .stamp()
            .begin(std::process::id() as i32, clock::epoch_seconds(), clock::now());
        let failed = |errno| Error::new("epoll_ctl", "", errno);
        let lobby =
            Lobby::open(&service, seat.slot, seat.retire, kit.queue_out, kit.child_accept).map_err(failed)?;
        let most = most_requests(&service.settings.pool);
        Ok(Worker {
            service,
            lobby,
            served: 0,
            most,
            caught: seat.output.is_some(),
            promotion: None,
            place: Place::Lobby,
        })
    }

    /// Watches what the runtime keeps beside the worker.
    fn accompany(&mut self, companion: Option<&mut dyn Companion>) {
        let Some(companion) = companion else { return };
        if let Err(errno) = self.lobby.accompany(&self.service, companion.watch()) {
            log::error!("worker can't go on: epoll_ctl: {errno}");
            self.place = Place::Ended(EXIT_SOFTWARE);
        }
    }

    /// Ends the request before, if there is one, and waits for the next. False: the process has to end, unless it is to make
    /// a preloader first ([`Worker::is_to_promote`]) and then to ask again, which ends it: what it has closed for the sake of
    /// the copy need not be opened again; or to do out-of-band work first ([`Worker::is_to_work`]) and then to ask again.
    pub fn advance(&mut self) -> bool {
        self.advance_with(None)
    }

    /// The same, looking after what the runtime keeps beside the worker meanwhile.
    fn advance_with(&mut self, mut companion: Option<&mut dyn Companion>) -> bool {
        loop {
            self.place = match self.place {
                Place::Lobby => {
                    let place = match &mut companion {
                        None => self.wait(None),
                        Some(companion) => self.wait_with(*companion),
                    };
                    if matches!(place, Place::Aside | Place::Working) {
                        self.place = place;
                        return false;
                    }
                    place
                }
                Place::Aside => {
                    // A runtime that does not know how lets go of it.
                    self.promotion = None;
                    self.end(0)
                }
                Place::Working => {
                    // A runtime that does not know how has done nothing.
                    self.worked(Err("the runtime can't do it".into()));
                    Place::Lobby
                }
                Place::Connection => match self.begin_request() {
                    Ok(()) => {
                        self.place = Place::Request;
                        return true;
                    }
                    Err(none) => self.leave(Err(none)),
                },
                Place::Request => self.end_request(),
                Place::Ended(_) => return false,
            };
        }
    }

    /// The request that [`Worker::advance`] has found. To be released before the next one is asked for, so that its memory is
    /// used again.
    pub fn request(&mut self) -> Request<'_> {
        Request::new(&mut self.service)
    }

    /// Whether the process is to make a preloader. It has no other thread of this library's then, and no request.
    pub fn is_to_promote(&self) -> bool {
        self.place == Place::Aside && self.promotion.is_some()
    }

    /// Whether the process is to do the application's out-of-band work now, and then to say [`Worker::worked`].
    pub fn is_to_work(&self) -> bool {
        self.place == Place::Working
    }

    /// The out-of-band work is done; or what went wrong, for the log. Nothing if none was to be done.
    pub fn worked(&mut self, outcome: Result<(), String>) {
        if !self.is_to_work() {
            return;
        }
        if let Err(problem) = &outcome {
            log::error!("out-of-band work failed: {problem}");
        }
        let service = &mut self.service;
        service.end_work();
        service.minder.end();
        if self.caught {
            self.end_output();
        }
        if self.service.channel.is_some() {
            self.service.tell_worked(outcome.is_ok());
        }
        self.place = Place::Lobby;
    }

    /// What the preloader is to be given.
    pub fn take_promotion(&mut self) -> Option<Promotion> {
        self.promotion.take()
    }

    /// The exit code, once there is no request any more.
    pub fn exit_code(&self) -> i32 {
        match self.place {
            Place::Ended(code) => code,
            Place::Lobby | Place::Connection | Place::Request | Place::Aside | Place::Working => {
                EXIT_SOFTWARE
            }
        }
    }

    fn wait_with(&mut self, companion: &mut dyn Companion) -> Place {
        show(companion, &mut self.service);
        match stand_by(companion, &self.lobby, &mut self.service) {
            Ok(()) => {}
            Err(Standing::Lost) => return self.end(EXIT_SOFTWARE),
            Err(Standing::Ready | Standing::Pending) => return self.end(0),
        }
        let place = self.wait(companion.deadline());
        if place == Place::Lobby {
            companion.attend();
        }
        place
    }

    /// Waits for a connection on which something comes, or until the companion has to be looked after.
    fn wait(&mut self, companion: Option<Tick>) -> Place {
        match self.lobby.next(&mut self.service, companion) {
            Work::Companion => Place::Lobby,
            Work::Connection(connection) => {
                self.service.attach(connection);
                self.lobby.part_with_silent(&mut self.service);
                let new = self.service.current().is_some_and(|c| !c.spoken);
                let patience = if new { FIRST_BYTE_PATIENCE } else { Duration::ZERO };
                match self.service.fill(patience) {
                    Ok(()) => Place::Connection,
                    Err(none) => self.leave(Err(none)),
                }
            }
            Work::Promote(promotion) => {
                self.service.minder.pause();
                self.promotion = Some(promotion);
                Place::Aside
            }
            Work::OutOfBand => {
                // What it holds is others' to serve meanwhile.
                self.service.minder.begin(clock::now());
                Place::Working
            }
            Work::Attached if self.service.has_input() => Place::Connection,
            Work::Attached => match self.service.fill(FIRST_BYTE_PATIENCE) {
                Ok(()) => Place::Connection,
                Err(none) => self.leave(Err(none)),
            },
            Work::Retire => self.end(0),
            Work::Failed(failure) => {
                log::error!("worker can't go on: {failure}");
                self.end(EXIT_SOFTWARE)
            }
        }
    }

    fn end(&mut self, code: i32) -> Place {
        self.lobby.hand_over_all(&mut self.service);
        Place::Ended(code)
    }

    fn is_worn_out(&self) -> bool {
        self.service.leaving || self.most.is_some_and(|most| self.served >= most)
    }

    /// Reads the request that the input begins with.
    fn begin_request(&mut self) -> Result<(), NoRequest> {
        let begun = clock::now();
        let service = &mut self.service;
        service.begin(begun);
        service.minder.begin(begun);
        if let Err(none) = service.read_request() {
            service.minder.end();
            return Err(none);
        }
        if let Some(connection) = service.current_mut() {
            connection.asked = true;
        }
        service.stage(Stage::Info);
        Ok(())
    }

    /// Ends the answer where the runtime has not, and says where to go on.
    fn end_request(&mut self) -> Place {
        let service = &mut self.service;
        service.stage(Stage::End);
        // A client that is gone has no use for being told.
        let _ = service.finish();
        self.served += 1;
        service.limit_memory();
        service.account(clock::now());
        service.minder.end();
        if self.caught {
            self.end_output();
        }
        let refork_at = self.service.settings.refork_at;
        if refork_at.is_some_and(|requests| requests > 0 && self.served % requests == 0) {
            self.lobby.tell_seasoned();
        }
        let is_routed = self.service.channel.is_some();
        if is_routed || !self.service.has_input() || self.is_worn_out() {
            return self.leave(Ok(()));
        }
        // The next one was sent along with it: work that was taken up now.
        self.lobby.take_up(&mut self.service);
        Place::Connection
    }

    /// Keeps or closes the current connection.
    fn leave(&mut self, outcome: Result<(), NoRequest>) -> Place {
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
        Place::Lobby
    }

    /// Ends a line that the request has left unfinished on standard output or error, if there is one; an empty line
    /// is not logged.
    fn end_output(&self) {
        let (output, error) = (io::stdout(), io::stderr());
        let is_unread = unread(output.as_fd()) > 0 || unread(error.as_fd()) > 0;
        if is_unread || header::has_unfinished(self.service.board.header()) {
            // Where nobody reads any more, nothing is to be ended.
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

    fn close(&mut self) {
        if let Some(connection) = self.service.detach() {
            self.service.close(connection);
        }
    }
}

/// How many requests this worker serves: another number for each process where the pool has a jitter.
pub(super) fn most_requests(pool: &Pool) -> Option<u64> {
    let seed = clock::now().as_nanos() ^ (u64::from(std::process::id()) << 40);
    let jitter = spread::within(seed, pool.max_requests_jitter);
    pool.max_requests.map(|most| most.saturating_add(jitter))
}

impl Service {
    /// Has the worker end if it uses more memory than it may.
    fn limit_memory(&mut self) {
        let pool = &self.settings.pool;
        let scale = self.scale.as_mut();
        if scale.is_some_and(|scale| scale.is_beyond_limit(pool, self.program)) {
            self.leaving = true;
        }
    }

    /// Holds the current connection until its next request comes, for as long as it may be idle.
    pub(super) fn hold_current(&mut self) {
        if self.channel.is_some() {
            return self.release();
        }
        if let Some(connection) = self.detach() {
            self.hold(connection, clock::now());
            self.minder.attend_if_serving();
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
            .minder
            .held()
            .hold(connection, self.minder.epoll(), FIRST_HELD);
        if let Err(errno) = result {
            log::error!("can't keep a connection: epoll_ctl: {errno}");
        }
        self.publish_kept();
    }

    /// Closes what has been idle for the longest, so that the worker has descriptors left for everything else.
    fn make_room_to_hold(&mut self) {
        while self.minder.held().idle() >= self.most_idle {
            let oldest = self.minder.held().take_oldest();
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
        let idle = self.minder.held().idle() as u64;
        self.stamp().kept(idle);
    }
}
