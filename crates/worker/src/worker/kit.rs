//! What a worker is given.

use crate::config::Pool;
use crate::sys::identity::Identity;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// The settings that all workers of a generation share.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// The pool's configuration.
    pub pool: Pool,
    /// Who the workers become; `None`: they stay who the master is.
    pub identity: Option<Identity>,
    /// When the generation began, seconds since 1970.
    pub started: u64,
    /// Slots of the scoreboard.
    pub slots: u32,
    /// Soft and hard limit on descriptors as the master was started with.
    pub descriptor_limit: Option<(u64, u64)>,
    /// Longest line of a log, with its newline; bytes.
    pub log_limit: usize,
    /// A worker that has served so many requests tells the master, each time anew.
    #[serde(default)]
    pub refork_at: Option<u64>,
    /// The master's name, which its processes have, too (see [`crate::sys::title`]).
    #[serde(default)]
    pub process_name: String,
}

/// What all workers of a generation share: settings and descriptors.
#[derive(Debug)]
pub struct Kit {
    /// The settings.
    pub settings: Settings,
    /// The pool's listening socket, non-blocking.
    pub listener: OwnedFd,
    /// Kept connections that no worker holds come out here.
    pub queue_out: OwnedFd,
    /// And go in here.
    pub queue_in: OwnedFd,
    /// The child_accept pipe's write end, non-blocking.
    pub child_accept: OwnedFd,
    /// Lines for the daemon's log, non-blocking.
    pub messages: OwnedFd,
    /// The scoreboard, to map the worker's own page from.
    pub board_writable: OwnedFd,
    /// The scoreboard, to read.
    pub board_readable: OwnedFd,
    /// Where the access log lies (see [`crate::logs::Handout`]); `None`: there is none.
    pub access: Option<OwnedFd>,
}

/// Descriptors in a kit without an access log.
const KIT_DESCRIPTORS: usize = 7;

/// What is a worker's own.
#[derive(Debug)]
pub struct Seat {
    /// Its slot of the scoreboard.
    pub slot: u32,
    /// Readable, or at its end, when the worker has to finish or the master is gone. A socket that keeps messages apart, if
    /// it can also be told to make a preloader ([`super::PROMOTE`]).
    pub retire: OwnedFd,
    /// Standard output and error; `None`: /dev/null.
    pub output: Option<(OwnedFd, OwnedFd)>,
    /// Over which it is asked what it is busy with; `None`: nobody asks.
    pub questions: Option<OwnedFd>,
    /// Where a router gives the worker its connections ([`forkyard_protocol::channel`]); `None`: it accepts them itself.
    pub channel: Option<OwnedFd>,
}

/// Why a kit or a seat can't be made from a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KitError {
    /// Wrong number of descriptors: came, wanted.
    Descriptors(usize, usize),
}

impl fmt::Display for KitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KitError::Descriptors(came, wanted) => write!(f, "{came} descriptors instead of {wanted}"),
        }
    }
}

impl std::error::Error for KitError {}

impl Kit {
    /// The descriptors, in the order in which [`Kit::assemble`] takes them.
    pub fn descriptors(&self) -> Vec<RawFd> {
        let mut all = vec![
            self.listener.as_raw_fd(),
            self.queue_out.as_raw_fd(),
            self.queue_in.as_raw_fd(),
            self.child_accept.as_raw_fd(),
            self.messages.as_raw_fd(),
            self.board_writable.as_raw_fd(),
            self.board_readable.as_raw_fd(),
        ];
        all.extend(self.access.as_ref().map(AsRawFd::as_raw_fd));
        all
    }

    /// The settings, and the descriptors in the order in which [`Kit::assemble`] takes them.
    pub fn take_apart(self) -> (Settings, Vec<OwnedFd>) {
        let mut descriptors = vec![
            self.listener,
            self.queue_out,
            self.queue_in,
            self.child_accept,
            self.messages,
            self.board_writable,
            self.board_readable,
        ];
        descriptors.extend(self.access);
        (self.settings, descriptors)
    }

