//! Scenes of a pool with people, and ten times as many bots as it can serve. Requests mostly wait for another service.

use super::super::*;
use super::MILLI;
use forkyard_base::tick::Tick;
use std::collections::VecDeque;

const SECONDS: u32 = 120;
const MOST_PARKED: usize = 1_024;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        u32::try_from((self.0 >> 33) % u64::from(bound)).unwrap()
    }
}

struct Scene {
    max_children: u32,
    /// Requests in a second.
    people: u32,
    bots: u32,
    /// Milliseconds of a bot's request.
    bot: fn(&mut Random) -> u32,
}

#[derive(Default)]
struct Outcome {
    /// From arrival to answer, sorted.
    people: Vec<u32>,
    unanswered: usize,
    /// Milliseconds of all workers.
    busy: u32,
    /// Milliseconds of all workers if no worker, not even of the reserve, were ever idle.
    room: u32,
}

impl Outcome {
    fn p99(&self) -> u32 {
        self.people[self.people.len() * 99 / 100]
    }
}

#[derive(Clone, Copy)]
struct Job {
    lane: Lane,
    arrived: u32,
    takes: u32,
}

/// Runs a scene, a millisecond a step.
fn run(scene: &Scene, bots: u32, seed: u64) -> Outcome {
    let (mut of_people, mut of_bots) = (Random(seed), Random(!seed));
    let mut queues: [VecDeque<Job>; 4] = Default::default();
    let (mut shares, mut reserve) = (Shares::default(), Reserve::new(Tick::ZERO));
    let mut workers: Vec<(Job, u32)> = Vec::new();
    let mut outcome = Outcome::default();
    for at in 0..SECONDS * 1_000 {
        let now = Tick::ZERO + MILLI * at;
        if of_people.below(1_000) < scene.people {
            let takes = 50 + of_people.below(200);
            let lane = Lane::People;
            queues[lane as usize].push_back(Job {
                lane,
                arrived: at,
                takes,
            });
        }
        if of_bots.below(1_000) < bots && queues[Lane::Bots as usize].len() < MOST_PARKED {
            let takes = (scene.bot)(&mut of_bots);
            let lane = Lane::Bots;
            queues[lane as usize].push_back(Job {
                lane,
                arrived: at,
                takes,
            });
        }
        let ended = |(job, end): &(Job, u32)| (*end <= at).then_some(*job);
        for job in workers.iter().filter_map(ended) {
            shares.pay(job.lane, MILLI * job.takes);
            if job.lane == Lane::People {
                outcome.people.push(at - job.arrived);
            }
        }
        workers.retain(|(_, end)| *end > at);
        reserve = reserve.rest(now);
        loop {
            let high = workers.iter().filter(|(job, _)| job.lane.is_high()).count();
            let load = Load {
                high: u32::try_from(high).unwrap(),
                low: u32::try_from(workers.len() - high).unwrap(),
                total: scene.max_children + reserve.workers(),
                reserve: reserve.workers(),
            };
            let people_wait = !queues[Lane::People as usize].is_empty();
            if load.high + load.low >= load.total {
                if people_wait {
                    reserve = reserve.wanted(load.low, scene.max_children, now);
                }
                break;
            }
            let mut waits = PerLane::default();
            for lane in Lane::ALL {
                *waits.get_mut(lane) = !queues[lane as usize].is_empty();
            }
            let Some(lane) = next(&waits, load, &shares) else {
                break;
            };
            if !lane.is_high() {
                assert!(load.low == 0 || load.high + load.low + 1 + load.reserve <= load.total);
                assert!(!people_wait || load.low == 0, "a person waits while a bot begins");
            }
            let job = queues[lane as usize].pop_front().unwrap();
            workers.push((job, at + job.takes));
        }
        outcome.room += scene.max_children + reserve.workers();
        outcome.busy += u32::try_from(workers.len()).unwrap();
    }
    outcome.unanswered = queues[Lane::People as usize].len();
    outcome.people.sort_unstable();
    outcome
}

#[test]
fn people_are_answered_as_if_there_were_no_bots() {
    let short: fn(&mut Random) -> u32 = |random| 100 + random.below(100);
    // 10 ms to 10 s.
    let long: fn(&mut Random) -> u32 = |random| (10 + random.below(90)) * 10_u32.pow(random.below(3));
    for (max_children, people, bots, bot) in [
        (8, 16, 530, short),
        (16, 32, 999, short),
        (8, 16, 45, long),
        (16, 32, 90, long),
        (32, 64, 180, long),
    ] {
        let scene = Scene {
            max_children,
            people,
            bots,
            bot,
        };
        for seed in [1, 2, 3] {
            let alone = run(&scene, 0, seed);
            let outcome = run(&scene, scene.bots, seed);
            let own = max_children * SECONDS * 1_000;
            let (p99, p99_alone) = (outcome.p99(), alone.p99());
            let what = format!(
                "{max_children} workers, {bots} bots/s: p99 {p99} ms, alone {p99_alone}, {} wait, busy {} of {}",
                outcome.unanswered, outcome.busy, outcome.room
            );
            println!("{what}");
            assert!(outcome.people.len() > 1_000 && alone.unanswered == 0, "{what}");
            assert!(p99 * 10 <= p99_alone * 12, "{what}");
            assert!(
                outcome.unanswered <= 2,
                "only requests of the last moment wait: {what}"
            );
            // The reserve comes on top: the pool does as much as `max_children` workers that are never idle.
            assert!(outcome.busy >= own, "{what}");
        }
    }
}
