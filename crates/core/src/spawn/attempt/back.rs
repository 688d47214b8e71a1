//! Cleans up after a failure: last output, response, and all processes.

use super::{Attempt, AttemptProgress, AttemptState, note};
use crate::spawn::action::JourneyAction;
use crate::spawn::error::{Failure, Trouble, explain};
use crate::spawn::handshake::properties;
use crate::spawn::handshake::response::Properties;
use crate::spawn::journey::StepState;
use crate::spawn::step::Step;
use forkyard_base::tick::Tick;
use std::time::Duration;

const LAST_OUTPUT_WAIT: Duration = Duration::from_millis(50);
/// How long to wait for a killed process, which may hang in the kernel.
const KILLED: Duration = Duration::from_secs(2);
const SWEEP_PAUSE: Duration = Duration::from_millis(10);
const SWEEP_STEP: Duration = Duration::from_millis(1);
const MOST_SWEEPS: u32 = 100;

impl Attempt {
    pub(in crate::spawn) fn explain(&mut self, now: Tick) -> Failure {
        let trouble = self.trouble.clone().unwrap_or(Trouble::Cancelled);
        let failure = explain(&trouble, &self.journey, &self.plan, self.response.as_deref());
        let current = self.step();
        if self.journey.state(current) == StepState::InProgress {
            self.journey.blame(current, now);
        }
        self.journey.blame(failure.step, now);
        failure
    }

    pub(in crate::spawn) fn is_to_blame(&self) -> bool {
        !matches!(self.trouble, Some(Trouble::Cancelled))
    }

    pub(super) fn fail(
        &mut self,
        trouble: Trouble,
        now: Tick,
        out: &mut Vec<JourneyAction>,
    ) -> AttemptProgress {
        if !self.state.is_on_the_way() {
            return AttemptProgress::Nothing;
        }
        self.trouble = Some(trouble);
        self.due = None;
        if !self.prepared {
            return self.give_up(out);
        }
        let silent = self.pid.is_none() || (self.exited && self.output_ended);
        if silent {
            return self.examine(out);
        }
        self.state = AttemptState::Flushing;
        self.due = Some(now + LAST_OUTPUT_WAIT);
        AttemptProgress::Nothing
    }

    pub(super) fn examine(&mut self, out: &mut Vec<JourneyAction>) -> AttemptProgress {
        (self.state, self.due) = (AttemptState::Examining, None);
        out.push(JourneyAction::Load);
        AttemptProgress::Nothing
    }

    pub(super) fn kill(&mut self, now: Tick, out: &mut Vec<JourneyAction>) -> AttemptProgress {
        if self.pid.is_none() {
            return self.give_up(out);
        }
        if self.exited {
            return self.sweep(out);
        }
        self.state = AttemptState::Killing;
        self.due = Some(now + KILLED);
        out.push(JourneyAction::Kill);
        AttemptProgress::Nothing
    }

    pub(super) fn sweep(&mut self, out: &mut Vec<JourneyAction>) -> AttemptProgress {
        (self.state, self.due, self.sweeps, self.found) = (AttemptState::Sweeping, None, 0, 0);
        // The process group may outlive its leader.
        out.push(JourneyAction::Kill);
        out.push(JourneyAction::Sweep);
        AttemptProgress::Nothing
    }

    pub(super) fn swept(
        &mut self,
        left: usize,
        is_whole: bool,
        now: Tick,
        out: &mut Vec<JourneyAction>,
    ) -> AttemptProgress {
        self.found = self.found.max(left);
        if !is_whole {
            self.due = Some(now + SWEEP_STEP);
            return AttemptProgress::Nothing;
        }
        let left = std::mem::take(&mut self.found);
        self.sweeps += 1;
        if left > 0 && self.sweeps < MOST_SWEEPS {
            self.due = Some(now + SWEEP_PAUSE);
            return AttemptProgress::Nothing;
        }
        self.left = left;
        self.due = None;
        if self.trouble.is_none() {
            self.begin_again(now, out);
            return AttemptProgress::Nothing;
        }
        self.give_up(out)
    }

    pub(super) fn begin_again(&mut self, now: Tick, out: &mut Vec<JourneyAction>) {
        self.journey.reset();
        note(self.journey.begin(Step::KitPreparation, now));
        (self.pid, self.died, self.response, self.finish) = (None, None, None, None);
        self.told = None;
        (self.exited, self.output_ended, self.prepared, self.taken) = (false, false, false, false);
        self.state = AttemptState::Preparing;
        out.push(JourneyAction::PrepareAgain);
    }

    pub(super) fn give_up(&mut self, out: &mut Vec<JourneyAction>) -> AttemptProgress {
        (self.state, self.due) = (AttemptState::Over, None);
        let sockets = match self.response.as_deref().map(|response| &response.properties) {
            Some(Properties::Bytes(bytes)) => properties::parse(bytes).unwrap_or_default(),
            Some(Properties::Missing | Properties::TooLong) | None => Vec::new(),
        };
        let sockets = sockets.into_iter().map(|socket| socket.address).collect();
        out.push(JourneyAction::Discard { sockets });
        AttemptProgress::Failed
    }
}
