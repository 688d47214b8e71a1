//! Compares the scheduler with a slow model: a list of jobs.

use super::tests::{LIMITS, pool, queue};
use super::*;
use std::collections::{BTreeMap, BTreeSet};

/// A seeded random generator (splitmix64).
struct Chance(u64);

impl Chance {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (bits ^ (bits >> 31)) % most
    }
}

#[derive(Debug, Clone, PartialEq)]
enum State {
    Ready,
    Later(i64),
    Running { attempt: u32, until: u64, aborted: bool },
    Ended(Becomes),
}

#[derive(Debug, Clone)]
struct Job {
    group: GroupName,
    state: State,
    attempt: u32,
    counters: Counters,
    pushed: u64,
    lasts: u64,
    waited: Option<u64>,
}

struct World {
    scheduler: Scheduler,
    jobs: Vec<Job>,
    claims: Vec<GroupName>,
    now: u64,
    chance: Chance,
    paused: BTreeSet<String>,
    workers: BTreeMap<String, u32>,
    pools: BTreeMap<String, String>,
    most: BTreeMap<String, u32>,
    trouble: u64,
    events: u64,
}

impl World {
    fn new(seed: u64, pools: &[PoolSettings], queues: &[QueueSettings]) -> World {
        let mut world = World {
            scheduler: Scheduler::default(),
            jobs: Vec::new(),
            claims: Vec::new(),
            now: 0,
            chance: Chance(seed),
            paused: BTreeSet::new(),
            workers: pools
                .iter()
                .map(|pool| (pool.name.clone(), pool.workers))
                .collect(),
            pools: queues
                .iter()
                .map(|it| (it.name.clone(), it.pool.clone()))
                .collect(),
            most: queues
                .iter()
                .map(|it| (it.name.clone(), it.max_running))
                .collect(),
            trouble: 0,
            events: 0,
        };
        world.tell(Event::Configured(pools.to_vec(), queues.to_vec()));
        world
    }

    fn moment(&self) -> Moment {
        Moment {
            wall_ms: self.now as i64,
            mono_ms: self.now,
        }
    }

    fn tell(&mut self, event: Event) {
        let mut actions = Vec::new();
        self.scheduler.handle(event, self.moment(), &mut actions);
        self.scheduler.invariants();
        let mut follow = Vec::new();
        for action in actions {
            self.perform(action, &mut follow);
        }
        self.events += 1;
        if self.jobs.len() < 500 || self.events % 100 == 0 {
            self.check();
        }
        for event in follow {
            self.tell(event);
        }
    }

    fn perform(&mut self, action: Action, follow: &mut Vec<Event>) {
        match action {
            Action::Claim(group) => {
                assert!(
                    !self.paused.contains(&group.queue),
                    "a paused queue starts nothing"
                );
                self.claims.push(group);
            }
            Action::Send { id, .. } => {
                let lasts = self.jobs[id as usize].lasts;
                let until = self.now + lasts;
                match &mut self.jobs[id as usize].state {
                    State::Running { until: end, .. } => *end = until,
                    other => panic!("job {id} is sent and is {other:?}"),
                }
            }
            Action::Abort { id, .. } => {
                let now = self.now;
                match &mut self.jobs[id as usize].state {
                    State::Running { until, aborted, .. } => (*until, *aborted) = (now, true),
                    other => panic!("job {id} is aborted and is {other:?}"),
                }
            }
            Action::StepDone { .. } => panic!("no job has steps"),
            Action::Finish { id, attempt, verdict } => self.finish(id, attempt, verdict, follow),
            Action::Promote => self.promote(follow),
        }
    }

    fn finish(&mut self, id: JobId, attempt: u32, verdict: Verdict, follow: &mut Vec<Event>) {
        let job = &mut self.jobs[id as usize];
        assert!(
            matches!(job.state, State::Running { attempt: now, .. } if now == attempt),
            "job {id} ends and is {:?}",
            job.state
        );
        job.counters = verdict.counters;
        match verdict.becomes {
            Becomes::Again(at) if at <= self.now as i64 => {
                job.state = State::Ready;
                follow.push(Event::Waiting(job.group.clone(), 1));
            }
            Becomes::Again(at) => {
                job.state = State::Later(at);
                follow.push(Event::Due(self.due()));
            }
            becomes => job.state = State::Ended(becomes),
        }
    }

    fn promote(&mut self, follow: &mut Vec<Event>) {
        let now = self.now as i64;
        for job in &mut self.jobs {
            if matches!(job.state, State::Later(at) if at <= now) {
                job.state = State::Ready;
                follow.push(Event::Waiting(job.group.clone(), 1));
            }
        }
        follow.push(Event::Due(self.due()));
    }

