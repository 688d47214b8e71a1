//! A worker that gives requests to several threads, for languages with blocking calls.
//!
//! Threads wait for requests ([`Threads::next`]) and clients ([`Threads::read`], [`Threads::wait_for_room`]). One
//! waiting thread calls epoll_wait(2) for all: it handles events and wakes threads; if it gets work itself, another
//! takes its place. So the thread that receives a request usually answers it. If all threads are busy with the
//! application, the main thread ([`Threads::mind`]) watches after a moment.
//!
//! A thread with a timed-out request can't be stopped. Its client is answered, and the worker exits after its other
//! requests, with that thread.

use super::super::context::{GenerationContext, WorkerContext};
use super::dispatch::{Dispatch, Wait};
use super::several::{Locked, Several};
use super::state::{EVENTS, WorkerState};
use super::{Piece, Sent, When};
use forkyard_sys::timeout::epoll_timeout;
use forkyard_sys::{Error, clock, process, signal};
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollEvent};
use std::ops::Deref;
use std::sync::{Arc, Condvar, PoisonError};
use std::time::Duration;

const UNWATCHED: Duration = Duration::from_millis(5);
const IDLE_LOOKS: u32 = 50;
/// How long a process with a stuck thread may take to exit; the thread may hold a lock that exit needs, such as
/// Python's.
const END_LIMIT: Duration = Duration::from_secs(5);
const STACK_BYTES: usize = 64 * 1024;

/// A task for the main thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// Create a preloader, then exit.
    Promote,
    /// Do out-of-band work.
    Work,
    /// Exit. Missing threads never return.
    End,
}

/// The worker. All methods may be called from any thread.
#[derive(Debug)]
pub struct Threads {
    state: Several,
    epoll: Arc<Epoll>,
    idle: Condvar,
    held: Condvar,
    idle_watch: Condvar,
}

impl Threads {
    /// See [`super::super::run()`] for the requirements.
    ///
    /// # Errors
    /// A system call failed; the process must exit.
    pub fn begin(context: GenerationContext, own: WorkerContext) -> Result<Threads, Error> {
        let mut state = WorkerState::begin(context, own)?;
        state.dispatch = Some(Dispatch::default());
        Ok(Threads {
            epoll: Arc::clone(&state.sources.epoll),
            state: Several::new(state),
            idle: Condvar::new(),
            held: Condvar::new(),
            idle_watch: Condvar::new(),
        })
    }

    /// Manages the worker from the main thread and returns a task. Call it again unless that is [`Wish::End`].
    pub fn mind(&self) -> Wish {
        let mut state = self.lock();
        state.on_ready(&[]);
        self.wake(&mut state);
        let (mut looks, mut seen) = (0, state.turns.count);
        loop {
            let exit_code = state.departure.exit_code;
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
            let is_left = std::mem::replace(&mut seen, state.turns.count) == state.turns.count;
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

    /// Waits for a request, stores its record in `memory` and returns its id. `before`: this thread's last request.
    /// `None`: there will be no more.
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

    /// Waits for the next piece of a body; never [`Piece::NotYet`].
    pub fn read(&self, token: u64, piece: &mut Vec<u8>) -> Piece {
        self.wait(self.lock(), Wait::Client, |state| {
            let Some(index) = state.clients.find(token) else {
                return Some(Piece::Gone);
            };
            match state.next_piece(index, piece, clock::now()) {
                Piece::NotYet => state.expect_more(index),
                found => state.expect_nothing(index, found),
            }
        })
    }

    /// Sends a piece of an answer.
    pub fn send(&self, token: u64, bytes: &[u8], when: When) -> Sent {
        let mut state = self.lock();
        let sent = state.send_to(token, bytes, when);
        self.wake(&mut state);
        sent
    }

    /// Waits for room for more of an answer. Returns false if the client is gone.
    pub fn wait_for_room(&self, token: u64) -> bool {
        self.wait(self.lock(), Wait::Client, |state| {
            let client = state.clients.find(token).map(|index| &state.clients[index]);
            match client {
                Some(client) if client.is_gone() => Some(false),
                Some(client) if client.connection.as_ref().is_some_and(|it| it.wants_room()) => None,
                Some(_) => Some(true),
                None => Some(false),
            }
        })
    }

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
                // First, so that the other thread does not wait for this lock.
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

    fn watch<'t>(&'t self, mut state: Locked<'t>) -> Locked<'t> {
        of(&mut state).is_watched = true;
        let insists_at = state.accepting.insists_at().filter(|_| state.has_room());
        let timeout = epoll_timeout(insists_at);
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

    /// The condition of a waiting thread that should watch now, if none does.
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

impl Deref for Threads {
    type Target = Several;

    fn deref(&self) -> &Several {
        &self.state
    }
}

fn of(state: &mut WorkerState) -> &mut Dispatch {
    state.dispatch.get_or_insert_default()
}

fn end_at_last(exit_code: i32) {
    let mask = signal::block_all();
    let builder = std::thread::Builder::new()
        .name("end".into())
        .stack_size(STACK_BYTES);
    let _ = builder.spawn(move || {
        std::thread::sleep(END_LIMIT);
        process::exit_now(exit_code);
    });
    signal::restore(&mask);
}

impl WorkerState {
    fn take_request(&mut self, memory: &mut Vec<u8>) -> Option<u64> {
        loop {
            let token = of(self).take(memory)?;
            if self.clients.find(token).is_some() {
                return Some(token);
            }
            self.come_back(token);
        }
    }

    fn come_back(&mut self, token: u64) {
        if let Some(index) = self.clients.find(token) {
            self.break_off(index, clock::now());
        }
        of(self).come_back(token);
        self.publish_load();
        if let Some(due) = self.router.want.due() {
            self.alarm.set_by(due);
        }
    }

    fn expect_more(&mut self, index: usize) -> Option<Piece> {
        if let Some(connection) = self.connection(index) {
            connection.expect_body(clock::now());
        }
        self.heed_deadline(index);
        None
    }

    fn expect_nothing(&mut self, index: usize, found: Piece) -> Option<Piece> {
        if let Some(connection) = self.connection(index) {
            connection.expect_nothing();
        }
        Some(found)
    }
}
