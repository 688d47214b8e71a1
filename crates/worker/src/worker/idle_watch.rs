//! Looks after the held connections while the worker is busy with a request.
//!
//! A worker can't look at its other connections while the application runs, and how long that will take is known only
//! afterwards. Sending them away before every request would make each request pay for every connection. So a second
//! thread, started when a worker first begins a request while it holds other connections, watches the time. Once a request
//! has run for [`TIMEOUT`], it passes on what waits for the worker, and from then on every request on a held connection as
//! soon as it comes. Connections without a request go where a sibling is idle; where none is, they are watched here for
//! [`WATCH_LIMIT`], so that the order in which their requests come is known, and then go into the hand-off queue in any
//! case: what ends a request that runs long may end its worker. A request that is done sooner costs nothing. The thread
//! blocks every signal, and sleeps without a timeout when its worker has been idle for a while or holds nothing.
//!
//! A worker that is put back after each request can have no thread. It gives its other connections away before each request
//! (`rewound.rs`).

use super::keepalive::KeepaliveSet;
use super::pool_view;
use super::service_order::{self, TIMEOUT, Waiting};
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
/// Looks at an idle worker before the idle_watch sleeps until it is woken.
const IDLE_LOOKS: u32 = 50;
const WAKE: [u8; 1] = [0];
/// Its stack. It calls a handful of system calls.
const STACK_BYTES: usize = 128 * 1024;

/// What worker and idle_watch share.
#[derive(Debug)]
pub(super) struct Shared {
    keepalive: Mutex<KeepaliveSet>,
    wake: Condvar,
    /// When the request that is being served began, in nanoseconds; 0 when none is.
    begun: AtomicU64,
    /// The idle_watch is awake.
    awake: AtomicBool,
    /// The idle_watch waits for requests on held connections, or for its bell.
    watching: AtomicBool,
    bell: EventFd,
    /// The idle_watch is to end.
    ends: AtomicBool,
    pub(super) epoll: Epoll,
    pub(super) queue_in: OwnedFd,
    listener: Arc<OwnedFd>,
    board: Arc<Reader>,
    /// How long connections without a request are watched.
    watch_limit: Duration,
}

/// The worker's handle on its idle_watch.
#[derive(Debug)]
pub(super) struct IdleWatch {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// The process can have no thread.
    is_alone: bool,
}

impl IdleWatch {
    /// Nothing is held and no thread runs. `time_limit`: a request that takes longer ends its worker.
    pub(super) fn new(
        epoll: Epoll,
        queue_in: OwnedFd,
        listener: Arc<OwnedFd>,
        board: Arc<Reader>,
        time_limit: Option<Duration>,
    ) -> nix::Result<IdleWatch> {
        let shared = Shared {
            keepalive: Mutex::default(),
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
        Ok(IdleWatch {
            shared: Arc::new(shared),
            thread: None,
            is_alone: false,
        })
    }

    /// No thread is started from now on. Who holds connections while a request runs gives them to the siblings.
    pub(super) fn never_start(&mut self) {
        self.is_alone = true;
    }

    /// The held connections, locked.
    pub(super) fn keepalive(&self) -> MutexGuard<'_, KeepaliveSet> {
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
        self.wake();
    }

    /// Connections are held while a request runs: the idle_watch has to look after them.
    fn wake(&mut self) {
        if self.is_alone || self.keepalive().idle() == 0 {
            return;
        }
        if self.thread.is_none() {
            self.thread = start_thread(&self.shared, watch_connections);
        }
        if !self.shared.awake.swap(true, Ordering::SeqCst) {
            // Under the lock, so that it can't fall between the idle_watch's look at `awake` and its wait.
            let _keepalive = self.keepalive();
            self.shared.wake.notify_one();
        } else {
            self.ring();
        }
    }

    /// What the idle_watch watches is no longer what it is to watch. It says that it watches before it looks at the request
    /// once more, so it sees this request or is seen here.
    fn ring(&self) {
        if self.shared.watching.load(Ordering::SeqCst) {
            // Fails only where it has been rung 2⁶⁴ times.
            let _ = self.shared.bell.write(1);
        }
    }

    /// A connection was put among the held ones while, perhaps, a request runs on.
    pub(super) fn wake_if_serving(&mut self) {
        if self.shared.begun.load(Ordering::SeqCst) == 0 {
            return;
        }
        if self.is_alone && self.shared.board.slots() > 1 {
            let indices = self.keepalive().idle_indices();
            self.send_away(&indices);
        }
        self.wake();
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
            // Under the lock, so that it can't fall between the idle_watch's look and its wait.
            let _keepalive = self.keepalive();
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
    pub(super) fn wake_sibling(&self) {
        // A queue that is full wakes the workers that take out of it.
        let _ = send_with(self.shared.queue_in.as_fd(), &WAKE, &[]);
    }

    /// Sends connections to the hand-off queue.
    pub(super) fn send_away(&self, indices: &[usize]) -> usize {
        self.shared.send_away(&mut self.keepalive(), indices)
    }
}

impl Shared {
    fn send_away(&self, keepalive: &mut KeepaliveSet, indices: &[usize]) -> usize {
        keepalive.send_away(indices, self.queue_in.as_fd(), &self.epoll)
    }

