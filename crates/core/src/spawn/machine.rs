//! The whole kit as one value: journeys under way, preloaders, back-offs.
//!
//! Whoever wants a process hands in [`Event::Spawn`] and is given one [`Action::Deliver`], whatever happens. Wishes for an
//! application with a preloader wait for it together; it is started for the first of them, restarted when it is lost, and
//! ended when there was nothing to do for it for long enough.

use super::action::{Action, Order, Outcome, Up};
use super::attempt::{Attempt, Phase, Progress, Purpose};
use super::backoff::Backoff;
use super::error::{Trouble, explain};
use super::event::{Event, JourneyId, News, Token};
use super::handshake::response::Surroundings;
use super::journey::Journey;
use super::plan::{Method, Plan};
use super::preloader::{self, Cause, Force, Life, Preloader};
use super::report::{ErrorId, Report};
use super::step::Route;
use crate::tick::Tick;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The kit.
#[derive(Debug)]
pub struct Machine {
    attempts: BTreeMap<JourneyId, Attempt>,
    groups: BTreeMap<String, Group>,
    next: u64,
    seed: u64,
    stopping: bool,
}

/// What is known of one application.
#[derive(Debug)]
struct Group {
    plan: Arc<Plan>,
    preloader: Preloader,
    backoff: Backoff,
}

impl Machine {
    /// A kit that does nothing yet. `seed` makes the ids of its errors unlike those of another.
    pub fn new(seed: u64) -> Machine {
        Machine {
            attempts: BTreeMap::new(),
            groups: BTreeMap::new(),
            next: 0,
            seed,
            stopping: false,
        }
    }

    /// Takes what happened, and says what is to be done.
    pub fn handle(&mut self, event: Event, now: Tick, out: &mut Vec<Action>) {
        match event {
            Event::Spawn { token, plan } => self.spawn(token, plan, now, out),
            Event::Cancel(token) => {
                if let Some(id) = self.journey_of(token) {
                    self.step(id, now, out, |attempt, orders| attempt.cancel(now, orders));
                }
            }
            Event::Expire(token) => {
                if let Some(id) = self.journey_of(token) {
                    self.step(id, now, out, |attempt, orders| attempt.expire(now, orders));
                }
            }
            Event::Retire { group } => self.retire(&group, now, out),
            Event::Shutdown => {
                self.stopping = true;
                let ids: Vec<JourneyId> = self.attempts.keys().copied().collect();
                for id in ids {
                    self.step(id, now, out, |attempt, orders| attempt.cancel(now, orders));
                }
                let groups: Vec<String> = self.groups.keys().cloned().collect();
                for group in groups {
                    self.change_preloader(&group, Cause::Stop, now, out);
                }
            }
            Event::Happened(id, news) => {
                if self.attempts.contains_key(&id) {
                    self.step(id, now, out, |attempt, orders| attempt.handle(news, now, orders));
                } else if matches!(news, News::Exited(_)) {
                    self.preloader_gone(id, now, out);
                }
            }
        }
        self.invariants();
    }

    /// Time has passed: to be called when [`Machine::next_deadline`] has come.
    pub fn pass(&mut self, now: Tick, out: &mut Vec<Action>) {
        let due = |next: Option<Tick>| next.is_some_and(|next| next <= now);
        let late: Vec<JourneyId> = self
            .attempts
            .iter()
            .filter(|(_, attempt)| due(attempt.next_deadline()))
            .map(|(id, _)| *id)
            .collect();
        for id in late {
            self.step(id, now, out, |attempt, orders| attempt.pass(now, orders));
        }
        let idle: Vec<String> = self
            .groups
            .iter()
            .filter(|(_, group)| due(group.preloader.due))
            .map(|(name, _)| name.clone())
            .collect();
        for name in idle {
            let ready = self
                .groups
                .get(&name)
                .is_some_and(|group| group.preloader.life == Life::Ready);
            let cause = if ready { Cause::Idle } else { Cause::Late };
            self.change_preloader(&name, cause, now, out);
        }
        self.invariants();
    }

    /// When [`Machine::pass`] is to be called next.
    pub fn next_deadline(&self) -> Option<Tick> {
        let attempts = self.attempts.values().filter_map(Attempt::next_deadline);
        let preloaders = self.groups.values().filter_map(|group| group.preloader.due);
        attempts.chain(preloaders).min()
    }

    /// Whether nothing is under way and no preloader runs.
    pub fn is_idle(&self) -> bool {
        let mut groups = self.groups.values();
        self.attempts.is_empty() && groups.all(|group| group.preloader.life == Life::Absent)
    }

    /// How many journeys are under way.
    pub fn under_way(&self) -> usize {
        self.attempts.len()
    }

