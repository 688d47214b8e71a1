//! One deployment of a release under load.

use super::chance::{count, is, part, skewed};
use super::kind::{Kind, Site};
use crate::random::Random;
use forkyard_base::tick::Tick;
use forkyard_core::release::compare::{Compare, Pair, Second, Verdict};
use forkyard_core::release::reading::{Side, evident};
use forkyard_core::release::steering::Steering;
use forkyard_core::release::steps::{Action, Cause, DeploymentId, Deployments, Event, Plan, State};
use std::collections::BTreeMap;
use std::time::Duration;

/// The times of a worker's first requests do not count.
const FIRST: u32 = 20;

#[derive(Debug, Clone, Default)]
pub(super) struct Outcome {
    /// The sentence, and the second.
    pub back: Option<(Verdict, u64)>,
    pub trial_failed: bool,
    pub not_compared: u32,
    /// Requests of the bad route with the new release, and with both.
    pub bad_route: u64,
    pub bad_route_all: u64,
    /// Failures of the first minute that the release caused.
    pub minute_failed: u64,
    /// Whether a step was longer because of some evidence.
    pub held: bool,
    /// Failures that the release caused.
    pub caused: u64,
}

#[derive(Debug, Clone)]
struct Worker {
    served: u32,
    dies_after: u32,
    /// Routes that it has served, by bit.
    warm: u64,
    /// By route, with the errors of this second.
    failures: BTreeMap<usize, u64>,
}

struct World<'a> {
    random: &'a mut Random,
    site: &'a Site,
    kind: Kind,
    /// The first route that the release breaks.
    broken: usize,
    new: Vec<Worker>,
    /// How many times slower the new release is, within tolerance.
    pace: f64,
    is_out: bool,
    /// A client that sends many requests to one route: the route, and the seconds left. Each request has its own turn.
    client: (usize, u32),
    outcome: Outcome,
}

pub(super) fn run(site: &Site, kind: Kind, random: &mut Random) -> Outcome {
    // A change of the usual size.
    let pace = skewed(random, 1.0, 0.1).clamp(0.8, 1.25);
    let mut world = World {
        broken: random.below(site.routes.len()),
        random,
        site,
        kind,
        new: Vec::new(),
        pace,
        is_out: false,
        client: (0, 0),
        outcome: Outcome::default(),
    };
    world.deploy();
    world.outcome
}

