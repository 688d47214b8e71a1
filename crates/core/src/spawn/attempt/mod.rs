//! One journey: the sequence of steps and the handling of failures.
//!
//! ```text
//!  Preparing ─▶ Forking ─▶ Handshaking ─▶ Checking ─▶ over: up
//!      ▲                        │            │
//!      └───── another port ─────┘            │
//!                                            │
//!  from each: Flushing ─▶ Examining ─▶ Killing ─▶ Sweeping ─▶ over: failed
//! ```
//!
//! After a failure the journey waits briefly for output, reads the response and kills all processes before it reports,
//! so that nothing is left for a retry.

mod back;
mod forward;
mod state;

pub(super) use state::{AttemptProgress, AttemptState};

use super::action::JourneyAction;
use super::error::{Ended, Trouble};
use super::event::{JourneyEvent, Token};
use super::handshake::properties::Socket;
use super::handshake::response::{Complaint, Response};
use super::journey::{Journey, StepState};
use super::plan::Plan;
use super::step::{Party, Route, Step};
use forkyard_base::tick::Tick;
use std::sync::Arc;
use std::time::Duration;

const PING_PAUSE: Duration = Duration::from_millis(50);
const MOST_PORTS: u32 = 3;

#[derive(Debug)]
pub(in crate::spawn) struct Attempt {
    pub(in crate::spawn) token: Token,
    pub(in crate::spawn) plan: Arc<Plan>,
    pub(in crate::spawn) journey: Journey,
    pub(in crate::spawn) started: Tick,
    pub(in crate::spawn) state: AttemptState,
    pub(in crate::spawn) pid: Option<i32>,
    /// Its exit, unless the kit killed it.
    pub(in crate::spawn) died: Option<Ended>,
    pub(in crate::spawn) response: Option<Box<Response>>,
    pub(in crate::spawn) sockets: Vec<Socket>,
    /// Processes that could not be killed.
    pub(in crate::spawn) left: usize,
    deadline: Tick,
    due: Option<Tick>,
    trouble: Option<Trouble>,
    exited: bool,
    output_ended: bool,
    finish: Option<Option<u8>>,
    /// An error report by another way than the work directory.
    told: Option<Complaint>,
    prepared: bool,
    taken: bool,
    ports: u32,
    sweeps: u32,
    /// Processes found by this sweep.
    found: usize,
}

impl Attempt {
    pub(in crate::spawn) fn begin(
        token: Token,
        plan: Arc<Plan>,
        route: Route,
        now: Tick,
        out: &mut Vec<JourneyAction>,
    ) -> Attempt {
        let mut journey = Journey::new(route, plan.kind.has_wrapper());
        note(journey.begin(Step::KitPreparation, now));
        out.push(JourneyAction::Prepare {
            plan: Arc::clone(&plan),
            route,
        });
        Attempt {
            token,
            journey,
            started: now,
            state: AttemptState::Preparing,
            pid: None,
            died: None,
            exited: false,
            finish: None,
            told: None,
            response: None,
            sockets: Vec::new(),
            left: 0,
            deadline: now + plan.start_timeout,
            due: None,
            trouble: None,
            output_ended: false,
            prepared: false,
            taken: false,
            ports: 1,
            sweeps: 0,
            found: 0,
            plan,
        }
    }

    pub(in crate::spawn) fn next_deadline(&self) -> Option<Tick> {
        // The cleanup has its own times.
        let whole = self.state.is_on_the_way().then_some(self.deadline);
        [whole, self.due].into_iter().flatten().min()
    }

    pub(in crate::spawn) fn pass(&mut self, now: Tick, out: &mut Vec<JourneyAction>) -> AttemptProgress {
        if self.next_deadline().is_none_or(|next| next > now) {
            return AttemptProgress::Nothing;
        }
        let is_late = self.deadline <= now;
        match self.state {
            AttemptState::Handshaking if !is_late => {
                self.due = None;
                out.push(JourneyAction::Ping);
                AttemptProgress::Nothing
            }
            state if state.is_on_the_way() && is_late => self.fail(Trouble::Timeout(self.step()), now, out),
            AttemptState::Flushing => self.examine(out),
            AttemptState::Killing => self.sweep(out),
            AttemptState::Sweeping => {
                self.due = None;
                out.push(JourneyAction::Sweep);
                AttemptProgress::Nothing
            }
            _ => {
                self.due = None;
                AttemptProgress::Nothing
            }
        }
    }

    pub(in crate::spawn) fn cancel(&mut self, now: Tick, out: &mut Vec<JourneyAction>) -> AttemptProgress {
        if self.state == AttemptState::Sweeping && self.trouble.is_none() {
            self.trouble = Some(Trouble::Cancelled);
            return AttemptProgress::Nothing;
        }
        self.fail(Trouble::Cancelled, now, out)
    }

    pub(in crate::spawn) fn expire(&mut self, now: Tick, out: &mut Vec<JourneyAction>) -> AttemptProgress {
        self.fail(Trouble::Timeout(self.step()), now, out)
    }

