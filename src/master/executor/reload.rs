//! The configuration in force, its reload ([`ReloadProgress`] decides when it is done), and the single pool that a
//! worker asks to restart (`pool_to_restart`).

use super::generation::Generation;
use super::{Executor, Pools, start_source};
use crate::config::{Address, Config, Pool};
use crate::control::last_reload::{LastReload, ReloadCause};
use crate::control::protocol::Answer;
use crate::listen::{Listener, local_address};
use crate::master::action::Fact;
use crate::master::event::{Event, GenerationId, PoolId, WorkerId};
use crate::master::pool_restart::{self, RestartReason, RestartRequest, RestartRequests, Situation};
use crate::master::reload_diff::ReloadScope;
use crate::master::reload_plan::Changes;
use crate::master::reload_progress::{self, ReloadProgress};
use crate::master::service::say_interval;
use crate::scoreboard::{RequestStage, slot_reader};
use crate::sys::socket::Bound;
use crate::sys::{clock, invocation};
use crate::tick::Tick;
use crate::worker::RestartMark;
use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

/// The arguments that php-fpm prints, with its name.
const MOST_ARGUMENTS: usize = 11;

#[derive(Debug)]
pub(in crate::master) struct Reload {
    pub(super) config: Config,
    positions: HashMap<String, usize>,
    pub(super) starts: start_source::Starts,
    pub(super) last: Option<LastReload>,
    pub(super) under_way: Option<UnderWay>,
    pub(super) count: u64,
    pub(super) restarts: RestartRequests,
}

const JUDGED_AGAIN: Duration = Duration::from_secs(1);

/// The longest wait for a worker that is idle after its signal to finish: the pool's code can make accept(2) block
/// (O_NONBLOCK belongs to the socket, which all processes share).
const LAST_CONNECTION: Duration = Duration::from_secs(5);

fn waiting_workers<'p>(
    pools: &'p Pools,
    generation: &'p Generation,
) -> impl Iterator<Item = (WorkerId, Option<Tick>)> + 'p {
    let waits = |slot: u32| {
        let page = generation.page(slot);
        page.is_some_and(|page| slot_reader::stage(page) == RequestStage::Accepting)
    };
    let waiting = generation.slots.iter().filter(move |(slot, _)| waits(**slot));
    waiting.map(|(_, id)| {
        let worker = pools.workers.get(id);
        (*id, worker.and_then(|worker| worker.told).map(|(_, when)| when))
    })
}

#[derive(Debug)]
pub(super) struct UnderWay {
    progress: ReloadProgress,
    sockets: Vec<NamedSocket>,
    asker: Option<u64>,
    /// Why the configuration was read; `None` if it was not read again.
    by: Option<ReloadCause>,
}

/// A listening socket: its descriptor, and php-fpm's name for it.
pub(in crate::master) type NamedSocket = (RawFd, String);

fn named(listener: &Listener) -> NamedSocket {
    let socket = listener.socket.as_fd();
    let bound = match &listener.address {
        Address::Tcp(address) => Some(Bound::Port(*address)),
        Address::Unix(path) => Some(Bound::Path(path.clone())),
        Address::TcpAny(_) => local_address(socket),
    };
    let name = match bound {
        // Without brackets around an IPv6 address.
        Some(Bound::Port(address)) => format!("{}:{}", address.ip(), address.port()),
        Some(Bound::Path(path)) => path.display().to_string(),
        None => String::new(),
    };
    (socket.as_raw_fd(), name)
}

/// php-fpm's lines of an exec and a new master. Programs wait for them, although this master stays.
fn say_as_fpm(sockets: &[NamedSocket], interval: Option<Duration>) {
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
    say_interval(interval);
}

impl Executor {
    /// Begins to follow a reload. Must run before the core learns of it.
    pub(in crate::master) fn begin_reload(
        &mut self,
        changes: Changes,
        sockets: Vec<NamedSocket>,
        asker: Option<u64>,
        by: Option<ReloadCause>,
    ) {
        if let Some(asker) = self.reload.under_way.take().and_then(|reload| reload.asker) {
            let message = "another reload came before everything was up".to_owned();
            self.answer(asker, &Answer::refusal(message));
        }
        for (_, _, name, reason) in &changes.replaced {
            log::debug!("[pool {name}] gets new workers: {reason}");
        }
        self.reload.under_way = Some(UnderWay {
            progress: ReloadProgress::new(changes),
            sockets,
            asker,
            by,
        });
    }

    pub(in crate::master) fn remember_reload(&mut self, last: LastReload) {
        self.reload.last = Some(last);
        self.handover.last_reload_changed();
    }

    pub(super) fn renew(&mut self) {
        let sockets = self.named_sockets();
        match self.prepare(self.reload.config.clone(), ReloadScope::All) {
            Ok((wanted, changes)) => {
                self.begin_reload(changes, sockets, None, None);
                self.context.happened.push_back(Event::Apply(wanted));
            }
            Err(error) => log::error!("the old processes stay: {error}"),
        }
    }

    /// All pools' listening sockets, in the configuration's order.
    pub(in crate::master) fn named_sockets(&self) -> Vec<NamedSocket> {
        let mut sockets = Vec::new();
        for wanted in &self.reload.config.pools {
            let Some((id, pool)) = self.pools.by_id.of(&wanted.name).next() else {
                continue;
            };
            sockets.extend(pool.listener.as_ref().map(named));
            sockets.extend(
                self.helpers
                    .reporters
                    .get(&id)
                    .map(|reporter| named(&reporter.listener)),
            );
        }
        sockets
    }

