//! The loop of a worker.

use super::Runtime;
use super::access::Recorder;
use super::kit::{Kit, Seat};
use super::lobby::{FIRST_HELD, Lobby, Work};
use super::minder::Minder;
use super::request::Request;
use super::service::{NoRequest, Service};
use crate::scoreboard::{Reader, Slot, Stage, header};
use crate::sys::fd::unread;
use crate::sys::{Error, clock, last_word};
use crate::tick::Tick;
use nix::sys::epoll::{Epoll, EpollCreateFlags};
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

/// Exit code of a worker that could not begin or go on (sysexits.h, EX_SOFTWARE).
const EXIT_SOFTWARE: i32 = 70;
/// How long a new connection may be silent before the worker looks elsewhere. A web server writes right after it has
/// connected, so this is nearly always long enough and saves registering the connection.
const FIRST_BYTE_PATIENCE: Duration = Duration::from_millis(1);

/// Serves until told to retire; says the exit code. The process has its signals at their defaults, its identity and
/// its environment; the application is loaded.
pub fn run(kit: Kit, seat: Seat, runtime: &mut dyn Runtime) -> i32 {
    // Whatever the runtime has made of this signal; one that has to see the handler before has installed it itself.
    if kit.settings.pool.request_terminate_timeout.is_some() {
        last_word::install();
    }
    match Worker::begin(kit, seat) {
        Ok(mut worker) => worker.serve(runtime),
        Err(error) => {
            log::error!("worker failed to initialize: {error}");
            EXIT_SOFTWARE
        }
    }
}

struct Worker {
    service: Service,
    lobby: Lobby,
    served: u64,
    /// Standard output and error are the master's to log.
    caught: bool,
}

impl Worker {
    fn begin(kit: Kit, seat: Seat) -> Result<Worker, Error> {
        let slots = kit.settings.slots as usize;
        let board = Reader::map(kit.board_readable.as_fd(), slots)?;
        let slot = Slot::map(kit.board_writable.as_fd(), seat.slot as usize)?;
        // The descriptor that could map the other pages for writing is closed here.
        drop(kit.board_writable);
        let failed = |errno| Error::new("epoll_create1", "", errno);
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(failed)?;
        let minder = Minder::new(epoll, kit.queue_in);
        let settings = &kit.settings;
        let access = settings.pool.access.clone().zip(kit.access);
        let recorder = access.map(|(access, shelf)| {
            let name = settings.pool.name.clone();
            let recorder = Recorder::new(access, name, settings.log_limit, shelf, board.header());
            Box::new(recorder)
        });
        let service = Service::new(kit.settings, kit.listener, board, slot, minder, recorder);
        service
            .stamp()
            .begin(std::process::id() as i32, clock::epoch_seconds(), clock::now());
        let failed = |errno| Error::new("epoll_ctl", "", errno);
        let lobby =
            Lobby::open(&service, seat.slot, seat.retire, kit.queue_out, kit.child_accept).map_err(failed)?;
        Ok(Worker {
            service,
            lobby,
            served: 0,
            caught: seat.output.is_some(),
        })
    }

    fn serve(&mut self, runtime: &mut dyn Runtime) -> i32 {
        loop {
            match self.lobby.next(&mut self.service) {
                Work::Connection(connection) => {
                    self.service.attach(connection);
                    self.lobby.part_with_few(&mut self.service);
                    self.serve_connection(runtime);
                }
                Work::Retire => break,
                Work::Failed(failure) => {
                    log::error!("worker can't go on: {failure}");
                    self.lobby.hand_over_all(&mut self.service);
                    return EXIT_SOFTWARE;
                }
            }
            if self.is_worn_out() {
                break;
            }
        }
        self.lobby.hand_over_all(&mut self.service);
        0
    }

    fn is_worn_out(&self) -> bool {
        let max = self.service.settings.pool.max_requests;
        self.service.leaving || max.is_some_and(|max| self.served >= max)
    }

    /// Serves the requests that are there on the current connection, then keeps or closes it.
    fn serve_connection(&mut self, runtime: &mut dyn Runtime) {
        let new = self.service.current().is_some_and(|c| !c.spoken);
        let patience = if new { FIRST_BYTE_PATIENCE } else { Duration::ZERO };
        let mut outcome = self.service.fill(patience);
        while outcome.is_ok() {
            outcome = self.serve_request(runtime);
            if outcome.is_ok() && (!self.service.has_input() || self.is_worn_out()) {
                break;
            }
            if outcome.is_ok() {
                // The next one was sent along with it: work that was taken up now.
                self.lobby.take_up(&mut self.service);
            }
        }
        match outcome {
            Ok(()) | Err(NoRequest::Silent) => self.keep(),
            Err(NoRequest::Closed) => self.close(),
            Err(NoRequest::Failed(why)) => {
                log::warn!("a connection was closed: {why}");
                self.close();
            }
        }
    }

    /// Serves the request that the input begins with.
    fn serve_request(&mut self, runtime: &mut dyn Runtime) -> Result<(), NoRequest> {
        let begun = clock::now();
        let service = &mut self.service;
        service.begin(begun);
        service.minder.begin();
        if let Err(none) = service.read_request() {
            service.minder.end();
            return Err(none);
        }
        let service = answer(service, runtime);
        self.served += 1;
        service.account(clock::now());
        service.minder.end();
        if self.caught {
            self.end_output();
        }
        Ok(())
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

/// Lets the runtime answer, and ends the answer where it has not.
fn answer<'s>(service: &'s mut Service, runtime: &mut dyn Runtime) -> &'s mut Service {
    service.stage(Stage::Info);
    let mut request = Request::new(service);
    runtime.answer(&mut request);
    let service = request.release();
    service.stage(Stage::End);
    // Whoever is gone has no use for being told.
    let _ = service.finish();
    service
}

impl Service {
    /// Holds the current connection until its next request comes, for as long as it may be idle.
    pub(super) fn hold_current(&mut self) {
        if let Some(connection) = self.detach() {
            self.hold(connection, clock::now());
            self.minder.attend_if_serving();
        }
    }

    /// Holds an idle connection.
    pub(super) fn hold(&mut self, mut connection: Box<super::connection::Connection>, now: Tick) {
        let pool = &self.settings.pool;
        let limit = if connection.spoken {
            pool.keepalive_timeout
        } else {
            pool.client_timeout
        };
        connection.expires = now + limit;
        let result = self
            .minder
            .held()
            .hold(connection, self.minder.epoll(), FIRST_HELD);
        if let Err(errno) = result {
            log::error!("can't keep a connection: epoll_ctl: {errno}");
        }
        self.publish_kept();
    }

    /// Tells the scoreboard how many connections are held.
    pub(super) fn publish_kept(&self) {
        let idle = self.minder.held().idle() as u64;
        self.stamp().kept(idle);
    }
}
