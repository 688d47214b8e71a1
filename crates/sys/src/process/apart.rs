//! Runs work that may block forever in a child process, with a deadline.
//!
//! The owner of a file or process can block a call on it: with a FUSE file system, with kernel locks held while such a file
//! is read, or with a full queue. Some of these calls survive even SIGKILL.

use super::fork::fork_child;
use crate::error::Result;
use crate::fd::{receive_with, send_with, set_nonblocking, socket_pair};
use crate::socket::{Readiness, wait};
use crate::{clock, pidfd};
use forkyard_base::tick::Tick;
use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::sys::socket::SockType;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// Deadline for a tenant's files.
const MOMENT: Duration = Duration::from_millis(500);
/// Deadline after a recent miss.
const NO_TIME: Duration = Duration::from_millis(20);
const LATE_FOR: Duration = Duration::from_secs(60);
const MOST_BYTES: usize = 16 << 20;
const PIECE: usize = 64 * 1024;
const LIFE_SECONDS: u32 = 60;
/// For a child that returns no answer.
const LONG_LIFE_SECONDS: u32 = 600;

/// The child's result.
#[derive(Debug, Default)]
pub struct Finding {
    /// The answer.
    pub bytes: Vec<u8>,
    /// Descriptors that the child opened.
    pub descriptors: Vec<OwnedFd>,
}

impl From<Vec<u8>> for Finding {
    fn from(bytes: Vec<u8>) -> Finding {
        Finding {
            bytes,
            descriptors: Vec::new(),
        }
    }
}

/// State of the child's work.
#[derive(Debug)]
pub enum Progress {
    /// Still working.
    Working,
    /// Finished.
    Done(Finding),
    /// Exited without an answer.
    Lost,
}

/// A child at work. Dropping it kills the child.
#[derive(Debug)]
pub struct Apart {
    pid: i32,
    process: OwnedFd,
    socket: OwnedFd,
    finding: Finding,
}