    pub(in crate::spawn) fn handle(
        &mut self,
        event: JourneyEvent,
        now: Tick,
        out: &mut Vec<JourneyAction>,
    ) -> AttemptProgress {
        match &event {
            JourneyEvent::Forked { pid } => self.pid = Some(*pid),
            JourneyEvent::Exited(ended) => {
                // The exit of a killed process explains nothing.
                self.died = self
                    .died
                    .or((self.state != AttemptState::Killing).then_some(*ended));
                self.exited = true;
            }
            JourneyEvent::OutputEnded => self.output_ended = true,
            JourneyEvent::Finish(byte) => self.finish = Some(*byte),
            JourneyEvent::Told(complaint) => self.told = Some((**complaint).clone()),
            _ => {}
        }
        match (self.state, event) {
            (AttemptState::Preparing, JourneyEvent::Prepared) => self.prepared(now, out),
            (AttemptState::Preparing, JourneyEvent::NotPrepared(fault)) => {
                self.fail(Trouble::Preparation(fault), now, out)
            }
            (AttemptState::Forking, JourneyEvent::Forked { .. }) => {
                note(self.journey.perform(Step::KitForkSubprocess, now));
                self.handshake(now, out)
            }
            (AttemptState::Forking, JourneyEvent::NotForked(fault)) => {
                self.fail(Trouble::Fork(fault), now, out)
            }
            (AttemptState::Handshaking, JourneyEvent::Finish(Some(b'1'))) if self.plan.internal.is_some() => {
                // The master has its own channel to it; there is no response.
                self.arrive(Vec::new(), now, out)
            }
            (AttemptState::Handshaking, JourneyEvent::Finish(Some(b'1')) | JourneyEvent::Pinged) => {
                (self.state, self.due) = (AttemptState::Checking, None);
                out.push(JourneyAction::Load);
                AttemptProgress::Nothing
            }
            (AttemptState::Handshaking, JourneyEvent::Finish(byte)) => {
                self.fail(Trouble::Aborted { byte }, now, out)
            }
            (AttemptState::Handshaking, JourneyEvent::FinishUnreadable(fault)) => {
                self.fail(Trouble::Finish(fault), now, out)
            }
            (AttemptState::Handshaking, JourneyEvent::Silent) => {
                self.due = Some(now + PING_PAUSE);
                AttemptProgress::Nothing
            }
            (AttemptState::Handshaking, JourneyEvent::Taken) => {
                self.taken = true;
                self.due = Some(now + PING_PAUSE);
                AttemptProgress::Nothing
            }
            (AttemptState::Handshaking, JourneyEvent::Exited(ended)) => {
                if self.taken && self.ports < MOST_PORTS {
                    // Another process took its port.
                    self.ports += 1;
                    self.trouble = None;
                    return self.sweep(out);
                }
                self.fail(Trouble::Exited(ended), now, out)
            }
            (AttemptState::Checking, JourneyEvent::Loaded(response)) => {
                let verdict = self.judge(&response);
                self.response = Some(response);
                match verdict {
                    Ok(sockets) => self.arrive(sockets, now, out),
                    Err(trouble) => self.fail(trouble, now, out),
                }
            }
            (AttemptState::Flushing, JourneyEvent::Exited(_) | JourneyEvent::OutputEnded) => {
                if self.exited && self.output_ended {
                    return self.examine(out);
                }
                AttemptProgress::Nothing
            }
            (AttemptState::Examining, JourneyEvent::Loaded(mut response)) => {
                if response.complaint == Complaint::default() {
                    response.complaint = self.told.take().unwrap_or_default();
                }
                let (records, bad) = response.records();
                for record in records {
                    self.journey.load(record);
                }
                let speaks = matches!(
                    self.trouble,
                    Some(Trouble::Exited(_) | Trouble::Aborted { .. } | Trouble::Timeout(_))
                );
                match (speaks, response.complaint.category(), bad) {
                    (true, Err(unknown), _) => self.trouble = Some(Trouble::BadCategory(unknown.0)),
                    (true, Ok(_), Some(bad)) => self.trouble = Some(Trouble::BadStep(bad.step, bad.text)),
                    (true, Ok(_), None) | (false, _, _) => {}
                }
                self.response = Some(response);
                self.kill(now, out)
            }
            (AttemptState::Killing, JourneyEvent::Exited(_)) => self.sweep(out),
            (AttemptState::Sweeping, JourneyEvent::Swept { left, is_whole }) => {
                self.swept(left, is_whole, now, out)
            }
            _ => AttemptProgress::Nothing,
        }
    }

    fn step(&self) -> Step {
        let mut kit = self.journey.steps_of(Party::Kit);
        let running = kit.find(|step| self.journey.state(*step) == StepState::InProgress);
        running.unwrap_or(Step::KitPreparation)
    }

    pub(in crate::spawn) fn invariants(&self) {
        let waits = matches!(self.state, AttemptState::Examining | AttemptState::Over);
        let sweeping = self.state == AttemptState::Sweeping;
        debug_assert!(
            waits || sweeping || self.next_deadline().is_some(),
            "a journey in {:?} waits for nothing",
            self.state
        );
    }
}

/// A repeated step must not crash the master.
fn note(result: Result<(), super::journey::Illegal>) {
    debug_assert!(result.is_ok(), "{result:?}");
}