    fn due(&self) -> Option<i64> {
        let later = self.jobs.iter().filter_map(|job| match job.state {
            State::Later(at) => Some(at),
            _ => None,
        });
        later.min()
    }

    fn push(&mut self, queue: &str, tenant: &str, lasts: u64) {
        let group = GroupName::new(queue, tenant);
        self.jobs.push(Job {
            group: group.clone(),
            state: State::Ready,
            attempt: 0,
            counters: Counters::default(),
            pushed: self.now,
            lasts,
            waited: None,
        });
        self.tell(Event::Waiting(group, 1));
    }

    fn answer_claim(&mut self, at: usize) {
        let group = self.claims.remove(at);
        let now = self.now;
        let found = self
            .jobs
            .iter_mut()
            .enumerate()
            .find(|(_, job)| job.group == group && job.state == State::Ready);
        let job = found.map(|(id, job)| {
            job.attempt += 1;
            job.waited.get_or_insert(now - job.pushed);
            job.state = State::Running {
                attempt: job.attempt,
                until: u64::MAX,
                aborted: false,
            };
            Start {
                id: id as JobId,
                attempt: job.attempt,
                counters: job.counters,
                most_failures: None,
                timeout_ms: None,
                expires_ms: None,
                steps: 0,
                step: 0,
                worst: TaskStatus::NotApplicable,
            }
        });
        self.tell(Event::Claimed(group, job));
    }

    /// Ends the oldest request.
    fn end_one(&mut self) -> bool {
        let found = self
            .jobs
            .iter()
            .position(|job| matches!(job.state, State::Running { until, .. } if until <= self.now));
        let Some(id) = found else { return false };
        let State::Running { attempt, aborted, .. } = self.jobs[id].state else {
            return false;
        };
        let answer = match self.chance.below(100) {
            _ if aborted => Answer::Crashed,
            roll if roll >= self.trouble => Answer::Ok(TaskStatus::Ok),
            roll => match roll % 7 {
                0 => Answer::Crashed,
                1 => Answer::Snooze(self.chance.below(3_000)),
                2 => Answer::Unreached,
                3 => Answer::Discard,
                4 => Answer::Dead,
                _ => Answer::Failed,
            },
        };
        self.tell(Event::Answered {
            id: id as JobId,
            attempt,
            answer,
        });
        true
    }

    /// Checks the invariants of all jobs.
    fn check(&self) {
        let mut under_way: BTreeMap<(&str, &str), u32> = BTreeMap::new();
        for job in self
            .jobs
            .iter()
            .filter(|job| matches!(job.state, State::Running { .. }))
        {
            *under_way
                .entry((&job.group.queue, &job.group.tenant))
                .or_default() += 1;
        }
        for GroupName { queue, tenant } in &self.claims {
            *under_way.entry((queue, tenant)).or_default() += 1;
        }
        let ready: BTreeSet<(&str, &str)> = (self.jobs.iter())
            .filter(|job| job.state == State::Ready)
            .map(|job| (job.group.queue.as_str(), job.group.tenant.as_str()))
            .collect();
        let of_queue = |name: &str| -> u32 {
            let of_it = under_way.iter().filter(|((queue, _), _)| *queue == name);
            of_it.map(|(_, count)| count).sum()
        };
        for (name, workers) in &self.workers {
            let of_pool = |queue: &str| self.pools.get(queue) == Some(name);
            let queues = self.pools.keys().filter(|queue| of_pool(queue));
            let busy: u32 = queues.map(|queue| of_queue(queue)).sum();
            assert!(busy <= *workers, "{busy} of {workers} workers");
            if busy == *workers || self.scheduler.pools[name].rests_until.is_some() {
                continue;
            }
            for (queue, tenant) in ready.iter().filter(|(queue, _)| of_pool(queue)) {
                let has_none = !under_way.contains_key(&(*queue, *tenant));
                let is_held = self.paused.contains(*queue) || of_queue(queue) >= self.most[*queue];
                // Waiting jobs are reported one by one.
                let is_told = self.scheduler.queues[*queue]
                    .groups()
                    .any(|(known, group)| known == *tenant && group.waiting > 0);
                assert!(
                    !has_none || is_held || !is_told,
                    "{queue} {tenant} waits with nothing running while a worker is free: {:?}, {:?}",
                    self.scheduler.pools[name],
                    self.scheduler.queues[*queue]
                );
            }
        }
    }

