//! Runs programs in a child or in place of this one.

use super::exit_now;
use crate::error::{Error, Result};
use crate::{fd, signal};
use nix::errno::Errno;
use std::ffi::{CString, OsStr, OsString, c_int, c_void};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const STACK_BYTES: usize = 64 * 1024;

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
/// The failed step: `clone`, `dup2`, `execve`.
pub fn start(program: &Program) -> Result<i32> {
    start_with(program, || Ok(()))
}

/// Like [`start`], with all signals blocked until the program unblocks them.
///
/// # Errors
/// As [`start`].
pub fn start_blocked(program: &Program) -> Result<i32> {
    start_with(program, || {
        signal::block_all();
        Ok(())
    })
}

/// The child shares the parent's memory until exec (clone(2), `CLONE_VFORK`), so a large parent costs nothing. `prepare`
/// runs in the child, must be async-signal-safe and may not allocate. It returns the call that failed.
pub(crate) fn start_with(
    program: &Program,
    mut prepare: impl FnMut() -> std::result::Result<(), &'static str>,
) -> Result<i32> {
    let null = match (0..3).all(|stream| program.descriptors.iter().any(|(_, to)| *to == stream)) {
        true => None,
        false => Some(fd::null()?),
    };
    let standard = null
        .iter()
        .flat_map(|null| (0..3).map(|to| (null.as_raw_fd(), to)));
    let given = program.descriptors.iter().map(|(fd, to)| (fd.as_raw_fd(), *to));
    let mut copies: Vec<(RawFd, RawFd)> = standard.chain(given).collect();
    let lowest = copies.iter().map(|(_, to)| *to).max().unwrap_or(2) + 1;
    let (argv, envp) = (pointers(&program.arguments), pointers(&program.environment));
    let mut run = || {
        fd::close_all_on_exec();
        // First above every target, so that no dup2 overwrites a source.
        for (from, _) in &mut copies {
            // SAFETY: fcntl(2) fails for a number that is not open.
            *from = unsafe { libc::fcntl(*from, libc::F_DUPFD_CLOEXEC, lowest) };
        }
        for (from, to) in &copies {
            // SAFETY: the parent, which waits, has its own descriptors.
            if unsafe { libc::dup2(*from, *to) } < 0 {
                return "dup2";
            }
        }
        if let Err(call) = prepare() {
            return call;
        }
        // SAFETY: system calls on values that the waiting parent keeps.
        unsafe {
            if let Some((rlim_cur, rlim_max)) = program.descriptor_limit {
                libc::setrlimit(libc::RLIMIT_NOFILE, &libc::rlimit { rlim_cur, rlim_max });
            }
            libc::execve(program.path.as_ptr(), argv.as_ptr(), envp.as_ptr());
        }
        "execve"
    };
    let mut child = Child {
        run: &mut run,
        failed: None,
    };
    let mut stack = vec![0u128; STACK_BYTES / size_of::<u128>()];
    let mask = signal::block_all();
    // SAFETY: only the child uses the stack, which grows down from its end. It writes only to its stack and to what
    // `child` refers to, while CLONE_VFORK suspends this thread.
    let pid = unsafe {
        let top = stack.as_mut_ptr_range().end.cast::<c_void>();
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        libc::clone(run_child, top, flags, (&raw mut child).cast())
    };
    let errno = Errno::last();
    signal::restore(&mask);
    if pid < 0 {
        return Err(Error::new("clone", "", errno));
    }
    let Some((call, errno)) = child.failed else {
        return Ok(pid);
    };
    let _ = super::reap_pid(pid);
    let name = program.path.to_string_lossy().into_owned();
    Err(Error::new(call, name, errno))
}

struct Child<'a> {
    /// Returns the failed call.
    run: &'a mut dyn FnMut() -> &'static str,
    failed: Option<(&'static str, Errno)>,
}

extern "C" fn run_child(child: *mut c_void) -> c_int {
    // SAFETY: `start_with` passes its value and waits.
    let child = unsafe { &mut *child.cast::<Child<'_>>() };
    signal::reset_in_child();
    let call = (child.run)();
    child.failed = Some((call, Errno::last()));
    exit_now(127)
}

fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings
        .iter()
        .map(|s| s.as_ptr())
        .chain(std::iter::once(std::ptr::null()))
        .collect()
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
