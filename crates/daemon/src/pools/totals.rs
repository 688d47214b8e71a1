//! Totals of a generation and of all pools, from the scoreboards.

use crate::context::generation::Generation;
use crate::context::pools::Pools;
use forkyard_base::tick::Tick;
use forkyard_protocol::counters::PoolCounters;
use forkyard_protocol::numbers::Numbers;
use forkyard_scoreboard::layout::{header as field, slot};
use forkyard_scoreboard::{RequestStage, header, refusals, slot_reader};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) active: u64,
    pub(crate) idle: u64,
    /// Requests since the pools' present configurations came into force.
    pub(crate) requests: u64,
    pub(crate) slow: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct BoardTotals {
    pub(crate) idle: u32,
    pub(crate) busy: u32,
    pub(crate) starting: u32,
    pub(crate) counts: PoolCounters,
    /// Processor time of present workers, microseconds.
    pub(crate) cpu_us: u64,
}

impl BoardTotals {
    pub(crate) fn add(&mut self, other: &BoardTotals) {
        self.idle += other.idle;
        self.busy += other.busy;
        self.starting += other.starting;
        self.counts.add(&other.counts);
        self.cpu_us += other.cpu_us;
    }
}

impl Generation {
    pub(crate) fn reading(&self) -> BoardTotals {
        let mut reading = BoardTotals::default();
        let Some(resources) = &self.resources else {
            return reading;
        };
        let words = resources.board.header();
        let counts = &mut reading.counts;
        counts.slow = slot_reader::word(words, field::SLOW_REQUESTS);
        counts.max_children_reached = slot_reader::word(words, field::MAX_CHILDREN_REACHED);
        counts.queue_max = slot_reader::word(words, field::PAST_MAX_QUEUE);
        counts.requests = slot_reader::word(words, field::PAST_REQUESTS);
        for (index, _, page) in self.pages() {
            if !header::used(words, index as usize) {
                continue;
            }
            counts.queue_max = counts.queue_max.max(slot_reader::word(page, slot::MAX_QUEUE));
            counts.add_refusals(&refusals::of_slot(page));
            let requests = slot_reader::word(page, slot::REQUESTS);
            counts.requests = counts.requests.saturating_add(requests);
            match slot_reader::stage(page) {
                RequestStage::Accepting => reading.idle += 1,
                RequestStage::Creating => reading.starting += 1,
                _ => reading.busy += 1,
            }
        }
        reading
    }
}

impl Generation {
    /// Returns the numbers of its present and past workers.
    pub(crate) fn numbers(&self, now: Tick) -> Numbers {
        let Some(resources) = &self.resources else {
            return Numbers::default();
        };
        let sum = resources.board.numbers(now);
        match self.is_ordered() {
            // An application's workers are only a part of its pool's.
            true => Numbers {
                saturated_ns: 0,
                queue_ns: 0,
                ..sum
            },
            false => sum,
        }
    }

    /// Its workers' rewinds: count, nanoseconds, pages.
    pub(crate) fn rewound(&self) -> [u64; slot::REWOUND_WORDS] {
        let Some(resources) = &self.resources else {
            return Default::default();
        };
        let mut sums = slot_reader::rewound(resources.board.header(), field::PAST_REWOUND);
        for (_, _, page) in self.pages() {
            for (sum, more) in sums.iter_mut().zip(slot_reader::rewound(page, slot::REWOUND)) {
                // Scoreboards may contain any number.
                *sum = sum.saturating_add(more);
            }
        }
        sums
    }
}

impl Pools {
    pub(crate) fn totals(&self) -> Totals {
        let mut all = BoardTotals::default();
        for generation in self.generations.values() {
            all.add(&generation.reading());
        }
        Totals {
            active: u64::from(all.busy),
            idle: u64::from(all.idle),
            requests: all.counts.requests,
            slow: all.counts.slow,
        }
    }
}
