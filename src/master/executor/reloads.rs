//! What becomes of a reload: it is done when every new generation serves, and the old one takes up nothing more, or has
//! failed to.

use super::generation::Generation;
use super::pools::Changes;
use super::{Executor, Reload};
use crate::config::Skipped;
use crate::control::protocol::{Answer, Cause, Reloaded};
use crate::listen::Listener;
use crate::master::action::Fact;
use crate::master::event::{GenerationId, PoolId};
use crate::scoreboard::{Stage, census};
use crate::sys::invocation;
use crate::sys::socket::{self, Bound};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, AsRawFd, RawFd};

/// Names of pools in one line of the log.
const MOST_NAMES: usize = 10;
/// Arguments that php-fpm shows, its name among them.
const MOST_ARGUMENTS: usize = 11;

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

fn plain(list: &[String]) -> Vec<&str> {
    list.iter().map(String::as_str).collect()
}

fn causes(list: &[Cause]) -> Vec<&str> {
    list.iter().map(|cause| cause.pool.as_str()).collect()
}

/// A reload that is under way.
#[derive(Debug)]
pub(super) struct Progress {
    report: Reloaded,
    waits: BTreeMap<GenerationId, (PoolId, Cause)>,
    /// The generations that were replaced. A worker that waits may still take the connection that it is woken for when
    /// it is told to finish, so its end is waited for; one that is busy takes no other.
    replaced: BTreeSet<GenerationId>,
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
        let waits = changes
            .replaced
            .into_iter()
            .map(|(pool, generation, name, reason)| {
                log::debug!("[pool {name}] gets new workers: {reason}");
                let cause = Cause {
                    pool: name,
                    reason: reason.to_string(),
                };
                (generation, (pool, cause))
            })
            .collect();
        let bound_again = changes.bound_again.into_iter().map(|pool| Cause {
            pool,
            reason: "its socket's file was gone".to_owned(),
        });
        let failed = changes.failed.into_iter();
        self.reload.under_way = Some(Progress {
            report: Reloaded {
                replaced: bound_again.collect(),
                failed: failed.map(|(pool, reason)| Cause { pool, reason }).collect(),
                added: changes.added,
                kept: changes.kept,
                removed: changes.removed,
                skipped: changes.skipped,
            },
            waits,
            replaced: BTreeSet::new(),
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
        self.follow_reload(fact);
        self.pools.note(fact);
    }

    /// What has happened to a generation that the reload waits for. Before it is noted which generation serves.
    fn follow_reload(&mut self, fact: Fact) {
        let Some(reload) = &mut self.reload.under_way else {
            return;
        };
        let failed = match fact {
            Fact::Serves(id) => {
                if let Some((pool, cause)) = reload.waits.remove(&id) {
                    reload.report.replaced.push(cause);
                    let before = self.pools.by_id.get(&pool).and_then(|pool| pool.serving);
                    reload.replaced.extend(before.filter(|before| *before != id));
                }
                return;
            }
            Fact::Fails(id) => Some(id),
            Fact::Gone(_) => None,
        };
        let Some((id, (_, cause))) = failed.and_then(|id| Some((id, reload.waits.remove(&id)?))) else {
            return;
        };
        let said = self.processes.last_words(id);
        let reason = format!("no new worker came up{said}; the old ones serve, and it is tried again");
        if let Some(reload) = &mut self.reload.under_way {
            let pool = cause.pool;
            reload.report.failed.push(Cause { pool, reason });
        }
    }

    /// Tells of the reload if it is done.
    pub(in crate::master) fn finish_reload(&mut self) {
        let generations = &self.pools.generations;
        let is_done = |reload: &mut Progress| {
            let takes_up = |id: &GenerationId| generations.get(id).is_some_and(has_waiting_worker);
            if reload.waits.is_empty() {
                reload.replaced.retain(takes_up);
            }
            reload.waits.is_empty() && reload.replaced.is_empty()
        };
        let Some(reload) = self.reload.under_way.take_if(is_done) else {
            return;
        };
        let report = reload.report;
        let names = |what: &str, names: Vec<&str>| match names.len() {
            0 => String::new(),
            count if count > MOST_NAMES => format!("; {what}: {count} pools"),
            _ => format!("; {what}: {}", names.join(", ")),
        };
        let skipped: Vec<String> = report.skipped.iter().map(Skipped::name).collect();
        let is_complete = report.failed.is_empty() && skipped.is_empty();
        let level = match (is_complete, self.context.speaks_as_fpm) {
            (true, true) => log::Level::Debug,
            (true, false) => log::Level::Info,
            (false, _) => log::Level::Warn,
        };
        log::log!(
            level,
            "reload done{}{}{}{}{}{}",
            names("replaced", causes(&report.replaced)),
            names("added", plain(&report.added)),
            names("removed", plain(&report.removed)),
            names("nothing changed for", plain(&report.kept)),
            names("failed, and tried again", causes(&report.failed)),
            names("skipped", plain(&skipped)),
        );
        if self.context.speaks_as_fpm && report.failed.is_empty() {
            say_as_fpm(&reload.sockets);
        }
        if let Some(asker) = reload.asker {
            self.answer(asker, &Answer::Reloaded(Box::new(report)));
        }
    }
}

impl Reload {
    pub(super) fn is_reloading(&self) -> bool {
        self.under_way.is_some()
    }

    /// A generation is gone: nobody need wait for it.
    pub(super) fn forget_reload_of(&mut self, id: GenerationId) {
        if let Some(reload) = &mut self.under_way {
            if let Some((_, cause)) = reload.waits.remove(&id) {
                let reason = "it was given up".to_owned();
                let pool = cause.pool;
                reload.report.failed.push(Cause { pool, reason });
            }
        }
    }
}
