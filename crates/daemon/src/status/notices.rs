//! Words the core's notices, with php-fpm's words where it has them.

use crate::context::pools::Pools;
use crate::context::processes::Reported;
use crate::context::processes::{Death, how};
use crate::context::{Context, InForce};
use crate::preloaders::Preloaders;
use crate::programs::Programs;
use forkyard_config::ProcessManager;
use forkyard_core::master::action::Notice;
use forkyard_core::master::crash_cause::EndedBy;
use forkyard_core::master::event::{Ended, GenerationId, PoolId, WorkerId};
use nix::sys::signal::Signal;
use std::time::Duration;

pub(crate) fn say(
    context: &mut Context,
    preloaders: &Preloaders,
    programs: &Programs,
    is_reloading: bool,
    notice: &Notice,
) {
    context.record_notice(notice);
    let Context {
        services,
        in_force,
        processes,
        pools,
        ..
    } = context;
    // A worker and its request: `[pool www] child 12, script '/x.php' (request: "GET /x.php")`.
    let child = |worker: WorkerId| {
        let (pool, pid) = pools.name_worker(worker);
        format!("[pool {pool}] child {pid}{}", pools.request_of(worker))
    };
    match notice {
        Notice::MaxChildrenReached(pool, max) if pools.has_autopilot(*pool) => log::info!(
            "[pool {}] all {max} workers that the autopilot allows are needed",
            pools.pool_name(*pool)
        ),
        Notice::MaxChildrenReached(pool, max) => log::warn!(
            "[pool {}] server reached {}max_children setting ({max}), consider raising it",
            pools.pool_name(*pool),
            pools.prefix_of_settings(in_force, *pool)
        ),
        // php-fpm has no line for it.
        Notice::MaxChildrenOver(_) => {}
        Notice::ProcessMaxReached(_) => log::warn!(
            "The maximum number of processes has been reached. Please review your configuration and consider raising \
             'process.max'"
        ),
        Notice::NoWorkerPossible(pool, Some(wait)) => log::error!(
            "[pool {}] no worker is left and none can be made; trying again in {}",
            pools.pool_name(*pool),
            seconds(*wait)
        ),
        Notice::NoWorkerPossible(pool, None) => log::error!(
            "[pool {}] no worker is left and process.max allows none; requests wait until a worker of another \
             pool ends",
            pools.pool_name(*pool)
        ),
        Notice::BackingOff(pool, wait) => log::warn!(
            "[pool {}] workers can't be made or end right after they were made; the next try is in {}",
            pools.pool_name(*pool),
            seconds(*wait)
        ),
        Notice::CrashingFast(pool, most, wait) => log::error!(
            "[pool {}] more than {most} workers a second crash while they serve requests; the next is made in {}, \
             and no more than {most} a second",
            pools.pool_name(*pool),
            seconds(*wait)
        ),
        Notice::SeemsBusy(pool, made, idle, running) => log::warn!(
            "[pool {}] seems busy (you may need to increase pm.start_servers, or pm.min/max_spare_servers), spawning \
             {made} children, there are {idle} idle, and {running} total children",
            pools.pool_name(*pool)
        ),
        Notice::RequestSlow(worker, age) => {
            let (child, age) = (child(*worker), age.as_secs_f64());
            log::warn!("{child} executing too slow ({age:.6} sec), logging");
        }
        Notice::EmergencyRestart(rule) => {
            log::warn!(
                "failed processes threshold ({} in {} sec) is reached, initiating reload",
                rule.threshold,
                rule.interval.as_secs_f64()
            );
            // php-fpm does not replace them one by one.
            let generations = pools.generations.values_mut();
            generations.for_each(|generation| generation.unreplaced = 0);
        }
        Notice::RequestTimedOut(worker, age, force) => {
            let (child, age) = (child(*worker), age.as_secs_f64());
            log::warn!("{child} execution timed out ({age:.6} sec), {force}");
            pools.note_ended_by(*worker, EndedBy::TimeLimit);
        }
        Notice::RequestEnded(worker, force) => {
            log::warn!("{} is ended by forkyard terminate, {force}", child(*worker));
        }
        Notice::RetireTimedOut(worker, force) => {
            log::warn!("{} did not exit in time, {force}", child(*worker));
            pools.note_ended_by(*worker, EndedBy::TooLate);
        }
        Notice::WorkerStays(worker) => {
            let (pool, pid) = pools.name_worker(*worker);
            let stays = stays(pid);
            log::error!("[pool {pool}] the daemon ends without child {pid}: {stays}");
        }
        Notice::PreloaderStays(generation) => {
            let pool = pools.generation_name(*generation);
            for pid in programs.pids_of(pools, *generation) {
                let stays = stays(pid);
                log::error!("[pool {pool}] the daemon ends without process {pid}: {stays}");
            }
        }
        // The failed start's report has it.
        Notice::PreloaderTimedOut(generation, _) if preloaders.is_starting(*generation) => {}
        Notice::PreloaderTimedOut(generation, limit) => {
            let what = match pools.has_program(*generation) {
                true => "application",
                false => "preloader",
            };
            log::error!(
                "[pool {}] the {what} did not answer within {}, killing",
                pools.generation_name(*generation),
                seconds(*limit)
            );
        }
        Notice::WorkerGone(worker, exit, was_told) => {
            if let Some(death) = processes.deaths.remove(worker) {
                let level = death_level(&death, *exit, *was_told, services.speaks_as_fpm);
                let report = death.report.filter(|_| !services.speaks_as_fpm);
                say_death(&death, *exit, level, report);
                let generation = pools.generations.get_mut(&death.generation);
                if let Some(generation) = generation.filter(|_| !*was_told) {
                    generation.unreplaced = generation.unreplaced.saturating_add(1);
                }
            }
        }
        Notice::PreloaderLost(generation, _, wait) if processes.reported.remove(generation) => {
            log::info!(
                "[pool {}] the application is started again in {}",
                pools.generation_name(*generation),
                seconds(*wait)
            );
        }
        Notice::PreloaderLost(generation, exit, wait) => {
            let meanwhile = match pools.has_workers(*generation) {
                true => "its workers go on, ",
                false => "",
            };
            log::error!(
                "[pool {}] the preloader exited {}{}; {meanwhile}the next try is in {}",
                pools.generation_name(*generation),
                how(*exit),
                processes.last_lines(*generation),
                seconds(*wait)
            );
        }
        Notice::Promoting(worker) => {
            let (pool, pid) = pools.name_worker(*worker);
            log::debug!("[pool {pool}] a preloader is made from child {pid}");
        }
        Notice::MoldSwitched(generation) => {
            let pid = pools.preloader_pid(*generation).unwrap_or_default();
            log::info!(
                "[pool {}] preloader {pid}, made from a worker, makes the workers from now on; the old ones are replaced",
                pools.generation_name(*generation)
            );
        }
        Notice::PromotionFailed(generation, exit, wait) => log::warn!(
            "[pool {}] no preloader could be made from a worker ({}{}); the pool continues unchanged, and \
             the next try is in {} at the earliest",
            pools.generation_name(*generation),
            how(*exit),
            processes.last_lines(*generation),
            seconds(*wait)
        ),
        Notice::GenerationServes(generation) => {
            let level = match services.speaks_as_fpm && is_reloading {
                true => log::Level::Debug,
                false => log::Level::Info,
            };
            log::log!(
                level,
                "[pool {}] the new workers serve, the old ones finish",
                pools.generation_name(*generation)
            );
        }
    }
}

