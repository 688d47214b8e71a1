use super::effect::Effect;
use super::sources::{Source, Sources};
use forkyard_config::{self as config, Config, Descriptors};
use forkyard_core::master::action::ExitOutcome;
use forkyard_core::master::event::Event;
use forkyard_host::confine::GroupParent;
use forkyard_host::logs::Log;
use forkyard_protocol::control::Answer;
use forkyard_protocol::past_event::Happening;
use forkyard_sys::fd;
use forkyard_worker::Runtime;
use std::cell::OnceCell;
use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;

/// The functions that serve pools with `runtime = "rust"`, by pool name.
pub type Handlers = HashMap<String, Box<dyn Runtime>>;

pub(crate) struct Services {
    pub(crate) log: &'static Log,
    pub(crate) handlers: Handlers,
    pub(crate) libexec: PathBuf,
    pub(crate) descriptor_limit: Option<(u64, u64)>,
    /// Whether the log has only php-fpm's words where php-fpm has a line.
    pub(crate) speaks_as_fpm: bool,
    pub(crate) sources: Sources,
    pub(crate) again: Vec<Source>,
    pub(crate) told_of_room: Option<(u64, Descriptors)>,
    /// A keeper or a service manager starts another master if this one is killed.
    pub(crate) is_followed: bool,
    /// The parent of control groups, for pools that name none; found at the first use.
    pub(crate) group_parent: OnceCell<GroupParent>,
    /// Effects of one part on others, until the executor routes them.
    pub(crate) effects: VecDeque<Effect>,
    pub(crate) happened: VecDeque<Event>,
    pub(crate) outcome: Option<ExitOutcome>,
}

impl Services {
    /// Tells the core.
    pub(crate) fn tell(&mut self, event: Event) {
        self.happened.push_back(event);
    }

    /// Tells the other parts.
    pub(crate) fn cause(&mut self, effect: Effect) {
        self.effects.push_back(effect);
    }

    /// Keeps an event in the history.
    pub(crate) fn record(&mut self, what: Happening) {
        self.cause(Effect::Happened(Box::new(what)));
    }

    /// Answers a request on the control socket.
    pub(crate) fn answer(&mut self, asker: u64, answer: Answer) {
        self.cause(Effect::Answered(asker, Box::new(answer)));
    }

    /// Raises the descriptor limit to the need of a configuration, or warns that it is too low.
    pub(crate) fn make_room(&mut self, config: &Config) {
        let needed = config::descriptors(config);
        let Ok(limit) = fd::raise_descriptor_limit_to(needed.used) else {
            return;
        };
        if limit >= needed.used || self.told_of_room == Some((limit, needed)) {
            return;
        }
        self.told_of_room = Some((limit, needed));
        let (pools, Descriptors { least, used, .. }) = (config.pools.len(), needed);
        log::warn!(
            "the limit of open files is {limit}: {pools} pools need {least} when none is used, and {used} when each has a \
             worker; raise it (LimitNOFILE= in the unit, ulimit -n)"
        );
    }
}
