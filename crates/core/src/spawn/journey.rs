//! The steps of a spawn with their states and times.
//!
//! ```text
//!   NotStarted ──▶ InProgress ──▶ Performed
//!       │ │            │             ▲
//!       │ └────────────┼─────────────┘
//!       └──────────────┴──────────▶ Errored
//! ```
//!
//! The kit's own steps follow the arrows. The new process's reports are taken as they are.

use super::step::{Party, Route, Step};
use forkyard_base::tick::Tick;
use serde_json::{Map, Value, json};
use std::time::Duration;

/// The state of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StepState {
    #[default]
    NotStarted,
    InProgress,
    Performed,
    Errored,
}

impl StepState {
    /// The name in reports and in files that applications write.
    pub const fn name(self) -> &'static str {
        match self {
            StepState::NotStarted => "STEP_NOT_STARTED",
            StepState::InProgress => "STEP_IN_PROGRESS",
            StepState::Performed => "STEP_PERFORMED",
            StepState::Errored => "STEP_ERRORED",
        }
    }

    /// Returns the state with this name.
    pub fn parse(name: &str) -> Option<StepState> {
        let all = [
            StepState::NotStarted,
            StepState::InProgress,
            StepState::Performed,
            StepState::Errored,
        ];
        all.into_iter().find(|state| state.name() == name)
    }

    fn may_become(self, next: StepState) -> bool {
        matches!(
            (self, next),
            (StepState::NotStarted, StepState::InProgress)
                | (
                    StepState::NotStarted | StepState::InProgress,
                    StepState::Performed | StepState::Errored
                )
        )
    }
}

/// The record of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    pub step: Step,
    pub state: StepState,
    pub begin: Option<Tick>,
    pub end: Option<Tick>,
}

/// A transition or step that does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("step {} can't become {} on this journey", step.name(), to.name())]
pub struct Illegal {
    pub step: Step,
    pub to: StepState,
}

/// The steps of one spawn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Journey {
    route: Route,
    records: Vec<Record>,
}

impl Journey {
    /// Returns a new journey. `wrapper`: a wrapper loads the application.
    pub fn new(route: Route, wrapper: bool) -> Journey {
        let steps = Step::ALL.iter().filter(|step| step.is_in(wrapper));
        let records = steps.map(|step| Record {
            step: *step,
            state: StepState::NotStarted,
            begin: None,
            end: None,
        });
        Journey {
            route,
            records: records.collect(),
        }
    }

    pub fn route(&self) -> Route {
        self.route
    }

