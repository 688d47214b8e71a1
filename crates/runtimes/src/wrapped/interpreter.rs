//! Applies the pool's process settings and executes the interpreter.
//!
//! The master's line stays in the socket for the wrapper; this step only peeks at it.

use crate::php::protocol::{Command, EXIT_START_FAILED, SOCKET};
use crate::preloader::{self, Socket};
use forkyard_spawn::error::Category;
use forkyard_spawn::setupper::{Notes, SetupComplaint, barrier};
use forkyard_spawn::step::Step;
use forkyard_sys::fd;
use forkyard_worker::Settings;
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv};
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::time::Duration;

/// The hidden subcommand of `forkyard` for this step.
pub const COMMAND: &str = "interpreter";
/// Set in the environment if the process settings have been applied.
pub const SETTLED: &str = "FORKYARD_SETTLED";

const MAX_LINE_BYTES: usize = 4 << 20;
const PART_TIMEOUT: Duration = Duration::from_millis(1);
const MAX_WAITS: u32 = 10_000;
const MOST_LINKS: usize = 40;

struct InterpreterFailure {
    step: Step,
    category: Category,
    summary: String,
    solution: String,
}

/// Becomes the interpreter. Returns only an exit code, after reporting the failure to the master.
pub fn run(interpreter: &OsString, arguments: &[OsString]) -> i32 {
    let notes = Notes::inherited();
    let failure = match become_it(interpreter, arguments, notes.as_ref()) {
        Ok(()) => return 0,
        Err(failure) => failure,
    };
    if let Some(notes) = &notes {
        let complaint = SetupComplaint {
            summary: &failure.summary,
            solution: Some(&failure.solution),
            ..SetupComplaint::default()
        };
        notes.fail(failure.step, failure.category, &complaint);
    }
    let message = failure.summary;
    match fd::adopt_passed(SOCKET).and_then(Socket::new) {
        Ok(socket) => socket.answer(&preloader::failure(None, message)),
        Err(error) => eprintln!("forkyard: {message}; {error}"),
    }
    EXIT_START_FAILED
}

fn become_it(
    interpreter: &OsString,
    arguments: &[OsString],
    notes: Option<&Notes>,
) -> Result<(), InterpreterFailure> {
    let settings = peek().map_err(|error| InterpreterFailure {
        step: Step::SubprocessSetupperBeforeShell,
        category: Category::Internal,
        summary: error.to_string(),
        solution: "All programs of forkyard must have the same version: install them together.".to_owned(),
    })?;
    let Some(settings) = settings else { return Ok(()) };
    let mut path = PathBuf::from(interpreter);
    let mut own_env = None;
    // A new root contains neither the interpreter nor its libraries, so the wrapper enters it after loading them.
    if settings.pool.setup.chroot.is_none() {
        forkyard_worker::apply_process_settings(&settings).map_err(|error| InterpreterFailure {
            step: Step::SubprocessSetupperBeforeShell,
            category: Category::OperatingSystem,
            summary: error.to_string(),
            solution: "Correct the pool's setting that is named: its user, directories, limits, or what confines it."
                .to_owned(),
        })?;
        // With the user's rights, because the directory is the user's.
        if let Some(wrapped) = settings.pool.application.wrapped() {
            path = wrapped.interpreter_now();
        }
        own_env = Some(&settings.pool.environment.own_env);
        if let Some(notes) = notes {
            notes.settled(Step::SubprocessExecWrapper);
        }
    }
    if let Some(notes) = notes {
        let _ = notes.pass_on();
    }
    let mut program = std::process::Command::new(&path);
    program.args(arguments);
    if let Some(own_env) = own_env {
        program.envs(own_env.iter().map(|(name, value)| (name, value)));
        program.env(SETTLED, "1");
    }
    let error = program.exec();
    // A virtual environment's interpreter is a chain of links; each directory on the way counts.
    let links = std::iter::successors(Some(path.clone()), |path| {
        let link = std::fs::read_link(path).ok()?;
        Some(path.parent()?.join(link))
    });
    let links: Vec<PathBuf> = links.take(MOST_LINKS).collect();
    let ways = links.iter().filter_map(|path| path.parent());
    let user = settings.identity.as_ref();
    let user = user.map_or_else(own_name, |user| {
        user.name.clone().unwrap_or_else(|| user.uid.to_string())
    });
    let is_denied = error.kind() == std::io::ErrorKind::PermissionDenied;
    let barrier = ways.filter(|_| is_denied).find_map(|way| barrier(way, &user));
    let path = path.display();
    if let Some(barrier) = barrier {
        return Err(InterpreterFailure {
            step: Step::SubprocessExecWrapper,
            category: Category::FileSystem,
            summary: format!("start {path}: {}", barrier.summary.trim_end_matches('.')),
            solution: barrier.solution,
        });
    }
    Err(InterpreterFailure {
        step: Step::SubprocessExecWrapper,
        category: Category::FileSystem,
        summary: format!("start {path}: {error}"),
        solution: "Install the interpreter, or make the application's virtual environment again; the pool's user has to be able \
                   to execute it. A pool may name another one: interpreter = \"PATH\"."
            .to_owned(),
    })
}

fn own_name() -> String {
    forkyard_sys::identity::own_user().to_string()
}

#[derive(Debug, thiserror::Error)]
enum PeekError {
    #[error("recv: {0}; this is started by forkyard alone")]
    Receive(Errno),
    #[error("line from the master: not the time for it")]
    Command,
    #[error("line from the master: {0}")]
    Json(serde_json::Error),
    #[error("line from the master: too long")]
    TooLong,
}

fn peek() -> Result<Option<Settings>, PeekError> {
    let mut buffer = vec![0; 64 << 10];
    for _ in 0..MAX_WAITS {
        let count = match recv(SOCKET, &mut buffer, MsgFlags::MSG_PEEK) {
            Ok(0) => return Ok(None),
            Ok(count) => count,
            Err(Errno::EINTR) => continue,
            Err(errno) => return Err(PeekError::Receive(errno)),
        };
        if let Some(end) = buffer[..count].iter().position(|byte| *byte == b'\n') {
            return match serde_json::from_slice(&buffer[..end]) {
                Ok(Command::Begin { context, .. }) => Ok(Some(context)),
                Ok(_) => Err(PeekError::Command),
                Err(error) => Err(PeekError::Json(error)),
            };
        }
        if count < buffer.len() {
            std::thread::sleep(PART_TIMEOUT);
        } else if buffer.len() < MAX_LINE_BYTES {
            buffer.resize(buffer.len() * 2, 0);
        } else {
            break;
        }
    }
    Err(PeekError::TooLong)
}
