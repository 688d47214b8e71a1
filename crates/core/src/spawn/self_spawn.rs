//! The start of a program by its user, without kit, env setupper and work directory.

use super::capture::Capture;
use super::error::{Category, DOES_NOT_STAY, Failure, Trouble, explain, explain_end};
use super::handshake::response::{Response, Surroundings};
use super::journey::Journey;
use super::plan::Plan;
use super::report::{ErrorId, Report};
use super::step::{Route, Step};
use forkyard_base::tick::Tick;
use forkyard_protocol::start_failure::{Fall, StartFailure};
use std::sync::Arc;

#[derive(Debug)]
pub struct Attempt {
    plan: Arc<Plan>,
    journey: Journey,
    started: Tick,
    prepared: Option<Tick>,
    executed: Option<Tick>,
    pid: Option<i32>,
    output: Capture,
}

impl Attempt {
    pub fn begin(plan: Arc<Plan>, now: Tick) -> Attempt {
        let mut journey = Journey::new(Route::SpawnDirectly, plan.kind.has_wrapper());
        let _ = journey.begin(Step::KitPreparation, now);
        Attempt {
            plan,
            journey,
            started: now,
            prepared: None,
            executed: None,
            pid: None,
            output: Capture::default(),
        }
    }

    /// When it must be up.
    pub fn deadline(&self) -> Tick {
        self.started + self.plan.start_timeout
    }

    /// Records that resources are ready.
    pub fn prepared(&mut self, now: Tick) {
        self.prepared = Some(now);
        let _ = self.journey.perform(Step::KitPreparation, now);
        let _ = self.journey.begin(Step::KitForkSubprocess, now);
        let _ = self.journey.begin(Step::SubprocessBeforeFirstExec, now);
    }

    /// Records that the program was executed.
    pub fn executed(&mut self, pid: i32, now: Tick) {
        (self.executed, self.pid) = (Some(now), Some(pid));
        let _ = self.journey.perform(Step::KitForkSubprocess, now);
        let _ = self.journey.perform(Step::SubprocessBeforeFirstExec, now);
        for step in [
            Step::SubprocessSetupperBeforeShell,
            Step::SubprocessOsShell,
            Step::SubprocessSetupperAfterShell,
        ] {
            let _ = self.journey.perform(step, now);
        }
        let _ = self.journey.begin(Step::KitHandshakePerform, now);
        let _ = self.journey.begin(Step::SubprocessAppLoadOrExec, now);
    }

    pub fn wrote(&mut self, bytes: &[u8]) {
        self.output.push(bytes);
    }

    /// Returns the facts that another process needs for the same report.
    pub fn start_failure(
        &self,
        fall: &Fall,
        envvars: Option<String>,
        id: ErrorId,
        now: Tick,
    ) -> StartFailure {
        StartFailure {
            id: id.0,
            pid: self.pid,
            fall: fall.clone(),
            started: self.started.as_nanos(),
            prepared: self.prepared.map(Tick::as_nanos),
            executed: self.executed.map(Tick::as_nanos),
            ended: now.as_nanos(),
            output: self.output.text(),
            envvars,
        }
    }

    /// Returns the report of a failure.
    pub fn fail(mut self, fall: &Fall, envvars: Option<String>, id: ErrorId, now: Tick) -> Report {
        let failure = self.explain(fall);
        if matches!(fall, Fall::Left(..)) {
            let _ = self.journey.perform(Step::SubprocessAppLoadOrExec, now);
            let _ = self.journey.perform(Step::KitHandshakePerform, now);
        }
        let _ = self.journey.fail(failure.step, now);
        let exit = match fall {
            Fall::Exited(ended, ..) | Fall::Left(ended, _) => Some(*ended),
            _ => None,
        };
        Report {
            id,
            plan: self.plan,
            journey: self.journey,
            started: self.started,
            ended: now,
            failure,
            pid: self.pid,
            exit,
            output: self.output.text(),
            subprocess: Surroundings {
                envvars,
                ..Surroundings::default()
            },
            left: 0,
        }
    }

