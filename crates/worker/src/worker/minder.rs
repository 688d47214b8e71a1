//! Looks after the held connections while the worker is busy with a request.
//!
//! A worker can't look at its other connections while the application runs, and how long that will take is known only
//! afterwards. Sending them away before every request would make each request pay for every connection. So a second
//! thread, started when a worker first begins a request while it holds other connections, watches the time. Once a request
//! has run for [`PATIENCE`], it passes on what waits for the worker, and from then on every request on a held connection as
//! soon as it comes. Connections without a request go where a sibling is idle; where none is, they are watched here for
//! [`WATCH_LIMIT`], so that the order in which their requests come is known, and then go into the hand-over queue in any
//! case: what ends a request that runs long may end its worker. A request that is done sooner costs nothing. The thread
//! blocks every signal, and sleeps without a timeout when its worker has been idle for a while or holds nothing.

use super::held::Held;
use super::order::{self, PATIENCE, Waiting};
use super::outlook;
use crate::scoreboard::Reader;
use crate::sys::fd::send_with;
use crate::sys::{clock, signal, socket};
use crate::tick::Tick;
use nix::sys::epoll::Epoll;
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long connections without a request are watched at most while a request runs and no sibling is idle.
const WATCH_LIMIT: Duration = Duration::from_millis(500);
/// Looks at an idle worker before the minder sleeps until it is woken.
const IDLE_LOOKS: u32 = 50;
const NUDGE: [u8; 1] = [0];
/// Its stack. It calls a handful of system calls.
const STACK_BYTES: usize = 128 * 1024;

/// What worker and minder share.
#[derive(Debug)]
pub(super) struct Shared {
    held: Mutex<Held>,
    wake: Condvar,
    /// When the request that is being served began, in nanoseconds; 0 when none is.
    begun: AtomicU64,
    /// The minder is awake.
    awake: AtomicBool,
    /// The minder waits for requests on held connections, or for its bell.
    watching: AtomicBool,
    bell: EventFd,
    /// The minder is to end.
    ends: AtomicBool,
    pub(super) epoll: Epoll,
    pub(super) queue_in: OwnedFd,
    listener: Arc<OwnedFd>,
    board: Arc<Reader>,
    /// How long connections without a request are watched.
    watch_limit: Duration,
}

/// The worker's handle on its minder.
#[derive(Debug)]
pub(super) struct Minder {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Minder {
    /// Nothing is held and no thread runs. `time_limit`: a request that takes longer ends its worker.
    pub(super) fn new(
        epoll: Epoll,
        queue_in: OwnedFd,
        listener: Arc<OwnedFd>,
        board: Arc<Reader>,
        time_limit: Option<Duration>,
    ) -> nix::Result<Minder> {
        let shared = Shared {
            held: Mutex::default(),
            wake: Condvar::new(),
            begun: AtomicU64::new(0),
            awake: AtomicBool::new(false),
            watching: AtomicBool::new(false),
            bell: EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?,
            ends: AtomicBool::new(false),
            epoll,
            queue_in,
            listener,
            board,
            watch_limit: time_limit.map_or(WATCH_LIMIT, |limit| WATCH_LIMIT.min(limit / 2)),
        };
        Ok(Minder {
            shared: Arc::new(shared),
            thread: None,
        })
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
    pub(super) fn begin(&mut self, now: Tick) {
        // No two requests of a worker begin in the same nanosecond.
        self.shared.begun.store(now.as_nanos().max(1), Ordering::SeqCst);
        self.attend();
    }

    /// Connections are held while a request runs: the minder has to look after them.
    fn attend(&mut self) {
        if self.held().idle() == 0 {
            return;
        }
        if self.thread.is_none() {
            self.thread = start(&self.shared);
        }
        if !self.shared.awake.swap(true, Ordering::SeqCst) {
            // Under the lock, so that it can't fall between the minder's look at `awake` and its wait.
            let _held = self.held();
            self.shared.wake.notify_one();
        } else {
            self.ring();
        }
    }

    /// What the minder watches is no longer what it is to watch. It says that it watches before it looks at the request
    /// once more, so it sees this request or is seen here.
    fn ring(&self) {
        if self.shared.watching.load(Ordering::SeqCst) {
            // Fails only where it has been rung 2⁶⁴ times.
            let _ = self.shared.bell.write(1);
        }
    }

    /// A connection was put among the held ones while, perhaps, a request runs on.
    pub(super) fn attend_if_serving(&mut self) {
        if self.shared.begun.load(Ordering::SeqCst) != 0 {
            self.attend();
        }
    }

    /// The request is over.
    pub(super) fn end(&self) {
        self.shared.begun.store(0, Ordering::SeqCst);
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
        let _ = self.shared.bell.write(1);
        // It does not panic: that would have ended the process.
        let _ = thread.join();
        let _ = self.shared.bell.read();
        self.shared.ends.store(false, Ordering::SeqCst);
        self.shared.awake.store(false, Ordering::SeqCst);
    }

    /// Wakes a sibling that waits: a message without connections.
    pub(super) fn nudge(&self) {
        // A queue that is full wakes whoever takes out of it.
        let _ = send_with(self.shared.queue_in.as_fd(), &NUDGE, &[]);
    }

    /// Sends connections to the hand-over queue.
    pub(super) fn send_away(&self, places: &[usize]) -> usize {
        self.shared.send_away(&mut self.held(), places)
    }
}

impl Shared {
    fn send_away(&self, held: &mut Held, places: &[usize]) -> usize {
        held.send_away(places, self.queue_in.as_fd(), &self.epoll)
    }

