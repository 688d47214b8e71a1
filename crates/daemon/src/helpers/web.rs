//! The web process: start, stop, and the numbers that it gets.

use crate::context::Context;
use crate::context::apply_error::ApplyError;
use crate::context::handover::Handover;
use crate::context::held_socket::HeldSocket;
use crate::context::held_socket::private;
use crate::context::helper::{own_user, zone};
use crate::context::helper_id::{HelperId, HelperStep};
use crate::context::helper_process::{HelperProcess, Pulse};
use crate::roles::Role;
use forkyard_base::tick::Tick;
use forkyard_config::{self as config, Config, FALLBACK_USER};
use forkyard_core::life::Rules;
use forkyard_core::master::event::PoolId;
use forkyard_protocol::handover::names;
use forkyard_protocol::web::{FromWeb, MOST_BYTES, ToWeb};
use forkyard_sys::fd::{copy, set_nonblocking, socket_pair};
use forkyard_sys::identity::{self, Identity};
use forkyard_sys::{Error, clock, memfile};
use forkyard_web::Numbers;
use nix::errno::Errno;
use nix::sys::socket::SockType;
use serde_json::Value;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

/// Only the daemon's user may connect.
const MODE: u32 = 0o600;
/// Messages in a turn of the loop.
const LOOKS: usize = 16;
const TITLE: &str = "forkyard: web";
/// The shortest time between two answers.
const INTERVAL: Duration = Duration::from_millis(100);
/// The longest, so that numbers are never old.
const LONGEST_INTERVAL: Duration = Duration::from_secs(5);
/// The master spends at most a tenth of its time on answers.
const SHARE: u32 = 9;

pub(crate) type Views = Vec<(PoolId, Value)>;

#[derive(Debug, Default)]
pub(crate) struct Web {
    settings: Option<config::Web>,
    held: HeldSocket,
    stage: Stage,
    /// No answer begins before.
    next: Option<Tick>,
}

/// The course of a question.
#[derive(Debug, Default)]
enum Stage {
    #[default]
    Quiet,
    /// The web process waits.
    Asked,
    /// The routers of application pools have not answered yet.
    Gathering,
    /// The routers have answered.
    Due(Views),
}

impl Web {
    pub(crate) fn prepare(&mut self, handover: &mut Handover, config: &Config) -> Result<(), ApplyError> {
        let wanted = config.global.web.as_ref();
        let listen = wanted.map(|wanted| private(wanted.address.clone(), MODE));
        self.held
            .prepare(handover, listen.as_ref())
            .map_err(ApplyError::WebListen)
    }

    pub(crate) fn give_up(&mut self) {
        self.held.give_up();
    }

    /// Follows the configuration in force. A process with other settings takes the place of the present one, which
    /// completes its answers.
    pub(crate) fn set(&mut self, context: &mut Context) {
        let is_other = self.held.take_up(&mut context.handover, names::WEB);
        let wanted = context.in_force.config.global.web.clone();
        if !is_other && wanted == self.settings {
            return;
        }
        self.settings = wanted;
        self.stage = Stage::Quiet;
        context.remove_helper(HelperId::Web);
        if self.settings.is_some() {
            context.helpers.want(HelperId::Web, None, Rules::ROUTER);
        }
    }

    pub(crate) fn socket(&self) -> Option<&std::os::fd::OwnedFd> {
        self.held.listener().map(|listener| &*listener.socket)
    }

    pub(crate) fn remove_file(&self) {
        self.held.remove_file();
    }

    pub(crate) fn follow_process(&mut self, context: &mut Context, step: HelperStep) -> Result<(), Error> {
        match step {
            HelperStep::Start => return self.start(context),
            HelperStep::Ask(_) => context.helpers.close_channel(HelperId::Web),
            HelperStep::Idle | HelperStep::Gone(_) => self.stage = Stage::Quiet,
        }
        Ok(())
    }

