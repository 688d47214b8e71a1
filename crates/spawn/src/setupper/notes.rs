//! Writes steps, errors and dumps to the work directory, for the env setupper and forkyard's own programs.

use super::dump;
use crate::error::Category;
use crate::journey::StepState;
use crate::plan::WORK_DIRECTORY;
use crate::source;
use crate::step::Step;
use forkyard_sys::{self as sys, clock, dir, fd, process};
use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// The environment variable that marks a starting process's descendants. An internal program keeps it until it is up.
const MARK: &str = "FORKYARD_SPAWN_WORK_DIR";

#[derive(Debug)]
pub struct Notes {
    top: OwnedFd,
}

/// A failure of one of forkyard's programs.
#[derive(Debug, Clone, Default)]
pub struct SetupComplaint<'t> {
    pub summary: &'t str,
    /// The details of the problem.
    pub problem: Option<&'t str>,
    pub solution: Option<&'t str>,
    /// A backtrace, for developers.
    pub details: Option<&'t str>,
}

/// For forkyard's own programs ([`Internal`](crate::plan::Internal)). Write errors are ignored: the kit also watches
/// the exit, and the master gets its own report.
impl Notes {
    /// Opens the work directory that this process was started with and creates a new session, so that its processes can
    /// be killed together. Returns `None` if the kit didn't start this process.
    pub fn inherited() -> Option<Notes> {
        std::env::var_os(MARK)?;
        let notes = Notes {
            top: fd::adopt_passed(WORK_DIRECTORY).ok()?,
        };
        let _ = nix::unistd::setsid();
        Some(notes)
    }

    /// Keeps the descriptor open across exec, for [`Notes::inherited`].
    ///
    /// # Errors
    /// fcntl(2) failed.
    pub fn pass_on(&self) -> sys::Result<()> {
        fd::set_close_on_exec(self.top.as_fd(), false)
    }

    /// Dumps environment, user and limits after the change of user, and enters the next step. Files that root wrote
    /// earlier could not be overwritten by the user.
    pub fn settled(&self, next: Step) {
        let _ = self.step(Step::SubprocessBeforeFirstExec, StepState::Performed);
        self.advance(Step::SubprocessSetupperBeforeShell, next);
        self.describe();
    }

    /// Dumps with numbers only: names may need a network lookup.
    fn describe(&self) {
        let _ = dump::quickly(self);
    }

    pub fn enter(&self, step: Step) {
        let _ = self.step(step, StepState::InProgress);
    }

    pub fn advance(&self, done: Step, next: Step) {
        let _ = self.step(done, StepState::Performed);
        self.enter(next);
    }

    pub fn fail(&self, step: Step, category: Category, complaint: &SetupComplaint<'_>) {
        self.complain(step, category, complaint);
        if step == Step::SubprocessSetupperBeforeShell {
            self.describe();
        }
    }

    /// Writes the source line blamed by a text, for the report. Call it as the application's user, in its root.
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
        let _ = written;
    }

    /// Reports that the process is up.
    pub fn finish(self, last: Step) {
        let _ = self.step(last, StepState::Performed);
        let _ = self.step(Step::SubprocessFinish, StepState::Performed);
        let response = dir::open_in(self.top.as_fd(), "response");
        // The reader may be gone; the master gets its own report.
        let _ = response.and_then(|response| dir::write_fifo(response.as_fd(), "finish", b"1"));
    }
}

/// The mark of the start, to keep when the environment changes.
pub fn mark() -> Option<(OsString, OsString)> {
    Some((MARK.into(), std::env::var_os(MARK)?))
}

/// Removes the mark after the start, so that the application's programs don't see it.
pub fn forget_mark() {
    process::forget_variables(&[MARK]);
}

impl Notes {
    pub(super) fn open(work_directory: &Path) -> sys::Result<Notes> {
        Ok(Notes {
            top: dir::open(work_directory)?,
        })
    }

    /// Gives the files to the application's user, who can't write to them before.
    pub(super) fn give_away(&self, uid: u32, gid: u32) -> sys::Result<()> {
        dir::give_away(self.top.as_fd(), uid, gid)
    }

    pub(super) fn arguments(&self) -> sys::Result<Option<Vec<u8>>> {
        const MOST: usize = 4 * 1024 * 1024;
        Ok(dir::read(self.top.as_fd(), "args.json", MOST)?.map(|content| content.bytes))
    }

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

    /// If the work directory is not writable, only the log line remains.
    pub(super) fn complain(&self, step: Step, category: Category, complaint: &SetupComplaint<'_>) {
        let _ = self.step(step, StepState::Errored);
        let _ = self.write_error(category, complaint);
    }

    fn write_error(&self, category: Category, complaint: &SetupComplaint<'_>) -> sys::Result<()> {
        let response = dir::open_in(self.top.as_fd(), "response")?;
        let directory = dir::open_in(response.as_fd(), "error")?;
        let texts = [
            ("category", Some(category.name())),
            ("summary", Some(complaint.summary)),
            ("problem_description.txt", complaint.problem),
            ("solution_description.txt", complaint.solution),
            ("advanced_problem_details", complaint.details),
        ];
        for (name, text) in texts {
            if let Some(text) = text {
                dir::write(directory.as_fd(), name, text.as_bytes())?;
            }
        }
        Ok(())
    }
}
