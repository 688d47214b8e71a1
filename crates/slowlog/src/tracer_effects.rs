//! The tracer: drops to the pool's user, collects the calls and writes the entry.

use super::MOST_COPIED;
use super::family;
use super::job::{self, Asking, Finding, Job, Means, Stack, TracedProgram};
use super::memory::Memory;
use super::stack_text::{self, END};
use super::text::entry;
use forkyard_sys::socket::{Progress, Readiness, receive, send, wait};
use forkyard_sys::{clock, identity, memfile, pidfd, question};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::Duration;

/// Seconds until the kernel kills a tracer, for example because its log is on a hanging disk.
const TIMEOUT_SECONDS: u32 = 10;
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);
const TASKS_TIMEOUT: Duration = Duration::from_millis(500);
const MOST_LEFTOVERS: u32 = 64;

/// Why there is no trace.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The tracer can't switch to the pool's user.
    #[error(transparent)]
    Identity(forkyard_sys::Error),
    /// The worker's memory can't be opened.
    #[error("failed to trace child {0}: {1}")]
    Memory(i32, #[source] io::Error),
    /// The worker does not answer.
    #[error("failed to trace child {0}: {1}")]
    Silent(i32, Silence),
    /// Writing to the log failed.
    #[error("unable to write the slow log: {0}")]
    Write(#[source] io::Error),
}

/// Why a worker does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Silence {
    /// The worker's end of the socket is closed.
    #[error("it can't be asked: its end of the socket is closed")]
    Closed,
    /// It has no handler for the signal, which would kill it.
    #[error("it can't be asked: it does not handle the signal")]
    Unhandled,
    /// It has exited.
    #[error("it has ended")]
    Ended,
    /// It did not answer in time, or not completely.
    #[error("it was asked and did not tell")]
    Late,
}

/// A job's descriptors; its [`Means`] determines which are set.
#[derive(Debug, Default)]
pub struct Descriptors {
    /// The worker's memory, if the master could open it ([`open_memory`]).
    pub memory: Option<OwnedFd>,
    /// The master's end of the worker's socket.
    pub questions: Option<OwnedFd>,
    /// The worker's pidfd.
    pub process: Option<OwnedFd>,
    /// For the master, which has the calls in the report if the worker dies.
    pub copy: Option<OwnedFd>,
}

/// Writes one entry with a single write(2).
///
/// # Errors
/// What failed. An entry without calls is still written if possible.
pub fn write(job: &Job, mut descriptors: Descriptors, log: OwnedFd) -> Result<(), TraceError> {
    nix::unistd::alarm::set(TIMEOUT_SECONDS);
    let memory = match (&job.means, descriptors.memory.take()) {
        (_, Some(memory)) => Some(File::from(memory)),
        (Means::Memory { executable, .. }, None) if identity::is_root() => {
            open_memory(job.pid, *executable).map_err(|error| TraceError::Memory(job.pid, error))?
        }
        _ => None,
    };
    if let Some(identity) = job.identity.as_ref().filter(|_| identity::is_root()) {
        identity::become_user(identity).map_err(TraceError::Identity)?;
    }
    let (finding, result) = match &job.means {
        Means::Memory { source, .. } => {
            let memory = match memory {
                Some(memory) => Ok(memory),
                None => File::open(format!("/proc/{}/mem", job.pid)),
            };
            match memory {
                Ok(memory) => (
                    Finding::Calls(job::read(source, &TracedProcess(memory), job.depth)),
                    Ok(()),
                ),
                Err(error) => (nothing(), Err(TraceError::Memory(job.pid, error))),
            }
        }
        Means::Asked { asking, request } => match ask(job, *asking, *request, &descriptors) {
            Ok(finding) => (finding, Ok(())),
            Err((finding, silence)) => (finding, Err(TraceError::Silent(job.pid, silence))),
        },
        Means::Programs => (Finding::Programs(programs(job.pid, &descriptors)), Ok(())),
    };
    let text = entry(&job.heading, &finding);
    if let Some(copy) = &descriptors.copy {
        // If this fails, the report lacks the calls.
        let _ = memfile::write(copy.as_fd(), start_of(&text[job.heading.len()..]).as_bytes());
    }
    File::from(log)
        .write_all(text.as_bytes())
        .map_err(TraceError::Write)?;
    result
}

/// Returns the first whole lines.
fn start_of(calls: &str) -> &str {
    if calls.len() <= MOST_COPIED {
        return calls;
    }
    let end = calls.as_bytes()[..MOST_COPIED]
        .iter()
        .rposition(|byte| *byte == b'\n');
    &calls[..end.map_or(0, |end| end + 1)]
}

pub(super) fn end_line(channel: OwnedFd) -> OwnedFd {
    let mut channel = File::from(channel);
    let _ = channel.write_all(b"\n");
    channel.into()
}

/// Opens a worker's memory; may block forever. Root opens it because a process that has changed its user is off limits
/// to its own user, and an ancestor because ptrace(2) may be restricted (Yama). `None`: no permission.
///
/// # Errors
/// open(2); EACCES: the worker runs another executable.
pub fn open_memory(pid: i32, executable: (u64, u64)) -> io::Result<Option<File>> {
    let memory = match File::open(format!("/proc/{pid}/mem")) {
        Ok(memory) => memory,
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(None),
        Err(error) => return Err(error),
    };
    // The open file belongs to the program that ran at that time. A hostile worker may since have executed a program with
    // more rights, such as su(1), and the pool must not see that program's memory.
    let entry = fs::metadata(format!("/proc/{pid}/exe"));
    if !entry.is_ok_and(|entry| (entry.dev(), entry.ino()) == executable) {
        return Err(io::Error::from_raw_os_error(nix::errno::Errno::EACCES as i32));
    }
    Ok(Some(memory))
}

