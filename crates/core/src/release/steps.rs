//! The steps of a deployment.
//!
//! ```text
//!                                 next deployment, below 50 %
//!        ┌───────────────────────────────┬────────────▶ Ended(Replaced)
//!        │        trial passed           │   last step          every request      old workers have gone
//!     Trying ──────────────────▶ Sharing(1, 10, 50 %) ──▶ Whole ────────────▶ Served ──────────────────▶ Ended(Done)
//!        │ trial failed                  │ worse, or rollback                  or next deployment
//!        ├───────────────────────────────┘
//!        ▼      new workers have gone, or next deployment
//!      Back ──────────────────────────────────────────────▶ Ended(RolledBack)
//! ```
//!
//! From 50 % until `Served` or `Back` the next deployment waits. From `Whole` on a rollback is a deployment of the old release.
//! The command moves the link to the release. If the command ends early, its deployment is therefore taken back.

use forkyard_base::tick::Tick;
use std::fmt;
use std::time::Duration;

/// A second deployment replaces the first below this percentage, and waits for it from this percentage on.
const REPLACED_BELOW: u8 = 50;
/// This many requests of the new generation suffice to detect a release that fails often.
const ENOUGH_REQUESTS: u64 = 30;
/// A step with too few requests lasts this many times as long.
const WITHOUT_REQUESTS: u32 = 3;
/// A step with some evidence against the release lasts this many times as long.
const SUSPICIOUS: u32 = 10;

/// The steps of a pool's deployments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Percentages below 100, in order. Empty: the whole pool at once.
    pub percents: Vec<u8>,
    pub step_time: Duration,
}

impl Plan {
    /// Drops percentages that are not between the one before and 100.
    pub fn new(percents: &[u8], step_time: Duration) -> Plan {
        let mut plan = Plan {
            percents: Vec::new(),
            step_time,
        };
        for percent in percents {
            let before = plan.percents.last().copied().unwrap_or(0);
            if (before + 1..100).contains(percent) {
                plan.percents.push(*percent);
            }
        }
        plan
    }
}

/// The number of a deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeploymentId(pub u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// One worker proves that it starts and answers.
    Trying,
    /// Both generations serve: the index of the step, and its begin.
    Sharing { step: usize, since: Tick },
    /// The new generation takes over.
    Whole,
    /// The new generation gets all requests, and old workers finish.
    Served,
    /// The old generation gets all requests, and new workers finish.
    Back(Cause),
}

/// Why the old release stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    TrialFailed,
    /// The comparison found the new one worse.
    Worse,
    /// An operator asked for a rollback.
    Asked,
    /// The command has ended.
    Left,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Done,
    RolledBack(Cause),
    /// A newer deployment replaced it.
    Replaced,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    TrialPassed,
    TrialFailed,
    /// Time has passed. `compared`: requests of the new generation in this step, while the old one also had requests.
    /// `is_suspicious`: there is some evidence against the release, and more could decide.
    Time {
        compared: u64,
        is_suspicious: bool,
    },
    /// The comparison decided.
    Worse,
    /// The new generation gets every request.
    Serves,
    /// An operator wants the old release.
    RollBack,
    /// The waiting command has ended.
    Left,
    /// The last worker of the leaving generation has gone.
    Gone,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Starts a generation with this release, and one worker of it.
    Try(DeploymentId),
    /// Gives the new generation this part of the requests.
    Share { id: DeploymentId, percent: u8 },
    /// Reports that the last step had too few requests to compare.
    NotCompared { id: DeploymentId, percent: u8 },
    /// Reports that the last step ended with some evidence against the release, which decided nothing.
    Doubted { id: DeploymentId, percent: u8 },
    /// Gives the new generation all requests; old workers leave.
    Serve(DeploymentId),
    /// Gives the old generation all requests; new workers leave.
    Return { id: DeploymentId, cause: Cause },
    /// Deploys the old release again: the new one serves, but its command ended and can't move the link.
    Undo(DeploymentId),
    /// Answers the command. After `Replaced` the generation's workers leave.
    End { id: DeploymentId, end: End },
    /// Reports that the deployment waits for the present one.
    Waits(DeploymentId),
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Try(_) => f.write_str("tries the new release"),
            Action::Share { percent, .. } => write!(f, "the new release gets {percent} % of the requests"),
            Action::NotCompared { percent, .. } => {
                write!(
                    f,
                    "not enough requests to compare at {percent} %; the trial passed"
                )
            }
            Action::Doubted { percent, .. } => {
                write!(f, "some requests at {percent} % were worse, too few to decide")
            }
            Action::Serve(_) => f.write_str("the new release gets all requests"),
            Action::Return { cause, .. } => write!(f, "goes back to the release before: {cause}"),
            Action::End { end: End::Done, .. } => f.write_str("the new release is in service"),
            Action::End {
                end: End::RolledBack(cause),
                ..
            } => write!(f, "went back to the release before: {cause}"),
            Action::End {
                end: End::Replaced, ..
            } => f.write_str("a newer deployment replaced this one"),
            Action::Undo(_) => f.write_str("its command has ended, so the release before is deployed"),
            Action::Waits(_) => f.write_str("waits for the present deployment"),
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Cause::TrialFailed => "the trial failed",
            Cause::Worse => "the new release is worse",
            Cause::Asked => "an operator asked for it",
            Cause::Left => "its command has ended",
        })
    }
}

