//! A machine with a pool on it: processors that all share, a database that slows down when it has too many connections,
//! memory with a killer, and workers that have to be started. Requests that nobody waits for do not begin, waits are bounded,
//! and workers leave new connections while others compute (`wait_for_cpu`), as in the product.

#[path = "world/workers.rs"]
mod workers;

use super::chance::{gap, part, skewed};
use super::station::Station;
use super::workload::{Container, Kind, SECONDS, Workload};
use crate::random::Random;
use forkyard_core::autopilot::{Autopilot, Machine, Route, Second};
use std::collections::VecDeque;

/// The first seconds do not count.
const WARM: f64 = 20.0;
const MIB: f64 = 1_048_576.0;
const PATIENCE: f64 = 8.0;
const STARTS_AT_ONCE: usize = 32;
/// A worker measures its memory at the end of a request, so many seconds after the last time.
const MEASURED_EVERY: f64 = 4.0;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Rule {
    Fixed(usize),
    /// Three quarters of memory, divided by 64 MiB.
    Today,
    Auto,
}

#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// Useful requests, each as heavy as its kind is long on average.
    pub(super) work: f64,
    pub(super) took: Vec<f64>,
    pub(super) killed: u32,
    /// Each second's number.
    pub(super) numbers: Vec<f64>,
    /// Each second's useful requests.
    pub(super) answers: Vec<f64>,
    pub(super) most_live: usize,
    pub(super) reason: String,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Guest {
    Start(usize),
    Request(usize),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    Computes,
    Away,
    Queries,
    ComputesAgain,
}

#[derive(Debug, Clone, Copy)]
struct Request {
    kind: usize,
    came: f64,
    gives_up: f64,
    begun: f64,
    since: f64,
    phase: Phase,
    worker: usize,
    run: f64,
    away: f64,
    database: f64,
    queued: f64,
    peak: f64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum State {
    Starts,
    Serves,
    /// It leaves after its requests.
    Leaves,
    Gone,
}

#[derive(Debug, Clone, Copy)]
struct Worker {
    state: State,
    own: f64,
    peak: f64,
    busy: usize,
    served: u32,
    idle_since: f64,
    measured: f64,
}

#[derive(Debug, Default, Clone)]
struct Seen {
    full: f64,
    done: u32,
    run: f64,
    queued: f64,
    held: f64,
    routes: Vec<Route>,
    private: Vec<u64>,
}

struct World<'a> {
    workload: &'a Workload,
    container: Container,
    rule: Rule,
    random: Random,
    kinds: Vec<Kind>,
    now: f64,
    compute: Station<Guest>,
    database: Station<Guest>,
    away: Station<Guest>,
    queue: VecDeque<Request>,
    requests: Vec<Request>,
    free: Vec<usize>,
    workers: Vec<Worker>,
    /// Free places of workers, by worker.
    idle: Vec<usize>,
    starting: usize,
    live: usize,
    /// MiB of all.
    memory: f64,
    autopilot: Autopilot,
    number: usize,
    seen: Seen,
    warm: Vec<bool>,
    /// When requests began that may still compute.
    recent: VecDeque<(f64, usize)>,
    usual_run: f64,
    usual_held: f64,
    mean: f64,
    outcome: Outcome,
}

/// Seconds of a request of this kind on an idle machine.
fn length(kind: &Kind) -> f64 {
    kind.run + kind.away + kind.database
}

pub(super) fn run(workload: &Workload, container: Container, rule: Rule, seed: u64) -> Outcome {
    World::new(workload, container, rule, seed).run()
}

