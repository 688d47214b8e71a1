//! What the env setupper writes into the work directory: its steps, its error, its dumps.

use crate::spawn::error::Category;
use crate::spawn::journey::State;
use crate::spawn::step::Step;
use crate::sys::{self, clock, dir};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// The work directory, from inside.
pub(super) struct Notes {
    top: OwnedFd,
}

impl Notes {
    pub(super) fn open(work_directory: &Path) -> sys::Result<Notes> {
        Ok(Notes {
            top: dir::open(work_directory)?,
        })
    }

    /// Gives all of it to the application's user. Before this nobody else can write to it.
    pub(super) fn give_away(&self, uid: u32, gid: u32) -> sys::Result<()> {
        dir::give_away(self.top.as_fd(), uid, gid)
    }

    pub(super) fn arguments(&self) -> sys::Result<Option<Vec<u8>>> {
        const MOST: usize = 4 * 1024 * 1024;
        Ok(dir::read(self.top.as_fd(), "args.json", MOST)?.map(|content| content.bytes))
    }

    /// Says that the login shell is used; whether it was said.
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
    pub(super) fn step(&self, step: Step, state: State) -> sys::Result<()> {
        let response = dir::open_in(self.top.as_fd(), "response")?;
        let steps = dir::open_in(response.as_fd(), "steps")?;
        let directory = dir::open_in(steps.as_fd(), step.directory())?;
        let now = clock::now().as_nanos();
        let time = format!("{}.{:09}", now / 1_000_000_000, now % 1_000_000_000);
        let name = match state {
            State::NotStarted => None,
            State::InProgress => Some("begin_time_monotonic"),
            State::Performed | State::Errored => Some("end_time_monotonic"),
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
