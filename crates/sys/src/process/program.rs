//! Runs programs in a child or in place of this one.

use super::exit_now;
use super::fork::{Side, fork};
use crate::error::{Error, Named, Result};
use crate::{fd, signal};
use nix::errno::Errno;
use nix::sys::wait::waitpid;
use nix::unistd::Pid;
use std::ffi::{CString, OsStr, OsString};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A program to start, prepared before the fork.
#[derive(Debug)]
pub struct Program {
    /// Absolute path of the executable.
    pub path: CString,
    /// Arguments, starting with the program's name.
    pub arguments: Vec<CString>,
    /// Its environment, `NAME=value`.
    pub environment: Vec<CString>,
    /// (ours, the child's number). Other standard streams are /dev/null.
    pub descriptors: Vec<(OwnedFd, RawFd)>,
    /// Soft and hard descriptor limits to restore.
    pub descriptor_limit: Option<(u64, u64)>,
}

impl Program {
    /// A program from texts without a NUL. An argument or a path with one is empty.
    pub fn new<A: AsRef<OsStr>>(
        path: &Path,
        arguments: impl IntoIterator<Item = A>,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
        descriptors: Vec<(OwnedFd, RawFd)>,
    ) -> Program {
        let c_string = |text: &OsStr| CString::new(text.as_bytes()).unwrap_or_default();
        let variable = |(mut name, value): (OsString, OsString)| {
            name.push("=");
            name.push(value);
            c_string(&name)
        };
        Program {
            path: c_string(path.as_os_str()),
            arguments: arguments
                .into_iter()
                .map(|text| c_string(text.as_ref()))
                .collect(),
            environment: environment.into_iter().map(variable).collect(),
            descriptors,
            descriptor_limit: None,
        }
    }
}

/// Starts a program and returns its pid once exec(2) has succeeded.
///
/// # Errors
/// The failed step: `dup2`, `execve`.
pub fn start(program: &Program) -> Result<i32> {
    start_with(program, signal::reset_in_child)
}

/// Like [`start`], with all signals blocked until the program unblocks them.
///
/// # Errors
/// fork(2), or what failed before exec.
pub fn start_blocked(program: &Program) -> Result<i32> {
    start_with(program, || {
        signal::reset_in_child();
        signal::block_all();
    })
}

/// `prepare` runs in the child and must be async-signal-safe.
fn start_with(program: &Program, prepare: impl FnOnce()) -> Result<i32> {
    let name = program.path.to_string_lossy().into_owned();
    let (reader, pipe_end) = fd::pipe(false)?;
    let null = fd::null()?;
    // Above every target, so that no dup2 overwrites a source.
    let lowest = program
        .descriptors
        .iter()
        .map(|(_, to)| *to)
        .max()
        .unwrap_or(2)
        .max(2)
        + 1;
    let high = |fd: &OwnedFd| -> Result<OwnedFd> {
        let fd = nix::fcntl::fcntl(fd, nix::fcntl::FcntlArg::F_DUPFD_CLOEXEC(lowest)).named("dup", &name)?;
        // SAFETY: a new descriptor.
        Ok(unsafe { fd::adopt(fd) })
    };
    let (writer, null) = (high(&pipe_end)?, high(&null)?);
    // Otherwise the reader gets no end of file.
    drop(pipe_end);
    let mut plan: Vec<(OwnedFd, RawFd)> = Vec::new();
    for (fd, to) in &program.descriptors {
        plan.push((high(fd)?, *to));
    }
    let argv = pointers(&program.arguments);
    let envp = pointers(&program.environment);
    // SAFETY: the caller has one thread; the child makes only system calls until exec or _exit.
    match unsafe { fork() }? {
        Side::Child => {
            prepare();
            let failed = run_child(program, &plan, &null, &argv, &envp);
            let _ = nix::unistd::write(&writer, &failed);
            exit_now(127)
        }
        Side::Parent(pid) => {
            drop(writer);
            let mut report = [0; 8];
            match nix::unistd::read(&reader, &mut report) {
                Ok(8) => {
                    let _ = waitpid(Pid::from_raw(pid), None);
                    let number = i32::from_ne_bytes([report[4], report[5], report[6], report[7]]);
                    let call = if report[0] == 0 { "dup2" } else { "execve" };
                    Err(Error::new(call, name, Errno::from_raw(number)))
                }
                _ => Ok(pid),
            }
        }
    }
}

pub(crate) fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings
        .iter()
        .map(|s| s.as_ptr())
        .chain(std::iter::once(std::ptr::null()))
        .collect()
}

/// Returns the failed step (dup2 or execve) and the error.
fn run_child(
    program: &Program,
    plan: &[(OwnedFd, RawFd)],
    null: &OwnedFd,
    argv: &[*const libc::c_char],
    envp: &[*const libc::c_char],
) -> [u8; 8] {
    let report = |step: u8| {
        let number = (Errno::last_raw()).to_ne_bytes();
        [step, 0, 0, 0, number[0], number[1], number[2], number[3]]
    };
    // SAFETY: system calls on prepared descriptors and copied strings; nothing allocates.
    unsafe {
        fd::close_all_on_exec();
        for target in 0..3 {
            if libc::dup2(null.as_raw_fd(), target) < 0 {
                return report(0);
            }
        }
        for (fd, target) in plan {
            if libc::dup2(fd.as_raw_fd(), *target) < 0 {
                return report(0);
            }
        }
        if let Some((soft, hard)) = program.descriptor_limit {
            let limit = libc::rlimit {
                rlim_cur: soft,
                rlim_max: hard,
            };
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
        libc::execve(program.path.as_ptr(), argv.as_ptr(), envp.as_ptr());
    }
    report(1)
}

/// Replaces this process's program (execve(2)), with all signals blocked. Returns only on failure, with the old mask.
pub fn replace(path: &std::path::Path, arguments: &[CString], environment: &[CString]) -> Error {
    let subject = path.display().to_string();
    let Ok(path) = CString::new(std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str())) else {
        return Error::new("execve", subject, Errno::EINVAL);
    };
    let mask = signal::block_all();
    let Err(errno) = nix::unistd::execve(&path, arguments, environment);
    signal::restore(&mask);
    Error::new("execve", subject, errno)
}

/// Like [`replace`], without blocked signals or an ignored SIGCHLD. On failure SIGPIPE stays at its default.
pub fn replace_plainly(
    path: &std::path::Path,
    arguments: &[OsString],
    environment: &[(OsString, OsString)],
) -> Error {
    let mut command = std::process::Command::new(path);
    command.args(arguments).env_clear();
    command.envs(environment.iter().map(|(name, value)| (name, value)));
    signal::notice_children();
    let error = std::os::unix::process::CommandExt::exec(&mut command);
    Error::from_io("execve", path.display().to_string(), &error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_exec_is_told() {
        let program = Program {
            path: c"/nonexistent/program".into(),
            arguments: vec![c"program".into()],
            environment: Vec::new(),
            descriptors: Vec::new(),
            descriptor_limit: None,
        };
        let error = start(&program).unwrap_err();
        assert_eq!((error.call, error.errno), ("execve", Errno::ENOENT));
    }
}