    fn journey_of(&self, token: Token) -> Option<JourneyId> {
        self.attempt_for(token).map(|(id, _)| id)
    }

    /// The journey for a wish.
    pub(super) fn attempt_for(&self, token: Token) -> Option<(JourneyId, &Attempt)> {
        let mut attempts = self.attempts.iter();
        let found = attempts.find(|(_, attempt)| attempt.purpose == Purpose::Wish(token));
        found.map(|(id, attempt)| (*id, attempt))
    }

    fn spawn(&mut self, token: Token, plan: Arc<Plan>, now: Tick, out: &mut Vec<Action>) {
        let faults = plan.faults();
        let held = self
            .groups
            .get(&plan.group)
            .filter(|_| plan.is_held_back)
            .and_then(|group| group.backoff.holds(now));
        let trouble = match held {
            _ if !faults.is_empty() => Some(Trouble::BadPlan(faults)),
            _ if self.stopping => Some(Trouble::Cancelled),
            Some(last) => Some(Trouble::HeldBack {
                last: last.to_string(),
            }),
            None => None,
        };
        if let Some(trouble) = trouble {
            let report = self.refusal(plan, &trouble, now);
            out.push(Action::Deliver(token, Outcome::Failed(Arc::new(report))));
            return;
        }
        let route = match (plan.method, &plan.internal) {
            (_, Some(_)) => Route::StartPreloader,
            (Method::Direct, None) => Route::SpawnDirectly,
            (Method::Smart, None) => Route::SpawnThroughPreloader,
        };
        let group = self.groups.entry(plan.group.clone()).or_insert_with(|| Group {
            plan: Arc::clone(&plan),
            preloader: Preloader::new(),
            backoff: Backoff::default(),
        });
        group.plan = Arc::clone(&plan);
        self.begin(Purpose::Wish(token), plan, route, now, out);
    }

    fn begin(
        &mut self,
        purpose: Purpose,
        plan: Arc<Plan>,
        route: Route,
        now: Tick,
        out: &mut Vec<Action>,
    ) -> JourneyId {
        self.next += 1;
        let id = JourneyId(self.next);
        let mut orders = Vec::new();
        let attempt = Attempt::begin(purpose, plan, route, now, &mut orders);
        self.attempts.insert(id, attempt);
        out.extend(orders.into_iter().map(|order| Action::Do(id, order)));
        id
    }

    /// Lets an attempt take a step, and does what follows from it.
    fn step(
        &mut self,
        id: JourneyId,
        now: Tick,
        out: &mut Vec<Action>,
        take: impl FnOnce(&mut Attempt, &mut Vec<Order>) -> Progress,
    ) {
        let Some(attempt) = self.attempts.get_mut(&id) else {
            return;
        };
        let mut orders = Vec::new();
        let progress = take(attempt, &mut orders);
        attempt.invariants();
        let group = attempt.plan.group.clone();
        // Whoever no longer waits is not to be asked for.
        if attempt.phase != Phase::Waiting {
            if let Some(known) = self.groups.get_mut(&group) {
                known.preloader.waiting.remove(&id);
            }
        }
        let preloader = attempt.preloader;
        out.extend(orders.into_iter().map(|order| Action::Do(id, order)));
        match progress {
            Progress::Nothing => {}
            Progress::NeedsPreloader => self.wait(id, &group, now, out),
            Progress::LostPreloader => {
                let used = self
                    .groups
                    .get(&group)
                    .is_some_and(|known| known.preloader.journey == preloader);
                // Another journey may have found out first, and another preloader may be up.
                if used {
                    self.change_preloader(&group, Cause::Lost, now, out);
                }
                self.wait(id, &group, now, out);
            }
            Progress::Up => self.arrived(id, now, out),
            Progress::Failed => self.failed(id, now, out),
        }
    }

    /// A journey needs its application's preloader.
    fn wait(&mut self, id: JourneyId, group: &str, now: Tick, out: &mut Vec<Action>) {
        if let Some(known) = self.groups.get_mut(group) {
            known.preloader.asked.remove(&id);
            known.preloader.waiting.insert(id);
        }
        self.change_preloader(group, Cause::Needed, now, out);
        self.ask(group, now, out);
    }

    /// If the preloader is up, all who wait for it ask it.
    fn ask(&mut self, group: &str, now: Tick, out: &mut Vec<Action>) {
        let Some(known) = self.groups.get_mut(group) else {
            return;
        };
        let preloader = &mut known.preloader;
        let (Life::Ready, Some(journey), Some(address)) =
            (preloader.life, preloader.journey, preloader.address().cloned())
        else {
            return;
        };
        let waiting = std::mem::take(&mut preloader.waiting);
        for id in waiting {
            let Some(attempt) = self.attempts.get_mut(&id) else {
                continue;
            };
            preloader.asked.insert(id);
            let mut orders = Vec::new();
            attempt.ask(journey, address.clone(), now, &mut orders);
            out.extend(orders.into_iter().map(|order| Action::Do(id, order)));
        }
        preloader.rest(known.plan.max_preloader_idle_time, now);
    }

