//! Starts external programs without copying the parent's memory.

use super::error::{Error, Result};
use super::process::pointers;
pub use super::session::kill_group;
use super::signal;
use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::ffi::{CString, c_int, c_void};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

const STACK_BYTES: usize = 64 * 1024;
/// Retry delays for a program file that is open for writing (ETXTBSY).
const BUSY_PAUSES_MS: [u64; 6] = [1, 2, 4, 8, 16, 32];
const STREAMS: usize = 3;

/// A program, prepared completely before the fork.
#[derive(Debug)]
pub struct ExternalProgram {
    /// Absolute path of the executable.
    pub path: CString,
    /// Arguments, starting with the program's name.
    pub arguments: Vec<CString>,
    /// Its environment, `NAME=value`.
    pub environment: Vec<CString>,
    /// Working directory.
    pub directory: CString,
    /// Standard input, output and error.
    pub streams: [OwnedFd; STREAMS],
}

/// Starts a program and returns its pid once exec(2) has succeeded.
///
/// The program leads its own process group ([`kill_group`]), is killed when its parent thread exits, and inherits only
/// the streams. It shares the parent's memory until exec (clone(2), `CLONE_VFORK`), so a large parent costs nothing.
///
/// # Errors
/// One of these steps failed: `clone`, or in the child `dup2`, `chdir`, `execve`.
pub fn start(program: &ExternalProgram) -> Result<i32> {
    let argv = pointers(&program.arguments);
    let envp = pointers(&program.environment);
    let mut plan = Plan {
        path: program.path.as_ptr(),
        argv: argv.as_ptr(),
        envp: envp.as_ptr(),
        directory: program.directory.as_ptr(),
        streams: std::array::from_fn(|index| program.streams[index].as_raw_fd()),
        // SAFETY: getpid(2) has no preconditions.
        parent: unsafe { libc::getpid() },
        failed: None,
    };
    let mut stack = vec![0u128; STACK_BYTES / size_of::<u128>()];
    let mask = signal::block_all();
    // SAFETY: only the child uses the stack, which grows down from its end. It writes only to its stack and to
    // `plan.failed`, while CLONE_VFORK suspends this thread.
    let pid = unsafe {
        let top = stack.as_mut_ptr_range().end.cast::<c_void>();
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        libc::clone(become_program, top, flags, (&raw mut plan).cast())
    };
    let errno = Errno::last();
    signal::restore(&mask);
    if pid < 0 {
        return Err(Error::new("clone", "", errno));
    }
    match plan.failed {
        None => Ok(pid),
        Some((call, errno)) => {
            let _ = super::process::reap_pid(pid);
            Err(Error::new(
                call,
                program.path.to_string_lossy().into_owned(),
                errno,
            ))
        }
    }
}

/// Like [`start`], but retries while the program's file is open for writing (ETXTBSY).
///
/// # Errors
/// As [`start`].
pub fn start_retrying(program: &ExternalProgram) -> Result<i32> {
    let mut pauses = BUSY_PAUSES_MS.iter();
    loop {
        match start(program) {
            Err(error) if error.errno == Errno::ETXTBSY => match pauses.next() {
                Some(pause) => std::thread::sleep(Duration::from_millis(*pause)),
                None => return Err(error),
            },
            outcome => return outcome,
        }
    }
}

/// Sends SIGTERM to the process group of a started program.
pub fn terminate_group(leader: i32) {
    let _ = killpg(Pid::from_raw(leader), Signal::SIGTERM);
}

struct Plan {
    path: *const libc::c_char,
    argv: *const *const libc::c_char,
    envp: *const *const libc::c_char,
    directory: *const libc::c_char,
    streams: [RawFd; STREAMS],
    parent: libc::pid_t,
    failed: Option<(&'static str, Errno)>,
}

extern "C" fn become_program(plan: *mut c_void) -> c_int {
    // SAFETY: `start` passes its plan and waits.
    let plan = unsafe { &mut *plan.cast::<Plan>() };
    signal::reset_in_child();
    plan.failed = Some(run(plan));
    super::process::exit_now(127)
}

fn run(plan: &Plan) -> (&'static str, Errno) {
    // SAFETY: system calls on descriptors and strings that the waiting parent keeps.
    unsafe {
        super::fd::close_all_on_exec();
        libc::setpgid(0, 0);
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        // The parent may have exited before PR_SET_PDEATHSIG was set.
        if libc::getppid() != plan.parent {
            super::process::exit_now(127);
        }
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        // First above the standard streams, so that none is overwritten.
        let mut high = [0; STREAMS];
        for (stream, high) in plan.streams.iter().zip(&mut high) {
            *high = libc::fcntl(*stream, libc::F_DUPFD_CLOEXEC, STREAMS as c_int);
        }
        for (target, stream) in high.into_iter().enumerate() {
            if libc::dup2(stream, target as c_int) < 0 {
                return ("dup2", Errno::last());
            }
        }
        if libc::chdir(plan.directory) < 0 {
            return ("chdir", Errno::last());
        }
        libc::execve(plan.path, plan.argv, plan.envp);
    }
    ("execve", Errno::last())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fd::{null, pipe};
    use crate::process::{Ended, reap_pid};
    use std::io::Read;

    fn c_string(text: &str) -> CString {
        CString::new(text).unwrap()
    }

    fn program(path: &str, arguments: &[&str], output: OwnedFd) -> ExternalProgram {
        ExternalProgram {
            path: c_string(path),
            arguments: std::iter::once(&path)
                .chain(arguments)
                .map(|text| c_string(text))
                .collect(),
            environment: vec![c_string("A=b")],
            directory: c_string("/"),
            streams: [null().unwrap(), output, null().unwrap()],
        }
    }

    #[test]
    fn a_program_has_its_streams_directory_and_environment_and_no_more() {
        let (reader, writer) = pipe(false).unwrap();
        let script = "echo $A $PWD; ls /proc/self/fd | wc -l; exit 7";
        let started = program("/bin/sh", &["-c", script], writer);
        let pid = start(&started).unwrap();
        drop(started);
        let mut text = String::new();
        std::fs::File::from(reader).read_to_string(&mut text).unwrap();
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some("b /"));
        assert_eq!(lines.next(), Some("4"));
        assert_eq!(reap_pid(pid), Ok(Ended::Code(7)));
    }

    #[test]
    fn what_fails_in_the_child_is_told() {
        let (_reader, writer) = pipe(false).unwrap();
        let error = start(&program("/no/such/program", &[], writer)).unwrap_err();
        assert_eq!((error.call, error.errno), ("execve", Errno::ENOENT));
        let (_reader, writer) = pipe(false).unwrap();
        let mut lost = program("/bin/sh", &[], writer);
        lost.directory = c_string("/no/such/directory");
        assert_eq!(start(&lost).unwrap_err().call, "chdir");
    }
}