    pub(super) fn note(&mut self, fact: Fact) {
        if let Some(reload) = &mut self.reload.under_way {
            let pools = &self.pools.by_id;
            let serving = |id| pools.get(&id).and_then(|pool| pool.serving);
            let said = |id| self.pools.report_named(id) + &self.processes.last_lines(id);
            reload.progress.note(fact, serving, said);
        }
        if let Fact::Serves(id) = fact {
            self.program_takes_over(id);
        }
        self.pools.note(fact);
    }

    pub(super) fn restart_deadline(&self) -> Option<Tick> {
        (!self.reload.restarts.is_empty()).then(|| clock::now() + JUDGED_AGAIN)
    }

    /// The pool to restart because a worker asks for it.
    pub(in crate::master) fn pool_to_restart(&mut self, is_ending: bool) -> Option<PoolId> {
        let mut restarts = std::mem::take(&mut self.reload.restarts);
        let next = restarts.next(clock::now(), |request| self.situation(request, is_ending));
        self.reload.restarts = restarts;
        let (pool, why) = next?;
        let name = &self.pools.by_id.get(&pool)?.name;
        log::info!("[pool {name}] {why}: it gets new processes");
        if why == RestartReason::CodeFull {
            log::warn!(
                "[pool {name}] an OPcache that is full keeps no more code: raise opcache.memory_consumption or \
                 opcache.max_accelerated_files if that comes again"
            );
        }
        Some(pool)
    }

    fn situation(&self, request: RestartRequest, is_daemon_ending: bool) -> Option<(PoolId, Situation)> {
        let RestartRequest {
            generation: id,
            why,
            since,
        } = request;
        let generation = self.pools.generations.get(&id)?;
        let pool = self.pools.by_id.get(&generation.pool)?;
        // A pool without a listener is an application's, which its router restarts.
        pool.listener.as_ref()?;
        let latest_id = pool.latest?;
        let latest = self.pools.generations.get(&latest_id)?;
        let (latest, began) = (&latest.settings, latest.began);
        let is_reloading = self.reload.is_reloading();
        // Read only if needed: the disk may be slow.
        let is_touched = || {
            let mark = latest.restart_file().and_then(|path| RestartMark::of(&path));
            mark.is_some() && mark != latest.restart_mark
        };
        let reads = why == RestartReason::RestartFile && !is_daemon_ending && !is_reloading;
        let situation = Situation {
            is_daemon_ending,
            is_reloading,
            is_young: latest.started >= Generation::started_now(),
            is_latest: latest_id == id && pool.serving == Some(id),
            is_limited: latest.pool.application.program().is_some()
                && (latest.pool.retirement.max_requests.is_some()
                    || latest.pool.retirement.memory_limit.is_some()),
            is_touched: reads && is_touched(),
            boots_once: latest
                .pool
                .application
                .php()
                .is_some_and(|php| php.worker.is_some()),
            is_older: began.is_none_or(|began| pool_restart::is_older(began, since)),
        };
        Some((generation.pool, situation))
    }

    pub(super) fn reload_deadline(&self) -> Option<Tick> {
        self.reload.under_way.as_ref()?;
        let now = clock::now();
        let generations = self.pools.generations.values();
        let told = generations.flat_map(|generation| waiting_workers(&self.pools, generation));
        let due = told.filter_map(|(_, told)| Some(told? + LAST_CONNECTION));
        due.filter(|due| *due > now).min()
    }

    pub(in crate::master) fn finish_reload(&mut self) {
        let (pools, now) = (&self.pools, clock::now());
        let takes_up = |id: GenerationId| {
            let Some(generation) = pools.generations.get(&id) else {
                return false;
            };
            let is_late = |told: Option<Tick>| told.is_some_and(|told| now.since(told) >= LAST_CONNECTION);
            if waiting_workers(pools, generation).any(|(_, told)| !is_late(told)) {
                return true;
            }
            for (worker, _) in waiting_workers(pools, generation) {
                let (pool, pid) = pools.name_worker(worker);
                log::warn!(
                    "[pool {pool}] child {pid} is idle on a connection {LAST_CONNECTION:?} after its signal to \
                     finish: the reload does not wait for it"
                );
            }
            false
        };
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
            say_as_fpm(&reload.sockets, self.reload.config.global.systemd_interval);
        }
        if let Some(by) = reload.by {
            self.remember_reload(LastReload::over(clock::epoch_seconds(), by, &report));
        }
        if let Some(asker) = reload.asker {
            self.answer(asker, &Answer::Reloaded(Box::new(report)));
        }
    }
}

impl Reload {
    pub(super) fn new(config: Config) -> Reload {
        Reload {
            positions: positions(&config),
            config,
            starts: start_source::Starts::default(),
            last: None,
            under_way: None,
            count: 0,
            restarts: RestartRequests::default(),
        }
    }

    pub(super) fn take(&mut self, config: Config) {
        self.positions = positions(&config);
        self.config = config;
    }

    pub(super) fn pool(&self, name: &str) -> Option<&Arc<Pool>> {
        self.config.pools.get(*self.positions.get(name)?)
    }

    /// The last reload, if the written configuration is not in force.
    pub(in crate::master) fn trouble(&self) -> Option<&LastReload> {
        self.last.as_ref().filter(|last| !last.is_done())
    }

    pub(super) fn is_reloading(&self) -> bool {
        self.under_way.is_some()
    }

    pub(super) fn forget_reload_of(&mut self, id: GenerationId) {
        if let Some(reload) = &mut self.under_way {
            reload.progress.forget(id);
        }
    }
}

fn positions(config: &Config) -> HashMap<String, usize> {
    let named = config.pools.iter().enumerate();
    named
        .map(|(position, pool)| (pool.name.clone(), position))
        .collect()
}
