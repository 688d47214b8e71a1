//! How a worker is told to make a preloader: a message in its stop pipe, with what that needs.

use crate::sys::fd::receive_with;
use std::os::fd::{BorrowedFd, OwnedFd};

/// The message. Anything else in the channel, and its end, is the word to finish.
pub const PROMOTE: &[u8] = b"p";

/// What a preloader is given that is made from a worker. Letting go of it says that there will be none.
#[derive(Debug)]
pub struct Promotion {
    /// Its channel to the master.
    pub channel: OwnedFd,
    /// Its standard output and error.
    pub output: OwnedFd,
    /// /dev/null: a chroot may lack it.
    pub null: OwnedFd,
}

/// Takes the message out of the channel, if it is this one.
pub(super) fn receive(stop_pipe: BorrowedFd<'_>) -> Option<Promotion> {
    let mut message = [0; 2];
    let received = receive_with(stop_pipe, &mut message, false).ok()?;
    if &message[..received.bytes] != PROMOTE {
        return None;
    }
    let [channel, output, null] = <[OwnedFd; 3]>::try_from(received.descriptors).ok()?;
    Some(Promotion {
        channel,
        output,
        null,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::fd::{null, pipe, send_with, socket_pair};
    use nix::sys::socket::SockType;
    use std::os::fd::{AsFd, AsRawFd};

    #[test]
    fn only_the_whole_message_is_one() {
        let (ours, theirs) = socket_pair(SockType::SeqPacket).unwrap();
        let null = null().unwrap();
        let three = [null.as_raw_fd(); 3];
        send_with(ours.as_fd(), PROMOTE, &three).unwrap();
        assert!(receive(theirs.as_fd()).is_some());
        assert!(receive(theirs.as_fd()).is_none(), "there is no second one");
        send_with(ours.as_fd(), PROMOTE, &three[..2]).unwrap();
        assert!(receive(theirs.as_fd()).is_none(), "too few descriptors");
        send_with(ours.as_fd(), b"f", &[]).unwrap();
        assert!(receive(theirs.as_fd()).is_none(), "the word to finish");
        drop(ours);
        assert!(receive(theirs.as_fd()).is_none(), "the end");
        let (stop_pipe, _writer) = pipe(false).unwrap();
        assert!(receive(stop_pipe.as_fd()).is_none(), "a pipe carries none");
    }
}