    fn is_over(&self, begun: u64) -> bool {
        self.begun.load(Ordering::SeqCst) != begun || self.ends.load(Ordering::SeqCst)
    }

    /// Notes which of these connections have a request. Not all need still be what they were.
    fn note(&self, held: &mut Held, ready: &[(usize, i32)]) {
        if ready.is_empty() {
            return;
        }
        let since = clock::now();
        let turn = outlook::turn(&self.board, &self.listener);
        for &(place, fd) in ready {
            if held.is_same(place, fd) {
                held.note(place, Waiting { since, turn });
            }
        }
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
        if !shared.awake.load(Ordering::SeqCst) {
            held = shared.wake.wait(held).unwrap_or_else(PoisonError::into_inner);
            idle_looks = 0;
            continue;
        }
        let begun = shared.begun.load(Ordering::SeqCst);
        if begun == 0 {
            idle_looks += 1;
            if idle_looks > IDLE_LOOKS {
                shared.awake.store(false, Ordering::SeqCst);
            } else {
                held = wait(shared, held, PATIENCE);
            }
            continue;
        }
        idle_looks = 0;
        if held.idle() == 0 {
            // The worker wakes it when it holds something.
            shared.awake.store(false, Ordering::SeqCst);
            continue;
        }
        let now = clock::now();
        let started = Tick::from_nanos(begun);
        let left = order::passes_on_at(started, held.first()).since(now);
        held = if left.is_zero() {
            watch(shared, held, begun, now)
        } else {
            wait(shared, held, left)
        };
    }
}

fn wait<'a>(shared: &'a Shared, held: MutexGuard<'a, Held>, limit: Duration) -> MutexGuard<'a, Held> {
    let waited = shared.wake.wait_timeout(held, limit);
    waited.unwrap_or_else(PoisonError::into_inner).0
}

/// A request runs long: passes on what waits already, and what comes next.
fn watch<'a>(
    shared: &'a Shared,
    mut held: MutexGuard<'a, Held>,
    begun: u64,
    now: Tick,
) -> MutexGuard<'a, Held> {
    let places = held.waiting_places();
    shared.send_away(&mut held, &places);
    let left = (Tick::from_nanos(begun) + shared.watch_limit).since(now);
    let mut set = held.watchable();
    let all_go = left.is_zero() || outlook::count(&shared.board).0 > 0;
    if all_go {
        let ready = ready_of(shared, &set, Duration::ZERO);
        shared.note(&mut held, &ready);
        let places = held.idle_places();
        shared.send_away(&mut held, &places);
        set.clear();
    }
    if set.is_empty() || held.waiting() > 0 {
        // Nothing is left to watch, or the queue is full.
        return match held.idle() {
            0 => held,
            _ => wait(shared, held, PATIENCE),
        };
    }
    shared.watching.store(true, Ordering::SeqCst);
    drop(held);
    let ready = if shared.is_over(begun) {
        Vec::new()
    } else {
        ready_of(shared, &set, left)
    };
    held = lock(shared);
    shared.watching.store(false, Ordering::SeqCst);
    // Empty unless it was rung.
    let _ = shared.bell.read();
    if !shared.is_over(begun) {
        shared.note(&mut held, &ready);
        let places = held.waiting_places();
        shared.send_away(&mut held, &places);
    }
    held
}

/// Waits until some of the descriptors are readable, or the bell rings.
fn ready_of(shared: &Shared, set: &[(usize, i32)], limit: Duration) -> Vec<(usize, i32)> {
    let numbers: Vec<i32> = set.iter().map(|(_, fd)| *fd).collect();
    let readable = socket::readable_of(&numbers, shared.bell.as_fd(), limit);
    readable.into_iter().map(|index| set[index]).collect()
}
