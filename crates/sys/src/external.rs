//! Starts external programs, each in a new process group.

use super::error::Result;
use super::process::{Program, start_with};
pub use super::session::kill_group;
use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::ffi::CStr;
use std::time::Duration;

/// Retry delays for a program file that is open for writing (ETXTBSY).
const BUSY_PAUSES_MS: [u64; 6] = [1, 2, 4, 8, 16, 32];

/// Starts a program in a working directory and returns its pid once exec(2) has succeeded.
///
/// The program leads its own process group ([`kill_group`]), is killed when its parent thread exits, and inherits only
/// its descriptors.
///
/// # Errors
/// A step failed: `clone`, or in the child `dup2`, `chdir` or `execve`.
pub fn start(program: &Program, directory: &CStr) -> Result<i32> {
    // SAFETY: getpid(2) has no preconditions.
    let parent = unsafe { libc::getpid() };
    start_with(program, || {
        // SAFETY: system calls on a string that the waiting parent keeps.
        unsafe {
            libc::setpgid(0, 0);
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            // The parent may have exited before PR_SET_PDEATHSIG was set.
            if libc::getppid() != parent {
                super::process::exit_now(127);
            }
            libc::signal(libc::SIGPIPE, libc::SIG_DFL);
            match libc::chdir(directory.as_ptr()) {
                0 => Ok(()),
                _ => Err("chdir"),
            }
        }
    })
}

/// Like [`start`], but retries while the program's file is open for writing (ETXTBSY).
///
/// # Errors
/// As [`start`].
pub fn start_retrying(program: &Program, directory: &CStr) -> Result<i32> {
    let mut pauses = BUSY_PAUSES_MS.iter();
    loop {
        match start(program, directory) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fd::pipe;
    use crate::process::{Ended, reap_pid};
    use std::ffi::CString;
    use std::io::Read;
    use std::os::fd::OwnedFd;

    fn c_string(text: &str) -> CString {
        CString::new(text).unwrap()
    }

    fn program(path: &str, arguments: &[&str], output: OwnedFd) -> Program {
        Program {
            path: c_string(path),
            arguments: std::iter::once(&path)
                .chain(arguments)
                .map(|text| c_string(text))
                .collect(),
            environment: vec![c_string("A=b")],
            descriptors: vec![(output, 1)],
            descriptor_limit: None,
        }
    }

    #[test]
    fn a_program_has_its_streams_directory_and_environment_and_no_more() {
        let (reader, writer) = pipe(false).unwrap();
        let script = "echo $A $PWD; ls /proc/self/fd | wc -l; exit 7";
        let started = program("/bin/sh", &["-c", script], writer);
        let pid = start(&started, c"/").unwrap();
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
        let error = start(&program("/no/such/program", &[], writer), c"/").unwrap_err();
        assert_eq!((error.call, error.errno), ("execve", Errno::ENOENT));
        let (_reader, writer) = pipe(false).unwrap();
        let lost = program("/bin/sh", &[], writer);
        let error = start(&lost, c"/no/such/directory").unwrap_err();
        assert_eq!(error.call, "chdir");
    }
}
