//! Layout of the pages in 64-bit words.
//!
//! ```text
//! header page | a page per slot | gate page | numbers: NUMBERS_PAGES per slot | received: PAGES per slot | lanes
//! ```
//!
//! Only the scoreboard of a pool with lanes has their pages. Scoreboards of older programs end with the slots. A page has memory after its first use.
//!
//! | page | words in use | for |
//! | --- | --- | --- |
//! | header | 0–33, 63–511 | status, refusals, bits of slots |
//! | slot | 0–511 | the present worker and its request |
//! | gate | 0–494 | busy slots, saturated time, waits, refused requests, standing queue |
//! | numbers | 0–1048, 1056–1126, 1152–2559, 2560–3039, 3040–3071 | sums and histograms; routes; minutes; a file of another release |
//! | received | all | the bytes of a request whose worker was killed |
//! | lanes | 0–103, then one per slot | the lanes' numbers; what each worker does for them |

use forkyard_sys::received::PAGES;

/// Pages before the first slot.
pub const HEADER_PAGES: usize = 1;
/// Pages of a slot's numbers.
pub const NUMBERS_PAGES: usize = 6;

/// Returns the pages of a scoreboard without numbers, as older programs make it.
pub const fn pages_without_numbers(slots: usize) -> usize {
    HEADER_PAGES + slots
}

/// Returns the pages of a scoreboard.
pub const fn pages(slots: usize) -> usize {
    received_page(slots, slots)
}

/// Returns the pages of a scoreboard with lanes.
pub const fn pages_with_lanes(slots: usize) -> usize {
    lanes_page(slots) + lanes_pages(slots)
}

/// Returns the first page of the lanes.
pub const fn lanes_page(slots: usize) -> usize {
    pages(slots)
}

/// Returns the number of the lanes' pages.
pub const fn lanes_pages(slots: usize) -> usize {
    (lanes::MARKS + slots).div_ceil(forkyard_sys::shm::PAGE_WORDS)
}

/// Returns the gate page.
pub const fn gate_page(slots: usize) -> usize {
    pages_without_numbers(slots)
}

/// Returns the first page of a slot's numbers.
pub const fn numbers_page(slots: usize, index: usize) -> usize {
    gate_page(slots) + 1 + index * NUMBERS_PAGES
}

/// Returns the first page for the request that a slot's worker was killed at ([`forkyard_sys::received`]).
pub const fn received_page(slots: usize, index: usize) -> usize {
    numbers_page(slots, slots) + index * PAGES
}

/// Words of the header page, written by the master.
pub mod header {
    use forkyard_protocol::refusals::CAUSES;

    /// Notification condition. Bit 32: always; bits 0..32: if fewer idle workers remain. One word, for atomic access.
    pub const NOTIFY: usize = 0;
    /// Requests of workers whose slots were released.
    pub const PAST_REQUESTS: usize = 1;
    /// How often the pool hit its worker limit.
    pub const MAX_CHILDREN_REACHED: usize = 2;
    /// Slow requests.
    pub const SLOW_REQUESTS: usize = 3;
    /// Maximum of active workers, as seen by former workers.
    pub const PAST_MAX_ACTIVE: usize = 4;
    /// Maximum of the listen queue, as seen by former workers.
    pub const PAST_MAX_QUEUE: usize = 5;
    /// Number of log reopens.
    pub const LOGS_OPENED: usize = 6;
    /// Workers with an incomplete output line.
    pub const UNFINISHED_LINES: usize = 7;
    /// Connections accepted by workers whose slots were released.
    pub const PAST_ACCEPTS: usize = 8;
    /// Maximum memory of a request of former workers, in bytes.
    pub const PAST_MAX_MEMORY: usize = 9;
    /// Rewinds of former workers: number, nanoseconds, pages.
    pub const PAST_REWOUND: usize = 10;
    /// 1 if the scoreboard has a gate page and numbers.
    pub const HAS_NUMBERS: usize = 13;
    /// 1 if a worker that sees all workers busy and a queue must notify the master.
    pub const TELL_CROWDED: usize = HAS_NUMBERS + 1;
    /// What the autopilot wants of workers, as [`Wish`](super::super::header::Wish).
    pub const WISH: usize = TELL_CROWDED + 1;
    /// By cause: refused requests of former workers; how many of all were logged; time of the last log line, in
    /// monotonic nanoseconds.
    pub const PAST_REFUSED: usize = 16;
    pub const PAST_REFUSED_TOLD: usize = PAST_REFUSED + CAUSES;
    pub const PAST_REFUSED_SINCE: usize = PAST_REFUSED_TOLD + CAUSES;
    /// The generation's part of the requests, as [`Turn`](super::super::turns::Turn).
    pub const TURN: usize = 63;
    /// Bits that ask workers to exit, one per slot.
    pub const RETIRE: usize = 64;
    /// Bits of used slots.
    pub const USED: usize = 288;
    /// Words per set of bits.
    pub const BITS_WORDS: usize = 224;
    /// Maximum number of slots.
    pub const MAX_SLOTS: usize = BITS_WORDS * 64;
}

