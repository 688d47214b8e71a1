//! A thread that passes on held connections while the worker is busy with a request.
//!
//! Passing them on before every request would make each request pay for every connection. Instead the thread starts when a
//! request first begins while other connections are held. After [`TIMEOUT`] it passes on waiting requests, and then every
//! new one on arrival. Connections without a request go to an idle sibling; if none is idle, they are watched for
//! [`WATCH_LIMIT`], to preserve the order of their requests, and then go into the hand-off queue, because a long
//! request may end in the worker's death. Shorter requests cost nothing. The thread blocks all signals and sleeps while
//! the worker is idle or holds nothing.
//!
//! A worker that is rewound after each request has no thread and passes its connections on before each request
//! (`rewound.rs`).

use super::keepalive::KeepaliveSet;
use super::pool_view;
use super::service_order::{self, TIMEOUT, Waiting};
use forkyard_base::tick::Tick;
use forkyard_scoreboard::Reader;
use forkyard_sys::fd::send_with;
use forkyard_sys::{clock, signal, socket};
use nix::sys::epoll::Epoll;
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

const WATCH_LIMIT: Duration = Duration::from_millis(500);
const IDLE_LOOKS: u32 = 50;
const WAKE: [u8; 1] = [0];
const STACK_BYTES: usize = 128 * 1024;

#[derive(Debug)]
pub(super) struct Shared {
    keepalive: Mutex<KeepaliveSet>,
    wake: Condvar,
    /// The start of the current request in nanoseconds; 0: none.
    begun: AtomicU64,
    awake: AtomicBool,
    /// The thread is waiting for requests on held connections, or for `bell`.
    watching: AtomicBool,
    bell: EventFd,
    ends: AtomicBool,
    pub(super) epoll: Epoll,
    pub(super) queue_in: OwnedFd,
    listener: Arc<OwnedFd>,
    board: Arc<Reader>,
    watch_limit: Duration,
}

#[derive(Debug)]
pub(super) struct IdleWatch {
    shared: Arc<Shared>,
    idle: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
    /// No thread may be started.
    pub(super) is_alone: bool,
}

impl IdleWatch {
    pub(super) fn new(
        epoll: Epoll,
        queue_in: OwnedFd,
        listener: Arc<OwnedFd>,
        board: Arc<Reader>,
        time_limit: Option<Duration>,
    ) -> nix::Result<IdleWatch> {
        let keepalive = KeepaliveSet::default();
        let idle = Arc::clone(&keepalive.idle);
        let shared = Shared {
            keepalive: Mutex::new(keepalive),
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
            idle,
            thread: None,
            is_alone: false,
        })
    }

    pub(super) fn keepalive(&self) -> MutexGuard<'_, KeepaliveSet> {
        lock(&self.shared)
    }

    /// Whether the worker holds connections, without taking the lock.
    pub(super) fn is_holding(&self) -> bool {
        self.idle.load(Ordering::Relaxed) > 0
    }

    pub(super) fn epoll(&self) -> &Epoll {
        &self.shared.epoll
    }

    pub(super) fn begin(&mut self, now: Tick) {
        self.shared.begun.store(now.as_nanos().max(1), Ordering::SeqCst);
        self.wake();
    }

    fn wake(&mut self) {
        if self.is_alone || !self.is_holding() {
            return;
        }
        if self.thread.is_none() {
            self.thread = start_thread(&self.shared, watch_connections);
        }
        if !self.shared.awake.swap(true, Ordering::SeqCst) {
            // Under the lock, so that it can't fall between the thread's check of `awake` and its wait.
            let _keepalive = self.keepalive();
            self.shared.wake.notify_one();
        } else {
            self.ring();
        }
    }

    /// Interrupts the thread's wait, because the set of watched connections has changed. The thread sets `watching`
    /// before it checks the request again, so one side always sees the other.
    fn ring(&self) {
        if self.shared.watching.load(Ordering::SeqCst) {
            let _ = self.shared.bell.write(1);
        }
    }

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

    pub(super) fn end(&self) {
        self.shared.begun.store(0, Ordering::SeqCst);
    }

    pub(super) fn pause(&mut self) {
        let Some(thread) = self.thread.take() else {
            return;
        };
        self.shared.ends.store(true, Ordering::SeqCst);
        {
            // Under the lock, so that it can't fall between the thread's check and its wait.
            let _keepalive = self.keepalive();
            self.shared.wake.notify_one();
        }
        let _ = self.shared.bell.write(1);
        let _ = thread.join();
        let _ = self.shared.bell.read();
        self.shared.ends.store(false, Ordering::SeqCst);
        self.shared.awake.store(false, Ordering::SeqCst);
    }

    pub(super) fn wake_sibling(&self) {
        let _ = send_with(self.shared.queue_in.as_fd(), &WAKE, &[]);
    }

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
    // A panic aborts the process, so the lock is never poisoned.
    shared.keepalive.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a watching thread. `None`: the system refused, and the connections wait for the worker.
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
    let _ = shared.bell.read();
    if !shared.is_over(begun) {
        shared.note(&mut keepalive, &ready);
        let indices = keepalive.waiting_indices();
        shared.send_away(&mut keepalive, &indices);
    }
    keepalive
}

fn ready_of(shared: &Shared, set: &[(usize, i32)], limit: Duration) -> Vec<(usize, i32)> {
    let numbers: Vec<i32> = set.iter().map(|(_, fd)| *fd).collect();
    let readable = socket::readable_of(&numbers, shared.bell.as_fd(), limit);
    readable.into_iter().map(|index| set[index]).collect()
}