impl Apart {
    /// Forks a child that runs `work` with the descriptors in `keep`. The caller must have one thread.
    ///
    /// # Errors
    /// socketpair(2), fork(2) or pidfd_open(2).
    pub fn begin(keep: &[BorrowedFd<'_>], work: impl FnOnce() -> Finding) -> Result<Apart> {
        let (socket, theirs) = socket_pair(SockType::Stream)?;
        set_nonblocking(theirs.as_fd(), false)?;
        let kept = [keep, &[theirs.as_fd()]].concat();
        let pid = fork(&kept, LIFE_SECONDS, || tell(theirs.as_fd(), &work()))?;
        Ok(Apart {
            pid,
            process: pidfd::open(pid)?,
            socket,
            finding: Finding::default(),
        })
    }

    /// The child's pid.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Becomes readable when [`Apart::proceed`] has something to read.
    pub fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// Reads from the child without blocking.
    pub fn proceed(&mut self) -> Progress {
        let mut piece = vec![0; PIECE];
        loop {
            match receive_with(self.socket.as_fd(), &mut piece, false) {
                Ok(received) if received.bytes == 0 => {
                    let mut finding = std::mem::take(&mut self.finding);
                    return match finding.bytes.pop() {
                        Some(_) => Progress::Done(finding),
                        None => Progress::Lost,
                    };
                }
                Ok(received) => {
                    self.finding.bytes.extend_from_slice(&piece[..received.bytes]);
                    self.finding.descriptors.extend(received.descriptors);
                    if self.finding.bytes.len() > MOST_BYTES {
                        return Progress::Lost;
                    }
                }
                Err(error) if error.errno == Errno::EAGAIN => return Progress::Working,
                Err(error) if error.errno == Errno::EINTR => {}
                Err(_) => return Progress::Lost,
            }
        }
    }

    /// Waits for the answer, `None` after `limit`.
    pub fn wait(mut self, limit: Duration) -> Option<Finding> {
        let end = clock::now() + limit;
        loop {
            match self.proceed() {
                Progress::Done(finding) => return Some(finding),
                Progress::Lost => return None,
                Progress::Working => {}
            }
            let left = end.since(clock::now());
            if left.is_zero() || !wait(self.socket.as_fd(), Readiness::Readable, left).ok()? {
                return None;
            }
        }
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        // It may have exited. The owner's SIGCHLD handling reaps it.
        let _ = pidfd::send_signal(self.process.as_fd(), Signal::SIGKILL);
    }
}

/// Like [`Apart::begin`], without an answer; returns the pid.
///
/// # Errors
/// fork(2).
pub fn leave_apart(keep: &[BorrowedFd<'_>], work: impl FnOnce()) -> Result<i32> {
    fork(keep, LONG_LIFE_SECONDS, work)
}

thread_local! {
    static LATE: RefCell<BTreeMap<String, Tick>> = const { RefCell::new(BTreeMap::new()) };
}

/// Runs work on a tenant's files in a child and waits briefly, after a recent miss hardly at all. `None` after the
/// deadline.
pub fn within_a_moment(whose: &str, work: impl FnOnce() -> Finding) -> Option<Finding> {
    within_a_moment_with(whose, &[], work)
}

/// Like [`within_a_moment`], with these descriptors.
pub fn within_a_moment_with(
    whose: &str,
    keep: &[BorrowedFd<'_>],
    work: impl FnOnce() -> Finding,
) -> Option<Finding> {
    let now = clock::now();
    let is_late = LATE.with_borrow(|late| late.get(whose).is_some_and(|until| *until > now));
    let finding = Apart::begin(keep, work)
        .ok()?
        .wait(if is_late { NO_TIME } else { MOMENT });
    LATE.with_borrow_mut(|late| match finding {
        Some(_) => late.remove(whose),
        None => late.insert(whose.to_owned(), now + LATE_FOR),
    });
    finding
}

fn fork(keep: &[BorrowedFd<'_>], life_seconds: u32, work: impl FnOnce()) -> Result<i32> {
    let kept: Vec<RawFd> = keep.iter().map(AsRawFd::as_raw_fd).collect();
    fork_child(&kept, || {
        nix::unistd::alarm::set(life_seconds);
        // A panic must not unwind into the parent's code.
        i32::from(catch_unwind(AssertUnwindSafe(work)).is_err())
    })
}

fn tell(socket: BorrowedFd<'_>, finding: &Finding) {
    let descriptors: Vec<RawFd> = finding.descriptors.iter().map(AsRawFd::as_raw_fd).collect();
    let mut rest = &[&finding.bytes[..], &[0]].concat()[..];
    let mut descriptors = &descriptors[..];
    while !rest.is_empty() {
        match send_with(socket, rest, descriptors) {
            Ok(count) => (rest, descriptors) = (&rest[count..], &[]),
            Err(error) if error.errno == Errno::EAGAIN => {
                if wait(socket, Readiness::Writable, Duration::from_secs(1)).is_err() {
                    return;
                }
            }
            Err(error) if error.errno == Errno::EINTR => {}
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn an_answer_is_whole_however_long_it_is_and_may_have_descriptors() {
        let bytes: Vec<u8> = (0..1_000_000_u32).map(|number| number.to_le_bytes()[0]).collect();
        let apart = Apart::begin(&[], || Finding {
            bytes: bytes.clone(),
            descriptors: vec![crate::fd::null().unwrap()],
        });
        let finding = apart.unwrap().wait(LONG).unwrap();
        assert!(finding.bytes == bytes && finding.descriptors.len() == 1);
    }

    #[test]
    fn one_that_says_nothing_is_waited_for_until_its_deadline_and_killed() {
        let apart = Apart::begin(&[], || {
            loop {
                nix::unistd::pause();
            }
        });
        let apart = apart.unwrap();
        let process = pidfd::open(apart.pid()).unwrap();
        assert!(apart.wait(Duration::from_millis(20)).is_none());
        assert!(wait(process.as_fd(), Readiness::Readable, LONG).unwrap());
    }

    #[test]
    fn a_tenant_who_is_late_is_not_waited_for_again_at_once_and_others_are() {
        let hang = || loop {
            nix::unistd::pause();
        };
        let begun = clock::now();
        assert!(within_a_moment("one", hang).is_none());
        let first = clock::now();
        assert!(first.since(begun) >= MOMENT);
        assert!(within_a_moment("one", hang).is_none());
        assert!(clock::now().since(first) < MOMENT);
        assert!(within_a_moment("other", Finding::default).is_some());
    }

    #[test]
    fn one_that_dies_has_no_answer() {
        let apart = Apart::begin(&[], || super::super::exit_now(3));
        assert!(apart.unwrap().wait(LONG).is_none());
    }
}
