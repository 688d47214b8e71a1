//! What may wait for ever is done by a process of its own, with a deadline.
//!
//! Who owns a file, a directory or a process can make a call on it last as long as he likes: by a file system of his own (FUSE), by
//! locks of the kernel that he holds while a page of such a file is read, or by a queue that is full. Not even SIGKILL ends some of
//! these calls. So a process that others depend on makes none of them.

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

/// How long a tenant's files are waited for.
const MOMENT: Duration = Duration::from_millis(500);
/// The same of a tenant who was too late before.
const NO_TIME: Duration = Duration::from_millis(20);
/// How long that is remembered.
const LATE_FOR: Duration = Duration::from_secs(60);
/// Most bytes of an answer.
const MOST_BYTES: usize = 16 << 20;
/// Bytes that are read at once.
const PIECE: usize = 64 * 1024;
/// How long such a process lives at most, whether its parent still waits for it or not.
const LIFE_SECONDS: u32 = 60;
/// The same, where no answer is wanted.
const LONG_LIFE_SECONDS: u32 = 600;

/// What a process of its own has found.
#[derive(Debug, Default)]
pub struct Finding {
    /// What it says.
    pub bytes: Vec<u8>,
    /// What it has opened.
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

/// How far a process of its own has come.
#[derive(Debug)]
pub enum Progress {
    /// It is at work.
    Working,
    /// It is done.
    Done(Finding),
    /// It has ended without an answer.
    Lost,
}

/// A process of its own at work. It is killed when this is dropped.
#[derive(Debug)]
pub struct Apart {
    pid: i32,
    process: OwnedFd,
    socket: OwnedFd,
    finding: Finding,
}

impl Apart {
    /// Forks a process that does this. Of the descriptors from 3 up it has those in `keep`. This process has one thread.
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

    /// Its number.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Readable when [`Apart::proceed`] has something to do.
    pub fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// Reads what it has said. Never waits.
    pub fn proceed(&mut self) -> Progress {
        let mut piece = vec![0; PIECE];
        loop {
            match receive_with(self.socket.as_fd(), &mut piece, false) {
                // The last byte says that the answer is whole.
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

    /// Waits for the answer, for so long at most; `None`: it does not come in time.
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
        // It may have ended. Who reaps children reaps it as well.
        let _ = pidfd::send_signal(self.process.as_fd(), Signal::SIGKILL);
    }
}

/// Forks a process that does this, and has no answer; says its number. Of the descriptors from 3 up it has those in `keep`.
/// This process has one thread.
///
/// # Errors
/// fork(2).
pub fn leave_apart(keep: &[BorrowedFd<'_>], work: impl FnOnce()) -> Result<i32> {
    fork(keep, LONG_LIFE_SECONDS, work)
}

thread_local! {
    /// Whose files could not be looked at in time, and until when they are not waited for.
    static LATE: RefCell<BTreeMap<String, Tick>> = const { RefCell::new(BTreeMap::new()) };
}

/// Does what concerns a tenant's files by a process of its own, and waits for it a moment. A tenant who makes that last is waited for
/// once in a while only. `None`: it was not done in time, or no process could be made.
pub fn within_a_moment(whose: &str, work: impl FnOnce() -> Finding) -> Option<Finding> {
    within_a_moment_with(whose, &[], work)
}

/// The same of a process that has these descriptors.
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
        // A panic must not run on into what this process is a copy of.
        i32::from(catch_unwind(AssertUnwindSafe(work)).is_err())
    })
}

/// Says what was found, with a byte at the end.
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
            // It is not waited for any more.
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