impl Preloaders {
    fn is_starting(&self, id: GenerationId) -> bool {
        let mut preloaders = self.by_pid.values();
        preloaders
            .any(|preloader| preloader.start.is_some() && preloader.members.all().any(|member| member == id))
    }
}

impl Pools {
    fn note_ended_by(&mut self, id: WorkerId, by: EndedBy) {
        if let Some(worker) = self.workers.get_mut(&id) {
            worker.ended_by.get_or_insert(by);
        }
    }

    pub(crate) fn has_workers(&self, id: GenerationId) -> bool {
        let generation = self.generations.get(&id);
        generation.is_some_and(|generation| !generation.slots.is_empty())
    }

    /// Returns php-fpm's prefix for a line about a pool's settings. Its line about ondemand pools lacks the prefix.
    fn prefix_of_settings(&self, in_force: &InForce, pool: PoolId) -> &'static str {
        let name = self.pool_name(pool);
        match in_force.pool(name).map(|pool| pool.pm) {
            Some(ProcessManager::Dynamic { .. }) => "pm.",
            _ => "",
        }
    }
}

/// `report`: its id follows php-fpm's words.
fn say_death(death: &Death, exit: Ended, level: log::Level, report: Option<Reported>) {
    let Death {
        pid,
        pool,
        uptime,
        doing,
        sender,
        ..
    } = death;
    let report = report.map_or_else(String::new, |report| format!(", report {}", report.id));
    log::log!(
        level,
        "[pool {pool}] child {pid} exited {} after {}.{:06} seconds from start{report}",
        how(exit),
        uptime.as_secs(),
        uptime.subsec_micros()
    );
    if let Some(doing) = doing {
        log::log!(level, "[pool {pool}] child {pid} was {doing}");
    }
    if let (Ended::Signal { number, .. }, Some((sent, sender))) = (exit, sender)
        && number == *sent
    {
        let name = Signal::try_from(number).map_or("unknown", Signal::as_str);
        log::log!(
            level,
            "[pool {pool}] child {pid} was sent signal {number} ({name}) by {sender}"
        );
    }
}

/// php-fpm logs each worker that ends by itself.
fn death_level(death: &Death, exit: Ended, was_told: bool, speaks_as_fpm: bool) -> log::Level {
    match exit {
        _ if was_told => log::Level::Debug,
        Ended::Code(0) if speaks_as_fpm => log::Level::Info,
        Ended::Code(0) if death.report.is_some_and(|report| report.is_work_lost) => log::Level::Warn,
        Ended::Code(0) => log::Level::Debug,
        Ended::Unknown => log::Level::Info,
        Ended::Code(_) | Ended::Signal { .. } => log::Level::Warn,
    }
}

fn stays(pid: i32) -> String {
    let place = std::fs::read_to_string(format!("/proc/{pid}/wchan")).unwrap_or_default();
    let place = match place.trim() {
        "" | "0" => String::new(),
        name => format!(" ({name})"),
    };
    format!("it was killed, and the kernel does not let it go{place}")
}

fn seconds(duration: Duration) -> String {
    format!("{} s", duration.as_secs_f64())
}
