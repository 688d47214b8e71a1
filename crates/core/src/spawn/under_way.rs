//! The progress of a running journey, for clients.

use super::event::{JourneyId, Token};
use super::journey::{Journey, Record, StepState};
use super::machine::Machine;
use super::step::{Party, Step};
use forkyard_base::tick::Tick;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnderWay {
    pub step: Step,
    /// Since when, at least since the journey's start.
    pub since: Tick,
    pub started: Tick,
    pub until: Tick,
}

impl Machine {
    /// Returns the progress of a request's journey; `told` returns the process's reports.
    pub fn progress(&self, token: Token, told: impl FnOnce(JourneyId) -> Vec<Record>) -> Option<UnderWay> {
        let (id, attempt) = self.attempt_for(token)?;
        let mut journey = attempt.journey.clone();
        // The process's own reports are newer only during the handshake.
        if journey.state(Step::KitHandshakePerform) == StepState::InProgress {
            for record in told(id) {
                journey.load(record);
            }
        }
        let (step, since) = present(&journey);
        Some(UnderWay {
            step,
            since: since.unwrap_or(attempt.started).max(attempt.started),
            started: attempt.started,
            until: attempt.started + attempt.plan.start_timeout,
        })
    }
}

/// The present step and its start: the kit's, or during the handshake the new process's.
fn present(journey: &Journey) -> (Step, Option<Tick>) {
    let ours = journey
        .records()
        .iter()
        .filter(|it| it.step.party() == Party::Kit);
    let Some(ours) = ours.into_iter().find(|it| it.state == StepState::InProgress) else {
        let step = journey.first_failed().unwrap_or(Step::KitFinish);
        return (step, journey.record(step).and_then(|record| record.begin));
    };
    if ours.step != Step::KitHandshakePerform {
        return (ours.step, ours.begin);
    }
    let step = journey.likely_failed();
    let theirs = journey.records().iter();
    let theirs: Vec<&Record> = theirs.filter(|it| it.step.party() == Party::Subprocess).collect();
    let index = theirs.iter().position(|it| it.step == step).unwrap_or(0);
    // A step that has not started is awaited since the previous one started.
    let since = theirs[..theirs.len().min(index + 1)]
        .iter()
        .rev()
        .find_map(|it| it.begin);
    (step, since.or(ours.begin))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spawn::step::Route;

    fn tick(seconds: u64) -> Tick {
        Tick::from_nanos(seconds * 1_000_000_000)
    }

    fn told(step: Step, state: StepState, begin: Option<u64>) -> Record {
        Record {
            step,
            state,
            begin: begin.map(tick),
            end: None,
        }
    }

    #[test]
    fn our_own_step_counts_until_the_new_process_is_waited_for() {
        let mut journey = Journey::new(Route::StartPreloader, true);
        journey.begin(Step::KitPreparation, tick(1)).expect("begins");
        assert_eq!(present(&journey), (Step::KitPreparation, Some(tick(1))));
        journey.perform(Step::KitPreparation, tick(2)).expect("ends");
        journey.begin(Step::KitHandshakePerform, tick(3)).expect("begins");
        assert_eq!(
            present(&journey),
            (Step::SubprocessBeforeFirstExec, Some(tick(3)))
        );
        journey.load(told(Step::SubprocessExecWrapper, StepState::Performed, Some(4)));
        assert_eq!(
            present(&journey),
            (Step::SubprocessWrapperPreparation, Some(tick(4)))
        );
        journey.load(told(
            Step::SubprocessAppLoadOrExec,
            StepState::InProgress,
            Some(5),
        ));
        assert_eq!(present(&journey), (Step::SubprocessAppLoadOrExec, Some(tick(5))));
        journey.fail(Step::KitHandshakePerform, tick(6)).expect("fails");
        assert_eq!(present(&journey), (Step::KitHandshakePerform, Some(tick(3))));
    }
}
