//! A worker that gives each request to one of several threads of its runtime, for languages that wait in their calls.
//!
//! Threads ask for requests ([`Threads::next`]), and wait for their clients ([`Threads::read`], [`Threads::wait_for_room`]).
//! One of those that wait does so in epoll_wait(2), for all of them: it does what is ready, wakes those that have something
//! to do, and, if it has itself, another one takes its place. So a request is mostly answered by the thread that has seen it
//! come. Where no thread waits because the application is busy with all of them, the one that sees to the worker
//! ([`Threads::mind`]) watches after a moment.
//!
//! A thread in a request whose time is up can't be stopped. Its client is answered, the worker takes up nothing new, and
//! ends when the other requests are over, with that thread.

use super::super::context::{GenerationContext, WorkerContext};
use super::super::promotion::Promotion;
use super::dispatch::{Dispatch, Wait};
use super::state::{EVENTS, WorkerState};
use super::{Piece, Sent, When};
use crate::sys::{Error, clock, process, signal};
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollEvent, EpollTimeout};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long no thread may watch the worker's connections. A thread that is done mostly comes back within this time.
const UNWATCHED: Duration = Duration::from_millis(5);
/// After so many times in which another thread did watch, the one that sees to the worker sleeps until it is needed.
const IDLE_LOOKS: u32 = 50;
/// How long a process with a stuck thread may take to end: the thread may hold what the end needs, as Python's lock.
const END_LIMIT: Duration = Duration::from_secs(5);
/// The stack of the thread that waits for that.
const STACK_BYTES: usize = 64 * 1024;

/// What the worker wants of the thread that sees to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// It is to make a preloader, and then to end.
    Promote,
    /// Out-of-band work is to be done.
    Work,
    /// The process has to end. Threads that have not come back never will.
    End,
}

/// The worker. Every method may be called from any thread.
#[derive(Debug)]
pub struct Threads {
    state: Mutex<WorkerState>,
    epoll: Arc<Epoll>,
    idle: Condvar,
    held: Condvar,
    idle_watch: Condvar,
}

type Locked<'t> = MutexGuard<'t, WorkerState>;

impl Threads {
    /// Takes the contexts. As for [`super::super::run()`].
    ///
    /// # Errors
    /// A system call failed; the process has to end.
    pub fn begin(context: GenerationContext, own: WorkerContext) -> Result<Threads, Error> {
        super::super::stderr_errors::at_begin(&context.settings.pool);
        let mut state = WorkerState::begin(context, own)?;
        state.dispatch = Some(Dispatch::default());
        Ok(Threads {
            epoll: Arc::clone(&state.epoll),
            state: Mutex::new(state),
            idle: Condvar::new(),
            held: Condvar::new(),
            idle_watch: Condvar::new(),
        })
    }

    fn lock(&self) -> Locked<'_> {
        // A panic aborts the process, so the lock is never left poisoned.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sees to the worker, from one thread. Says what it is to do, after which this is to be called again unless it is to
    /// end.
    pub fn mind(&self) -> Wish {
        let mut state = self.lock();
        state.on_ready(&[]);
        self.wake(&mut state);
        let (mut looks, mut seen) = (0, state.turns);
        loop {
            let exit_code = state.exit_code;
            let dispatch = of(&mut state);
            if dispatch.take_work() {
                return Wish::Work;
            }
            if let Some(promotes) = dispatch.end() {
                if dispatch.has_expired() {
                    end_at_last(exit_code);
                }
                return if promotes { Wish::Promote } else { Wish::End };
            }
            looks = if dispatch.is_watched { looks + 1 } else { 0 };
            state = if looks > IDLE_LOOKS {
                looks = 0;
                dispatch.main_thread_sleeps = true;
                let mut state = self
                    .idle_watch
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
                of(&mut state).main_thread_sleeps = false;
                state
            } else {
                let waited = self.idle_watch.wait_timeout(state, UNWATCHED);
                waited.unwrap_or_else(PoisonError::into_inner).0
            };
            let is_left = std::mem::replace(&mut seen, state.turns) == state.turns;
            let dispatch = of(&mut state);
            if is_left && !dispatch.is_watched && !dispatch.has_news() {
                state = self.watch(state);
                self.wake(&mut state);
                if let Some(next) = self.next_to_watch(&mut state) {
                    next.notify_one();
                }
            }
        }
    }

