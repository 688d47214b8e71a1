//! Which 64-bit word of a page is what.

/// Pages before the first slot's.
pub const HEADER_PAGES: usize = 1;

/// Words of the header page, all written by the master.
pub mod header {
    use forkyard_protocol::refusals::CAUSES;

    /// Bit 32: a worker that takes up work always tells the master; bits 0..32: it tells when fewer than this many
    /// workers stay idle. One word, so that it is read and written at once.
    pub const NOTIFY: usize = 0;
    /// Requests served by workers whose slots have been given up.
    pub const PAST_REQUESTS: usize = 1;
    /// How often more workers were wanted than allowed.
    pub const MAX_CHILDREN_REACHED: usize = 2;
    /// Slow requests so far.
    pub const SLOW_REQUESTS: usize = 3;
    /// Most workers busy at once, as far as workers that are gone had seen.
    pub const PAST_MAX_ACTIVE: usize = 4;
    /// Longest listen queue, as far as workers that are gone had measured.
    pub const PAST_MAX_QUEUE: usize = 5;
    /// How often the logs were opened anew.
    pub const LOGS_OPENED: usize = 6;
    /// How many workers have written to their standard output or error what is not a whole line yet.
    pub const UNFINISHED_LINES: usize = 7;
    /// Connections accepted by workers whose slots have been given up.
    pub const PAST_ACCEPTS: usize = 8;
    /// Most memory that a request of a worker that is gone had, bytes.
    pub const PAST_MAX_MEMORY: usize = 9;
    /// What workers whose slots have been given up were put back: how often, nanoseconds, pages.
    pub const PAST_REWOUND: usize = 10;
    /// By cause, requests whose script was not run by workers whose slots have been given up; of those of all workers, how many
    /// the log has told; and when it has told that last, monotonic nanoseconds.
    pub const PAST_REFUSED: usize = 16;
    pub const PAST_REFUSED_TOLD: usize = PAST_REFUSED + CAUSES;
    pub const PAST_REFUSED_SINCE: usize = PAST_REFUSED_TOLD + CAUSES;
    /// First word of the bits that tell workers to retire, one bit per slot.
    pub const RETIRE: usize = 64;
    /// First word of the bits that say which slots are in use, one bit per slot.
    pub const USED: usize = 288;
    /// Words in each of the two sets of bits.
    pub const BITS_WORDS: usize = 224;
    /// Slots that fit.
    pub const MAX_SLOTS: usize = BITS_WORDS * 64;
}

/// Words of a slot's page, all written by its worker.
pub mod slot {
    use forkyard_protocol::refusals::CAUSES;

    /// Sequence number: odd while the other words are being changed.
    pub const SEQUENCE: usize = 0;
    /// The stage's number. Stored and loaded with sequential consistency.
    pub const STAGE: usize = 1;
    pub const PID: usize = 2;
    /// When the worker began, seconds since 1970.
    pub const STARTED: usize = 3;
    /// Requests taken up so far.
    pub const REQUESTS: usize = 4;
    /// When the stage last went to or from ACCEPTING, monotonic nanoseconds.
    pub const SINCE: usize = 5;
    /// When the current or last request was taken up, monotonic nanoseconds.
    pub const TAKEN: usize = 6;
    /// How long the last request took, microseconds.
    pub const DURATION: usize = 7;
    /// The request's Content-Length, bytes.
    pub const CONTENT_LENGTH: usize = 8;
    /// Peak memory of the last request, bytes.
    pub const MEMORY: usize = 9;
    /// CPU of the last request: hundredths of a percent of its duration.
    pub const CPU: usize = 10;
    /// Idle kept connections that the worker holds.
    pub const KEPT: usize = 11;
    /// Most workers that this worker has seen busy at once.
    pub const MAX_ACTIVE: usize = 12;
    /// Lengths of the five texts, 12 bits each, in the order of [`TEXTS`].
    pub const LENGTHS: usize = 13;
    /// Connections that the worker has accepted from the listening socket.
    pub const ACCEPTS: usize = 14;
    /// Longest listen queue that this worker has measured.
    pub const MAX_QUEUE: usize = 15;
    /// About the worker's own program: its process id, state, since when (monotonic nanoseconds), requests that it is
    /// done with, and how many have come up.
    pub const PROGRAM: usize = 420;
    /// How many words that are.
    pub const PROGRAM_WORDS: usize = 5;
    /// Most memory that one of the worker's requests had, bytes.
    pub const MAX_MEMORY: usize = PROGRAM + PROGRAM_WORDS;
    /// What a worker that serves several requests at a time has to do ([`super::super::load`]).
    pub const LOAD: usize = MAX_MEMORY + 1;
    /// By what number such a worker knows the request that the slot shows; 0: it has not said.
    pub const SHOWN: usize = LOAD + 1;
    /// Why the worker is about to end by itself, as [`ExitCause::word`](forkyard_protocol::counters::ExitCause::word); 0: it has not said.
    /// The byte above it: why it could not be put back, the reason's number and one; 0: it has not said.
    pub const LEAVING: usize = SHOWN + 1;
    /// How often the worker was put back after a request, nanoseconds that this took, pages that were copied.
    pub const REWOUND: usize = LEAVING + 1;
    /// How many words that are.
    pub const REWOUND_WORDS: usize = 3;
    /// When such a worker last said in the log that all of the pool are full, monotonic nanoseconds; 0: it has not.
    pub const SAID_FULL: usize = REWOUND + REWOUND_WORDS;
    /// Who has sent the signal that ends the worker, as [`Sent::from_words`](crate::sys::sender::Sent::from_words) reads it.
    pub const SENDER: usize = SAID_FULL + 1;
    /// By cause, requests whose script was not run.
    pub const REFUSED: usize = SENDER + crate::sys::sender::WORDS;
    /// Of those of all workers, how many the log had told when this one told it last; and when that was, monotonic nanoseconds.
    pub const REFUSED_TOLD: usize = REFUSED + CAUSES;
    pub const REFUSED_SINCE: usize = REFUSED_TOLD + CAUSES;
    /// Of the last of each cause: when it was (seconds since 1970, 32 bits), and the lengths (12 bits each) of its path and of the
    /// part of that which the cause is about.
    pub const REFUSED_LAST: usize = REFUSED_SINCE + CAUSES;
    /// Its path, and the room for that, bytes.
    pub const REFUSED_PATHS: usize = REFUSED_LAST + CAUSES;
    pub const REFUSED_ROOM: usize = 64;
    /// The texts' first words and room, bytes: method, URI, query, script, user.
    pub const TEXTS: [(usize, usize); 5] = [(16, 32), (20, 1024), (148, 1024), (276, 1024), (404, 128)];
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::shm::PAGE_WORDS;
    use forkyard_protocol::refusals::CAUSES;

    #[test]
    fn texts_lie_in_the_page_and_apart() {
        let mut end = slot::MAX_QUEUE + 1;
        for (first, bytes) in slot::TEXTS {
            assert!(first >= end && bytes % 8 == 0 && bytes < 4096);
            end = first + bytes / 8;
        }
        assert!(end <= slot::PROGRAM && slot::REFUSED_PATHS + CAUSES * slot::REFUSED_ROOM / 8 <= PAGE_WORDS);
        const { assert!(header::PAST_REFUSED_SINCE + CAUSES <= header::RETIRE) };
        const { assert!(header::USED >= header::RETIRE + header::BITS_WORDS) };
        const { assert!(header::USED + header::BITS_WORDS <= PAGE_WORDS) };
    }
}
