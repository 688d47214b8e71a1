//! The configuration in force, its reload ([`ReloadProgress`] decides when it is done), and the single pool that a
//! worker asks to restart (`pool_to_restart`).

pub(crate) mod compare;
pub(crate) mod prepare;
pub(crate) mod sockets;
pub(crate) mod watch;

use crate::context::Context;
use crate::context::generation::Generation;
use crate::context::named_socket::NamedSocket;
use crate::context::pools::Pools;
use crate::context::services::Services;
use crate::workers::last_connection::{LAST_CONNECTION, takes_up, waiting_workers};
use forkyard_base::tick::Tick;
use forkyard_core::master::action::Fact;
use forkyard_core::master::event::{GenerationId, PoolId};
use forkyard_core::master::pool_restart::{RestartRequest, RestartRequests, Situation};
use forkyard_core::master::reload_plan::Changes;
use forkyard_core::master::reload_progress::{self, ReloadProgress};
use forkyard_protocol::accept_notify::RestartReason;
use forkyard_protocol::control::{Answer, millis};
use forkyard_protocol::last_reload::{LastReload, ReloadCause};
use forkyard_protocol::past_event::{EventKind, Happening};
use forkyard_sys::{clock, invocation};
use forkyard_worker::RestartMark;
use std::time::Duration;

/// The arguments that php-fpm prints, with its name.
const MOST_ARGUMENTS: usize = 11;

#[derive(Debug, Default)]
pub(crate) struct Reload {
    pub(crate) under_way: Option<UnderWay>,
    pub(crate) restarts: RestartRequests,
}

const JUDGED_AGAIN: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct UnderWay {
    progress: ReloadProgress,
    sockets: Vec<NamedSocket>,
    asker: Option<u64>,
    /// Why the configuration was read; `None` if it was not read again.
    by: Option<ReloadCause>,
    begun: Tick,
}

/// Logs the interval of status notifications, as php-fpm does even without a service manager.
pub(crate) fn say_interval(interval: Option<Duration>) {
    match interval {
        Some(interval) => log::info!("systemd monitor interval set to {}ms", interval.as_millis()),
        None => log::info!("systemd monitor disabled"),
    }
}

/// php-fpm's lines of an exec and a new master. Programs wait for them, although this master stays.
fn say_as_fpm(sockets: &[NamedSocket], interval: Option<Duration>) {
    let started = invocation::get().into_iter().flat_map(|it| &it.arguments);
    let quoted = started.map(|argument| format!("\"{}\"", argument.to_string_lossy()));
    let quoted: Vec<String> = quoted.take(MOST_ARGUMENTS).collect();
    let program = quoted.first().cloned().unwrap_or_default();
    log::info!("reloading: execvp({program}, {{{}}})", quoted.join(", "));
    for (fd, name) in sockets {
        log::info!("using inherited socket fd={fd}, \"{name}\"");
    }
    log::info!("fpm is running, pid {}", std::process::id());
    log::info!("ready to handle connections");
    say_interval(interval);
}

impl UnderWay {
    /// The event of its end.
    fn event(&self, result: &str) -> Happening {
        let what = match self.by {
            Some(by) => Happening::of_daemon(EventKind::Reload, format!("{}: {result}", by.in_words())),
            None => Happening::of_daemon(EventKind::Restart, format!("new processes: {result}")),
        };
        what.lasting(self.took_ms())
    }

    fn took_ms(&self) -> u64 {
        millis(clock::now().since(self.begun))
    }
}

impl Reload {
    /// Begins to follow a reload. Must run before the core learns of it.
    pub(crate) fn begin(
        &mut self,
        services: &mut Services,
        changes: Changes,
        sockets: Vec<NamedSocket>,
        asker: Option<u64>,
        by: Option<ReloadCause>,
    ) {
        if let Some(before) = self.under_way.take() {
            let message = "another reload came before everything was up";
            services.record(before.event(message));
            if let Some(asker) = before.asker {
                services.answer(asker, Answer::refusal(message.to_owned()));
            }
        }
        for (_, _, name, reason) in &changes.replaced {
            log::debug!("[pool {name}] gets new workers: {reason}");
        }
        self.under_way = Some(UnderWay {
            progress: ReloadProgress::new(changes),
            sockets,
            asker,
            by,
            begun: clock::now(),
        });
    }

