//! The configuration in force, and the reload that brought it ([`Progress`] decides when that is done).

use super::generation::Generation;
use super::{Executor, starts};
use crate::config::Config;
use crate::control::protocol::Answer;
use crate::listen::Listener;
use crate::master::action::Fact;
use crate::master::event::GenerationId;
use crate::master::reload_plan::Changes;
use crate::master::reload_progress::{self, Progress};
use crate::scoreboard::{Stage, census};
use crate::sys::invocation;
use crate::sys::socket::{self, Bound};
use std::os::fd::{AsFd, AsRawFd, RawFd};

/// Arguments that php-fpm shows, its name among them.
const MOST_ARGUMENTS: usize = 11;

/// The configuration in force, and what becomes of the reload that brought it.
#[derive(Debug)]
pub(in crate::master) struct Reload {
    pub(super) config: Config,
    /// What PHP was started from at the daemon's start or its last reload.
    pub(super) starts: starts::Starts,
    /// The last reload, as long as it is not done.
    pub(super) under_way: Option<UnderWay>,
    /// How often a configuration was prepared.
    pub(super) count: u64,
}

/// Whether a worker waits for a connection, as far as it says.
fn has_waiting_worker(generation: &Generation) -> bool {
    let Some(resources) = &generation.resources else {
        return false;
    };
    let mut pages = generation
        .seats
        .keys()
        .filter_map(|slot| resources.board.slot(*slot as usize));
    pages.any(|page| census::stage(page) == Stage::Accepting)
}

/// A reload that is under way.
#[derive(Debug)]
pub(super) struct UnderWay {
    progress: Progress,
    /// The sockets that the daemon had before.
    sockets: Vec<NamedSocket>,
    /// Who wants to know.
    asker: Option<u64>,
}

/// A listening socket: its descriptor, and what php-fpm calls it.
pub(in crate::master) type NamedSocket = (RawFd, String);

fn named(listener: &Listener) -> NamedSocket {
    let socket = listener.socket.as_fd();
    let name = match socket::local_address(socket) {
        // Without brackets around an IPv6 address.
        Some(Bound::Port(address)) => format!("{}:{}", address.ip(), address.port()),
        Some(Bound::Path(path)) => path.display().to_string(),
        None => String::new(),
    };
    (socket.as_raw_fd(), name)
}

/// What php-fpm says while it executes itself anew, and then as a new master. Programs wait for these lines, though this
/// master has stayed.
fn say_as_fpm(sockets: &[NamedSocket]) {
    let started = invocation::get()
        .map(|it| it.arguments.as_slice())
        .unwrap_or_default();
    let quoted: Vec<String> = started
        .iter()
        .take(MOST_ARGUMENTS)
        .map(|argument| format!("\"{}\"", argument.to_string_lossy()))
        .collect();
    let program = quoted.first().cloned().unwrap_or_default();
    log::info!("reloading: execvp({program}, {{{}}})", quoted.join(", "));
    for (fd, name) in sockets {
        log::info!("using inherited socket fd={fd}, \"{name}\"");
    }
    log::info!("fpm is running, pid {}", std::process::id());
    log::info!("ready to handle connections");
}

impl Executor {
    /// Begins to look after a reload. Before the core is told of it.
    pub(in crate::master) fn begin_reload(
        &mut self,
        changes: Changes,
        sockets: Vec<NamedSocket>,
        asker: Option<u64>,
    ) {
        if let Some(asker) = self.reload.under_way.take().and_then(|reload| reload.asker) {
            self.answer(
                asker,
                &Answer::Error {
                    message: "another reload came before everything was up".to_owned(),
                    errors: Vec::new(),
                },
            );
        }
        for (_, _, name, reason) in &changes.replaced {
            log::debug!("[pool {name}] gets new workers: {reason}");
        }
        self.reload.under_way = Some(UnderWay {
            progress: Progress::new(changes),
            sockets,
            asker,
        });
    }

    /// The listening sockets of all pools, in the order in which the configuration has them.
    pub(in crate::master) fn named_sockets(&self) -> Vec<NamedSocket> {
        let mut sockets = Vec::new();
        for wanted in &self.reload.config.pools {
            let pool = self.pools.by_id.iter().find(|(_, pool)| pool.name == wanted.name);
            let Some((id, pool)) = pool else { continue };
            sockets.extend(pool.listener.as_ref().map(named));
            sockets.extend(
                self.helpers
                    .reporters
                    .get(id)
                    .map(|reporter| named(&reporter.listener)),
            );
        }
        sockets
    }

    /// Notes a fact, for the reload that is under way and for the next one.
    pub(super) fn note(&mut self, fact: Fact) {
        if let Some(reload) = &mut self.reload.under_way {
            let pools = &self.pools.by_id;
            let serving = |id| pools.get(&id).and_then(|pool| pool.serving);
            let said = |id| self.processes.last_words(id);
            reload.progress.note(fact, serving, said);
        }
        self.pools.note(fact);
    }

    /// Tells of the reload if it is done.
    pub(in crate::master) fn finish_reload(&mut self) {
        let generations = &self.pools.generations;
        let takes_up = |id: GenerationId| generations.get(&id).is_some_and(has_waiting_worker);
        let done = self.reload.under_way.take_if(|it| it.progress.is_done(takes_up));
        let Some(reload) = done else {
            return;
        };
        let report = reload.progress.into_report();
        let level = match (reload_progress::is_complete(&report), self.context.speaks_as_fpm) {
            (true, true) => log::Level::Debug,
            (true, false) => log::Level::Info,
            (false, _) => log::Level::Warn,
        };
        log::log!(level, "{}", reload_progress::line(&report));
        if self.context.speaks_as_fpm && report.failed.is_empty() {
            say_as_fpm(&reload.sockets);
        }
        if let Some(asker) = reload.asker {
            self.answer(asker, &Answer::Reloaded(Box::new(report)));
        }
    }
}

impl Reload {
    /// Nothing was prepared yet.
    pub(super) fn new(config: Config) -> Reload {
        Reload {
            config,
            starts: starts::Starts::default(),
            under_way: None,
            count: 0,
        }
    }

    pub(super) fn is_reloading(&self) -> bool {
        self.under_way.is_some()
    }

    /// A generation is gone: nobody need wait for it.
    pub(super) fn forget_reload_of(&mut self, id: GenerationId) {
        if let Some(reload) = &mut self.under_way {
            reload.progress.forget(id);
        }
    }
}