    fn change_preloader(&mut self, group: &str, cause: Cause, now: Tick, out: &mut Vec<Action>) {
        let Some(known) = self.groups.get_mut(group) else {
            return;
        };
        let order = known.preloader.change(cause, now);
        let journey = known.preloader.journey;
        match (order, journey) {
            (preloader::Order::Start, _) => {
                let plan = Arc::clone(&known.plan);
                let id = self.begin(Purpose::Preloader, plan, Route::StartPreloader, now, out);
                if let Some(known) = self.groups.get_mut(group) {
                    known.preloader.journey = Some(id);
                }
            }
            (preloader::Order::Stop(force), Some(id)) => {
                let order = match force {
                    Force::Ask => Order::CloseInput,
                    Force::Terminate => Order::Terminate,
                    Force::Kill => Order::Kill,
                };
                if cause == Cause::Lost {
                    out.push(Action::Say(format!(
                        "[spawn {group}] the preloader crashed, starting another"
                    )));
                }
                out.push(Action::Do(id, order));
            }
            (preloader::Order::Stop(_), None) | (preloader::Order::Nothing, _) => {}
        }
    }

    /// A process ended that is no journey: a preloader, perhaps.
    fn preloader_gone(&mut self, id: JourneyId, now: Tick, out: &mut Vec<Action>) {
        let mut groups = self.groups.iter_mut();
        let found = groups.find(|(_, group)| group.preloader.journey == Some(id));
        let Some((name, group)) = found else { return };
        let name = name.clone();
        if group.preloader.life == Life::Ready {
            out.push(Action::Say(format!("[spawn {name}] the preloader ended")));
        }
        let sockets = group.preloader.sockets.iter();
        let sockets = sockets.map(|socket| socket.address.clone()).collect();
        out.push(Action::Do(id, Order::Discard { sockets }));
        group.preloader.change(Cause::Gone, now);
        group.preloader.forget();
        let wanted = !group.preloader.waiting.is_empty() && !self.stopping;
        if wanted {
            self.change_preloader(&name, Cause::Needed, now, out);
        }
        self.tidy(&name);
    }

    fn retire(&mut self, group: &str, now: Tick, out: &mut Vec<Action>) {
        let Some(known) = self.groups.get(group) else {
            return;
        };
        if let (Life::Starting, Some(id)) = (known.preloader.life, known.preloader.journey) {
            self.step(id, now, out, |attempt, orders| attempt.cancel(now, orders));
        }
        self.change_preloader(group, Cause::Stop, now, out);
    }

    fn arrived(&mut self, id: JourneyId, now: Tick, out: &mut Vec<Action>) {
        let Some(attempt) = self.attempts.remove(&id) else {
            return;
        };
        let group = attempt.plan.group.clone();
        let surroundings = attempt.response.map(|response| response.surroundings);
        let surroundings = surroundings.unwrap_or_default();
        let idle = attempt.plan.max_preloader_idle_time;
        let known = self.groups.get_mut(&group);
        match attempt.purpose {
            Purpose::Wish(token) => {
                if let Some(known) = known {
                    known.backoff.succeed();
                    known.preloader.asked.remove(&id);
                    known.preloader.rest(idle, now);
                }
                let up = Up {
                    id,
                    pid: attempt.pid.unwrap_or_default(),
                    sockets: attempt.sockets,
                    journey: attempt.journey,
                    started: attempt.started,
                    ended: now,
                    surroundings,
                };
                out.push(Action::Deliver(token, Outcome::Up(Box::new(up))));
            }
            Purpose::Preloader => {
                if let Some(known) = known {
                    known.preloader.sockets = attempt.sockets;
                    known.preloader.surroundings = surroundings;
                    let address = known.preloader.address().map(ToString::to_string);
                    out.push(Action::Say(format!(
                        "[spawn {group}] the preloader of {} is up: process {}, {}",
                        attempt.plan.app_root.display(),
                        attempt.pid.unwrap_or_default(),
                        address.unwrap_or_default(),
                    )));
                    known.preloader.change(Cause::Up, now);
                    known.preloader.rest(idle, now);
                }
                self.ask(&group, now, out);
                if self.stopping {
                    self.change_preloader(&group, Cause::Stop, now, out);
                }
            }
        }
        self.tidy(&group);
    }

