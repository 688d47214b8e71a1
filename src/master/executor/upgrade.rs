//! Replaces this program by the one on disk: first a child tries, then exec.

use super::output::{Lines, PipeRead};
use super::sources::Source;
use super::{Context, Executor, Handover, Who};
use crate::handover::document::Stopping;
use crate::handover::{self, VARIABLES};
use crate::master::manager::Manager;
use crate::sys::guarded::Guarded;
use crate::sys::invocation::{self, Invocation};
use crate::sys::process::{self, Ended, Program};
use crate::sys::{Error, clock, fd};
use crate::tick::Tick;
use nix::sys::signal::Signal;
use std::collections::BTreeMap;
use std::ffi::{CString, OsString};
use std::fmt;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::time::Duration;

pub(crate) const OPTION: &str = "--can-take-over=";
/// The answer, in addition to exit code 0: an unrelated program does not print it by chance.
pub(crate) const ANSWER: &str = "forkyard can take over";

/// The time limit of the trial, and of the wait for starting workers after it.
const TIMEOUT: Duration = Duration::from_secs(10);
const QUIET: Duration = Duration::from_secs(2);
const DOCUMENT: RawFd = 3;
const LAST_LINES: usize = 8;
const LAST_LOOKS: usize = 8;

#[derive(Debug)]
pub(in crate::master) enum UpgradeError {
    Unknown,
    Start(Error),
    Refused(Ended, String),
    Mute,
    Exec(Error),
}

impl fmt::Display for UpgradeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UpgradeError::Unknown => f.write_str("it is not known where the program is"),
            UpgradeError::Start(error) | UpgradeError::Exec(error) => error.fmt(f),
            UpgradeError::Refused(ended, words) => {
                match ended {
                    Ended::Code(code) => write!(f, "the new program ended with code {code}")?,
                    Ended::Signal { number, .. } => write!(f, "the new program ended on signal {number}")?,
                    Ended::Unknown => f.write_str("the new program ended")?,
                }
                if words.is_empty() {
                    f.write_str(" and did not say that it can take over")
                } else {
                    write!(f, ", having said {words:?}")
                }
            }
            UpgradeError::Mute => write!(f, "the new program did not answer within {} s", TIMEOUT.as_secs()),
        }
    }
}

#[derive(Debug)]
pub(in crate::master) struct Rehearsal {
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

impl Executor {
    pub(in crate::master) fn rehearse(
        &mut self,
        manager: &Manager,
        stopping: Option<Stopping>,
    ) -> Result<(), UpgradeError> {
        let invocation = invocation::get().ok_or(UpgradeError::Unknown)?;
        self.start_rehearsal(invocation, manager, stopping)
            .map_err(UpgradeError::Start)
    }

    fn start_rehearsal(
        &mut self,
        invocation: &Invocation,
        manager: &Manager,
        stopping: Option<Stopping>,
    ) -> Result<(), Error> {
        let document = handover::publish(
            &self.document(manager, stopping),
            &self.reload.config,
            BTreeMap::new(),
        )?;
        let (output, output_in) = fd::pipe(false)?;
        fd::set_nonblocking(output.as_fd(), true)?;
        let output_twice = output_in.try_clone().map_err(|e| Error::from_io("dup", "", &e))?;
        let mut arguments = arguments(invocation);
        arguments.insert(
            1.min(arguments.len()),
            c_string(&format!("{OPTION}{DOCUMENT}").into()),
        );
        let program = Program {
            path: c_string(&invocation.path.clone().into_os_string()),
            arguments,
            environment: environment(&[]),
            descriptors: vec![(output_in, 1), (output_twice, 2), (document, DOCUMENT)],
            descriptor_limit: None,
        };
        let pid = process::start(&program)?;
        drop(program);
        self.processes.by_pid.insert(pid, Who::Rehearsal);
        self.context.sources.watch(&output, Source::Rehearsal)?;
        self.handover.rehearsal = Some(Rehearsal {
            pid,
            output: Lines::new(Guarded::new(output)),
            words: Vec::new(),
            state: RehearsalState::Running(clock::now() + TIMEOUT),
        });
        Ok(())
    }

    /// The state of the upgrade: `None`: none, or not done; `Ok`: exec now.
    pub(in crate::master) fn continue_upgrade(&mut self) -> Option<Result<(), UpgradeError>> {
        let rehearsal = self.handover.rehearsal.as_mut()?;
        let now = clock::now();
        let is_gone = rehearsal.pid == 0;
        match &rehearsal.state {
            RehearsalState::Running(until) if *until <= now => {
                let _ = process::send_signal(rehearsal.pid, Signal::SIGKILL);
                rehearsal.state = RehearsalState::Killed;
                None
            }
            RehearsalState::Running(_) => None,
            RehearsalState::Killed if is_gone => self.handover.give_up(UpgradeError::Mute),
            RehearsalState::Killed => None,
            RehearsalState::Ended(Ended::Code(0)) if rehearsal.words.iter().any(|line| line == ANSWER) => {
                rehearsal.state = RehearsalState::Able(now + QUIET);
                self.continue_upgrade()
            }
            RehearsalState::Ended(ended) => {
                let error = UpgradeError::Refused(*ended, rehearsal.words.join(" / "));
                self.handover.give_up(error)
            }
            // A process is starting: the next master would not know its owner.
            RehearsalState::Able(until)
                if *until > now && self.pools.workers.values().any(|w| w.pid.is_none()) =>
            {
                None
            }
            RehearsalState::Able(_) => {
                self.handover.rehearsal = None;
                Some(Ok(()))
            }
        }
    }

