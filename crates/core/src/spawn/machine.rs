//! The spawning kit. Each [`Event::Spawn`] leads to exactly one [`Action::Deliver`].

use super::action::{Action, JourneyAction, SpawnOutcome, Up};
use super::attempt::{Attempt, AttemptProgress, AttemptState};
use super::error::{Trouble, explain};
use super::event::{Event, JourneyId, Token};
use super::journey::Journey;
use super::plan::Plan;
use super::report::{ErrorId, Report};
use super::self_spawn::error_id;
use super::step::Route;
use forkyard_base::tick::Tick;
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Debug)]
pub struct Machine {
    attempts: BTreeMap<JourneyId, Attempt>,
    next: u64,
    seed: u64,
    stopping: bool,
}

impl Machine {
    /// Returns an idle kit. `seed` makes its error ids unique.
    pub fn new(seed: u64) -> Machine {
        Machine {
            attempts: BTreeMap::new(),
            next: 0,
            seed,
            stopping: false,
        }
    }

    /// Handles an event and appends actions.
    pub fn handle(&mut self, event: Event, now: Tick, out: &mut Vec<Action>) {
        match event {
            Event::Spawn { token, plan } => self.spawn(token, plan, now, out),
            Event::Cancel(token) => {
                if let Some(id) = self.journey_of(token) {
                    self.step(id, now, out, |attempt, actions| attempt.cancel(now, actions));
                }
            }
            Event::Expire(token) => {
                if let Some(id) = self.journey_of(token) {
                    self.step(id, now, out, |attempt, actions| attempt.expire(now, actions));
                }
            }
            Event::Shutdown => {
                self.stopping = true;
                let ids: Vec<JourneyId> = self.attempts.keys().copied().collect();
                for id in ids {
                    self.step(id, now, out, |attempt, actions| attempt.cancel(now, actions));
                }
            }
            Event::Journey(id, event) => {
                self.step(id, now, out, |attempt, actions| {
                    attempt.handle(event, now, actions)
                });
            }
        }
        self.invariants();
    }

    /// Handles a deadline from [`Machine::next_deadline`].
    pub fn pass(&mut self, now: Tick, out: &mut Vec<Action>) {
        let due = |next: Option<Tick>| next.is_some_and(|next| next <= now);
        let late: Vec<JourneyId> = self
            .attempts
            .iter()
            .filter(|(_, attempt)| due(attempt.next_deadline()))
            .map(|(id, _)| *id)
            .collect();
        for id in late {
            self.step(id, now, out, |attempt, actions| attempt.pass(now, actions));
        }
        self.invariants();
    }

    /// When to call [`Machine::pass`].
    pub fn next_deadline(&self) -> Option<Tick> {
        self.attempts.values().filter_map(Attempt::next_deadline).min()
    }

    /// Whether it has no journeys.
    pub fn is_idle(&self) -> bool {
        self.attempts.is_empty()
    }

    /// The number of running journeys.
    pub fn under_way(&self) -> usize {
        self.attempts.len()
    }

    fn journey_of(&self, token: Token) -> Option<JourneyId> {
        self.attempt_for(token).map(|(id, _)| id)
    }

    pub(super) fn attempt_for(&self, token: Token) -> Option<(JourneyId, &Attempt)> {
        let mut attempts = self.attempts.iter();
        let found = attempts.find(|(_, attempt)| attempt.token == token);
        found.map(|(id, attempt)| (*id, attempt))
    }

    fn spawn(&mut self, token: Token, plan: Arc<Plan>, now: Tick, out: &mut Vec<Action>) {
        let faults = plan.faults();
        let trouble = match faults.is_empty() {
            false => Some(Trouble::BadPlan(faults)),
            true => self.stopping.then_some(Trouble::Cancelled),
        };
        if let Some(trouble) = trouble {
            let report = Arc::new(self.refusal(plan, &trouble, now));
            if matches!(trouble, Trouble::BadPlan(_)) {
                out.push(Action::Report(Arc::clone(&report)));
            }
            out.push(Action::Deliver(token, SpawnOutcome::Failed(report)));
            return;
        }
        let route = match &plan.internal {
            Some(_) => Route::StartPreloader,
            None => Route::SpawnDirectly,
        };
        self.next += 1;
        let id = JourneyId(self.next);
        let mut actions = Vec::new();
        let attempt = Attempt::begin(token, plan, route, now, &mut actions);
        self.attempts.insert(id, attempt);
        out.extend(actions.into_iter().map(|action| Action::Do(id, action)));
    }

    fn step(
        &mut self,
        id: JourneyId,
        now: Tick,
        out: &mut Vec<Action>,
        take: impl FnOnce(&mut Attempt, &mut Vec<JourneyAction>) -> AttemptProgress,
    ) {
        let Some(attempt) = self.attempts.get_mut(&id) else {
            return;
        };
        let mut actions = Vec::new();
        let progress = take(attempt, &mut actions);
        attempt.invariants();
        out.extend(actions.into_iter().map(|action| Action::Do(id, action)));
        match progress {
            AttemptProgress::Nothing => {}
            AttemptProgress::Up => self.arrived(id, now, out),
            AttemptProgress::Failed => self.failed(id, now, out),
        }
    }

    fn arrived(&mut self, id: JourneyId, now: Tick, out: &mut Vec<Action>) {
        let Some(attempt) = self.attempts.remove(&id) else {
            return;
        };
        let surroundings = attempt.response.map(|response| response.surroundings);
        let up = Up {
            id,
            pid: attempt.pid.unwrap_or_default(),
            sockets: attempt.sockets,
            journey: attempt.journey,
            started: attempt.started,
            ended: now,
            surroundings: surroundings.unwrap_or_default(),
        };
        out.push(Action::Deliver(attempt.token, SpawnOutcome::Up(Box::new(up))));
    }

    fn failed(&mut self, id: JourneyId, now: Tick, out: &mut Vec<Action>) {
        let Some(attempt) = self.attempts.remove(&id) else {
            return;
        };
        let (token, blamed) = (attempt.token, attempt.is_to_blame());
        let report = Arc::new(self.report(id, attempt, now));
        if blamed {
            out.push(Action::Report(Arc::clone(&report)));
        }
        out.push(Action::Deliver(token, SpawnOutcome::Failed(report)));
    }

    fn report(&self, id: JourneyId, mut attempt: Attempt, now: Tick) -> Report {
        let failure = attempt.explain(now);
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
            left: attempt.left,
        }
        .without_secrets()
    }

    fn refusal(&mut self, plan: Arc<Plan>, trouble: &Trouble, now: Tick) -> Report {
        self.next += 1;
        let mut journey = Journey::new(Route::SpawnDirectly, plan.kind.has_wrapper());
        let failure = explain(trouble, &journey, &plan, None);
        journey.blame(failure.step, now);
        Report::before_start(self.error_id(self.next), plan, journey, failure, now)
    }

    fn error_id(&self, number: u64) -> ErrorId {
        error_id(self.seed.wrapping_add(number.wrapping_mul(0x9E37_79B9_7F4A_7C15)))
    }

    fn invariants(&self) {
        for attempt in self.attempts.values() {
            debug_assert_ne!(attempt.state, AttemptState::Over);
        }
    }
}