/// A deployment.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Deployment {
    id: DeploymentId,
    plan: Plan,
}

/// The deployments of one pool: one under way, and one that waits.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Deployments {
    present: Option<(Deployment, State)>,
    waiting: Option<Deployment>,
}

impl Deployments {
    /// Goes on with the deployments of the master before, after an upgrade.
    pub fn resume(
        present: Option<(DeploymentId, Plan, State)>,
        waiting: Option<(DeploymentId, Plan)>,
    ) -> Deployments {
        Deployments {
            present: present.map(|(id, plan, state)| (Deployment { id, plan }, state)),
            waiting: waiting.map(|(id, plan)| Deployment { id, plan }),
        }
    }

    /// Returns the plan of the deployment under way.
    pub fn plan(&self) -> Option<&Plan> {
        self.present.as_ref().map(|(deployment, _)| &deployment.plan)
    }

    /// Returns the deployment that waits.
    pub fn waiting(&self) -> Option<(DeploymentId, &Plan)> {
        self.waiting
            .as_ref()
            .map(|deployment| (deployment.id, &deployment.plan))
    }

    /// Returns the deployment under way.
    pub fn present(&self) -> Option<(DeploymentId, State)> {
        self.present
            .as_ref()
            .map(|(deployment, state)| (deployment.id, *state))
    }

    /// Returns the new generation's part of the requests.
    pub fn percent(&self) -> u8 {
        match &self.present {
            Some((deployment, State::Sharing { step, .. })) => percent(&deployment.plan, *step),
            Some((_, State::Whole | State::Served)) => 100,
            Some((_, State::Trying | State::Back(_))) | None => 0,
        }
    }

    /// Begins a deployment, or has it wait.
    pub fn deploy(&mut self, id: DeploymentId, plan: Plan, actions: &mut Vec<Action>) {
        let deployment = Deployment { id, plan };
        let replaced = |id| Action::End {
            id,
            end: End::Replaced,
        };
        let percent = self.percent();
        match &self.present {
            None => self.begin(deployment, actions),
            Some((present, state @ (State::Served | State::Back(_)))) => {
                let end = match state {
                    State::Back(cause) => End::RolledBack(*cause),
                    _ => End::Done,
                };
                actions.push(Action::End { id: present.id, end });
                self.begin(deployment, actions);
            }
            Some((present, State::Trying | State::Sharing { .. })) if percent < REPLACED_BELOW => {
                actions.push(replaced(present.id));
                self.begin(deployment, actions);
            }
            Some(_) => {
                actions.push(Action::Waits(id));
                if let Some(waiting) = self.waiting.replace(deployment) {
                    actions.push(replaced(waiting.id));
                }
            }
        }
    }

    fn begin(&mut self, deployment: Deployment, actions: &mut Vec<Action>) {
        actions.push(Action::Try(deployment.id));
        self.present = Some((deployment, State::Trying));
    }