    fn explain(&self, fall: &Fall) -> Failure {
        let check = match fall {
            Fall::Exec(_, check) | Fall::Exited(_, check, _) => Some(check.clone()),
            _ => None,
        };
        let response = Response {
            command: check.clone(),
            output: self.output.text(),
            out_of_memory: matches!(fall, Fall::Exited(ended, _, true) if ended.is_by_force()),
            ..Response::default()
        };
        let explained = |trouble: Trouble| explain(&trouble, &self.journey, &self.plan, Some(&response));
        match fall {
            Fall::Preparation(fault) => explained(Trouble::Preparation(fault.clone())),
            Fall::Fork(fault) => explained(Trouble::Fork(fault.clone())),
            Fall::Exited(ended, ..) => explained(Trouble::Exited(*ended)),
            Fall::Left(ended, is_oom) => explain_end(
                Step::KitFinish,
                (*ended, *is_oom),
                &self.output.text(),
                true,
                DOES_NOT_STAY,
            ),
            Fall::Timeout => explained(Trouble::Timeout(Step::KitHandshakePerform)),
            Fall::Exec(fault, check) => Failure::new(
                Category::of_errno(fault.errno),
                Step::SubprocessBeforeFirstExec,
                format!(
                    "The application could not be executed: {}",
                    check.fault.as_deref().unwrap_or(&fault.text)
                ),
                format!("The operating system refused to execute the program: {fault}."),
                check.remedy.as_deref().unwrap_or(
                    "Check that the program is an executable file for this machine, and that the directory that it is to \
                     work in can be entered.",
                ),
            ),
            Fall::Stranger(what) => Failure::new(
                Category::Internal,
                Step::SubprocessListen,
                "The application accepts connections but does not speak FastCGI.".to_owned(),
                format!("It was asked for its limits (FCGI_GET_VALUES), and {what}."),
                "Start the program in its FastCGI mode; one that speaks HTTP belongs to runtime = \"http\".",
            ),
        }
    }
}

/// Returns a unique number (SplitMix64's finalizer).
pub fn error_id(seed: u64) -> ErrorId {
    let mut mixed = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    ErrorId((mixed >> 32) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spawn::error::Ended;
    use crate::spawn::handshake::response::Text;
    use crate::spawn::journey::StepState;
    use crate::spawn::plan::{Kind, sample};
    use forkyard_protocol::start_failure::{CommandCheck, Fault};

    fn attempt() -> Attempt {
        let mut plan = sample();
        plan.kind = Kind::FastCgi;
        assert!(plan.faults().is_empty());
        Attempt::begin(Arc::new(plan), Tick::ZERO)
    }

    fn now() -> Tick {
        Tick::from_nanos(2_000_000_000)
    }

    fn fault() -> Fault {
        Fault {
            text: "execve /srv/x: No such file or directory (2)".to_owned(),
            errno: 2,
        }
    }

    #[test]
    fn a_program_that_ends_is_reported_with_its_step_and_its_words() {
        let mut attempt = attempt();
        attempt.prepared(now());
        attempt.executed(7, now());
        attempt.wrote(b"no database\n");
        let fall = Fall::Exited(Ended::Code(3), CommandCheck::default(), false);
        let report = attempt.fail(&fall, None, error_id(1), now());
        assert_eq!(report.failure.step, Step::SubprocessAppLoadOrExec);
        assert_eq!(
            report.journey.state(Step::SubprocessAppLoadOrExec),
            StepState::Errored
        );
        assert_eq!(
            report.failure.summary,
            "The application exited with code 3 during startup."
        );
        assert_eq!((report.output.as_str(), report.pid), ("no database\n", Some(7)));
        assert!(
            report.line().contains("step SUBPROCESS_APP_LOAD_OR_EXEC"),
            "{}",
            report.line()
        );
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let mut attempt = attempt();
        attempt.prepared(now());
        let check = CommandCheck {
            fault: Some("there is no file /srv/x.".to_owned()),
            remedy: Some("Check the command's path.".to_owned()),
            ..CommandCheck::default()
        };
        let report = attempt.fail(&Fall::Exec(fault(), check), None, error_id(2), now());
        assert_eq!(report.failure.category, Category::FileSystem);
        assert!(report.failure.summary.ends_with("there is no file /srv/x."));
        assert_eq!(
            report.failure.solution,
            Text::Plain("Check the command's path.".to_owned())
        );
    }

    #[test]
    fn what_is_late_or_strange_is_told_so() {
        let late = attempt().fail(&Fall::Timeout, None, error_id(3), now());
        assert_eq!(late.failure.category, Category::Timeout);
        assert!(late.failure.solution.as_str().contains("listening socket"));
        let strange = attempt().fail(
            &Fall::Stranger("it said hello".to_owned()),
            None,
            error_id(4),
            now(),
        );
        assert!(strange.failure.problem.as_str().contains("it said hello"));
        assert_ne!(late.id, strange.id);
    }
}