    /// Waits for a request, which is a record in `memory` then; says by what number it is known. `before`: the one that this
    /// thread had. `None`: there will be none any more.
    pub fn next(&self, before: Option<u64>, memory: &mut Vec<u8>) -> Option<u64> {
        let mut state = self.lock();
        if let Some(token) = before {
            state.come_back(token);
        }
        self.wait(state, Wait::Request, |state| {
            if state.is_leaving() {
                state.on_ready(&[]);
            }
            loop {
                if let Some(token) = state.take_request(memory) {
                    return Some(Some(token));
                }
                if of(state).end().is_some() {
                    return Some(None);
                }
                if !state.could_do_more() {
                    return None;
                }
                state.on_ready(&[]);
            }
        })
    }

    /// Waits for the next piece of a request's body. Never [`Piece::NotYet`].
    pub fn read(&self, token: u64, piece: &mut Vec<u8>) -> Piece {
        self.wait(self.lock(), Wait::Client, |state| {
            let Some(index) = state.find(token) else {
                return Some(Piece::Gone);
            };
            match state.next_piece(index, piece, clock::now()) {
                Piece::NotYet => state.expect_more(index),
                found => state.expect_nothing(index, found),
            }
        })
    }

    /// Takes a piece of the answer to a request.
    pub fn send(&self, token: u64, bytes: &[u8], when: When) -> Sent {
        let mut state = self.lock();
        let sent = match state.find(token) {
            Some(index) => state.send(index, bytes, when, clock::now()),
            None => Sent::Gone,
        };
        self.wake(&mut state);
        sent
    }

    /// Waits until there is room for more of an answer. False: the client is gone.
    pub fn wait_for_room(&self, token: u64) -> bool {
        self.wait(self.lock(), Wait::Client, |state| {
            let client = state.find(token).map(|index| &state.clients[index]);
            match client {
                Some(client) if client.is_gone => Some(false),
                Some(client) if client.is_full => None,
                Some(_) => Some(true),
                None => Some(false),
            }
        })
    }

    /// Text for the web server's error log.
    pub fn send_error(&self, token: u64, bytes: &[u8]) {
        let mut state = self.lock();
        if let Some(index) = state.find(token) {
            state.put_error(index, bytes);
        }
    }

    /// The answer to a request is not complete and will not be; the client is to see that.
    pub fn abandon(&self, token: u64) {
        let mut state = self.lock();
        if let Some(index) = state.find(token) {
            state.break_off(index, clock::now());
        }
    }

    /// Lets the worker end once its requests are answered, as with `max_requests`.
    pub fn retire(&self) {
        self.lock().leave(clock::now());
    }

    /// Asks for out-of-band work.
    pub fn want_work(&self) {
        self.lock().ask_for_work();
    }

    /// The out-of-band work is done; or what went wrong, for the log.
    pub fn out_of_band_done(&self, outcome: Result<(), String>) {
        self.lock().out_of_band_done(outcome);
    }

    /// What a preloader is to be given; `None`: there is to be none.
    pub fn take_promotion(&self) -> Option<Promotion> {
        self.lock().promotion.take()
    }

    /// Whether the process is to make a preloader.
    pub fn must_promote(&self) -> bool {
        self.lock().promotion.is_some()
    }

    /// The exit code, once it is to end.
    pub fn exit_code(&self) -> i32 {
        self.lock().exit_code
    }