    /// Takes an event of a deployment. An event of an earlier deployment changes nothing.
    pub fn event(&mut self, id: DeploymentId, event: Event, now: Tick, actions: &mut Vec<Action>) {
        let called_off = match event {
            Event::RollBack => Some(Cause::Asked),
            Event::Left => Some(Cause::Left),
            _ => None,
        };
        if let Some(cause) = called_off
            && self.waiting.take_if(|waiting| waiting.id == id).is_some()
        {
            let end = End::RolledBack(cause);
            return actions.push(Action::End { id, end });
        }
        let has_next = self.waiting.is_some();
        let Some((deployment, state)) = self.present.as_mut().filter(|(present, _)| present.id == id) else {
            return;
        };
        let next = match (*state, event) {
            (State::Trying, Event::TrialPassed) => enter(deployment, 0, now, actions),
            (State::Trying, Event::TrialFailed) => back(id, Cause::TrialFailed, actions),
            (State::Trying | State::Sharing { .. }, Event::RollBack) => back(id, Cause::Asked, actions),
            (State::Trying | State::Sharing { .. }, Event::Left) => back(id, Cause::Left, actions),
            (
                State::Sharing { step, since },
                Event::Time {
                    compared,
                    is_suspicious,
                },
            ) => {
                let is_compared = compared >= ENOUGH_REQUESTS;
                let times = match (is_suspicious, is_compared) {
                    (true, _) => SUSPICIOUS,
                    (false, false) => WITHOUT_REQUESTS,
                    (false, true) => 1,
                };
                if now.since(since) < deployment.plan.step_time.saturating_mul(times) {
                    return;
                }
                let percent = percent(&deployment.plan, step);
                if !is_compared {
                    actions.push(Action::NotCompared { id, percent });
                }
                if is_suspicious {
                    actions.push(Action::Doubted { id, percent });
                }
                enter(deployment, step + 1, now, actions)
            }
            (State::Sharing { .. }, Event::Worse) => back(id, Cause::Worse, actions),
            // The whole generation did not come up.
            (State::Whole, Event::TrialFailed) => back(id, Cause::TrialFailed, actions),
            // The command of the next one moves the link.
            (State::Whole, Event::Left) if has_next => return,
            (State::Whole, Event::Left) => return actions.push(Action::Undo(id)),
            (State::Whole, Event::Serves) if has_next => return self.end(End::Done, actions),
            (State::Whole, Event::Serves) => State::Served,
            (State::Whole | State::Served, Event::Gone) => return self.end(End::Done, actions),
            (State::Back(cause), Event::Gone) => return self.end(End::RolledBack(cause), actions),
            (State::Trying, Event::Time { .. } | Event::Worse | Event::Serves | Event::Gone)
            | (
                State::Sharing { .. },
                Event::TrialPassed | Event::TrialFailed | Event::Serves | Event::Gone,
            )
            | (
                State::Whole | State::Served | State::Back(_),
                Event::TrialPassed | Event::Time { .. } | Event::Worse | Event::RollBack,
            )
            | (State::Served | State::Back(_), Event::TrialFailed | Event::Serves | Event::Left) => return,
        };
        *state = next;
        if let (State::Back(cause), true) = (next, has_next) {
            self.end(End::RolledBack(cause), actions);
        }
    }

    fn end(&mut self, end: End, actions: &mut Vec<Action>) {
        if let Some((deployment, _)) = self.present.take() {
            actions.push(Action::End {
                id: deployment.id,
                end,
            });
        }
        if let Some(waiting) = self.waiting.take() {
            self.begin(waiting, actions);
        }
    }
}

fn percent(plan: &Plan, step: usize) -> u8 {
    plan.percents.get(step).copied().unwrap_or(100)
}

fn enter(deployment: &Deployment, step: usize, now: Tick, actions: &mut Vec<Action>) -> State {
    let id = deployment.id;
    match deployment.plan.percents.get(step) {
        Some(percent) => {
            actions.push(Action::Share {
                id,
                percent: *percent,
            });
            State::Sharing { step, since: now }
        }
        None => {
            actions.push(Action::Serve(id));
            State::Whole
        }
    }
}

fn back(id: DeploymentId, cause: Cause, actions: &mut Vec<Action>) -> State {
    actions.push(Action::Return { id, cause });
    State::Back(cause)
}

#[cfg(test)]
mod tests;