    fn is_over(&self, begun: u64) -> bool {
        self.begun.load(Ordering::SeqCst) != begun || self.ends.load(Ordering::SeqCst)
    }

    /// Notes which of these connections have a request. Some may have changed since.
    fn note(&self, keepalive: &mut KeepaliveSet, ready: &[(usize, i32)]) {
        if ready.is_empty() {
            return;
        }
        let since = clock::now();
        let turn = pool_view::turn(&self.board, &self.listener);
        for &(index, fd) in ready {
            if keepalive.is_same(index, fd) {
                keepalive.note(index, Waiting { since, turn });
            }
        }
    }
}

fn lock(shared: &Shared) -> MutexGuard<'_, KeepaliveSet> {
    // A panic aborts the process, so the lock is never left poisoned.
    shared.keepalive.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a thread that watches; `None` where the system refuses, in which case the connections wait for the worker.
pub(super) fn start_thread<S: Send + Sync + 'static>(
    shared: &Arc<S>,
    watch: fn(&S),
) -> Option<JoinHandle<()>> {
    let shared = Arc::clone(shared);
    let mask = signal::block_all();
    let builder = std::thread::Builder::new()
        .name("idle-watch".into())
        .stack_size(STACK_BYTES);
    let thread = builder.spawn(move || watch(&shared));
    signal::restore(&mask);
    thread.ok()
}

fn watch_connections(shared: &Shared) {
    let mut keepalive = lock(shared);
    let mut idle_looks = 0;
    while !shared.ends.load(Ordering::SeqCst) {
        if !shared.awake.load(Ordering::SeqCst) {
            keepalive = shared
                .wake
                .wait(keepalive)
                .unwrap_or_else(PoisonError::into_inner);
            idle_looks = 0;
            continue;
        }
        let begun = shared.begun.load(Ordering::SeqCst);
        if begun == 0 {
            idle_looks += 1;
            if idle_looks > IDLE_LOOKS {
                shared.awake.store(false, Ordering::SeqCst);
            } else {
                keepalive = wait(shared, keepalive, TIMEOUT);
            }
            continue;
        }
        idle_looks = 0;
        if keepalive.idle() == 0 {
            // The worker wakes it when it holds something.
            shared.awake.store(false, Ordering::SeqCst);
            continue;
        }
        let now = clock::now();
        let started = Tick::from_nanos(begun);
        let left = service_order::passes_on_at(started, keepalive.first()).since(now);
        keepalive = if left.is_zero() {
            watch(shared, keepalive, begun, now)
        } else {
            wait(shared, keepalive, left)
        };
    }
}

fn wait<'a>(
    shared: &'a Shared,
    keepalive: MutexGuard<'a, KeepaliveSet>,
    limit: Duration,
) -> MutexGuard<'a, KeepaliveSet> {
    let waited = shared.wake.wait_timeout(keepalive, limit);
    waited.unwrap_or_else(PoisonError::into_inner).0
}

/// A request runs long: passes on what waits already, and what comes next.
fn watch<'a>(
    shared: &'a Shared,
    mut keepalive: MutexGuard<'a, KeepaliveSet>,
    begun: u64,
    now: Tick,
) -> MutexGuard<'a, KeepaliveSet> {
    let indices = keepalive.waiting_indices();
    shared.send_away(&mut keepalive, &indices);
    let left = (Tick::from_nanos(begun) + shared.watch_limit).since(now);
    let mut set = keepalive.watchable();
    let all_go = left.is_zero() || pool_view::count(&shared.board).0 > 0;
    if all_go {
        let ready = ready_of(shared, &set, Duration::ZERO);
        shared.note(&mut keepalive, &ready);
        let indices = keepalive.idle_indices();
        shared.send_away(&mut keepalive, &indices);
        set.clear();
    }
    if set.is_empty() || keepalive.waiting() > 0 {
        // Nothing is left to watch, or the queue is full.
        return match keepalive.idle() {
            0 => keepalive,
            _ => wait(shared, keepalive, TIMEOUT),
        };
    }
    shared.watching.store(true, Ordering::SeqCst);
    drop(keepalive);
    let ready = if shared.is_over(begun) {
        Vec::new()
    } else {
        ready_of(shared, &set, left)
    };
    keepalive = lock(shared);
    shared.watching.store(false, Ordering::SeqCst);
    // Empty unless it was rung.
    let _ = shared.bell.read();
    if !shared.is_over(begun) {
        shared.note(&mut keepalive, &ready);
        let indices = keepalive.waiting_indices();
        shared.send_away(&mut keepalive, &indices);
    }
    keepalive
}

/// Waits until some of the descriptors are readable, or the bell rings.
fn ready_of(shared: &Shared, set: &[(usize, i32)], limit: Duration) -> Vec<(usize, i32)> {
    let numbers: Vec<i32> = set.iter().map(|(_, fd)| *fd).collect();
    let readable = socket::readable_of(&numbers, shared.bell.as_fd(), limit);
    readable.into_iter().map(|index| set[index]).collect()
}
