//! Hands a log opened by the master to workers, and its replacement after a reopen.
//!
//! The open file is a queued message in a socket (SCM_RIGHTS, unix(7)). Workers peek at it and get their own
//! descriptor. To replace the file, the master queues a new message, removes the old one and increments a number in the
//! scoreboard's header. Workers compare the number before each write and peek again after a change. No worker is woken,
//! and no line is lost: until then lines go to the old file.

use forkyard_sys::Error;
use forkyard_sys::fd::{look_at, receive_with, send_with, socket_pair};
use forkyard_sys::guarded::Guarded;
use forkyard_sys::process::{Finding, within_a_moment_with};
use nix::errno::Errno;
use nix::sys::socket::SockType;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// The master's side.
#[derive(Debug)]
pub struct Handout {
    post: Guarded,
    shelf: OwnedFd,
}

impl Handout {
    /// Queues a file.
    ///
    /// # Errors
    /// socketpair(2) or sendmsg(2).
    pub fn new(file: &OwnedFd) -> Result<Handout, Error> {
        // SOCK_SEQPACKET keeps messages apart.
        let (post, shelf) = socket_pair(SockType::SeqPacket)?;
        let post = Guarded::new(post);
        let handout = Handout { post, shelf };
        handout.put(file)?;
        Ok(handout)
    }

    /// Takes over another master's sockets.
    pub fn adopt(post: OwnedFd, shelf: OwnedFd) -> Handout {
        let post = Guarded::with_descriptors(post);
        Handout { post, shelf }
    }

    /// Both ends: the master's and the workers'.
    pub fn ends(&self) -> [&OwnedFd; 2] {
        [&self.post, &self.shelf]
    }

    fn put(&self, file: &OwnedFd) -> Result<(), Error> {
        send_with(self.post.as_fd(), b"a", &[file.as_raw_fd()]).map(drop)
    }

    /// Replaces the file, in a child with a deadline, because workers of `whose` can block the socket.
    ///
    /// # Errors
    /// ETIMEDOUT after the deadline.
    pub fn replace(&self, file: &OwnedFd, whose: &str) -> Result<(), Error> {
        let kept = [self.post.as_fd(), self.shelf.as_fd(), file.as_fd()];
        let exchange = || {
            // A worker may have removed the message, which harms only its own pool.
            let is_there = look_at(self.shelf.as_fd()).is_ok();
            if self.put(file).is_ok() && is_there {
                let _ = receive_with(self.shelf.as_fd(), &mut [0; 1], false);
            }
            Finding::default()
        };
        let is_done = within_a_moment_with(whose, &kept, exchange).is_some();
        is_done
            .then_some(())
            .ok_or_else(|| Error::new("recvmsg", "the socket of its access log", Errno::ETIMEDOUT))
    }

    /// The workers' end.
    pub fn shelf(&self) -> &OwnedFd {
        &self.shelf
    }

    /// Returns a worker's descriptor of the file, `None` if the message was removed.
    pub fn current(shelf: &OwnedFd) -> Option<OwnedFd> {
        look_at(shelf.as_fd()).ok()?.into_iter().next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Seek, Write};

    #[test]
    fn every_worker_gets_the_newest_file() {
        let mut old = tempfile::tempfile().unwrap();
        let mut new = tempfile::tempfile().unwrap();
        let handout = Handout::new(&old.try_clone().unwrap().into()).unwrap();
        let write = |text: &str| {
            let mut file = std::fs::File::from(Handout::current(handout.shelf()).unwrap());
            file.write_all(text.as_bytes()).unwrap();
        };
        write("one ");
        write("two");
        handout.replace(&new.try_clone().unwrap().into(), "www").unwrap();
        write("three");
        for (file, expected) in [(&mut old, "one two"), (&mut new, "three")] {
            let mut text = String::new();
            file.rewind().unwrap();
            file.read_to_string(&mut text).unwrap();
            assert_eq!(text, expected);
        }
    }

    #[test]
    fn nothing_is_found_where_a_worker_has_taken_it() {
        let file = tempfile::tempfile().unwrap();
        let handout = Handout::new(&file.try_clone().unwrap().into()).unwrap();
        receive_with(handout.shelf().as_fd(), &mut [0; 1], false).unwrap();
        assert!(Handout::current(handout.shelf()).is_none());
        handout.replace(&file.into(), "www").unwrap();
        assert!(Handout::current(handout.shelf()).is_some());
    }
}