/// Words of a slot's page, written by its worker.
pub mod slot {
    use forkyard_protocol::refusals::CAUSES;

    /// Sequence number, odd during a write.
    pub const SEQUENCE: usize = 0;
    /// Stage, sequentially consistent.
    pub const STAGE: usize = 1;
    pub const PID: usize = 2;
    /// Start of the worker, in seconds since 1970.
    pub const STARTED: usize = 3;
    /// Requests accepted.
    pub const REQUESTS: usize = 4;
    /// Last change between idle and busy, in monotonic nanoseconds.
    pub const SINCE: usize = 5;
    /// Start of the current or last request, in monotonic nanoseconds.
    pub const TAKEN: usize = 6;
    /// Duration of the last request, in microseconds.
    pub const DURATION: usize = 7;
    /// Content-Length, in bytes.
    pub const CONTENT_LENGTH: usize = 8;
    /// Peak memory of the last request, in bytes.
    pub const MEMORY: usize = 9;
    /// CPU usage of the last request, in hundredths of a percent.
    pub const CPU: usize = 10;
    /// Idle kept connections.
    pub const KEPT: usize = 11;
    /// Maximum of active workers that this worker has seen.
    pub const MAX_ACTIVE: usize = 12;
    /// Lengths of the five texts, 12 bits each, in the order of [`TEXTS`].
    pub const LENGTHS: usize = 13;
    /// Accepted connections.
    pub const ACCEPTS: usize = 14;
    /// Maximum of the listen queue that this worker has seen.
    pub const MAX_QUEUE: usize = 15;
    /// The worker's program: pid, state, time of the state (monotonic nanoseconds), finished requests, number of
    /// times that it came up.
    pub const PROGRAM: usize = 420;
    /// Words of the program.
    pub const PROGRAM_WORDS: usize = 5;
    /// Maximum memory of a request, in bytes.
    pub const MAX_MEMORY: usize = PROGRAM + PROGRAM_WORDS;
    /// Load of a concurrent worker ([`super::super::load`]).
    pub const LOAD: usize = MAX_MEMORY + 1;
    /// A concurrent worker's number for the displayed request; 0 if unknown.
    pub const SHOWN: usize = LOAD + 1;
    /// Why the worker exits, as [`ExitCause::word`](forkyard_protocol::counters::ExitCause::word); 0 if unknown. The
    /// byte above: index of the reason why it can't be rewound, plus one.
    pub const LEAVING: usize = SHOWN + 1;
    /// Rewinds: number, nanoseconds, pages.
    pub const REWOUND: usize = LEAVING + 1;
    /// Words of the rewinds.
    pub const REWOUND_WORDS: usize = 3;
    /// When a concurrent worker last logged that all workers are full, in monotonic nanoseconds; 0 for never.
    pub const SAID_FULL: usize = REWOUND + REWOUND_WORDS;
    /// Sender of the fatal signal ([`Sent::from_words`](forkyard_sys::sender::Sent::from_words)).
    pub const SENDER: usize = SAID_FULL + 1;
    /// Refused requests by cause.
    pub const REFUSED: usize = SENDER + forkyard_sys::sender::WORDS;
    /// By cause, for all workers: how many were logged when this worker last logged, and when (monotonic nanoseconds).
    pub const REFUSED_TOLD: usize = REFUSED + CAUSES;
    pub const REFUSED_SINCE: usize = REFUSED_TOLD + CAUSES;
    /// The last refusal of each cause: time (seconds since 1970, 32 bits), and the lengths (12 bits each) of its path
    /// and of the part that caused it.
    pub const REFUSED_LAST: usize = REFUSED_SINCE + CAUSES;
    /// Paths of the last refusals, and bytes per path.
    pub const REFUSED_PATHS: usize = REFUSED_LAST + CAUSES;
    pub const REFUSED_ROOM: usize = 64;
    /// Bytes of the 504 that a worker sent at its end; 0 for none.
    pub const LAST_ANSWER: usize = REFUSED_PATHS + CAUSES * REFUSED_ROOM / 8;
    /// The worker's last sample: its time, processor time and time in the run queue (nanoseconds), and the time of its
    /// last measurement of memory.
    pub const SAMPLE: usize = LAST_ANSWER + 1;
    pub const SAMPLE_WORDS: usize = 4;
    /// First word and size in bytes of: method, URI, query, script, user.
    pub const TEXTS: [(usize, usize); 5] = [(16, 32), (20, 1024), (148, 1024), (276, 1024), (404, 128)];
}

