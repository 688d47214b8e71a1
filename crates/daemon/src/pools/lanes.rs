//! The queues of a pool's lanes: two socket pairs, for the requests that its workers park.

use crate::context::Context;
use crate::context::generation::Generation;
use crate::context::pools::{Pools, RunningPool};
use forkyard_base::tick::Tick;
use forkyard_core::master::event::PoolId;
use forkyard_protocol::handover::names::QueueKind;
use forkyard_protocol::lanes::{Lane, Lanes, PARKED_BYTES};
use forkyard_sys::fd::{receive_with, send_with, unread};
use forkyard_sys::guarded::Guarded;
use forkyard_sys::process::{self, Finding};
use forkyard_sys::socket::{Progress, receive, send};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Parameters of parked requests are shorter.
const REQUEST_BYTES: usize = 64 * 1_024;
const REFUSED: &[u8] =
    b"Status: 503 Service Unavailable\r\nRetry-After: 5\r\nContent-Type: text/plain; charset=UTF-8\r\n\r\n\
    The application has ended. Please try again later.\n";
/// Workers never park more.
const MOST_PARKED: usize = 4 * 1_024;

impl RunningPool {
    /// Returns the number of parked connections, by lane.
    fn parked(&self) -> [u32; 4] {
        let Some(ends) = self.queues.get(QueueKind::Lanes) else {
            return [0; 4];
        };
        let parked = |lane: Lane| unread(ends[lane.out_end()].as_fd()) / PARKED_BYTES;
        Lane::ALL.map(|lane| u32::try_from(parked(lane)).unwrap_or(u32::MAX))
    }

    /// Whether connections are parked.
    pub(crate) fn has_parked(&self) -> bool {
        self.parked().into_iter().any(|count| count > 0)
    }
}

impl Context {
    /// Closes a pool's lane queues once no generation has lanes. Parked connections go into the hand-off queue.
    pub(crate) fn close_lanes(&mut self, id: PoolId) {
        let has_lanes = |generation: &Generation| generation.settings.pool.load.lanes.is_some();
        let mut generations = self.pools.generations.of(&id).map(|(_, it)| it).peekable();
        // A pool without a generation ends, and refuses its parked requests.
        if generations.peek().is_none() || generations.any(has_lanes) {
            return;
        }
        let Some(pool) = self.pools.by_id.get_mut(&id) else {
            return;
        };
        let Some(ends) = pool.queues.remove(QueueKind::Lanes) else {
            return;
        };
        ends.iter().for_each(|end| self.services.sources.forget(end));
        if let Some((_, queue_in)) = pool.queues.hand_off() {
            pass_on(&pool.name, &ends, queue_in);
        }
        self.handover.unkeep(QueueKind::Lanes.names(id.0));
        self.handover.pool_changed(id);
    }
}

/// Passes parked connections to the hand-off queue, in a child process, because closing a client's connection can block.
fn pass_on(pool: &str, ends: &[Guarded], queue_in: &Guarded) {
    let queue_in = queue_in.as_fd();
    let ends: Vec<_> = ends.iter().map(AsFd::as_fd).collect();
    let kept: Vec<_> = ends.iter().copied().chain([queue_in]).collect();
    let is_passed = process::within_a_moment_with(pool, &kept, || {
        take_all(&ends, |note, descriptors| {
            let sockets: Vec<_> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
            send_with(queue_in, note, &sockets).is_ok()
        });
        Finding::from(Vec::new())
    });
    if is_passed.is_none() {
        log::error!("[pool {pool}] requests that waited in its lanes are lost");
    }
}

/// Takes the parked connections of all lanes. A lane ends early if `take` fails.
fn take_all(ends: &[BorrowedFd<'_>], take: impl Fn(&[u8], &[OwnedFd]) -> bool) {
    for end in ends {
        for _ in 0..MOST_PARKED {
            let mut note = [0; PARKED_BYTES];
            match receive_with(*end, &mut note, false) {
                Ok(received) if !received.descriptors.is_empty() => {
                    if !take(&note[..received.bytes], &received.descriptors) {
                        break;
                    }
                }
                Ok(_) | Err(_) => break,
            }
        }
    }
}

/// Answers the parked requests of a closing pool, in a child process.
pub(crate) fn refuse_parked(pool: &RunningPool) {
    let Some(ends) = pool.queues.get(QueueKind::Lanes).filter(|_| pool.has_parked()) else {
        return;
    };
    let kept: Vec<_> = ends.iter().map(AsFd::as_fd).collect();
    let refused = process::within_a_moment_with(&pool.name, &kept, || {
        take_all(&kept, |_, descriptors| {
            descriptors.iter().for_each(|it| refuse(it.as_fd()));
            true
        });
        Finding::from(Vec::new())
    });
    if refused.is_none() {
        log::error!(
            "[pool {}] requests that waited in its lanes got no answer",
            pool.name
        );
    }
}

/// Answers the request at the start of a connection.
fn refuse(connection: BorrowedFd<'_>) {
    let mut bytes = vec![0; REQUEST_BYTES];
    let Ok(Progress::Done(count)) = receive(connection, &mut bytes) else {
        return;
    };
    let mut responder = fastcgi::Responder::new(fastcgi::Limits::default());
    let mut at = 0;
    loop {
        match responder.receive(&bytes[at..count]) {
            (_, fastcgi::Input::Request) => break,
            (used, fastcgi::Input::Reply(_)) if used > 0 => at += used,
            _ => return,
        }
    }
    let mut output = fastcgi::Output::new();
    output.begin(responder.request_id());
    output.stdout(REFUSED);
    output.end(0, fastcgi::ProtocolStatus::RequestComplete);
    let _ = send(connection, output.pending());
}

impl Pools {
    /// Returns the numbers of a pool's lanes, or `None` for a pool without lanes.
    pub(crate) fn lanes(&self, id: PoolId, now: Tick) -> Option<Lanes> {
        let pool = self.by_id.get(&id)?;
        let generation = self.generations.get(&pool.serving?)?;
        let settings = generation.settings.pool.load.lanes.as_ref()?;
        let pages = generation.resources.as_ref()?.board.lanes()?;
        let mut numbers = self
            .past(&pool.name)
            .lanes
            .map_or_else(Lanes::default, |past| *past);
        for (_, generation) in self.generations.of(&id) {
            if let Some(lanes) = generation.lane_numbers() {
                numbers.add(&lanes);
            }
        }
        for (lane, parked) in numbers.each_mut().into_iter().zip(pool.parked()) {
            lane.parked = parked;
        }
        let reserve = settings.reserve.unwrap_or_else(|| pages.idle_workers(now));
        numbers.reserve = reserve.min(generation.most_workers());
        Some(numbers)
    }
}

impl Generation {
    /// Returns the accumulated numbers of its lanes.
    pub(crate) fn lane_numbers(&self) -> Option<Lanes> {
        Some(self.resources.as_ref()?.board.lanes()?.read())
    }

    /// Returns how many workers above `max_children` the lanes want.
    pub(crate) fn lane_extra(&self, now: Tick) -> u32 {
        let Some(lanes) = &self.settings.pool.load.lanes else {
            return 0;
        };
        let pages = self.resources.as_ref().and_then(|it| it.board.lanes());
        let wanted = pages.map_or(1, |pages| pages.idle_workers(now));
        lanes.reserve.unwrap_or(wanted).min(lanes.extra)
    }
}
