//! A simulation: over deaths of workers, reloads, upgrades and killed masters, no number of a pool ever falls, and every
//! finished request is counted once.
//!
//! The scoreboards, the workers' and the master's writes, and the merge are the real ones. The order of events is random.

use forkyard_base::tick::Tick;
use forkyard_protocol::counters::PoolCounters;
use forkyard_protocol::numbers::{Histogram, Numbers, StatusClass};
use forkyard_scoreboard::routes::RouteUse;
use forkyard_scoreboard::slot_writer::SlotWriter;
use forkyard_scoreboard::{Board, Counting, FinishedRequest, RequestStage, Slot};
use std::os::fd::AsFd;
use std::time::Duration;

const SCHEDULES: u64 = 10_000;
const STEPS: usize = 60;
const SLOTS: usize = 2;

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// A worker's mappings and its state.
struct Worker {
    slot: Slot,
    counting: Counting,
    index: usize,
    is_busy: bool,
    /// It is dead, and the master has not noticed.
    is_dead: bool,
}

impl Worker {
    fn start(board: &Board, index: usize, now: Tick) -> Worker {
        board.wipe(index);
        let memory = board.memory().writable.as_fd();
        let worker = Worker {
            slot: Slot::map(memory, SLOTS, index).unwrap(),
            counting: Counting::map(memory, SLOTS, index).unwrap(),
            index,
            is_busy: false,
            is_dead: false,
        };
        let writer = SlotWriter::new(worker.slot.words());
        writer.begin(1, 1, now);
        writer.idle(now);
        worker
    }

    fn take(&mut self, now: Tick) {
        let (gate, writer) = (self.counting.gate(), SlotWriter::new(self.slot.words()));
        gate.begin_accept();
        let waited = gate.accepted(now);
        assert!(waited <= now.since(Tick::ZERO));
        writer.accepted(now);
        gate.touch(self.index);
        self.counting.counters().begin_busy(now);
        gate.enter(self.index, now);
        writer.reading(now);
        writer.stage(RequestStage::Executing);
        self.is_busy = true;
    }

    fn finish(&mut self, random: &mut Random, now: Tick) {
        let writer = SlotWriter::new(self.slot.words());
        let counters = self.counting.counters();
        let run = Some(Duration::from_micros(random.below(1 << 20)));
        let request = FinishedRequest {
            run,
            class: StatusClass::of(200 + 100 * random.below(4) as u16),
            cpu_micros: Some(random.below(500)),
            memory: Some(random.below(1 << 24)),
            is_aborted: random.below(5) == 0,
            ..FinishedRequest::default()
        };
        counters.finished(&request);
        counters.transferred(random.below(1000), random.below(1000));
        let row = counters.routes().row(1 + random.below(40), b"GET /");
        counters.routes().finished(Some(row), &RouteUse::default());
        writer.finished(1, 0);
        writer.idle(now);
        counters.end_busy(now);
        self.counting.gate().leave(self.index, now);
        self.is_busy = false;
    }
}

struct Generation {
    board: Board,
    workers: Vec<Option<Worker>>,
    is_leaving: bool,
}

impl Generation {
    fn new() -> Generation {
        Generation {
            board: Board::create("simulation", SLOTS).unwrap(),
            workers: (0..SLOTS).map(|_| None).collect(),
            is_leaving: false,
        }
    }
}

/// A pool as its master has it: the sums of past generations, and the present ones.
struct Pool {
    past: PoolCounters,
    generations: Vec<Generation>,
    now: Tick,
    finished: u64,
    lost: u64,
}

impl Pool {
    fn numbers(&self) -> Numbers {
        let mut sum = self.past.clone();
        for generation in &self.generations {
            let numbers = generation.board.numbers(self.now);
            sum.add(&PoolCounters {
                numbers,
                ..PoolCounters::default()
            });
        }
        sum.numbers
    }

    fn settle_dead(&mut self) {
        for generation in &mut self.generations {
            for index in 0..SLOTS {
                if generation.workers[index].as_ref().is_some_and(|it| it.is_dead) {
                    generation.workers[index] = None;
                    generation.board.settle(index, self.now);
                }
            }
        }
    }

    /// Adds the numbers of generations that are gone to the pool's.
    fn drop_gone(&mut self) {
        let is_gone = |it: &Generation| it.is_leaving && it.workers.iter().all(Option::is_none);
        while let Some(at) = self.generations.iter().position(is_gone) {
            let gone = self.generations.remove(at);
            self.past.add(&PoolCounters {
                numbers: gone.board.numbers(self.now),
                ..PoolCounters::default()
            });
        }
    }