    /// Waits until `look` finds something.
    fn wait<'t, T>(
        &'t self,
        mut state: Locked<'t>,
        wait: Wait,
        mut look: impl FnMut(&mut WorkerState) -> Option<T>,
    ) -> T {
        let client = match wait {
            Wait::Request => &self.idle,
            Wait::Client => &self.held,
        };
        loop {
            let found = look(&mut state);
            self.wake(&mut state);
            if let Some(found) = found {
                let next = self.next_to_watch(&mut state);
                // First, so that the other thread does not wait for what this one holds.
                drop(state);
                if let Some(next) = next {
                    next.notify_one();
                }
                return found;
            }
            state = if of(&mut state).is_watched {
                *of(&mut state).waiting(wait) += 1;
                state = client.wait(state).unwrap_or_else(PoisonError::into_inner);
                *of(&mut state).waiting(wait) -= 1;
                state
            } else {
                self.watch(state)
            };
        }
    }

    /// Waits until something is ready, with the state open to others, and does it.
    fn watch<'t>(&'t self, mut state: Locked<'t>) -> Locked<'t> {
        of(&mut state).is_watched = true;
        let insists_at = state.insists_at.filter(|_| state.has_room());
        let timeout = insists_at.map_or(EpollTimeout::NONE, |due| {
            // A part of a millisecond more, so that it is due then.
            let left = due.since(clock::now()) + Duration::from_millis(1);
            EpollTimeout::try_from(left).unwrap_or(EpollTimeout::MAX)
        });
        drop(state);
        let mut ready = [EpollEvent::empty(); EVENTS];
        let count = self.epoll.wait(&mut ready, timeout);
        let mut state = self.lock();
        of(&mut state).is_watched = false;
        match count {
            Ok(count) => state.on_ready(&ready[..count]),
            Err(Errno::EINTR) => {}
            Err(errno) => state.fail(&format!("epoll_wait: {errno}")),
        }
        if *of(&mut state).waiting(Wait::Client) > 0 {
            self.held.notify_all();
        }
        state
    }

    /// Wakes those that have something to do now.
    fn wake(&self, state: &mut WorkerState) {
        let dispatch = of(state);
        for _ in 0..dispatch.untaken().min(*dispatch.waiting(Wait::Request)) {
            self.idle.notify_one();
        }
        if !dispatch.has_news() {
            return;
        }
        self.idle_watch.notify_one();
        if dispatch.end().is_some() {
            self.idle.notify_all();
            self.held.notify_all();
        }
        if dispatch.is_watched {
            state.alarm.set_by(clock::now());
        }
    }

    /// The caller has something to do. If no thread watches, returns where one waits that is to.
    fn next_to_watch(&self, state: &mut WorkerState) -> Option<&Condvar> {
        let dispatch = of(state);
        if dispatch.is_watched {
            None
        } else if *dispatch.waiting(Wait::Request) > 0 {
            Some(&self.idle)
        } else if *dispatch.waiting(Wait::Client) > 0 {
            Some(&self.held)
        } else {
            dispatch.main_thread_sleeps.then_some(&self.idle_watch)
        }
    }
}

/// What a state of this worker has from its beginning on.
fn of(state: &mut WorkerState) -> &mut Dispatch {
    state.dispatch.get_or_insert_default()
}

/// Ends the process after a while, whatever the runtime does.
fn end_at_last(exit_code: i32) {
    let mask = signal::block_all();
    let builder = std::thread::Builder::new()
        .name("end".into())
        .stack_size(STACK_BYTES);
    // Where the system refuses, the master ends the process one day.
    let _ = builder.spawn(move || {
        std::thread::sleep(END_LIMIT);
        process::exit_now(exit_code);
    });
    signal::restore(&mask);
}

impl WorkerState {
    /// The first request that no thread has taken, without those whose time was up before one was free.
    fn take_request(&mut self, memory: &mut Vec<u8>) -> Option<u64> {
        loop {
            let token = of(self).take(memory)?;
            if self.find(token).is_some() {
                return Some(token);
            }
            self.come_back(token);
        }
    }

    /// A thread is done with a request, answered or not.
    fn come_back(&mut self, token: u64) {
        if let Some(index) = self.find(token) {
            self.break_off(index, clock::now());
        }
        of(self).come_back(token);
        self.publish_load();
        // It may have waited for this.
        if let Some(due) = self.want.due() {
            self.alarm.set_by(due);
        }
    }

    /// A thread waits for more of a body: its client is to send some in time.
    fn expect_more(&mut self, index: usize) -> Option<Piece> {
        let limit = clock::now() + self.settings.pool.client_timeout;
        let client = &mut self.clients[index];
        // It looks for itself.
        client.wants_body = false;
        if client.deadline.is_none() {
            client.deadline = Some(limit);
            self.alarm.set_by(limit);
        }
        None
    }

    fn expect_nothing(&mut self, index: usize, found: Piece) -> Option<Piece> {
        let client = &mut self.clients[index];
        if !client.has_output() {
            client.deadline = None;
        }
        Some(found)
    }
}