    fn start(&mut self, context: &mut Context) -> Result<(), Error> {
        let (Some(settings), Some(listener)) = (&self.settings, self.held.listener()) else {
            return Ok(());
        };
        self.stage = Stage::Quiet;
        let identity = match identity::is_root() {
            true => Some(own_user().map_or_else(|| Identity::look_up(FALLBACK_USER, None), Ok)?),
            false => None,
        };
        let (channel, theirs) = socket_pair(SockType::SeqPacket)?;
        let (messages, messages_in) = socket_pair(SockType::Stream)?;
        let (pulse, heartbeat) = socket_pair(SockType::Stream)?;
        set_nonblocking(theirs.as_fd(), true)?;
        let passed = vec![copy(&listener.socket)?, theirs, messages_in, heartbeat];
        let role = Role::Web {
            identity,
            hosts: settings.hosts.clone(),
        };
        let services = &context.services;
        let pid = services.start_helper(&context.in_force, TITLE.to_owned(), role, passed, zone())?;
        let mut process = HelperProcess::new(pid, channel, Some(messages));
        process.pulse = Some(Pulse::new(pid, pulse));
        context.helper_started(HelperId::Web, process)
    }

    /// Reads the process's questions, and merges several into one. Returns `true` if there may be more.
    pub(crate) fn hear(&mut self, context: &Context) -> bool {
        let mut buffer = [0; MOST_BYTES];
        for _ in 0..LOOKS {
            let Some(FromWeb::Numbers) = context.helpers.receive(HelperId::Web, &mut buffer) else {
                return false;
            };
            if matches!(self.stage, Stage::Quiet) {
                self.stage = Stage::Asked;
            }
        }
        true
    }

    /// When the next answer begins.
    pub(crate) fn deadline(&self) -> Option<Tick> {
        match self.stage {
            Stage::Asked => Some(self.next.unwrap_or(Tick::ZERO)),
            Stage::Quiet | Stage::Gathering | Stage::Due(_) => None,
        }
    }

    /// Whether to ask the routers now.
    pub(crate) fn begins(&mut self, now: Tick) -> bool {
        let is_time = self.deadline().is_some_and(|due| due <= now);
        if is_time {
            self.stage = Stage::Gathering;
        }
        is_time
    }

    /// The routers have answered, or their time is over.
    pub(crate) fn gathered(&mut self, views: Views) {
        if matches!(self.stage, Stage::Gathering) {
            self.stage = Stage::Due(views);
        }
    }

    pub(crate) fn is_due(&self) -> bool {
        matches!(self.stage, Stage::Due(_))
    }

    pub(crate) fn take_due(&mut self) -> Option<Views> {
        match std::mem::take(&mut self.stage) {
            Stage::Due(views) => Some(views),
            stage => {
                self.stage = stage;
                None
            }
        }
    }

    /// Sends the numbers, which the master has gathered since `begun`.
    pub(crate) fn send(&mut self, context: &Context, numbers: &Numbers, begun: Tick) {
        // Serialising plain values can't fail.
        let bytes = serde_json::to_vec(numbers).unwrap_or_default();
        let Some(process) = context.helpers.process(HelperId::Web) else {
            return;
        };
        let sent = memfile::sealed("forkyard-numbers", &bytes).and_then(|memory| {
            let now = clock::now();
            let interval = (now.since(begun) * SHARE).clamp(INTERVAL, LONGEST_INTERVAL);
            self.next = Some(now + interval);
            let fresh_ms = u64::try_from(interval.as_millis()).unwrap_or(0);
            process.send(&ToWeb::Numbers { fresh_ms }, &[memory.as_raw_fd()])
        });
        match sent {
            Ok(()) => {}
            Err(error) if matches!(error.errno, Errno::EPIPE | Errno::ECONNRESET) => {}
            // The next process asks again.
            Err(error) => {
                log::error!("the web process is killed because it can't get numbers: {error}");
                process.kill();
            }
        }
    }
}