    /// Another master reads the document and takes over the scoreboards.
    fn hand_over(&mut self) {
        let text = serde_json::to_vec(&self.past).unwrap();
        self.past = serde_json::from_slice(&text).unwrap();
        for generation in &mut self.generations {
            let memory = generation.board.memory().writable.try_clone().unwrap();
            generation.board = Board::adopt(memory, SLOTS).unwrap();
            assert!(generation.board.has_numbers());
        }
    }

    fn step(&mut self, random: &mut Random) {
        self.now = self.now + Duration::from_micros(random.below(20_000));
        let at = random.below(self.generations.len() as u64) as usize;
        let index = random.below(SLOTS as u64) as usize;
        let (now, generation) = (self.now, &mut self.generations[at]);
        let place = &mut generation.workers[index];
        match (random.below(20), place) {
            (0..=13, Some(worker)) if worker.is_dead => {}
            (0..=11, Some(worker)) if worker.is_busy => {
                worker.finish(random, now);
                self.finished += 1;
                if generation.is_leaving {
                    worker.is_dead = true;
                }
            }
            (0..=11, Some(worker)) if !generation.is_leaving => worker.take(now),
            (0..=11, place @ None) if !generation.is_leaving => {
                *place = Some(Worker::start(&generation.board, index, now));
            }
            (12, Some(worker)) => {
                self.lost += u64::from(worker.is_busy);
                worker.is_dead = true;
                worker.is_busy = false;
            }
            (13, Some(worker)) if generation.is_leaving && !worker.is_busy => worker.is_dead = true,
            (14, _) => {
                let gate = generation.board.gate().unwrap();
                gate.measured(gate.count_accepted(), random.below(5), now);
            }
            (15, _) => {
                self.settle_dead();
                self.drop_gone();
            }
            (16, _) if random.below(4) == 0 => {
                self.generations.iter_mut().for_each(|it| it.is_leaving = true);
                self.generations.push(Generation::new());
            }
            (17, _) => self.hand_over(),
            (18, _) => {
                // A master that is killed may have settled some, and the next one settles all again.
                self.settle_dead();
                self.hand_over();
                for generation in &self.generations {
                    let free = (0..SLOTS).filter(|index| generation.workers[*index].is_none());
                    free.for_each(|index| generation.board.settle(index, now));
                }
            }
            _ => {}
        }
    }
}

/// Returns the first number that has fallen.
fn fallen(before: &Numbers, after: &Numbers) -> Option<&'static str> {
    let sums = [
        ("busy", before.busy_ns, after.busy_ns),
        ("saturated", before.saturated_ns, after.saturated_ns),
        ("queue", before.queue_ns, after.queue_ns),
        ("received", before.bytes_in, after.bytes_in),
        ("sent", before.bytes_out, after.bytes_out),
        ("aborted", before.aborted, after.aborted),
    ];
    let classes = before.classes.iter().zip(&after.classes);
    let classes = classes.map(|(before, after)| ("class", *before, *after));
    let mut all = sums.into_iter().chain(classes);
    let histograms = [
        (&before.run, &after.run),
        (&before.wait, &after.wait),
        (&before.cpu, &after.cpu),
        (&before.memory, &after.memory),
    ];
    let falls = |before: &Histogram, after: &Histogram| {
        let count = |index: u8| {
            let found = after.buckets.binary_search_by_key(&index, |(index, _)| *index);
            found.map_or(0, |at| after.buckets[at].1)
        };
        after.sum < before.sum || before.buckets.iter().any(|(index, had)| count(*index) < *had)
    };
    let found = all.find(|(_, before, after)| after < before);
    let histogram = || histograms.iter().any(|(before, after)| falls(before, after));
    found
        .map(|(name, _, _)| name)
        .or_else(|| histogram().then_some("histogram"))
}

#[test]
fn no_number_falls_in_ten_thousand_schedules() {
    for seed in 0..SCHEDULES {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let mut pool = Pool {
            past: PoolCounters::default(),
            generations: vec![Generation::new()],
            now: Tick::from_nanos(1_000_000_000),
            finished: 0,
            lost: 0,
        };
        let mut before = pool.numbers();
        for step in 0..STEPS {
            pool.step(&mut random);
            if step % 8 == 0 {
                let now = pool.numbers();
                assert_eq!(fallen(&before, &now), None, "seed {seed}, step {step}");
                before = now;
            }
        }
        pool.settle_dead();
        let numbers = pool.numbers();
        let counted: u64 = numbers.classes.iter().sum();
        assert_eq!(counted, pool.finished + pool.lost, "seed {seed}");
        assert_eq!(
            numbers.classes[StatusClass::None.index()],
            pool.lost,
            "seed {seed}"
        );
    }
}
