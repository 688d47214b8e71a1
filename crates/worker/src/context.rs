//! The settings and descriptors that a worker receives.

use super::restart_file::RestartMark;
use fastcgi::Repeated;
use forkyard_config::release::Map;
use forkyard_config::{LogLevel, Pool, sharing};
use forkyard_sys::fd::set_nonblocking;
use forkyard_sys::identity::{self, Identity};
use serde::{Deserialize, Serialize};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

/// Settings shared by a generation's workers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// The pool's configuration.
    pub pool: Arc<Pool>,
    /// The user of the workers; `None`: the master's.
    pub identity: Option<Identity>,
    /// When the generation started, in seconds since 1970.
    pub started: u64,
    /// Slots of the scoreboard.
    pub slots: u32,
    /// The soft and hard descriptor limits at the master's start.
    pub descriptor_limit: Option<(u64, u64)>,
    /// The longest log line with its newline, in bytes.
    pub log_limit: usize,
    /// The least severe level that is logged.
    #[serde(default = "default_log_level")]
    pub log_level: LogLevel,
    /// Requests between a worker's offers to become a preloader.
    #[serde(default)]
    pub refork_at: Option<u64>,
    /// The master's name for process titles (see [`forkyard_sys::title`]).
    #[serde(default)]
    pub process_name: String,
    /// `tmp/restart.txt` ([`Settings::restart_file`]) at the start of the generation.
    #[serde(default)]
    pub restart_mark: Option<RestartMark>,
    /// The generation's release; `None`: paths are as written.
    #[serde(default)]
    pub release: Option<Box<Map>>,
    /// Whether workers record faults ([`forkyard_sys::sender`]). php-fpm's workers leave these signals at their
    /// defaults, and so do forkyard-fpm's.
    #[serde(default)]
    pub records_faults: bool,
    /// Which of the pool's two turn queues is the generation's, if two generations may share the pool's requests.
    #[serde(default)]
    pub turn: Option<u8>,
}

/// The soft limit on descriptors.
pub(super) fn most_descriptors() -> usize {
    let soft = identity::most_descriptors().unwrap_or(0);
    usize::try_from(soft).unwrap_or(usize::MAX)
}

fn default_log_level() -> LogLevel {
    LogLevel::Notice
}

impl Settings {
    /// How repeated headers are combined. PHP gets the last one, as in php-fpm.
    pub(super) fn repeated(&self) -> Repeated {
        match self.pool.application.php() {
            Some(_) => Repeated::Replace,
            None => Repeated::JoinHeaders,
        }
    }
}

/// Settings and descriptors shared by a generation's workers.
#[derive(Debug)]
pub struct GenerationContext {
    /// The settings.
    pub settings: Settings,
    /// The pool's listening socket, non-blocking.
    pub listener: OwnedFd,
    /// Receives kept connections from the hand-off queue.
    pub queue_out: OwnedFd,
    /// Sends kept connections to the hand-off queue.
    pub queue_in: OwnedFd,
    /// The accept-notify pipe's write end, non-blocking.
    pub accept_notify: OwnedFd,
    /// Lines for the daemon's log, non-blocking.
    pub messages: OwnedFd,
    /// The scoreboard, to map the worker's own page.
    pub board_writable: OwnedFd,
    /// The scoreboard, read-only.
    pub board_readable: OwnedFd,
    /// The listening HTTP socket, non-blocking, if configured.
    pub http: Option<OwnedFd>,
    /// The pool's control group, for a zygote's workers, which may not open it themselves.
    pub group: Option<OwnedFd>,
    /// The ends of the lanes' two socket pairs; `None`: the pool has no lanes.
    pub lanes: Option<[OwnedFd; 4]>,
    /// The ends of the two turn queues, each out and in; `None`: no other generation shares the requests.
    pub turns: Option<[OwnedFd; 4]>,
    /// The access log (see [`forkyard_host::logs::Handout`]), if there is one.
    pub access: Option<OwnedFd>,
}

/// Without the optional ones.
const CONTEXT_DESCRIPTORS: usize = 7;

/// Descriptors of one worker.
#[derive(Debug)]
pub struct WorkerContext {
    /// Its scoreboard slot.
    pub slot: u32,
    /// Readable, or closed, when the worker must exit or the master is gone. A message socket if it also carries
    /// [`forkyard_protocol::stop_pipe::PROMOTE`].
    pub stop_pipe: OwnedFd,
    /// Standard output and error; `None`: /dev/null.
    pub output: Option<(OwnedFd, OwnedFd)>,
    /// The socket for questions about its calls; `None`: never asked.
    pub questions: Option<OwnedFd>,
    /// The router's channel ([`forkyard_protocol::channel`]); `None`: the worker accepts connections itself.
    pub channel: Option<OwnedFd>,
}

/// Why a context can't be built from a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ContextError {
    /// The wrong number of descriptors: actual, expected.
    #[error("{0} descriptors instead of {1}")]
    Descriptors(usize, usize),
}

impl GenerationContext {
    /// Makes the pool's sockets non-blocking again. The flag belongs to the open file, so code in any worker may have
    /// changed it.
    pub fn keep_accept_from_waiting(&self) {
        for listener in std::iter::once(&self.listener).chain(&self.http) {
            if let Err(error) = set_nonblocking(listener.as_fd(), true) {
                log::warn!("{error}");
            }
        }
    }

