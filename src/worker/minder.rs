//! Looks after the held connections while the worker is busy with a request.
//!
//! A worker can't look at its other connections while the application runs, and how long that will take is known only
//! afterwards. Sending them away before every request would make each request pay for every connection. So a second
//! thread, started when a worker first begins a request while it holds other connections, watches the time: a request
//! that runs longer than [`PATIENCE`] loses the worker its other connections, which siblings take. A request that is
//! done sooner costs nothing. The thread blocks every signal, allocates nothing once it runs, and sleeps without a
//! timeout when its worker has been idle for a while.

use super::held::Held;
use crate::sys::signal;
use nix::sys::epoll::Epoll;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long a request may run before the worker's other connections are sent away.
const PATIENCE: Duration = Duration::from_millis(2);
/// Looks at an idle worker before the minder sleeps until it is woken.
const IDLE_LOOKS: u32 = 25;
/// Its stack. It calls two system calls.
const STACK_BYTES: usize = 128 * 1024;

/// What worker and minder share.
#[derive(Debug)]
pub(super) struct Shared {
    held: Mutex<Held>,
    wake: Condvar,
    /// Number of the request that is being served, 0 when none is.
    serving: AtomicU64,
    /// The minder is awake: it looks every [`PATIENCE`].
    awake: AtomicU64,
    /// The minder is to end.
    ends: AtomicBool,
    pub(super) epoll: Epoll,
    pub(super) queue_in: OwnedFd,
}

/// The worker's handle on its minder.
#[derive(Debug)]
pub(super) struct Minder {
    shared: Arc<Shared>,
    serial: u64,
    thread: Option<JoinHandle<()>>,
}

impl Minder {
    /// Nothing is held and no thread runs.
    pub(super) fn new(epoll: Epoll, queue_in: OwnedFd) -> Minder {
        let shared = Shared {
            held: Mutex::default(),
            wake: Condvar::new(),
            serving: AtomicU64::new(0),
            awake: AtomicU64::new(0),
            ends: AtomicBool::new(false),
            epoll,
            queue_in,
        };
        Minder {
            shared: Arc::new(shared),
            serial: 0,
            thread: None,
        }
    }

    /// The held connections, locked.
    pub(super) fn held(&self) -> MutexGuard<'_, Held> {
        lock(&self.shared)
    }

    /// The epoll that watches the held connections and the worker's other sources.
    pub(super) fn epoll(&self) -> &Epoll {
        &self.shared.epoll
    }

    /// A request begins.
    pub(super) fn begin(&mut self) {
        self.serial += 1;
        self.shared.serving.store(self.serial, Ordering::SeqCst);
        self.attend();
    }

    /// Connections are held while a request runs: somebody has to look after them.
    pub(super) fn attend(&mut self) {
        if self.held().idle() == 0 {
            return;
        }
        if self.thread.is_none() {
            self.thread = start(&self.shared);
        }
        if self.shared.awake.swap(1, Ordering::SeqCst) == 0 {
            // Under the lock, so that it can't fall between the minder's look at `awake` and its wait.
            let _held = self.held();
            self.shared.wake.notify_one();
        }
    }

    /// A connection was put among the held ones while, perhaps, a request runs on.
    pub(super) fn attend_if_serving(&mut self) {
        if self.shared.serving.load(Ordering::SeqCst) != 0 {
            self.attend();
        }
    }

    /// The request is over.
    pub(super) fn end(&self) {
        self.shared.serving.store(0, Ordering::SeqCst);
    }

    /// Between requests: ends the thread, as before a fork. The next request that needs it starts another.
    pub(super) fn pause(&mut self) {
        let Some(thread) = self.thread.take() else {
            return;
        };
        self.shared.ends.store(true, Ordering::SeqCst);
        {
            // Under the lock, so that it can't fall between the minder's look and its wait.
            let _held = self.held();
            self.shared.wake.notify_one();
        }
        // It does not panic: that would have ended the process.
        let _ = thread.join();
        self.shared.ends.store(false, Ordering::SeqCst);
        self.shared.awake.store(0, Ordering::SeqCst);
    }

    /// Sends connections to the hand-over queue.
    pub(super) fn send_away(&self, places: &[usize]) -> usize {
        self.held()
            .send_away(places, self.shared.queue_in.as_fd(), &self.shared.epoll)
    }
}

fn lock(shared: &Shared) -> MutexGuard<'_, Held> {
    // A panic aborts the process, so the lock is never left poisoned.
    shared.held.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts the thread; `None` where the system refuses, in which case the connections wait for the worker.
fn start(shared: &Arc<Shared>) -> Option<JoinHandle<()>> {
    let shared = Arc::clone(shared);
    let mask = signal::block_all();
    let builder = std::thread::Builder::new()
        .name("minder".into())
        .stack_size(STACK_BYTES);
    let thread = builder.spawn(move || mind(&shared));
    signal::restore(&mask);
    thread.ok()
}

fn mind(shared: &Shared) {
    let mut held = lock(shared);
    let mut idle_looks = 0;
    while !shared.ends.load(Ordering::SeqCst) {
        if shared.awake.load(Ordering::SeqCst) == 0 {
            held = shared.wake.wait(held).unwrap_or_else(PoisonError::into_inner);
            idle_looks = 0;
            continue;
        }
        let before = shared.serving.load(Ordering::SeqCst);
        held = shared
            .wake
            .wait_timeout(held, PATIENCE)
            .unwrap_or_else(PoisonError::into_inner)
            .0;
        let serving = shared.serving.load(Ordering::SeqCst);
        if serving == 0 {
            idle_looks += 1;
            if idle_looks >= IDLE_LOOKS {
                shared.awake.store(0, Ordering::SeqCst);
            }
            continue;
        }
        idle_looks = 0;
        if serving == before && held.idle() > 0 {
            let places = held.idle_places();
            held.send_away(&places, shared.queue_in.as_fd(), &shared.epoll);
        }
    }
}