impl World<'_> {
    fn deploy(&mut self) {
        let id = DeploymentId(1);
        let plan = Plan::new(&[1, 10, 50], Duration::from_secs(self.site.step_time));
        let mut deployments = Deployments::default();
        let mut actions = Vec::new();
        deployments.deploy(id, plan, &mut actions);
        let trial = match self.kind {
            Kind::StartHangs => Event::TrialFailed,
            _ => Event::TrialPassed,
        };
        deployments.event(id, trial, Tick::ZERO, &mut actions);
        let mut compare = Compare::new(1);
        let (mut steering, mut shown) = (Steering::new(1), 1);
        for second in 0..3600 {
            for action in actions.drain(..) {
                match action {
                    Action::Share { percent, .. } => {
                        compare.step(percent);
                        (steering, shown) = (Steering::new(percent), percent);
                        let workers = self.site.workers * u32::from(percent) / 100;
                        while (self.new.len() as u32) < workers.max(1) {
                            let worker = self.worker();
                            self.new.push(worker);
                        }
                    }
                    Action::NotCompared { .. } => self.outcome.not_compared += 1,
                    Action::Return {
                        cause: Cause::TrialFailed,
                        ..
                    } => self.outcome.trial_failed = true,
                    Action::Try(_)
                    | Action::Doubted { .. }
                    | Action::Serve(_)
                    | Action::Return { .. }
                    | Action::End { .. }
                    | Action::Waits(_)
                    | Action::Undo(_) => (),
                }
            }
            let since = match deployments.present() {
                Some((_, State::Sharing { since, .. })) => since,
                Some((_, State::Trying | State::Whole | State::Served | State::Back(_))) | None => return,
            };
            let sums = self.second(f64::from(shown) / 100.0, second);
            shown = steering.second(&sums);
            let now = Tick::ZERO + Duration::from_secs(second + 1);
            let verdict = compare.second(&sums);
            let is_over = now.since(since) >= Duration::from_secs(self.site.step_time);
            self.outcome.held |= is_over && compare.is_suspicious();
            let event = match verdict {
                Verdict::GoOn => Event::Time {
                    compared: compare.compared(),
                    is_suspicious: compare.is_suspicious(),
                },
                verdict @ Verdict::RollBack { .. } => {
                    self.outcome.back = Some((verdict, second + 1));
                    Event::Worse
                }
            };
            deployments.event(id, event, now, &mut actions);
        }
    }

    fn worker(&mut self) -> Worker {
        let dies_after = match self.kind {
            Kind::DiesAfterFifty => 50,
            Kind::Leaks => self.random.between(100, 400),
            _ => u32::MAX,
        };
        Worker {
            served: 0,
            dies_after,
            warm: 0,
            failures: BTreeMap::new(),
        }
    }

    fn second(&mut self, share: f64, second: u64) -> Second {
        let mut sums = Second::default();
        if let Some((between, length)) = self.site.outages {
            let mean = if self.is_out { length } else { between };
            if is(self.random, (1.0 / mean).min(1.0)) {
                self.is_out = !self.is_out;
            }
        }
        let rate = match self.kind {
            Kind::NoTraffic => 0.02,
            _ => self.site.rate,
        };
        let uneven = skewed(self.random, 1.0, self.site.unevenness);
        let share = (share * uneven).min(0.95);
        for _ in 0..count(self.random, rate) {
            let (worker, route) = (self.chosen(share), self.route());
            self.request(&mut sums, route, worker, second, false);
        }
        if is(self.random, self.site.bursts) {
            let (worker, route) = (self.chosen(share), self.route());
            let is_broken_input = self.random.one_in(3);
            for _ in 0..self.random.between(3, 20) {
                self.request(&mut sums, route, worker, second, is_broken_input);
            }
        }
        if self.client.1 == 0 && is(self.random, self.site.hammered) {
            self.client = (self.route(), 20);
        }
        let (route, left) = self.client;
        if left > 0 {
            self.client.1 -= 1;
            for _ in 0..5 {
                let worker = self.chosen(share);
                self.request(&mut sums, route, worker, second, true);
            }
        }
        self.evident(&mut sums);
        sums
    }

    /// Returns a worker of the new generation, or none.
    fn chosen(&mut self, share: f64) -> Option<usize> {
        is(self.random, share).then(|| self.random.below(self.new.len()))
    }

    fn evident(&mut self, sums: &mut Second) {
        for worker in &mut self.new {
            for (route, errors) in &mut worker.failures {
                let evident = evident(Side::New, std::mem::take(errors));
                if evident > 0 {
                    sums.route(&name(*route)).new.evident += evident;
                }
            }
        }
        for pair in sums.routes.values_mut() {
            pair.old.evident = pair.old.errors;
        }
    }

    fn route(&mut self) -> usize {
        let place = part(self.random);
        let routes = &self.site.routes;
        routes
            .partition_point(|route| route.until < place)
            .min(routes.len() - 1)
    }

    fn request(
        &mut self,
        sums: &mut Second,
        index: usize,
        to: Option<usize>,
        second: u64,
        is_broken_input: bool,
    ) {
        let route = &self.site.routes[index];
        let (mut seconds, mut fails) = (
            skewed(self.random, route.median, route.deviation),
            is_broken_input || is(self.random, route.failing),
        );
        if self.is_out && route.has_database {
            seconds *= 15.0;
            fails |= self.random.one_in(2);
        }
        let mut counts_for_time = true;
        let (mut died, mut is_caused) = (false, false);
        if let Some(place) = to {
            seconds *= self.pace;
            let worker = &mut self.new[place];
            worker.served += 1;
            let is_cold = worker.warm & (1 << (index % 64)) == 0;
            worker.warm |= 1 << (index % 64);
            counts_for_time = worker.served > FIRST && !is_cold;
            died = worker.served >= worker.dies_after;
            if is_cold {
                seconds *= 5.0;
            }
            let slow = self.kind == Kind::ThreeTimesSlower && index == self.broken;
            seconds *= if slow { 3.0 } else { 1.0 };
            let count = self.site.routes.len();
            let place = (index + count - self.broken) % count;
            is_caused = match self.kind {
                Kind::AllFail => true,
                Kind::OneOfTwentyFails => place < count.div_ceil(20),
                Kind::FifthFails => place < count.div_ceil(5),
                Kind::FailsCold => is_cold,
                Kind::FailsForOneCookie => is(self.random, 0.02),
                Kind::Good
                | Kind::ThreeTimesSlower
                | Kind::Leaks
                | Kind::DiesAfterFifty
                | Kind::StartHangs
                | Kind::FlappingDatabase
                | Kind::NoTraffic => false,
            };
        }
        is_caused |= died;
        fails |= is_caused;
        if let (Some(place), true) = (to, fails) {
            *self.new[place].failures.entry(index).or_default() += 1;
        }
        if let (Some(place), true) = (to, died) {
            // The master reads the numbers of a dead worker, and another worker gets its slot.
            let failures = std::mem::take(&mut self.new[place].failures);
            self.new[place] = Worker {
                failures,
                ..self.worker()
            };
            sums.events.new.deaths += 1;
            sums.events.new.starts += 1;
        }
        let pair: &mut Pair<_> = sums.route(&name(index));
        let is_new = to.is_some();
        let counts = if is_new { &mut pair.new } else { &mut pair.old };
        counts.requests += 1;
        counts.errors += u64::from(fails);
        if counts_for_time {
            let bucket = (2.0 * (seconds * 1e6).max(1.0).log2()).clamp(11.0, 63.0);
            counts.times.add(bucket as u8, 1);
        }
        let outcome = &mut self.outcome;
        outcome.bad_route += u64::from(is_new && index == self.broken);
        outcome.bad_route_all += u64::from(index == self.broken);
        outcome.caused += u64::from(is_caused);
        if second < 60 {
            outcome.minute_failed += u64::from(is_caused);
        }
    }
}

fn name(route: usize) -> String {
    format!("GET /{route}")
}