    /// The descriptors, in the order of [`GenerationContext::assemble`].
    pub fn descriptors(&self) -> Vec<RawFd> {
        let always = [
            &self.listener,
            &self.queue_out,
            &self.queue_in,
            &self.accept_notify,
            &self.messages,
            &self.board_writable,
            &self.board_readable,
        ];
        let lanes = self.lanes.iter().chain(&self.turns).flatten();
        let all = always
            .into_iter()
            .chain(&self.http)
            .chain(&self.group)
            .chain(lanes);
        all.chain(&self.access).map(AsRawFd::as_raw_fd).collect()
    }

    /// Splits it into the settings and the descriptors, in the order of [`GenerationContext::assemble`].
    pub fn take_apart(self) -> (Settings, Vec<OwnedFd>) {
        let mut descriptors = vec![
            self.listener,
            self.queue_out,
            self.queue_in,
            self.accept_notify,
            self.messages,
            self.board_writable,
            self.board_readable,
        ];
        descriptors.extend(self.http);
        descriptors.extend(self.group);
        descriptors.extend(self.lanes.into_iter().chain(self.turns).flatten());
        descriptors.extend(self.access);
        (self.settings, descriptors)
    }

    /// Builds a context.
    ///
    /// # Errors
    /// The wrong number of descriptors.
    pub fn assemble(
        settings: Settings,
        descriptors: Vec<OwnedFd>,
    ) -> Result<GenerationContext, ContextError> {
        let came = descriptors.len();
        let mut rest = descriptors.into_iter();
        GenerationContext::take(settings, &mut rest)
            .filter(|_| rest.next().is_none())
            .ok_or(ContextError::Descriptors(came, CONTEXT_DESCRIPTORS))
    }

    fn take(settings: Settings, rest: &mut impl Iterator<Item = OwnedFd>) -> Option<GenerationContext> {
        let has_http = settings.pool.http_listen.is_some();
        let has_group = needs_entrance(&settings.pool);
        let has_lanes = settings.pool.load.lanes.is_some();
        let has_turns = settings.turn.is_some();
        let mut next = || rest.next();
        Some(GenerationContext {
            settings,
            listener: next()?,
            queue_out: next()?,
            queue_in: next()?,
            accept_notify: next()?,
            messages: next()?,
            board_writable: next()?,
            board_readable: next()?,
            http: if has_http { Some(next()?) } else { None },
            group: if has_group { Some(next()?) } else { None },
            lanes: if has_lanes {
                Some([next()?, next()?, next()?, next()?])
            } else {
                None
            },
            turns: if has_turns {
                Some([next()?, next()?, next()?, next()?])
            } else {
                None
            },
            access: next(),
        })
    }
}

/// Whether the workers receive their control group's descriptor.
pub fn needs_entrance(pool: &Pool) -> bool {
    pool.confine.cgroup.is_some() && sharing::wants_zygote(pool)
}

impl WorkerContext {
    /// The descriptors, in the order of [`WorkerContext::assemble`].
    pub fn descriptors(&self) -> Vec<RawFd> {
        let output = self.output.as_ref().map(|(output, error)| [output, error]);
        let all = std::iter::once(&self.stop_pipe).chain(output.into_iter().flatten());
        let all = all.chain(&self.questions).chain(&self.channel);
        all.map(AsRawFd::as_raw_fd).collect()
    }

    /// Splits it into the slot and the descriptors, in the order of [`WorkerContext::assemble`].
    pub fn take_apart(self) -> (u32, Vec<OwnedFd>) {
        let output = self.output.map(|(output, error)| [output, error]);
        (
            self.slot,
            std::iter::once(self.stop_pipe)
                .chain(output.into_iter().flatten())
                .chain(self.questions)
                .chain(self.channel)
                .collect(),
        )
    }

    /// Whether a router gives it connections; its last descriptor is then the channel.
    pub fn is_routed(&self) -> bool {
        self.channel.is_some()
    }

    /// Builds a worker's context. The descriptors are: the stop pipe; standard output and error, if they are caught;
    /// the socket for questions, if used; the router's channel, if `is_routed`.
    ///
    /// # Errors
    /// The wrong number of descriptors.
    pub fn assemble(
        slot: u32,
        is_routed: bool,
        mut descriptors: Vec<OwnedFd>,
    ) -> Result<WorkerContext, ContextError> {
        let channel = is_routed.then(|| descriptors.pop()).flatten();
        let count = descriptors.len();
        let mut descriptors = descriptors.into_iter();
        match (count, descriptors.next()) {
            (1..=4, Some(stop_pipe)) => {
                let output = match count {
                    3.. => descriptors.next().zip(descriptors.next()),
                    _ => None,
                };
                Ok(WorkerContext {
                    slot,
                    stop_pipe,
                    output,
                    questions: descriptors.next(),
                    channel,
                })
            }
            _ => Err(ContextError::Descriptors(count, 3)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forkyard_sys::fd::null;

    #[test]
    fn a_seat_is_put_together_as_it_was_taken_apart() {
        let fd = || null().unwrap();
        for bits in 0..8 {
            let [caught, asked, routed] = [1, 2, 4].map(|bit| bits & bit != 0);
            let own = WorkerContext {
                slot: 3,
                stop_pipe: fd(),
                output: caught.then(|| (fd(), fd())),
                questions: asked.then(fd),
                channel: routed.then(fd),
            };
            let numbers = own.descriptors();
            assert_eq!(own.is_routed(), routed);
            let (slot, descriptors) = own.take_apart();
            let again = WorkerContext::assemble(slot, routed, descriptors).unwrap();
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
        assert!(WorkerContext::assemble(0, false, Vec::new()).is_err());
        assert!(WorkerContext::assemble(0, false, (0..5).map(|_| fd()).collect()).is_err());
    }
}