/// Words of the gate page, written by every worker of a generation.
pub mod gate {
    use super::header::BITS_WORDS;

    /// Bits of busy slots.
    pub const BUSY: usize = 0;
    /// Bits of slots with numbers.
    pub const TOUCHED: usize = BUSY + BITS_WORDS;
    /// How long all slots were busy at the same time, as a [`stopwatch`](super::super::stopwatch).
    pub const SATURATED: usize = TOUCHED + BITS_WORDS;
    /// Calls of accept(2) that have begun, without those that failed.
    pub const ACCEPTS_BEGUN: usize = SATURATED + 1;
    /// Accepted connections.
    pub const ACCEPTED: usize = ACCEPTS_BEGUN + 1;
    /// When the listening socket was last seen empty, in monotonic nanoseconds.
    pub const EMPTY_AT: usize = ACCEPTED + 1;
    /// Measurements before this time are not used, in monotonic nanoseconds.
    pub const COUNTS_FROM: usize = EMPTY_AT + 1;
    /// How long a connection was known to wait, in nanoseconds, and the end of that time (monotonic).
    pub const QUEUE_TOTAL: usize = COUNTS_FROM + 1;
    pub const QUEUE_UNTIL: usize = QUEUE_TOTAL + 1;
    /// The highest number of a measured connection.
    pub const HIGHEST: usize = QUEUE_UNTIL + 1;
    /// How often the queue was measured, and the last measurements.
    pub const MEASURED: usize = HIGHEST + 1;
    pub const MEASUREMENTS: usize = MEASURED + 1;
    pub const MEASUREMENTS_KEPT: usize = 32;
    /// Requests that a responder refused because no worker could start, and the bytes of its answers.
    pub const REFUSED: usize = MEASUREMENTS + MEASUREMENTS_KEPT;
    pub const REFUSED_BYTES: usize = REFUSED + 1;
    /// The usual time of requests, in nanoseconds; 0: unknown.
    pub const USUAL: usize = REFUSED_BYTES + 1;
    /// [`Standing`](super::super::standing::Standing), in monotonic nanoseconds.
    pub const STANDING: usize = USUAL + 1;
    pub const STANDING_UNTIL: usize = STANDING + 1;
    /// When a worker last logged that requests are refused, in monotonic nanoseconds; 0 for never.
    pub const SAID_REFUSED: usize = STANDING_UNTIL + 1;
    /// The autopilot's number of workers, set by the master; 0: none.
    pub const LIMIT: usize = SAID_REFUSED + 1;
    /// Requests whose script is in no release of the pool.
    pub const OUTSIDE: usize = LIMIT + 1;
    /// Files of another release that requests have included.
    pub const FOREIGN: usize = OUTSIDE + 1;
}

/// Words of the lanes' pages, written by every worker of a generation.
pub mod lanes {
    use forkyard_protocol::lanes::WAITS as COUNTS;

    /// How many workers low lanes leave idle.
    pub const RESERVE: usize = 0;
    /// 1 if low requests give way to others on a processor.
    pub const PRIORITY: usize = 1;
    /// By lane: time for the lane's weight, requests that have begun, busy time, refused requests, sum of the waits; times
    /// in nanoseconds.
    pub const PAID: usize = 8;
    pub const REQUESTS: usize = 12;
    pub const BUSY: usize = 16;
    pub const REFUSED: usize = 20;
    pub const WAIT_SUM: usize = 24;
    /// By lane: [`Standing`](super::super::standing::Standing) of its queue, in monotonic nanoseconds.
    pub const STANDING: usize = 28;
    pub const STANDING_UNTIL: usize = 32;
    /// By lane: a histogram of the waits.
    pub const WAITS: usize = 40;
    pub const WAITS_ROOM: usize = 16;
    /// By slot: what its worker does, and since when.
    pub const MARKS: usize = 128;

    const _: () = assert!(COUNTS <= WAITS_ROOM && WAITS + 4 * WAITS_ROOM <= MARKS);
}

/// Words of a slot's numbers, written by its workers. They go on when another worker gets the slot.
pub mod numbers {
    use forkyard_base::scale::BUCKETS;
    use forkyard_protocol::numbers::CLASSES;