fn nothing() -> Finding {
    Finding::Calls(Stack::default())
}

struct TracedProcess(File);

impl Memory for TracedProcess {
    fn read(&self, address: u64, to: &mut [u8]) -> Option<()> {
        i64::try_from(address).ok()?;
        self.0.read_exact_at(to, address).ok()
    }
}

fn ask(
    job: &Job,
    asking: Asking,
    request: u64,
    descriptors: &Descriptors,
) -> Result<Finding, (Finding, Silence)> {
    let (Some(questions), Some(process)) = (&descriptors.questions, &descriptors.process) else {
        return Err((nothing(), Silence::Closed));
    };
    let refused = |silence| (nothing(), silence);
    let mut telling = Telling {
        socket: questions.as_fd(),
        told: Vec::new(),
    };
    telling.forget().map_err(refused)?;
    if matches!(asking, Asking::Signal | Asking::Loop) {
        signal(job.pid, process.as_fd()).map_err(refused)?;
    }
    if asking != Asking::Signal {
        send(telling.socket, request.to_string().as_bytes()).map_err(|_| refused(Silence::Closed))?;
    }
    let calls = telling.answer(ANSWER_TIMEOUT);
    let is_whole = calls.is_ok();
    let text = calls.unwrap_or_else(|told| told);
    if asking == Asking::Threads && is_whole {
        let threads = stack_text::tasks(&text, job.depth);
        if !threads.is_empty() {
            return Ok(Finding::Tasks(threads));
        }
    }
    let stack = stack_text::stack(&text, is_whole, job.depth);
    if !stack.is_whole {
        let has_ended = pidfd::has_ended(process.as_fd());
        let silence = if has_ended { Silence::Ended } else { Silence::Late };
        return Err((Finding::Calls(stack), silence));
    }
    if asking == Asking::Loop {
        let tasks = telling
            .answer(TASKS_TIMEOUT)
            .map(|text| stack_text::tasks(&text, job.depth));
        if let Ok(tasks) = tasks {
            if !tasks.is_empty() {
                return Ok(Finding::Tasks(tasks));
            }
        }
    }
    Ok(Finding::Calls(stack))
}

fn signal(pid: i32, process: BorrowedFd<'_>) -> Result<(), Silence> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    if pidfd::has_ended(process) {
        return Err(Silence::Ended);
    }
    if !question::is_handled(&status) {
        return Err(Silence::Unhandled);
    }
    question::send(process).map_err(|_| Silence::Ended)
}

struct Telling<'s> {
    socket: BorrowedFd<'s>,
    told: Vec<u8>,
}

impl Telling<'_> {
    fn forget(&mut self) -> Result<(), Silence> {
        let mut waste = vec![0; 64 * 1024];
        for _ in 0..MOST_LEFTOVERS {
            match receive(self.socket, &mut waste) {
                Ok(Progress::WouldBlock) => return Ok(()),
                Ok(Progress::Done(0)) | Err(_) => return Err(Silence::Closed),
                Ok(Progress::Done(_)) => {}
            }
        }
        Err(Silence::Late)
    }

    fn answer(&mut self, timeout: Duration) -> Result<Vec<u8>, Vec<u8>> {
        let limit = clock::now() + timeout;
        let mut piece = vec![0; 64 * 1024];
        loop {
            if let Some(end) = self.told.iter().position(|byte| *byte == END) {
                let mut answer: Vec<u8> = self.told.drain(..=end).collect();
                answer.pop();
                return Ok(answer);
            }
            let left = limit.since(clock::now());
            let is_over = left.is_zero() || self.told.len() > stack_text::MOST_BYTES;
            if is_over || !wait(self.socket, Readiness::Readable, left).unwrap_or(false) {
                return Err(std::mem::take(&mut self.told));
            }
            match receive(self.socket, &mut piece) {
                Ok(Progress::Done(count @ 1..)) => self.told.extend_from_slice(&piece[..count]),
                Ok(Progress::WouldBlock) => {}
                Ok(Progress::Done(_)) | Err(_) => return Err(std::mem::take(&mut self.told)),
            }
        }
    }
}

/// Returns the programs that a process has started, recursively, and that this user may see.
fn programs(worker: i32, descriptors: &Descriptors) -> Vec<TracedProgram> {
    let mut left = children(worker);
    if descriptors
        .process
        .as_ref()
        .is_none_or(|process| pidfd::has_ended(process.as_fd()))
    {
        return Vec::new();
    }
    left.reverse();
    let mut found = Vec::new();
    while let Some(pid) = left.pop() {
        if found.len() == family::MOST_PROGRAMS {
            break;
        }
        let file = |name: &str| beginning(&format!("/proc/{pid}/{name}"));
        found.extend(family::program(
            pid,
            &file("stat"),
            &file("wchan"),
            &file("cmdline"),
        ));
        left.extend(children(pid).into_iter().rev());
    }
    found
}

fn children(pid: i32) -> Vec<i32> {
    family::pids(&fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default())
}

fn beginning(path: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Ok(file) = File::open(path) {
        let _ = file.take(family::COMMAND_BYTES as u64).read_to_end(&mut bytes);
    }
    bytes
}
