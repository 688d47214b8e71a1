//! A thread that detects a blocked event loop.
//!
//! While an event loop runs application code, requests on its connections would wait although siblings are idle. The
//! thread checks every few milliseconds during requests: if events are ready and were not fetched since the last check,
//! the worker reports that it has no room and passes connections without a request to siblings. The thread blocks all
//! signals and sleeps while no request runs.

use super::super::idle_watch::start_thread;
use super::several::Several;
use super::state::WorkerState;
use forkyard_sys::clock;
use forkyard_sys::socket::{Readiness, wait};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

const INTERVAL: Duration = Duration::from_millis(5);
const IDLE_LOOKS: u32 = 50;

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) state: Several,
    wake: Condvar,
    awake: AtomicBool,
    ends: AtomicBool,
}

impl Shared {
    pub(super) fn new(state: WorkerState) -> Arc<Shared> {
        Arc::new(Shared {
            state: Several::new(state),
            wake: Condvar::new(),
            awake: AtomicBool::new(false),
            ends: AtomicBool::new(false),
        })
    }
}

#[derive(Debug, Default)]
pub(super) struct Watch {
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Must not be called with the state locked.
    pub(super) fn wake(&mut self, shared: &Arc<Shared>) {
        if shared.awake.swap(true, Ordering::SeqCst) {
            return;
        }
        if self.thread.is_none() {
            self.thread = start_thread(shared, watch);
        } else {
            // Under the lock, so that it can't fall between the thread's check of `awake` and its wait.
            let _state = shared.state.lock();
            shared.wake.notify_one();
        }
    }

    pub(super) fn end(&mut self, shared: &Shared) {
        let Some(thread) = self.thread.take() else { return };
        shared.ends.store(true, Ordering::SeqCst);
        {
            let _state = shared.state.lock();
            shared.wake.notify_one();
        }
        let _ = thread.join();
        shared.ends.store(false, Ordering::SeqCst);
        shared.awake.store(false, Ordering::SeqCst);
    }
}

fn watch(shared: &Shared) {
    let mut state = shared.state.lock();
    let (mut idle_looks, mut seen) = (0, state.turns.count);
    while !shared.ends.load(Ordering::SeqCst) {
        if !shared.awake.load(Ordering::SeqCst) {
            state = shared.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
            idle_looks = 0;
            seen = state.turns.count;
            continue;
        }
        let waited = shared.wake.wait_timeout(state, INTERVAL);
        state = waited.unwrap_or_else(PoisonError::into_inner).0;
        if state.capacity.in_flight == 0 && !state.departure.life.is_working() && !state.turns.is_held_up {
            idle_looks += 1;
            if idle_looks > IDLE_LOOKS {
                shared.awake.store(false, Ordering::SeqCst);
            }
        } else {
            idle_looks = 0;
        }
        if std::mem::replace(&mut seen, state.turns.count) == state.turns.count {
            state.look_if_held_up();
        }
    }
}

impl WorkerState {
    fn look_if_held_up(&mut self) {
        let is_ready = wait(self.sources.epoll.0.as_fd(), Readiness::Readable, Duration::ZERO);
        if self.is_leaving() {
            return;
        }
        let now = clock::now();
        if !is_ready.is_ok_and(|is_ready| is_ready) {
            // A sibling took the work, so nothing wakes the event loop; the timer shows that it responds.
            if self.turns.is_held_up {
                self.alarm.set_by(now);
            }
            return;
        }
        if !std::mem::replace(&mut self.turns.is_held_up, true) {
            self.publish_load();
            self.router.tell_held_up(true);
            self.show_busy(now);
        }
        if !self.router.is_there() && self.page.board.slots() > 1 {
            self.relieve(now);
        }
    }
}
