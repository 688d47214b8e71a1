//! A thread that sees when the event loop is held up.
//!
//! An event loop that runs the application's code for long looks at nothing meanwhile: requests on connections that its
//! worker holds would wait although siblings are idle. So a second thread looks every few milliseconds, as long as requests
//! are under way: something is ready, and was not asked for since the last look. Then the worker says that it has no room, and
//! the connections without a request go to siblings. The thread blocks every signal, and sleeps without a timeout when
//! nothing has been under way for a while.

use super::desk::Desk;
use crate::scoreboard::stamp::Stamp;
use crate::sys::socket::{Readiness, wait};
use crate::sys::{clock, signal};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often it looks.
const INTERVAL: Duration = Duration::from_millis(5);
/// Looks at a worker without a request before it sleeps until it is woken.
const IDLE_LOOKS: u32 = 50;
/// Its stack. It calls a handful of system calls.
const STACK_BYTES: usize = 128 * 1024;

/// What worker and thread share.
#[derive(Debug)]
pub(super) struct Shared {
    desk: Mutex<Desk>,
    wake: Condvar,
    awake: AtomicBool,
    ends: AtomicBool,
}

impl Shared {
    pub(super) fn new(desk: Desk) -> Arc<Shared> {
        Arc::new(Shared {
            desk: Mutex::new(desk),
            wake: Condvar::new(),
            awake: AtomicBool::new(false),
            ends: AtomicBool::new(false),
        })
    }

    pub(super) fn desk(&self) -> MutexGuard<'_, Desk> {
        // A panic aborts the process, so the lock is never left poisoned.
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread, which is started when it is first needed.
#[derive(Debug, Default)]
pub(super) struct Watch {
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Something is under way. Not to be called with the desk locked.
    pub(super) fn attend(&mut self, shared: &Arc<Shared>) {
        if shared.awake.swap(true, Ordering::SeqCst) {
            return;
        }
        if self.thread.is_none() {
            self.thread = start(shared);
        } else {
            // Under the lock, so that it can't fall between the thread's look at `awake` and its wait.
            let _desk = shared.desk();
            shared.wake.notify_one();
        }
    }

    /// Ends the thread, as before a fork.
    pub(super) fn end(&mut self, shared: &Shared) {
        let Some(thread) = self.thread.take() else { return };
        shared.ends.store(true, Ordering::SeqCst);
        {
            let _desk = shared.desk();
            shared.wake.notify_one();
        }
        // It does not panic: that would have ended the process.
        let _ = thread.join();
        shared.ends.store(false, Ordering::SeqCst);
        shared.awake.store(false, Ordering::SeqCst);
    }
}

/// Starts the thread; `None` where the system refuses, in which case the connections wait for the worker.
fn start(shared: &Arc<Shared>) -> Option<JoinHandle<()>> {
    let shared = Arc::clone(shared);
    let mask = signal::block_all();
    let builder = std::thread::Builder::new()
        .name("minder".into())
        .stack_size(STACK_BYTES);
    let thread = builder.spawn(move || watch(&shared));
    signal::restore(&mask);
    thread.ok()
}

fn watch(shared: &Shared) {
    let mut desk = shared.desk();
    let (mut idle_looks, mut seen) = (0, desk.turns);
    while !shared.ends.load(Ordering::SeqCst) {
        if !shared.awake.load(Ordering::SeqCst) {
            desk = shared.wake.wait(desk).unwrap_or_else(PoisonError::into_inner);
            idle_looks = 0;
            seen = desk.turns;
            continue;
        }
        let waited = shared.wake.wait_timeout(desk, INTERVAL);
        desk = waited.unwrap_or_else(PoisonError::into_inner).0;
        if desk.in_flight == 0 && !desk.is_working {
            idle_looks += 1;
            if idle_looks > IDLE_LOOKS {
                shared.awake.store(false, Ordering::SeqCst);
            }
        } else {
            idle_looks = 0;
        }
        if std::mem::replace(&mut seen, desk.turns) == desk.turns {
            desk.look_if_held_up();
        }
    }
}

impl Desk {
    /// Nothing was asked for since the last look.
    fn look_if_held_up(&mut self) {
        let is_ready = wait(self.epoll.0.as_fd(), Readiness::Readable, Duration::ZERO);
        if self.is_leaving() || !is_ready.is_ok_and(|is_ready| is_ready) {
            return;
        }
        let now = clock::now();
        if !std::mem::replace(&mut self.is_held_up, true) {
            self.publish_load();
            let stamp = Stamp::new(self.slot.words());
            self.teller.take_up(&self.board, &stamp, now);
        }
        if self.router.is_none() && self.board.slots() > 1 {
            self.relieve(now);
        }
    }
}
