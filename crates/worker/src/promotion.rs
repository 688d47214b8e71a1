//! Reads the master's messages ([`forkyard_protocol::stop_pipe`]).

use forkyard_protocol::stop_pipe::{PROMOTE, PROMOTION_DESCRIPTORS, TERMINATE};
use forkyard_sys::fd::receive_with;
use std::os::fd::{BorrowedFd, OwnedFd};

/// The descriptors of a preloader made from a worker. Dropping them rejects the promotion.
#[derive(Debug)]
pub struct Promotion {
    /// Its channel to the master.
    pub channel: OwnedFd,
    /// Its standard output and error.
    pub output: OwnedFd,
    /// /dev/null, which a chroot may lack.
    pub null: OwnedFd,
}

#[derive(Debug)]
pub(super) enum MasterMessage {
    Finish,
    Promote(Promotion),
    Terminate,
}

pub(super) fn hear(stop_pipe: BorrowedFd<'_>, refork: bool) -> MasterMessage {
    let mut message = [0; 2];
    if !refork {
        let is_terminate =
            nix::unistd::read(stop_pipe, &mut message[..1]).is_ok_and(|read| message[..read] == *TERMINATE);
        return if is_terminate {
            MasterMessage::Terminate
        } else {
            MasterMessage::Finish
        };
    }
    let Ok(received) = receive_with(stop_pipe, &mut message, false) else {
        return MasterMessage::Finish;
    };
    match &message[..received.bytes] {
        TERMINATE => MasterMessage::Terminate,
        PROMOTE => promoted(received.descriptors).map_or(MasterMessage::Finish, MasterMessage::Promote),
        _ => MasterMessage::Finish,
    }
}

fn promoted(descriptors: Vec<OwnedFd>) -> Option<Promotion> {
    let [channel, output, null] = <[OwnedFd; PROMOTION_DESCRIPTORS]>::try_from(descriptors).ok()?;
    Some(Promotion {
        channel,
        output,
        null,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use forkyard_sys::fd::{null, pipe, send_with, socket_pair};
    use nix::sys::socket::SockType;
    use std::os::fd::{AsFd, AsRawFd};

    #[test]
    fn what_is_said_is_told_apart_in_both_kinds_of_channels() {
        for refork in [false, true] {
            let (theirs, ours) = match refork {
                false => socket_pair(SockType::Stream).unwrap(),
                true => socket_pair(SockType::SeqPacket).unwrap(),
            };
            for _ in 0..2 {
                nix::unistd::write(&ours, TERMINATE).unwrap();
                assert!(matches!(hear(theirs.as_fd(), refork), MasterMessage::Terminate));
            }
            nix::unistd::write(&ours, b"f").unwrap();
            assert!(matches!(hear(theirs.as_fd(), refork), MasterMessage::Finish));
            drop(ours);
            assert!(matches!(hear(theirs.as_fd(), refork), MasterMessage::Finish));
        }
    }

    fn is_promotion(stop_pipe: BorrowedFd<'_>) -> bool {
        matches!(hear(stop_pipe, true), MasterMessage::Promote(_))
    }

    #[test]
    fn only_the_whole_message_is_one() {
        let (ours, theirs) = socket_pair(SockType::SeqPacket).unwrap();
        let null = null().unwrap();
        let three = [null.as_raw_fd(); 3];
        send_with(ours.as_fd(), PROMOTE, &three).unwrap();
        assert!(is_promotion(theirs.as_fd()));
        assert!(!is_promotion(theirs.as_fd()), "there is no second one");
        send_with(ours.as_fd(), PROMOTE, &three[..2]).unwrap();
        assert!(!is_promotion(theirs.as_fd()), "too few descriptors");
        send_with(ours.as_fd(), b"f", &[]).unwrap();
        assert!(!is_promotion(theirs.as_fd()), "the word to finish");
        drop(ours);
        assert!(!is_promotion(theirs.as_fd()), "the end");
        let (stop_pipe, _writer) = pipe(false).unwrap();
        assert!(!is_promotion(stop_pipe.as_fd()), "a pipe carries none");
    }
}