    /// Replaces this program. Returns only on failure; nothing has changed then, except that starting preloaders fail.
    pub(in crate::master) fn hand_over(
        &mut self,
        manager: &Manager,
        stopping: Option<Stopping>,
        variables: &[(&'static str, OsString)],
    ) -> UpgradeError {
        let Some(invocation) = invocation::get() else {
            return UpgradeError::Unknown;
        };
        self.helpers.spawner.abandon();
        let descriptors = self.descriptors();
        let numbers = descriptors
            .iter()
            .map(|(name, fd)| (name.clone(), fd.as_raw_fd()));
        let document = handover::publish(
            &self.document(manager, stopping),
            &self.reload.config,
            numbers.collect(),
        );
        let document = match document {
            Ok(document) => document,
            Err(error) => return UpgradeError::Exec(error),
        };
        let mut variables: Vec<(&str, OsString)> = variables.to_vec();
        let number = document.as_raw_fd().to_string();
        variables.extend(VARIABLES.map(|name| (name, number.clone().into())));
        let (arguments, environment) = (arguments(invocation), environment(&variables));
        let all = || descriptors.iter().map(|(_, fd)| *fd).chain([document.as_fd()]);
        let survive = |survives: bool| -> Result<(), Error> {
            all().try_for_each(|fd| fd::set_close_on_exec(fd, !survives))
        };
        let failure = match survive(true) {
            Ok(()) => process::replace(&invocation.path, &arguments, &environment),
            Err(error) => error,
        };
        if let Err(error) = survive(false) {
            log::error!("{error}");
        }
        UpgradeError::Exec(failure)
    }
}

impl Handover {
    pub(super) fn hear_rehearsal(&mut self, context: &mut Context) -> bool {
        let Some(rehearsal) = &mut self.rehearsal else {
            return false;
        };
        let words = &mut rehearsal.words;
        let look = rehearsal.output.read(|line| {
            if words.len() < LAST_LINES {
                words.push(String::from_utf8_lossy(line).into_owned());
            }
        });
        if look == PipeRead::Ended {
            context.sources.forget(rehearsal.output.pipe());
        }
        look == PipeRead::More
    }

    pub(super) fn rehearsal_ended(&mut self, context: &mut Context, ended: Ended) {
        for _ in 0..LAST_LOOKS {
            if !self.hear_rehearsal(context) {
                break;
            }
        }
        if let Some(rehearsal) = &mut self.rehearsal {
            context.sources.forget(rehearsal.output.pipe());
            rehearsal.state = match rehearsal.state {
                RehearsalState::Killed => RehearsalState::Killed,
                RehearsalState::Running(_) | RehearsalState::Ended(_) | RehearsalState::Able(_) => {
                    RehearsalState::Ended(ended)
                }
            };
            rehearsal.pid = 0;
        }
    }

    /// The next time to call `continue_upgrade`.
    pub(in crate::master) fn upgrade_deadline(&self) -> Option<Tick> {
        match self.rehearsal.as_ref()?.state {
            RehearsalState::Running(until) | RehearsalState::Able(until) => Some(until),
            RehearsalState::Killed | RehearsalState::Ended(_) => None,
        }
    }

    fn give_up(&mut self, error: UpgradeError) -> Option<Result<(), UpgradeError>> {
        self.rehearsal = None;
        Some(Err(error))
    }
}

fn arguments(invocation: &Invocation) -> Vec<CString> {
    invocation.arguments.iter().map(c_string).collect()
}

fn environment(more: &[(&str, OsString)]) -> Vec<CString> {
    let variable = |name: &OsString, value: &OsString| {
        let mut text = name.clone();
        text.push("=");
        text.push(value);
        c_string(&text)
    };
    let mut all: Vec<CString> = std::env::vars_os()
        .map(|(name, value)| variable(&name, &value))
        .collect();
    all.extend(more.iter().map(|(name, value)| variable(&name.into(), value)));
    all
}

fn c_string(text: &OsString) -> CString {
    CString::new(text.as_bytes()).unwrap_or_else(|_| {
        let short: Vec<u8> = text
            .clone()
            .into_vec()
            .into_iter()
            .take_while(|byte| *byte != 0)
            .collect();
        CString::new(short).unwrap_or_default()
    })
}