impl<'a> World<'a> {
    fn new(workload: &'a Workload, container: Container, rule: Rule, seed: u64) -> World<'a> {
        // Requests on larger machines are longer, so that runs have about as many.
        let longer = (container.cores / 4.0).max(1.0);
        let kinds = workload.kinds.iter().map(|kind| Kind {
            run: kind.run * longer,
            away: kind.away * longer,
            database: kind.database * longer,
            ..*kind
        });
        let kinds: Vec<Kind> = kinds.collect();
        let mean = kinds.iter().map(|kind| kind.share * length(kind)).sum();
        let usual_run = kinds.iter().map(|kind| kind.share * kind.run).sum();
        let machine = machine(workload, container);
        let autopilot = Autopilot::start(&machine, (workload.shared * MIB) as u64);
        let number = match rule {
            Rule::Fixed(number) => number,
            Rule::Today => (0.75 * container.memory / 64.0).max(1.0) as usize,
            Rule::Auto => autopilot.decision().most as usize,
        };
        let mut world = World {
            workload,
            container,
            rule,
            random: Random::new(seed),
            now: 0.0,
            compute: Station::new(),
            database: Station::new(),
            away: Station::new(),
            queue: VecDeque::new(),
            requests: Vec::new(),
            free: Vec::new(),
            workers: Vec::new(),
            idle: Vec::new(),
            starting: 0,
            live: 0,
            memory: workload.shared,
            autopilot,
            number,
            seen: Seen::default(),
            warm: vec![workload.cold == 0.0; kinds.len()],
            recent: VecDeque::new(),
            usual_run,
            usual_held: mean,
            mean,
            outcome: Outcome::default(),
            kinds,
        };
        let first = match world.is_fixed() {
            true => number,
            false => number.min((container.cores.ceil() as usize).max(2)),
        };
        for _ in 0..first {
            world.fork(true);
        }
        world
    }

    fn is_fixed(&self) -> bool {
        matches!(self.rule, Rule::Fixed(_))
    }

    fn average(&self, of: impl Fn(&Kind) -> f64) -> f64 {
        self.kinds.iter().map(|kind| kind.share * of(kind)).sum()
    }

    fn connections(&self) -> f64 {
        (self.workload.connections * self.container.cores)
            .max(2.0)
            .round()
    }

    /// Requests a second that the machine can serve with the best number.
    fn capacity(&self) -> f64 {
        let each = self.workload.own + self.average(|kind| kind.peak);
        let most = ((0.9 * self.container.memory - self.workload.shared) / each)
            .floor()
            .max(1.0);
        let by_processors = 0.95 * self.container.cores / self.average(|kind| kind.run);
        let by_memory = 0.9 * most * self.workload.threads as f64 / self.mean;
        let by_database = 0.95 * self.connections() / self.average(|kind| kind.database);
        by_processors.min(by_memory).min(by_database)
    }

    fn run(mut self) -> Outcome {
        let capacity = self.capacity();
        let times = (0..=1000).map(|step| SECONDS * f64::from(step) / 1000.0);
        let highest = capacity * times.map(self.workload.load).fold(0.0, f64::max);
        let mut arrival = gap(&mut self.random, 1.0 / highest);
        let mut second = 1.0;
        let mut deploy = match self.workload.deploy {
            0.0 => f64::INFINITY,
            time => time,
        };
        while self.now < SECONDS {
            self.set_speeds();
            let stations = [self.compute.next(), self.database.next(), self.away.next()];
            let soonest = stations.iter().copied().fold(f64::INFINITY, f64::min);
            let then = (self.now + soonest).min(arrival).min(second).min(deploy);
            self.pass(then - self.now);
            self.now = then;
            if then == second {
                second += 1.0;
                self.end_of_second();
            } else if then == arrival {
                arrival += gap(&mut self.random, 1.0 / highest);
                if part(&mut self.random) * highest <= capacity * (self.workload.load)(self.now) {
                    self.arrives();
                }
            } else if then == deploy {
                deploy = f64::INFINITY;
                self.deploy();
            } else {
                let which = stations.iter().position(|next| *next == soonest);
                self.leaves(which.unwrap_or(0));
            }
            self.kill();
            self.serve();
            self.grow();
        }
        self.outcome.reason = self.autopilot.decision().reason.to_string();
        self.outcome
    }

    fn set_speeds(&mut self) {
        let there = self.container.cores * (self.workload.processors)(self.now);
        let computing = self.compute.len() as f64;
        let usable = match self.workload.threads {
            1 => there,
            // One thread of a worker computes at a time.
            _ => there.min(
                self.workers
                    .iter()
                    .filter(|worker| worker.busy > 0)
                    .count()
                    .max(1) as f64,
            ),
        };
        let each = (usable / computing.max(1.0)).min(1.0);
        let switching = 0.3_f64.mul_add(1.0 - each, 1.0);
        let squeezed = if self.memory > 0.93 * self.container.memory {
            0.8
        } else {
            1.0
        };
        self.compute.speed = each / switching * squeezed;
        let (guests, good) = (self.database.len() as f64, self.connections());
        let over = (guests - good).max(0.0) / good;
        self.database.speed =
            1.0 / (1.0 + over) / 0.25_f64.mul_add(over, 1.0) / (self.workload.slower)(self.now);
    }

    fn pass(&mut self, seconds: f64) {
        for station in [&mut self.compute, &mut self.database, &mut self.away] {
            station.pass(seconds);
        }
        if !self.queue.is_empty() && self.idle.is_empty() {
            self.seen.full += seconds;
        }
    }

    fn arrives(&mut self) {
        let mut left = part(&mut self.random);
        let last = self.kinds.len() - 1;
        let chosen = self.kinds.iter().position(|kind| {
            left -= kind.share;
            left < 0.0
        });
        let index = chosen.unwrap_or(last);
        let kind = self.kinds[index];
        let random = &mut self.random;
        self.queue.push_back(Request {
            kind: index,
            came: self.now,
            gives_up: self.now + PATIENCE.max(20.0 * self.mean),
            begun: 0.0,
            since: 0.0,
            phase: Phase::Computes,
            worker: 0,
            run: skewed(random, kind.run, kind.deviation),
            away: skewed(random, kind.away, kind.deviation),
            database: skewed(random, kind.database, kind.deviation),
            queued: 0.0,
            peak: skewed(random, kind.peak, self.workload.peak_deviation),
        });
    }

    /// A station is done with a guest.
    fn leaves(&mut self, station: usize) {
        let guest = [&mut self.compute, &mut self.database, &mut self.away][station].leave();
        match guest {
            Some(Guest::Start(worker)) => {
                self.starting -= 1;
                self.workers[worker].state = State::Serves;
                self.idle.extend(vec![worker; self.workload.threads]);
            }
            Some(Guest::Request(id)) => self.goes_on(id),
            None => (),
        }
    }

    fn goes_on(&mut self, id: usize) {
        let request = &mut self.requests[id];
        let took = self.now - request.since;
        let next = match request.phase {
            Phase::Computes if request.away > 0.0 => Some(Phase::Away),
            Phase::Computes | Phase::Away if request.database > 0.0 => Some(Phase::Queries),
            Phase::ComputesAgain => None,
            _ => Some(Phase::ComputesAgain),
        };
        if matches!(request.phase, Phase::Computes | Phase::ComputesAgain) {
            request.queued += (took - request.run / 2.0).max(0.0);
        }
        match next {
            Some(phase) => self.enter(id, phase),
            None => self.ends(id),
        }
    }

    fn enter(&mut self, id: usize, phase: Phase) {
        let request = &mut self.requests[id];
        request.phase = phase;
        request.since = self.now;
        let (station, need) = match phase {
            Phase::Computes | Phase::ComputesAgain => (&mut self.compute, request.run / 2.0),
            Phase::Queries => (&mut self.database, request.database),
            Phase::Away => (&mut self.away, request.away),
        };
        station.enter(Guest::Request(id), need);
    }

    fn ends(&mut self, id: usize) {
        let request = self.requests[id];
        self.free.push(id);
        self.recent.retain(|(_, recent)| *recent != id);
        let held = self.now - request.begun;
        let blocked = (held - request.run - request.queued).max(0.0);
        if self.now <= request.gives_up && request.came > WARM {
            self.outcome.work += length(&self.kinds[request.kind]) / self.mean;
            self.outcome.took.push(self.now - request.came);
        }
        if self.now <= request.gives_up {
            let second = self.now as usize;
            let length = self.outcome.answers.len().max(second + 1);
            self.outcome.answers.resize(length, 0.0);
            self.outcome.answers[second] += 1.0;
        }
        self.observe(&request, held, blocked);
        self.usual_run += 0.02 * (request.run - self.usual_run);
        self.usual_held += 0.02 * (held - request.queued - self.usual_held);
        let (after, fixed) = (self.workload.replaced_after, self.is_fixed());
        let worker = &mut self.workers[request.worker];
        if self.now - worker.measured >= MEASURED_EVERY {
            worker.measured = self.now;
            self.seen.private.push(((worker.own + worker.peak) * MIB) as u64);
        }
        worker.busy -= 1;
        worker.served += 1;
        worker.peak -= request.peak;
        worker.own += self.workload.leak;
        self.memory += self.workload.leak - request.peak;
        worker.idle_since = self.now;
        let is_old = after > 0 && worker.served >= after;
        if worker.state == State::Leaves || is_old {
            worker.state = State::Leaves;
            self.idle.retain(|idle| *idle != request.worker);
            if self.workers[request.worker].busy == 0 {
                self.goes(request.worker);
                if fixed {
                    self.fork(false);
                }
            }
        } else {
            self.idle.push(request.worker);
        }
    }

    fn observe(&mut self, request: &Request, held: f64, blocked: f64) {
        let seen = &mut self.seen;
        seen.done += 1;
        seen.run += request.run;
        seen.queued += request.queued;
        seen.held += held;
        let key = request.kind as u64;
        let at = seen
            .routes
            .iter()
            .position(|route| route.key == key)
            .unwrap_or_else(|| {
                seen.routes.push(Route {
                    key,
                    done: 0,
                    log_blocked: 0.0,
                    blocked: 0.0,
                });
                seen.routes.len() - 1
            });
        let route = &mut seen.routes[at];
        route.done += 1;
        route.log_blocked += (blocked + 0.001).ln();
        route.blocked += blocked;
    }

    fn end_of_second(&mut self) {
        let seen = std::mem::take(&mut self.seen);
        if self.rule == Rule::Auto {
            let ready = || (0..self.workers.len()).filter(|place| self.is_ready(*place));
            let busy = || {
                ready()
                    .map(|place| self.workers[place])
                    .filter(|worker| worker.busy > 0)
            };
            let second = Second {
                elapsed: 1.0,
                machine: machine(self.workload, self.container),
                shared: (self.workload.shared * MIB) as u64,
                others: 0,
                current: (self.memory * MIB) as u64,
                pressure: false,
                live: ready().count() as u32,
                busy: busy().count() as u32,
                waiting: self.queue.len() as u32,
                full: seen.full,
                done: seen.done,
                run: seen.run,
                queued: seen.queued,
                held: seen.held,
                routes: seen.routes,
                private: seen.private,
            };
            self.number = self.autopilot.second(&second).most as usize;
        }
        self.outcome.numbers.push(self.number as f64);
        self.outcome.most_live = self.outcome.most_live.max(self.live);
        if !self.is_fixed() {
            self.shrink();
        }
    }

    fn serve(&mut self) {
        let bound = 1.0_f64.max(3.0 * self.mean);
        while let Some(first) = self.queue.front() {
            if self.now <= first.gives_up && self.now - first.came <= bound {
                break;
            }
            self.queue.pop_front();
        }
        while !self.queue.is_empty() && !self.idle.is_empty() && self.may_begin() {
            let (Some(place), Some(mut request)) = (self.idle.pop(), self.queue.pop_front()) else {
                return;
            };
            request.begun = self.now;
            request.worker = place;
            if !self.warm[request.kind] {
                self.warm[request.kind] = true;
                request.run += self.workload.cold * (self.container.cores / 4.0).max(1.0);
            }
            self.workers[place].busy += 1;
            self.workers[place].peak += request.peak;
            self.memory += request.peak;
            let id = self.free.pop().unwrap_or_else(|| {
                self.requests.push(request);
                self.requests.len() - 1
            });
            self.requests[id] = request;
            self.recent.push_back((self.now, id));
            self.enter(id, Phase::Computes);
        }
    }

    /// Workers leave new connections while as many requests that began a moment ago compute as there are processors.
    fn may_begin(&mut self) -> bool {
        if self.workload.threads > 1 {
            return true;
        }
        let moment = (4.0 * self.usual_held).clamp(0.002, 0.05);
        while self
            .recent
            .front()
            .is_some_and(|(begun, _)| self.now - begun >= moment)
        {
            self.recent.pop_front();
        }
        let there = self.container.cores * (self.workload.processors)(self.now);
        let at_once = there * (self.usual_held / self.usual_run.max(1e-4)).max(1.0);
        (self.recent.len() as f64) < at_once.round().max(1.0)
    }
}

fn machine(workload: &Workload, container: Container) -> Machine {
    Machine {
        cores: container.cores,
        memory: (container.memory * MIB) as u64,
        requests_a_worker: workload.threads as u32,
    }
}