    /// Advances to the next deadline; `false`: there is none.
    fn advance(&mut self) -> bool {
        if !self.claims.is_empty() {
            let at = self.chance.below(self.claims.len() as u64) as usize;
            self.answer_claim(at);
            return true;
        }
        if self.end_one() {
            return true;
        }
        let ends = self.jobs.iter().filter_map(|job| match job.state {
            State::Running { until, .. } => Some(until),
            _ => None,
        });
        let (wall, mono) = self.scheduler.next_deadline();
        let wall = wall.map(|due| due as u64);
        let Some(next) = ends.chain(wall).chain(mono).min().filter(|next| *next < u64::MAX) else {
            return false;
        };
        self.now = self.now.max(next);
        self.tell(Event::Time);
        true
    }
}

#[test]
fn every_rule_holds_whatever_comes() {
    for seed in 0..60 {
        let mut world = World::new(
            seed,
            &[pool("p", 1 + (seed % 13) as u32), pool("other", 2)],
            &[
                QueueSettings {
                    weight: 2,
                    ..queue("mail", "p")
                },
                QueueSettings {
                    max_running: 3,
                    timeout_ms: 700,
                    ..queue("images", "p")
                },
                queue("slow", "other"),
            ],
        );
        world.trouble = 40;
        for _ in 0..400 {
            match world.chance.below(10) {
                0..=2 => {
                    let queue = ["mail", "images", "slow"][world.chance.below(3) as usize];
                    let tenant = ["", "a", "b", "c"][world.chance.below(4) as usize];
                    let lasts = world.chance.below(1_000);
                    world.push(queue, tenant, lasts);
                }
                3 => {
                    let queue = ["mail", "images"][world.chance.below(2) as usize].to_owned();
                    let is_paused = world.paused.insert(queue.clone()) || !world.paused.remove(&queue);
                    world.tell(Event::Paused { queue, is_paused });
                }
                4 => {
                    let count = world.jobs.len() as u64;
                    if count > 0 {
                        let id = world.chance.below(count) as JobId;
                        world.tell(Event::Cancel(id));
                    }
                }
                _ => _ = world.advance(),
            }
        }
        while let Some(queue) = world.paused.pop_first() {
            world.tell(Event::Paused {
                queue,
                is_paused: false,
            });
        }
        while world.advance() {}
        let left: Vec<&Job> = (world.jobs.iter())
            .filter(|job| !matches!(job.state, State::Ended(_)))
            .collect();
        assert!(left.is_empty(), "seed {seed}: {left:?}");
        let limits = world
            .jobs
            .iter()
            .all(|job| job.counters.failures <= LIMITS.failures && job.counters.crashes <= LIMITS.crashes);
        assert!(limits && world.scheduler.is_idle(), "seed {seed}");
    }
}

/// The purpose of the reserve: floods of long jobs next to small tenants.
#[test]
fn small_tenants_do_not_wait_for_floods() {
    for floods in [1, 8, 30] {
        let settings = queue("q", "p");
        let settings = QueueSettings {
            timeout_ms: 600_000,
            ..settings
        };
        let mut world = World::new(floods, &[pool("p", 50)], &[settings]);
        for flood in 0..floods {
            for _ in 0..270 / floods {
                world.push("q", &format!("flood{flood}"), 30_000);
            }
        }
        let mut next: Vec<u64> = (0..19).map(|small| small * 500).collect();
        while world.now < 150_000 {
            let (small, at) = next
                .iter()
                .copied()
                .enumerate()
                .min_by_key(|(_, at)| *at)
                .expect("one");
            let deadline = world.scheduler.next_deadline().1;
            let ends = world.jobs.iter().filter_map(|job| match job.state {
                State::Running { until, .. } => Some(until),
                _ => None,
            });
            let soonest = ends.chain(deadline).min().unwrap_or(u64::MAX);
            if world.claims.is_empty() && at <= soonest.max(world.now) && soonest > world.now {
                world.now = world.now.max(at);
                world.push("q", &format!("small{small}"), 1_000);
                next[small] = at + 8_000 + world.chance.below(4_000);
            } else {
                world.advance();
            }
        }
        let mut waits: Vec<u64> = (world.jobs.iter())
            .filter(|job| job.group.tenant.starts_with("small") && job.pushed > 60_000)
            .map(|job| job.waited.unwrap_or(world.now - job.pushed))
            .collect();
        waits.sort_unstable();
        let p99 = waits[waits.len() * 99 / 100];
        assert!(
            waits.len() > 100 && p99 < 500,
            "{floods} floods: {p99} ms of {}",
            waits.len()
        );
    }
}
