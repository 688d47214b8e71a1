//! Replaces this program by the one on disk: first a child tries, then exec.

use crate::context::Context;
use crate::context::lines::{Lines, PipeRead, read_rest};
use crate::context::pools::Pools;
use crate::context::processes::Who;
use crate::context::services::Services;
use crate::context::sources::Source;
use crate::handover::{self, VARIABLES};
use forkyard_base::tick::Tick;
use forkyard_config::Config;
use forkyard_protocol::handover::document::Document;
use forkyard_sys::guarded::Guarded;
use forkyard_sys::invocation;
use forkyard_sys::process::{self, Ended, Program};
use forkyard_sys::{Error, clock, fd};
use nix::sys::signal::Signal;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

pub const OPTION: &str = "--can-take-over=";
/// The answer, in addition to exit code 0: an unrelated program does not print it by chance.
pub const ANSWER: &str = "forkyard can take over";

/// The time limit of the trial, and of the wait for starting workers after it.
const TIMEOUT: Duration = Duration::from_secs(10);
const QUIET: Duration = Duration::from_secs(2);
const DOCUMENT: RawFd = 3;
const LAST_LINES: usize = 8;

#[derive(Debug, thiserror::Error)]
pub(crate) enum UpgradeError {
    #[error("it is not known where the program is")]
    Unknown,
    #[error(transparent)]
    Start(#[from] Error),
    #[error("{}", refusal(*.0, .1))]
    Refused(Ended, String),
    #[error("the new program did not answer within {} s", TIMEOUT.as_secs())]
    Mute,
    #[error(transparent)]
    Exec(Error),
}

fn refusal(ended: Ended, words: &str) -> String {
    let how = match ended {
        Ended::Code(code) => format!(" with code {code}"),
        Ended::Signal { number, .. } => format!(" on signal {number}"),
        Ended::Unknown => String::new(),
    };
    match words {
        "" => format!("the new program ended{how} and did not say that it can take over"),
        words => format!("the new program ended{how}, having said {words:?}"),
    }
}

#[derive(Debug)]
struct Rehearsal {
    pid: i32,
    output: Lines,
    words: Vec<String>,
    state: RehearsalState,
}

#[derive(Debug)]
enum RehearsalState {
    /// It tries until this time.
    Running(Tick),
    /// Killed after its time limit.
    Killed,
    Ended(Ended),
    /// It succeeded; starting workers have until this time.
    Able(Tick),
}

/// The upgrade of this program: a child tries whether the new one can take over.
#[derive(Debug, Default)]
pub(crate) struct Upgrade(Option<Rehearsal>);

impl Upgrade {
    /// Starts the new program, which tries to take over `document`.
    pub(crate) fn rehearse(
        &mut self,
        context: &mut Context,
        document: &Document,
    ) -> Result<(), UpgradeError> {
        let invocation = invocation::get().ok_or(UpgradeError::Unknown)?;
        let document = handover::publish(document, &context.in_force.config, BTreeMap::new())?;
        let (output, output_in) = fd::pipe(false)?;
        fd::set_nonblocking(output.as_fd(), true)?;
        let output_twice = fd::copy(&output_in)?;
        let mut arguments = invocation.arguments.clone();
        let option = format!("{OPTION}{DOCUMENT}");
        arguments.insert(1.min(arguments.len()), option.into());
        let descriptors = vec![(output_in, 1), (output_twice, 2), (document, DOCUMENT)];
        let program = Program::new(&invocation.path, arguments, std::env::vars_os(), descriptors);
        let pid = process::start(&program)?;
        drop(program);
        context.processes.by_pid.insert(pid, Who::Rehearsal);
        context.services.sources.watch(&output, Source::Rehearsal)?;
        self.0 = Some(Rehearsal {
            pid,
            output: Lines::new(Guarded::new(output)),
            words: Vec::new(),
            state: RehearsalState::Running(clock::now() + TIMEOUT),
        });
        Ok(())
    }

