//! Creates, reads and removes a work directory.

pub(super) mod base;

use crate::handshake::arguments::Arguments;
use crate::handshake::properties::MOST_BYTES;
use crate::handshake::response::{
    Complaint, MOST_ANNOTATIONS, MOST_SHORT, MOST_TEXT, Properties, Response, StepFiles, Surroundings, clean,
};
use crate::step::Step;
use forkyard_sys::{self as sys, dir};
use nix::errno::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

const MOST_BYTES_OF_ALL: u64 = 8 << 20;
const MOST_FILES: u32 = 1024;

#[derive(Debug)]
pub(crate) struct WorkDirectory {
    path: PathBuf,
    top: OwnedFd,
    keep: bool,
}

impl WorkDirectory {
    /// Creates a directory with a subdirectory for each reported step. `keep`: don't remove it at the end.
    pub(crate) fn make(parent: &Path, steps: &[Step], keep: bool) -> sys::Result<WorkDirectory> {
        let (path, top) = if keep {
            dir::make_temporary(parent, base::WORK)?
        } else {
            base::make_given(parent, base::WORK, MOST_BYTES_OF_ALL, MOST_FILES)?
        };
        let made = WorkDirectory { path, top, keep };
        if let Err(error) = made.furnish(steps) {
            let _ = dir::clear(made.top());
            base::remove_given(&made.path);
            return Err(error);
        }
        Ok(made)
    }

    fn furnish(&self, steps: &[Step]) -> sys::Result<()> {
        dir::make_in(self.top.as_fd(), "args")?;
        let dumps = dir::make_in(self.top.as_fd(), "envdump")?;
        dir::make_in(dumps.as_fd(), "annotations")?;
        let response = dir::make_in(self.top.as_fd(), "response")?;
        dir::make_in(response.as_fd(), "error")?;
        let directory = dir::make_in(response.as_fd(), "steps")?;
        for step in steps {
            dir::make_in(directory.as_fd(), step.directory())?;
        }
        Ok(())
    }

    pub(crate) fn top(&self) -> BorrowedFd<'_> {
        self.top.as_fd()
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn make_finish(&self) -> sys::Result<OwnedFd> {
        dir::make_fifo(&self.path.join("response"), "finish")
    }

    pub(crate) fn write_arguments(&self, arguments: &Arguments) -> sys::Result<()> {
        let unfit = |_| sys::Error::new("args.json", "a path is not UTF-8", Errno::EILSEQ);
        let directory = dir::open_in(self.top.as_fd(), "args")?;
        for (name, text) in arguments.files().map_err(unfit)? {
            match name.strip_prefix("args/") {
                Some(name) => dir::write(directory.as_fd(), name, text.as_bytes())?,
                None => dir::write(self.top.as_fd(), &name, text.as_bytes())?,
            }
        }
        Ok(())
    }

    pub(crate) fn give_away(&self, uid: u32, gid: u32) -> sys::Result<()> {
        dir::give_away(self.top.as_fd(), uid, gid)
    }

    /// Returns what its files tell.
    pub(crate) fn contents(&self, steps: &[Step]) -> Response {
        let mut contents = Response::default();
        if let Ok(response) = dir::open_in(self.top.as_fd(), "response") {
            contents.properties = match dir::read(response.as_fd(), "properties.json", MOST_BYTES) {
                Ok(Some(content)) if content.more => Properties::TooLong,
                Ok(Some(content)) => Properties::Bytes(content.bytes),
                Ok(None) | Err(_) => Properties::Missing,
            };
            if let Ok(error) = dir::open_in(response.as_fd(), "error") {
                contents.complaint = complaint(error.as_fd());
            }
            if let Ok(directory) = dir::open_in(response.as_fd(), "steps") {
                contents.steps = steps
                    .iter()
                    .filter_map(|step| {
                        let own = dir::open_in(directory.as_fd(), step.directory()).ok()?;
                        Some((*step, step_files(own.as_fd())))
                    })
                    .collect();
            }
        }
        if let Ok(dumps) = dir::open_in(self.top.as_fd(), "envdump") {
            contents.surroundings = surroundings(dumps.as_fd());
            let check = bytes(dumps.as_fd(), "command.json", MOST_TEXT);
            contents.command = check.and_then(|check| serde_json::from_slice(&check).ok());
        }
        contents
    }

    /// Returns the steps begun so far. The process may be writing concurrently.
    pub(crate) fn steps_so_far(&self, steps: &[Step]) -> Vec<(Step, StepFiles)> {
        let read = |step: &Step, name: &str| {
            let path = format!("response/steps/{}/{name}", step.directory());
            dir::read_beneath(self.top.as_fd(), &path, MOST_SHORT).map(|content| content.bytes)
        };
        let files = |step: &Step| StepFiles {
            state: read(step, "state"),
            begin_monotonic: read(step, "begin_time_monotonic"),
            begin: read(step, "begin_time"),
            ..StepFiles::default()
        };
        steps.iter().map(|step| (*step, files(step))).collect()
    }

    /// Returns the path to remove, or `None` if the directory stays.
    pub(crate) fn into_removable(self) -> Option<PathBuf> {
        (!self.keep).then_some(self.path)
    }
}

fn bytes(directory: BorrowedFd<'_>, name: &str, most: usize) -> Option<Vec<u8>> {
    let content = dir::read(directory, name, most).ok().flatten();
    content.map(|content| content.bytes)
}

fn complaint(directory: BorrowedFd<'_>) -> Complaint {
    let text = |name: &str| bytes(directory, name, MOST_TEXT);
    Complaint {
        category: bytes(directory, "category", MOST_SHORT),
        summary: text("summary"),
        problem_html: text("problem_description.html"),
        problem_text: text("problem_description.txt"),
        solution_html: text("solution_description.html"),
        solution_text: text("solution_description.txt"),
        details: text("advanced_problem_details"),
        source: text("source"),
    }
}

fn step_files(directory: BorrowedFd<'_>) -> StepFiles {
    let short = |name: &str| bytes(directory, name, MOST_SHORT);
    StepFiles {
        state: short("state"),
        begin_monotonic: short("begin_time_monotonic"),
        begin: short("begin_time"),
        end_monotonic: short("end_time_monotonic"),
        end: short("end_time"),
    }
}

fn surroundings(directory: BorrowedFd<'_>) -> Surroundings {
    let text = |name: &str| {
        let bytes = bytes(directory, name, MOST_TEXT);
        bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    };
    let mut annotations = Vec::new();
    if let Ok(own) = dir::open_in(directory, "annotations") {
        let names = dir::names(own.as_fd(), MOST_ANNOTATIONS).unwrap_or_default();
        for name in names.iter().filter_map(|name| name.to_str()) {
            if let Some(text) = bytes(own.as_fd(), name, MOST_TEXT / 8) {
                annotations.push((
                    clean(name.as_bytes()),
                    String::from_utf8_lossy(&text).into_owned(),
                ));
            }
        }
        annotations.sort();
    }
    Surroundings {
        envvars: text("envvars"),
        user_info: text("user_info"),
        ulimits: text("ulimits"),
        annotations,
    }
}