    /// Histograms: duration, wait, processor time (microseconds), memory (KiB).
    pub const RUN: usize = 0;
    pub const WAIT: usize = RUN + BUCKETS;
    pub const CPU: usize = WAIT + BUCKETS;
    pub const MEMORY: usize = CPU + BUCKETS;
    /// How long the slot was busy, as a [`stopwatch`](super::super::stopwatch).
    pub const BUSY: usize = MEMORY + BUCKETS;
    /// Sums of the histograms' values; times in nanoseconds.
    pub const RUN_SUM: usize = BUSY + 1;
    pub const WAIT_SUM: usize = RUN_SUM + 1;
    pub const CPU_SUM: usize = WAIT_SUM + 1;
    pub const MEMORY_SUM: usize = CPU_SUM + 1;
    /// Requests by the class of their status.
    pub const REQUESTS: usize = MEMORY_SUM + 1;
    pub const BYTES_IN: usize = REQUESTS + CLASSES;
    pub const BYTES_OUT: usize = BYTES_IN + 1;
    pub const ABORTED: usize = BYTES_OUT + 1;
    pub const TIMED_OUT: usize = ABORTED + 1;
    /// Requests that did not begin, by [`DeadCount`](forkyard_protocol::dead_work::DeadCount).
    pub const DEAD: usize = TIMED_OUT + 1;
    /// Samples ([`samples`](super::super::samples)): processor time and time in the run queue (nanoseconds), own memory
    /// (bytes) and when it was measured (monotonic nanoseconds).
    pub const SAMPLED_RUN: usize = DEAD + forkyard_protocol::dead_work::COUNTS;
    pub const SAMPLED_QUEUED: usize = SAMPLED_RUN + 1;
    pub const OWN_MEMORY: usize = SAMPLED_QUEUED + 1;
    pub const OWN_MEMORY_AT: usize = OWN_MEMORY + 1;
    /// Keys of routes' rows (0: free), and their weights.
    pub const ROUTE_KEYS: usize = BUSY + 32;
    pub const ROUTES: usize = 32;
    pub const ROUTE_WEIGHTS: usize = ROUTE_KEYS + ROUTES;
    /// The sums of all routes without a row, as in a row.
    pub const OTHER_ROUTES: usize = ROUTE_WEIGHTS + ROUTES;
    /// The row of the present request, plus one; 0 for none.
    pub const CURRENT_ROUTE: usize = OTHER_ROUTES + ROUTE_SUMS;
    /// Rows: requests, errors, busy time, processor time, time without a processor (nanoseconds), growth of memory
    /// (KiB); the length of the name; the sum of ln(1 + ms) of that time (millionths); a histogram with two counts a word; the name.
    pub const ROUTE_ROWS: usize = BUSY + 128;
    pub const ROUTE_SUMS: usize = 6;
    pub const ROUTE_NAME_LENGTH: usize = ROUTE_SUMS;
    pub const ROUTE_LOG_BLOCKED: usize = ROUTE_NAME_LENGTH + 1;
    pub const ROUTE_HISTOGRAM: usize = 8;
    pub const ROUTE_BUCKETS: usize = 40;
    pub const ROUTE_NAME: usize = ROUTE_HISTOGRAM + ROUTE_BUCKETS / 2;
    pub const ROUTE_NAME_BYTES: usize = 128;
    pub const ROUTE_WORDS: usize = ROUTE_NAME + ROUTE_NAME_BYTES / 8;
    /// Rows of the last hour's minutes ([`minutes`](super::super::minutes)).
    pub const MINUTES: usize = ROUTE_ROWS + ROUTES * ROUTE_WORDS;
    /// The first file of another release that a request has included: its length in bytes, and its path.
    pub const FOREIGN_LENGTH: usize = 3_040;
    pub const FOREIGN: usize = FOREIGN_LENGTH + 1;
    pub const FOREIGN_BYTES: usize = 31 * 8;
}

#[cfg(test)]
mod tests {
    use super::*;
    use forkyard_protocol::refusals::CAUSES;
    use forkyard_sys::shm::PAGE_WORDS;

    #[test]
    fn texts_lie_in_the_page_and_apart() {
        let mut end = slot::MAX_QUEUE + 1;
        for (first, bytes) in slot::TEXTS {
            assert!(first >= end && bytes % 8 == 0 && bytes < 4096);
            end = first + bytes / 8;
        }
        assert!(end <= slot::PROGRAM && slot::SAMPLE + slot::SAMPLE_WORDS <= PAGE_WORDS);
        const { assert!(header::PAST_REFUSED_SINCE + CAUSES <= header::TURN) };
        const { assert!(header::USED >= header::RETIRE + header::BITS_WORDS) };
        const { assert!(header::USED + header::BITS_WORDS <= PAGE_WORDS) };
        const { assert!(gate::FOREIGN < PAGE_WORDS) };
        const { assert!(numbers::OWN_MEMORY_AT < numbers::ROUTE_KEYS) };
        const { assert!(numbers::CURRENT_ROUTE < numbers::ROUTE_ROWS) };
        const END: usize =
            numbers::MINUTES + forkyard_protocol::history::MINUTES as usize * super::super::row::WORDS;
        const { assert!(END <= numbers::FOREIGN_LENGTH) };
        const { assert!(numbers::FOREIGN + numbers::FOREIGN_BYTES / 8 <= NUMBERS_PAGES * PAGE_WORDS) };
    }
}