    pub(crate) fn note(&mut self, context: &mut Context, fact: Fact) {
        if let Some(reload) = &mut self.under_way {
            let pools = &context.pools.by_id;
            let serving = |id| pools.get(&id).and_then(|pool| pool.serving);
            let said = |id| context.pools.report_named(id) + &context.processes.last_lines(id);
            reload.progress.note(fact, serving, said);
        }
    }

    pub(crate) fn deadline(&self, pools: &Pools) -> Option<Tick> {
        let judged = (!self.restarts.is_empty()).then(|| clock::now() + JUDGED_AGAIN);
        judged.into_iter().chain(self.reload_deadline(pools)).min()
    }

    /// Returns the pool to restart because a worker asks for it, and the reason.
    pub(crate) fn pool_to_restart(
        &mut self,
        pools: &Pools,
        is_ending: bool,
    ) -> Option<(PoolId, RestartReason)> {
        let mut restarts = std::mem::take(&mut self.restarts);
        let next = restarts.next(clock::now(), |request| self.situation(pools, request, is_ending));
        self.restarts = restarts;
        let (pool, why) = next?;
        let name = &pools.by_id.get(&pool)?.name;
        log::info!("[pool {name}] {why}: it gets new processes");
        if why == RestartReason::CodeFull {
            log::warn!(
                "[pool {name}] an OPcache that is full keeps no more code: raise opcache.memory_consumption or \
                 opcache.max_accelerated_files if that comes again"
            );
        }
        Some((pool, why))
    }

    fn situation(
        &self,
        pools: &Pools,
        request: RestartRequest,
        is_daemon_ending: bool,
    ) -> Option<(PoolId, Situation)> {
        let RestartRequest {
            generation: id,
            why,
            since,
        } = request;
        let generation = pools.generations.get(&id)?;
        let pool = pools.by_id.get(&generation.pool)?;
        // A pool without a listener is an application's, which its router restarts.
        pool.listener.as_ref()?;
        let latest_id = pool.latest?;
        let latest = pools.generations.get(&latest_id)?;
        let (latest, began) = (&latest.settings, latest.began);
        let php = latest.pool.application.php();
        let is_reloading = self.is_reloading();
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
            has_release: latest.release.is_some(),
            boots_once: php.is_some_and(|php| php.worker.is_some()),
            is_older: began.is_none_or(|began| forkyard_protocol::accept_notify::is_older(began, since)),
        };
        Some((generation.pool, situation))
    }

    fn reload_deadline(&self, pools: &Pools) -> Option<Tick> {
        self.under_way.as_ref()?;
        let now = clock::now();
        let generations = pools.generations.values();
        let told = generations.flat_map(|generation| waiting_workers(pools, generation));
        let due = told.filter_map(|(_, told)| Some(told? + LAST_CONNECTION));
        due.filter(|due| *due > now).min()
    }

    pub(crate) fn finish(&mut self, context: &mut Context) {
        let pools = &context.pools;
        let is_taking = |id: GenerationId| {
            let Some(generation) = pools.generations.get(&id) else {
                return false;
            };
            if takes_up(pools, generation) {
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
        let done = self.under_way.take_if(|it| it.progress.is_done(is_taking));
        let Some(reload) = done else {
            return;
        };
        let (line, took_ms) = (reload.progress.line(), reload.took_ms());
        context.services.record(reload.event(&line));
        let report = reload.progress.into_report();
        let level = match (
            reload_progress::is_complete(&report),
            context.services.speaks_as_fpm,
        ) {
            (true, true) => log::Level::Debug,
            (true, false) => log::Level::Info,
            (false, _) => log::Level::Warn,
        };
        log::log!(level, "{line}");
        if context.services.speaks_as_fpm && report.failed.is_empty() {
            say_as_fpm(&reload.sockets, context.in_force.config.global.systemd_interval);
        }
        if let Some(by) = reload.by {
            let last = LastReload::over(clock::epoch_seconds(), by, &report);
            context.handover.remember_reload(last.lasting(took_ms));
        }
        if let Some(asker) = reload.asker {
            let answer = Answer::Reloaded(Box::new(report));
            context.services.answer(asker, answer);
        }
    }

    pub(crate) fn is_reloading(&self) -> bool {
        self.under_way.is_some()
    }

    pub(crate) fn forget_reload_of(&mut self, id: GenerationId) {
        if let Some(reload) = &mut self.under_way {
            reload.progress.forget(id);
        }
    }
}