    /// A kit from its settings and descriptors.
    ///
    /// # Errors
    /// The descriptors are too few or too many.
    pub fn assemble(settings: Settings, mut descriptors: Vec<OwnedFd>) -> Result<Kit, KitError> {
        let access = (descriptors.len() > KIT_DESCRIPTORS)
            .then(|| descriptors.pop())
            .flatten();
        let descriptors: [OwnedFd; KIT_DESCRIPTORS] = descriptors
            .try_into()
            .map_err(|came: Vec<OwnedFd>| KitError::Descriptors(came.len(), KIT_DESCRIPTORS))?;
        let [
            listener,
            queue_out,
            queue_in,
            child_accept,
            messages,
            board_writable,
            board_readable,
        ] = descriptors;
        Ok(Kit {
            settings,
            listener,
            queue_out,
            queue_in,
            child_accept,
            messages,
            board_writable,
            board_readable,
            access,
        })
    }
}

impl Seat {
    /// The descriptors, in the order in which [`Seat::assemble`] takes them.
    pub fn descriptors(&self) -> Vec<RawFd> {
        let mut all = vec![self.retire.as_raw_fd()];
        if let Some((output, error)) = &self.output {
            all.extend([output.as_raw_fd(), error.as_raw_fd()]);
        }
        all.extend(self.questions.as_ref().map(AsRawFd::as_raw_fd));
        all.extend(self.channel.as_ref().map(AsRawFd::as_raw_fd));
        all
    }

    /// The slot, and the descriptors in the order in which [`Seat::assemble`] takes them.
    pub fn take_apart(self) -> (u32, Vec<OwnedFd>) {
        let output = self.output.map(|(output, error)| [output, error]);
        (
            self.slot,
            std::iter::once(self.retire)
                .chain(output.into_iter().flatten())
                .chain(self.questions)
                .chain(self.channel)
                .collect(),
        )
    }

    /// Whether a router gives it its connections: then the last of its descriptors is the router's channel.
    pub fn is_routed(&self) -> bool {
        self.channel.is_some()
    }

    /// A seat from its slot and descriptors: the retire channel, two for standard output and error where they are caught, the
    /// socket for questions where some are asked, and last, if it `is_routed`, the router's channel.
    ///
    /// # Errors
    /// The descriptors are too few or too many.
    pub fn assemble(slot: u32, is_routed: bool, mut descriptors: Vec<OwnedFd>) -> Result<Seat, KitError> {
        let channel = is_routed.then(|| descriptors.pop()).flatten();
        let count = descriptors.len();
        let mut descriptors = descriptors.into_iter();
        match (count, descriptors.next()) {
            (1..=4, Some(retire)) => {
                let output = match count {
                    3.. => descriptors.next().zip(descriptors.next()),
                    _ => None,
                };
                Ok(Seat {
                    slot,
                    retire,
                    output,
                    questions: descriptors.next(),
                    channel,
                })
            }
            _ => Err(KitError::Descriptors(count, 3)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::fd::null;

    #[test]
    fn a_seat_is_put_together_as_it_was_taken_apart() {
        let fd = || null().unwrap();
        for bits in 0..8 {
            let [caught, asked, routed] = [1, 2, 4].map(|bit| bits & bit != 0);
            let seat = Seat {
                slot: 3,
                retire: fd(),
                output: caught.then(|| (fd(), fd())),
                questions: asked.then(fd),
                channel: routed.then(fd),
            };
            let numbers = seat.descriptors();
            assert_eq!(seat.is_routed(), routed);
            let (slot, descriptors) = seat.take_apart();
            let again = Seat::assemble(slot, routed, descriptors).unwrap();
            assert_eq!((again.slot, again.descriptors()), (3, numbers));
            assert_eq!(
                (
                    again.output.is_some(),
                    again.questions.is_some(),
                    again.is_routed()
                ),
                (caught, asked, routed)
            );
        }
        assert!(Seat::assemble(0, false, Vec::new()).is_err());
        assert!(Seat::assemble(0, false, (0..5).map(|_| fd()).collect()).is_err());
    }
}
