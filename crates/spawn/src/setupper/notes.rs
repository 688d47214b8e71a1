//! What is written into the work directory by the env setupper, or by a program of forkyard's own that takes its part: its
//! steps, its error, its dumps.

use super::dump;
use crate::error::Category;
use crate::journey::StepState;
use crate::plan::WORK_DIRECTORY;
use crate::source;
use crate::step::Step;
use crate::sys::{self, clock, dir, fd, process};
use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// The variable by which the kit knows what a process that is being started has left behind. An internal program keeps it
/// until it is up.
const MARK: &str = "FORKYARD_SPAWN_WORK_DIR";

/// The work directory, from inside.
#[derive(Debug)]
pub struct Notes {
    top: OwnedFd,
}

/// A failure, as a program of forkyard's own tells it.
#[derive(Debug, Clone, Default)]
pub struct SetupComplaint<'t> {
    /// What went wrong, in a line.
    pub summary: &'t str,
    /// What happened.
    pub problem: Option<&'t str>,
    /// What to do about it.
    pub solution: Option<&'t str>,
    /// For developers: a backtrace.
    pub details: Option<&'t str>,
}

/// For a program of forkyard's own ([`Internal`](crate::plan::Internal)). What can't be written is not: the kit also
/// sees how the process ends, and the master hears it.
impl Notes {
    /// The work directory that this process was started with, and a session of its own, so that all it starts can be
    /// ended at once. `None`: it was not started by the kit.
    pub fn inherited() -> Option<Notes> {
        std::env::var_os(MARK)?;
        let notes = Notes {
            top: fd::adopt_passed(WORK_DIRECTORY).ok()?,
        };
        // The program before this one may have done it.
        let _ = nix::unistd::setsid();
        Some(notes)
    }

    /// Leaves the descriptor to the program that this process becomes, which takes it by [`Notes::inherited`].
    ///
    /// # Errors
    /// `fcntl`.
    pub fn pass_on(&self) -> sys::Result<()> {
        fd::set_close_on_exec(self.top.as_fd(), false)
    }

    /// The process has become what it is to be, and the next step begins: its environment, user and limits are written
    /// down. Nothing before: what root writes the application's user can't write again.
    pub fn settled(&self, next: Step) {
        let _ = self.step(Step::SubprocessBeforeFirstExec, StepState::Performed);
        self.advance(Step::SubprocessSetupperBeforeShell, next);
        self.describe();
    }

    /// What this process is now. Without names, which may have to be asked for over a network.
    fn describe(&self) {
        let _ = dump::quickly(self);
    }

    /// A step begins.
    pub fn enter(&self, step: Step) {
        let _ = self.step(step, StepState::InProgress);
    }

    /// A step is done, and the next begins.
    pub fn advance(&self, done: Step, next: Step) {
        let _ = self.step(done, StepState::Performed);
        self.enter(next);
    }

    /// A step failed.
    pub fn fail(&self, step: Step, category: Category, complaint: &SetupComplaint<'_>) {
        let _ = self.step(step, StepState::Errored);
        let texts = [
            ("summary", Some(complaint.summary)),
            ("problem_description.txt", complaint.problem),
            ("solution_description.txt", complaint.solution),
            ("advanced_problem_details", complaint.details),
        ];
        let texts = texts.into_iter().filter_map(|(name, text)| Some((name, text?)));
        let _ = self.complain(category, &texts.collect::<Vec<_>>());
        if step == Step::SubprocessSetupperBeforeShell {
            self.describe();
        }
    }

    /// The line of the application's source that a text blames, for the report. For a process that is the application's user
    /// already, and works in its root.
    pub fn show_source(&self, text: &str) {
        let Ok(root) = std::env::current_dir() else {
            return;
        };
        let Some(excerpt) = source::blamed(text, &root) else {
            return;
        };
        let written = dir::open_in(self.top.as_fd(), "response")
            .and_then(|response| dir::open_in(response.as_fd(), "error"))
            .and_then(|error| {
                dir::write(
                    error.as_fd(),
                    "source",
                    &serde_json::to_vec(&excerpt).unwrap_or_default(),
                )
            });
        // The report has the backtrace.
        let _ = written;
    }

    /// The process is up.
    pub fn finish(self, last: Step) {
        let _ = self.step(last, StepState::Performed);
        let _ = self.step(Step::SubprocessFinish, StepState::Performed);
        let response = dir::open_in(self.top.as_fd(), "response");
        // The reader may be gone; the master is told by another way, too.
        let _ = response.and_then(|response| dir::write_fifo(response.as_fd(), "finish", b"1"));
    }
}

/// The variable by which the kit knows what belongs to a start, if this is one: to be kept over a change of environment.
pub fn mark() -> Option<(OsString, OsString)> {
    Some((MARK.into(), std::env::var_os(MARK)?))
}

/// The start is over, and the application's programs are not to see the variable.
pub fn forget_mark() {
    process::forget_variables(&[MARK]);
}

impl Notes {
    pub(super) fn open(work_directory: &Path) -> sys::Result<Notes> {
        Ok(Notes {
            top: dir::open(work_directory)?,
        })
    }

    /// Gives all of it to the application's user. Before this no other user can write to it.
    pub(super) fn give_away(&self, uid: u32, gid: u32) -> sys::Result<()> {
        dir::give_away(self.top.as_fd(), uid, gid)
    }

    pub(super) fn arguments(&self) -> sys::Result<Option<Vec<u8>>> {
        const MOST: usize = 4 * 1024 * 1024;
        Ok(dir::read(self.top.as_fd(), "args.json", MOST)?.map(|content| content.bytes))
    }

    /// Says that the login shell is used. Returns whether this could be written.
    pub(super) fn mark_shell(&self) -> sys::Result<()> {
        dir::write(self.top.as_fd(), "execute_through_os_shell", b"")
    }

    pub(super) fn has_shell_mark(&self) -> bool {
        matches!(
            dir::read(self.top.as_fd(), "execute_through_os_shell", 1),
            Ok(Some(_))
        )
    }

    pub(super) fn dump(&self, name: &str, bytes: &[u8]) -> sys::Result<()> {
        let directory = dir::open_in(self.top.as_fd(), "envdump")?;
        dir::write(directory.as_fd(), name, bytes)
    }

    /// A step has come to this state now.
    pub(super) fn step(&self, step: Step, state: StepState) -> sys::Result<()> {
        let response = dir::open_in(self.top.as_fd(), "response")?;
        let steps = dir::open_in(response.as_fd(), "steps")?;
        let directory = dir::open_in(steps.as_fd(), step.directory())?;
        let now = clock::now().as_nanos();
        let time = format!("{}.{:09}", now / 1_000_000_000, now % 1_000_000_000);
        let name = match state {
            StepState::NotStarted => None,
            StepState::InProgress => Some("begin_time_monotonic"),
            StepState::Performed | StepState::Errored => Some("end_time_monotonic"),
        };
        if let Some(name) = name {
            dir::write(directory.as_fd(), name, time.as_bytes())?;
        }
        dir::write(directory.as_fd(), "state", state.name().as_bytes())
    }

    pub(super) fn complain(&self, category: Category, texts: &[(&str, &str)]) -> sys::Result<()> {
        let response = dir::open_in(self.top.as_fd(), "response")?;
        let directory = dir::open_in(response.as_fd(), "error")?;
        dir::write(directory.as_fd(), "category", category.name().as_bytes())?;
        for (name, text) in texts {
            dir::write(directory.as_fd(), name, text.as_bytes())?;
        }
        Ok(())
    }
}