    fn failed(&mut self, id: JourneyId, now: Tick, out: &mut Vec<Action>) {
        let Some(attempt) = self.attempts.remove(&id) else {
            return;
        };
        let group = attempt.plan.group.clone();
        let (purpose, blamed, started) = (attempt.purpose, attempt.is_to_blame(), attempt.started);
        let report = Arc::new(self.report(id, attempt, now));
        if blamed {
            out.push(Action::Report(Arc::clone(&report)));
        }
        let idle = report.plan.max_preloader_idle_time;
        let mut followers = Vec::new();
        if let Some(known) = self.groups.get_mut(&group) {
            if blamed && report.plan.is_held_back {
                known.backoff.fail(started, now, report.id);
            }
            known.preloader.asked.remove(&id);
            known.preloader.rest(idle, now);
            if purpose == Purpose::Preloader {
                known.preloader.change(Cause::Failed, now);
                known.preloader.forget();
                followers.extend(std::mem::take(&mut known.preloader.waiting));
            }
        }
        if let Purpose::Wish(token) = purpose {
            out.push(Action::Deliver(token, Outcome::Failed(Arc::clone(&report))));
        }
        // Whoever waited for the preloader is told why there is none.
        for follower in followers {
            if let Some(attempt) = self.attempts.remove(&follower) {
                out.push(Action::Do(follower, Order::Discard { sockets: Vec::new() }));
                if let Purpose::Wish(token) = attempt.purpose {
                    out.push(Action::Deliver(token, Outcome::Failed(Arc::clone(&report))));
                }
            }
        }
        self.tidy(&group);
    }

    fn report(&self, id: JourneyId, mut attempt: Attempt, now: Tick) -> Report {
        let failure = attempt.explain(now);
        let preloader = self.groups.get(&attempt.plan.group).filter(|_| {
            attempt.purpose != Purpose::Preloader && attempt.journey.route() == Route::SpawnThroughPreloader
        });
        let preloader = preloader.map(|group| group.preloader.surroundings.clone());
        let response = attempt.response.map(|response| *response).unwrap_or_default();
        Report {
            id: self.error_id(id.0),
            plan: attempt.plan,
            journey: attempt.journey,
            started: attempt.started,
            ended: now,
            failure,
            pid: attempt.pid,
            exit: attempt.died,
            output: response.output,
            subprocess: response.surroundings,
            preloader,
            left: attempt.left,
        }
    }

    /// The report of a wish that was not even tried.
    fn refusal(&mut self, plan: Arc<Plan>, trouble: &Trouble, now: Tick) -> Report {
        self.next += 1;
        let mut journey = Journey::new(Route::SpawnDirectly, plan.kind.has_wrapper());
        let failure = explain(trouble, &journey, &plan, None);
        journey.blame(failure.step, now);
        Report {
            id: self.error_id(self.next),
            plan,
            journey,
            started: now,
            ended: now,
            failure,
            pid: None,
            exit: None,
            output: String::new(),
            subprocess: Surroundings::default(),
            preloader: None,
            left: 0,
        }
    }

    /// A number that looks like none of the others (the finaliser of SplitMix64).
    fn error_id(&self, number: u64) -> ErrorId {
        let mut mixed = self.seed.wrapping_add(number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ErrorId((mixed >> 32) as u32)
    }

    /// Forgets an application of which there is nothing to be known.
    fn tidy(&mut self, group: &str) {
        let Some(known) = self.groups.get(group) else {
            return;
        };
        let mut attempts = self.attempts.values();
        let used = attempts.any(|attempt| attempt.plan.group == group);
        if !used && known.preloader.life == Life::Absent && known.backoff.is_clear() {
            self.groups.remove(group);
        }
    }

    /// What must be true after each step.
    fn invariants(&self) {
        for group in self.groups.values() {
            let preloader = &group.preloader;
            debug_assert_eq!(preloader.life == Life::Absent, preloader.journey.is_none());
            if preloader.life == Life::Ready {
                debug_assert!(
                    preloader.waiting.is_empty(),
                    "somebody waits for a ready preloader"
                );
            }
            debug_assert!(
                preloader.waiting.is_empty() || preloader.life != Life::Absent,
                "somebody waits for a preloader that nobody starts"
            );
            debug_assert!(!matches!(preloader.life, Life::Stopping(_)) || preloader.due.is_some());
            let waits = preloader.waiting.iter();
            for id in waits {
                let phase = self.attempts.get(id).map(|attempt| attempt.phase);
                debug_assert_eq!(phase, Some(Phase::Waiting));
            }
        }
        for attempt in self.attempts.values() {
            debug_assert_ne!(attempt.phase, Phase::Over);
        }
    }
}
