//! Builds a pool's status from its scoreboard, for workers and the reporter.

use forkyard_base::tick::Tick;
use forkyard_scoreboard::layout::header as field;
use forkyard_scoreboard::slot_reader::{self, SlotEntry};
use forkyard_scoreboard::status::{ListenQueue, Snapshot, StatusAnswer, WorkerRow};
use forkyard_scoreboard::{Reader, RequestStage, header};
use forkyard_sys::{clock, diag};
use std::os::fd::BorrowedFd;

/// The current status.
///
/// `started`: the generation's start in seconds since 1970. `has_peak`: include the peak memory of a request, as
/// php-fpm does since PHP 8.4.
pub fn take(
    pool: &str,
    process_manager: &'static str,
    started: u64,
    board: &Reader,
    listener: BorrowedFd<'_>,
    has_peak: bool,
) -> Snapshot {
    let queue = diag::listen_queue(listener).unwrap_or_default();
    let now = clock::now();
    let mut workers = Vec::new();
    let mut add = |entry: &SlotEntry| workers.extend((entry.started > 0).then(|| row(entry, now)));
    let summary = gather(pool, process_manager, started, board, queue, has_peak, &mut add);
    Snapshot { workers, ..summary }
}

/// The current status without its workers.
pub fn summary(
    pool: &str,
    process_manager: &'static str,
    started: u64,
    board: &Reader,
    queue: diag::ListenQueue,
    has_peak: bool,
) -> Snapshot {
    gather(
        pool,
        process_manager,
        started,
        board,
        queue,
        has_peak,
        &mut |_| {},
    )
}

/// The status of a pool that has had no worker yet.
pub fn unused(
    pool: &str,
    process_manager: &'static str,
    started: u64,
    queue: diag::ListenQueue,
    has_peak: bool,
) -> Snapshot {
    Snapshot {
        pool: pool.to_owned(),
        process_manager,
        start: started as i64,
        now: clock::epoch_seconds() as i64,
        utc_offset_s: clock::utc_offset_seconds(),
        listen_queue: ListenQueue {
            current: queue.current,
            max: queue.current,
            len: queue.limit,
        },
        memory_peak: has_peak.then_some(0),
        ..Snapshot::default()
    }
}

fn gather(
    pool: &str,
    process_manager: &'static str,
    started: u64,
    board: &Reader,
    queue: diag::ListenQueue,
    has_peak: bool,
    each: &mut dyn FnMut(&SlotEntry),
) -> Snapshot {
    let words = board.header();
    let (mut idle, mut active) = (0, 0);
    let mut accepted = slot_reader::word(words, field::PAST_REQUESTS);
    let mut max_queue = slot_reader::word(words, field::PAST_MAX_QUEUE);
    let mut max_active = slot_reader::word(words, field::PAST_MAX_ACTIVE);
    let mut in_flight = None;
    let mut quiet = 0_u32;
    let mut memory_peak = slot_reader::word(words, field::PAST_MAX_MEMORY);
    for index in (0..board.slots()).filter(|index| header::used(words, *index)) {
        let Some(page) = board.slot(index) else { continue };
        let entry = slot_reader::read(page);
        match entry.stage {
            RequestStage::Accepting => idle += 1,
            RequestStage::Creating => {}
            _ => active += 1,
        }
        accepted = accepted.saturating_add(entry.requests);
        if entry.load.is_told {
            in_flight = Some(in_flight.unwrap_or(0_u32).saturating_add(entry.load.in_flight));
            quiet = quiet.saturating_add(entry.load.quiet);
        }
        max_active = max_active.max(entry.max_active.min(board.slots() as u64));
        max_queue = max_queue.max(entry.max_queue);
        memory_peak = memory_peak.max(entry.max_memory);
        each(&entry);
    }
    let small = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    let unused = unused(pool, process_manager, started, queue, has_peak);
    Snapshot {
        accepted,
        listen_queue: ListenQueue {
            max: small(max_queue).max(queue.current),
            ..unused.listen_queue
        },
        idle,
        active,
        total: idle + active,
        max_active: small(max_active).max(active),
        max_children_reached: slot_reader::word(words, field::MAX_CHILDREN_REACHED),
        slow: slot_reader::word(words, field::SLOW_REQUESTS),
        memory_peak: has_peak.then_some(memory_peak),
        in_flight,
        quiet,
        ..unused
    }
}

/// Encodes the status as a CGI response, after `extra_headers`.
pub fn encode(answer: &StatusAnswer, extra_headers: &[u8]) -> Vec<u8> {
    let mut bytes = extra_headers.to_vec();
    for (name, value) in &answer.headers {
        bytes.extend_from_slice(name.as_bytes());
        bytes.extend_from_slice(b": ");
        bytes.extend_from_slice(value.as_bytes());
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"\r\n");
    bytes.extend_from_slice(&answer.body);
    bytes
}

fn row(entry: &SlotEntry, now: Tick) -> WorkerRow {
    let is_idle = entry.stage == RequestStage::Accepting;
    let [method, uri, query, script, user] = entry.texts.clone();
    WorkerRow {
        pid: i32::try_from(entry.pid).unwrap_or(0),
        state: entry.stage.name(),
        start: i64::try_from(entry.started).unwrap_or(0),
        requests: entry.requests,
        duration_us: if is_idle {
            entry.duration_micros
        } else {
            now.since(entry.taken).as_micros() as u64
        },
        method,
        uri,
        query,
        content_length: entry.content_length,
        user,
        script,
        last_cpu: if is_idle {
            entry.cpu_centipercent as f64 / 100.0
        } else {
            0.0
        },
        last_memory: if is_idle { entry.memory } else { 0 },
        in_flight: entry.load.is_told.then_some(entry.load.in_flight),
        quiet: entry.load.quiet,
    }
}