    /// Returns all records in order.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// Returns one party's steps in order.
    pub fn steps_of(&self, party: Party) -> impl Iterator<Item = Step> + '_ {
        let records = self.records.iter();
        records
            .map(|record| record.step)
            .filter(move |step| step.party() == party)
    }

    /// Returns the steps that the new process reports.
    pub fn reported_steps(&self) -> Vec<Step> {
        let steps = self.records.iter().map(|record| record.step);
        steps.filter(|step| step.party() != Party::Kit).collect()
    }

    /// Returns a step's record; `None`: the journey lacks it.
    pub fn record(&self, step: Step) -> Option<&Record> {
        self.records.iter().find(|record| record.step == step)
    }

    /// Returns a step's state; a missing step has not started.
    pub fn state(&self, step: Step) -> StepState {
        self.record(step)
            .map_or(StepState::NotStarted, |record| record.state)
    }

    /// Starts a step.
    ///
    /// # Errors
    /// [`Illegal`]; nothing changes.
    pub fn begin(&mut self, step: Step, now: Tick) -> Result<(), Illegal> {
        let record = self.change(step, StepState::InProgress)?;
        record.begin = Some(now);
        Ok(())
    }

    /// Completes a step.
    ///
    /// # Errors
    /// [`Illegal`]; nothing changes.
    pub fn perform(&mut self, step: Step, now: Tick) -> Result<(), Illegal> {
        self.end(step, StepState::Performed, now)
    }

    /// Fails a step.
    ///
    /// # Errors
    /// [`Illegal`]; nothing changes.
    pub fn fail(&mut self, step: Step, now: Tick) -> Result<(), Illegal> {
        self.end(step, StepState::Errored, now)
    }

    fn end(&mut self, step: Step, state: StepState, now: Tick) -> Result<(), Illegal> {
        let record = self.change(step, state)?;
        record.begin.get_or_insert(now);
        record.end = Some(now);
        Ok(())
    }

    /// Records the new process's report of a step. Returns whether the step exists and is not the kit's.
    pub fn load(&mut self, told: Record) -> bool {
        let ours = told.step.party() == Party::Kit;
        let found = self.records.iter_mut().find(|record| record.step == told.step);
        match found {
            Some(record) if !ours => {
                record.state = told.state;
                record.begin = told.begin.or(record.begin);
                record.end = told.end.or(record.end);
                true
            }
            _ => false,
        }
    }

    /// Marks a step as failed, if this journey has it.
    pub fn blame(&mut self, step: Step, now: Tick) {
        if let Some(record) = self.records.iter_mut().find(|record| record.step == step) {
            record.state = StepState::Errored;
            record.end.get_or_insert(now);
        }
    }

    pub fn reset(&mut self) {
        for record in &mut self.records {
            (record.state, record.begin, record.end) = (StepState::NotStarted, None, None);
        }
    }

    /// Returns the first failed step.
    pub fn first_failed(&self) -> Option<Step> {
        let mut failed = self
            .records
            .iter()
            .filter(|record| record.state == StepState::Errored);
        failed.next().map(|record| record.step)
    }

    /// Guesses the failed step: the one in progress, the last if all are done, otherwise the next.
    pub fn likely_failed(&self) -> Step {
        let own: Vec<&Record> = self
            .records
            .iter()
            .filter(|record| record.step.party() == Party::Subprocess)
            .collect();
        let running = own.iter().find(|record| record.state == StepState::InProgress);
        let performed = own
            .iter()
            .rposition(|record| record.state == StepState::Performed);
        let chosen = match (running, performed) {
            (Some(record), _) => Some(*record),
            (None, None) => own.first().copied(),
            (None, Some(index)) => own.get(index + 1).or(own.last()).copied(),
        };
        chosen.map_or(Step::SubprocessFinish, |record| record.step)
    }

    /// Returns a step's duration, up to the start of its party's next step.
    pub fn duration(&self, step: Step) -> Option<Duration> {
        let index = self.records.iter().position(|record| record.step == step)?;
        let record = self.records.get(index)?;
        let begin = record.begin?;
        let next = self.records[index + 1..]
            .iter()
            .filter(|next| next.step.party() == step.party())
            .find_map(|next| next.begin);
        Some(next.unwrap_or(record.end?).since(begin))
    }

    /// Returns JSON with times in seconds since `start`.
    pub fn to_json(&self, start: Tick) -> Value {
        let seconds = |tick: Tick| tick.since(start).as_secs_f64();
        let mut steps = Map::new();
        for record in &self.records {
            let mut step = json!({ "state": record.state.name() });
            let times = [
                ("begin_time", record.begin.map(seconds)),
                ("end_time", record.end.map(seconds)),
                ("duration", self.duration(record.step).map(|it| it.as_secs_f64())),
            ];
            for (name, time) in times {
                if let Some(time) = time {
                    step[name] = json!(time);
                }
            }
            steps.insert(record.step.name().to_owned(), step);
        }
        json!({ "type": self.route.name(), "steps": steps })
    }

    fn change(&mut self, step: Step, to: StepState) -> Result<&mut Record, Illegal> {
        let found = self.records.iter_mut().find(|record| record.step == step);
        match found {
            Some(record) if record.state.may_become(to) => {
                record.state = to;
                Ok(record)
            }
            _ => Err(Illegal { step, to }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tick(seconds: u64) -> Tick {
        Tick::from_nanos(seconds * 1_000_000_000)
    }

    fn told(step: Step, state: StepState) -> Record {
        Record {
            step,
            state,
            begin: None,
            end: None,
        }
    }

    #[test]
    fn a_step_goes_forward_only() {
        let mut journey = Journey::new(Route::SpawnDirectly, false);
        let step = Step::KitPreparation;
        journey.begin(step, tick(1)).expect("begins");
        journey.perform(step, tick(2)).expect("is performed");
        assert!(journey.begin(step, tick(3)).is_err());
        assert!(journey.fail(step, tick(3)).is_err());
        assert_eq!(journey.duration(step), Some(Duration::from_secs(1)));
    }

    #[test]
    fn a_step_that_it_does_not_have_is_refused() {
        let mut journey = Journey::new(Route::SpawnDirectly, false);
        assert!(journey.begin(Step::SubprocessExecWrapper, tick(1)).is_err());
        assert!(!journey.load(told(Step::SubprocessExecWrapper, StepState::Errored)));
        assert!(!journey.load(told(Step::KitPreparation, StepState::Errored)));
    }

    #[test]
    fn the_guess_is_the_step_in_progress_or_the_one_after_the_last_performed() {
        let mut journey = Journey::new(Route::SpawnDirectly, false);
        assert_eq!(journey.likely_failed(), Step::SubprocessBeforeFirstExec);
        assert!(journey.load(told(Step::SubprocessBeforeFirstExec, StepState::Performed)));
        assert_eq!(journey.likely_failed(), Step::SubprocessSetupperBeforeShell);
        assert!(journey.load(told(Step::SubprocessAppLoadOrExec, StepState::InProgress)));
        assert_eq!(journey.likely_failed(), Step::SubprocessAppLoadOrExec);
        for step in journey.reported_steps() {
            assert!(journey.load(told(step, StepState::Performed)));
        }
        assert_eq!(journey.likely_failed(), Step::SubprocessFinish);
        let mut journey = Journey::new(Route::SpawnDirectly, false);
        assert!(journey.load(told(Step::SubprocessSetupperAfterShell, StepState::Performed)));
        assert_eq!(journey.likely_failed(), Step::SubprocessAppLoadOrExec);
    }

    #[test]
    fn a_duration_lasts_until_the_next_step_begins() {
        let mut journey = Journey::new(Route::SpawnDirectly, false);
        journey.begin(Step::KitPreparation, tick(1)).expect("begins");
        assert_eq!(journey.duration(Step::KitPreparation), None);
        journey.perform(Step::KitPreparation, tick(2)).expect("performed");
        journey.begin(Step::KitForkSubprocess, tick(4)).expect("begins");
        assert_eq!(
            journey.duration(Step::KitPreparation),
            Some(Duration::from_secs(3))
        );
        let json = journey.to_json(tick(1));
        assert_eq!(json["type"], "SPAWN_DIRECTLY");
        assert_eq!(json["steps"]["SPAWNING_KIT_PREPARATION"]["duration"], 3.0);
        assert_eq!(json["steps"]["SUBPROCESS_LISTEN"]["state"], "STEP_NOT_STARTED");
    }

    #[test]
    fn a_reset_journey_has_no_failed_step() {
        let mut journey = Journey::new(Route::SpawnDirectly, false);
        journey.fail(Step::KitForkSubprocess, tick(1)).expect("fails");
        assert_eq!(journey.first_failed(), Some(Step::KitForkSubprocess));
        journey.reset();
        assert_eq!(journey.first_failed(), None);
        assert_eq!(journey, Journey::new(Route::SpawnDirectly, false));
    }
}