    /// The state of the upgrade: `None`: none, or not done; `Ok`: exec now.
    pub(crate) fn continue_upgrade(&mut self, pools: &Pools) -> Option<Result<(), UpgradeError>> {
        let rehearsal = self.0.as_mut()?;
        let now = clock::now();
        let is_gone = rehearsal.pid == 0;
        match &rehearsal.state {
            RehearsalState::Running(until) if *until <= now => {
                let _ = process::send_signal(rehearsal.pid, Signal::SIGKILL);
                rehearsal.state = RehearsalState::Killed;
                None
            }
            RehearsalState::Running(_) => None,
            RehearsalState::Killed if is_gone => self.give_up(UpgradeError::Mute),
            RehearsalState::Killed => None,
            RehearsalState::Ended(Ended::Code(0)) if rehearsal.words.iter().any(|line| line == ANSWER) => {
                rehearsal.state = RehearsalState::Able(now + QUIET);
                self.continue_upgrade(pools)
            }
            RehearsalState::Ended(ended) => {
                let error = UpgradeError::Refused(*ended, rehearsal.words.join(" / "));
                self.give_up(error)
            }
            // A process is starting: the next master would not know its owner.
            RehearsalState::Able(until)
                if *until > now && pools.workers.values().any(|w| w.pid.is_none()) =>
            {
                None
            }
            RehearsalState::Able(_) => {
                self.0 = None;
                Some(Ok(()))
            }
        }
    }

    pub(crate) fn hear(&mut self, services: &mut Services) -> bool {
        let Some(rehearsal) = &mut self.0 else {
            return false;
        };
        let words = &mut rehearsal.words;
        let look = rehearsal.output.read(|line| {
            if words.len() < LAST_LINES {
                words.push(String::from_utf8_lossy(line).into_owned());
            }
        });
        if look == PipeRead::Ended {
            services.sources.forget(rehearsal.output.pipe());
        }
        look == PipeRead::More
    }

    pub(crate) fn rehearsal_ended(&mut self, services: &mut Services, ended: Ended) {
        read_rest(|| self.hear(services));
        if let Some(rehearsal) = &mut self.0 {
            services.sources.forget(rehearsal.output.pipe());
            if !matches!(rehearsal.state, RehearsalState::Killed) {
                rehearsal.state = RehearsalState::Ended(ended);
            }
            rehearsal.pid = 0;
        }
    }

    /// The next time to call `continue_upgrade`.
    pub(crate) fn deadline(&self) -> Option<Tick> {
        match self.0.as_ref()?.state {
            RehearsalState::Running(until) | RehearsalState::Able(until) => Some(until),
            RehearsalState::Killed | RehearsalState::Ended(_) => None,
        }
    }

    fn give_up(&mut self, error: UpgradeError) -> Option<Result<(), UpgradeError>> {
        self.0 = None;
        Some(Err(error))
    }
}

/// Replaces this program. Returns only on failure; nothing has changed then, except that starting preloaders fail.
pub(crate) fn hand_over(
    document: &Document,
    config: &Config,
    descriptors: &[(String, BorrowedFd<'_>)],
    variables: &[(&'static str, OsString)],
) -> UpgradeError {
    let Some(invocation) = invocation::get() else {
        return UpgradeError::Unknown;
    };
    let numbers = descriptors.iter();
    let numbers = numbers.map(|(name, fd)| (name.clone(), fd.as_raw_fd()));
    let document = match handover::publish(document, config, numbers.collect()) {
        Ok(document) => document,
        Err(error) => return UpgradeError::Exec(error),
    };
    let number = document.as_raw_fd().to_string();
    let own = VARIABLES.map(|name| (name, number.clone().into()));
    let variables = variables.iter().cloned().chain(own);
    let variables = variables.map(|(name, value)| (name.into(), value));
    let environment = std::env::vars_os().chain(variables);
    let next = Program::new(&invocation.path, &invocation.arguments, environment, Vec::new());
    let all = || descriptors.iter().map(|(_, fd)| *fd).chain([document.as_fd()]);
    let survive = |survives: bool| -> Result<(), Error> {
        all().try_for_each(|fd| fd::set_close_on_exec(fd, !survives))
    };
    let failure = match survive(true) {
        Ok(()) => process::replace(&invocation.path, &next.arguments, &next.environment),
        Err(error) => error,
    };
    if let Err(error) = survive(false) {
        log::error!("{error}");
    }
    UpgradeError::Exec(failure)
}
