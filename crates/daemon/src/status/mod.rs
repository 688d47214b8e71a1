//! The content of the control socket's `status`.

pub(crate) mod archive;
pub(crate) mod caches;
mod crashes;
pub(crate) mod history;
pub(crate) mod logs;
pub(crate) mod notices;
pub(crate) mod numbers;
pub(crate) mod routes;

use self::archive::PastHours;
use crate::applications::Applications;
use crate::autopilot::Autopilots;
use crate::context::Context;
use crate::context::generation::Generation;
use crate::context::helper_id::HelperId;
use crate::context::pools::{Pools, RunningPool};
use crate::context::rights::Rights;
use crate::pools::totals::BoardTotals;
use crate::programs::{Programs, RunningProgram};
use crate::releases::deployments::Deployments;
use crate::status::caches::Caches;
use forkyard_config::{Address, ProcessManager, WorkerMode};
use forkyard_core::master::event::{GenerationId, PoolId};
use forkyard_core::master::failed_starts::KeptReport;
use forkyard_host::listen::{Listener, ListenerState};
use forkyard_protocol::control::{self as protocol, Answer, Format, LastError, Status, WorkerLimits};
use forkyard_protocol::numbers::PoolNumbers;
use forkyard_scoreboard::minutes::minute_of;
use forkyard_scoreboard::{RequestStage, slot_reader};
use forkyard_sys::clock::{self, ProcessClock};
use forkyard_sys::invocation::{self, Invocation};
use forkyard_sys::process;
use forkyard_worker::{BackendStage, BackendStatus};
use std::collections::HashMap;

/// The parts that a status shows.
pub(crate) struct StatusSource<'e> {
    pub(crate) context: &'e Context,
    pub(crate) archive: &'e PastHours,
    pub(crate) autopilots: &'e Autopilots,
    pub(crate) programs: &'e Programs,
    pub(crate) applications: &'e Applications,
    pub(crate) caches: &'e Caches,
    pub(crate) deployments: &'e Deployments,
}

impl StatusSource<'_> {
    /// `orphans`: the number of processes left behind, by pool.
    pub(crate) fn status(
        &self,
        orphans: &HashMap<String, u32>,
        views: &[(PoolId, serde_json::Value)],
    ) -> Status {
        let (all, in_force) = (&self.context.pools, &self.context.in_force);
        // Each scoreboard is read once.
        let mut readings: HashMap<&str, BoardTotals> = HashMap::new();
        let mut uses = all.cpu_of_workers();
        let now = clock::now();
        let resources = forkyard_config::resources();
        for (id, generation) in all.generations.iter() {
            let mut reading = generation.reading();
            reading.cpu_us = uses.remove(id).unwrap_or(0);
            reading.counts.numbers = generation.numbers(now);
            let sum = readings.entry(all.shown_with(generation)).or_default();
            sum.add(&reading);
        }
        let configured = all.by_id.iter();
        let configured = configured.filter_map(|(id, pool)| Some((id, pool, pool.listener.as_ref()?)));
        let shown = configured.map(|(id, pool, listener)| {
            let own: Vec<(GenerationId, &Generation)> = all.generations.of(id).collect();
            let mut counts = all.past(&pool.name);
            let reading = readings.remove(pool.name.as_str()).unwrap_or_default();
            counts.add(&reading.counts);
            let cpu_ms = (counts.gone_cpu_us + reading.cpu_us) / 1000;
            let numbers = std::mem::take(&mut counts.numbers);
            let mut numbers = PoolNumbers::new(&numbers, cpu_ms, counts.terminated, minute_of(now));
            counts.terminated = numbers.timed_out;
            let archive = self.archive.archive();
            let same = archive.map(|it| it.same_hour(&pool.name, now, clock::epoch_seconds()));
            let same = same.unwrap_or_default();
            (numbers.day_ago, numbers.week_ago) = (same.day_ago, same.week_ago);
            let queue = pool.listen_queue();
            let trouble = unreachable(listener);
            let settings = own.iter().map(|(_, generation)| &generation.settings.pool);
            let latest = settings.clone().next_back();
            let generations = own
                .iter()
                .map(|(id, generation)| all.generation_status(self.programs, *id, generation, pool));
            protocol::PoolStatus {
                name: pool.name.clone(),
                listen: address(&listener.address),
                unreachable: trouble.is_some(),
                problem: trouble,
                shares: latest.and_then(|latest| self.context.services.shares_in_words(latest)),
                logs: logs::of_all(in_force.pool(&pool.name).into_iter().chain(settings)),
                queue: queue.map(|queue| queue.current),
                queue_limit: queue.map(|queue| queue.limit),
                limits: all.worker_limits(self.applications, *id, pool),
                busy: reading.busy,
                idle: reading.idle,
                starting: reading.starting,
                cpu_ms,
                counts,
                numbers: Some(Box::new(numbers)),
                caches: (pool.serving)
                    .and_then(|id| self.caches.last(id, now))
                    .map(Box::new),
                periods: Vec::new(),
                advice: self
                    .autopilots
                    .advice(self.context, *id, &resources)
                    .map(Box::new),
                lanes: all.lanes(*id, now).map(Box::new),
                releases: all
                    .pool_releases(self.context, self.deployments, *id)
                    .map(Box::new),
                memory: None,
                orphans: orphans.get(&pool.name).copied().unwrap_or(0),
                failed_starts: all.errors.count(&pool.name),
                last_error: self.last_error(*id, pool),
                applications: self.applications.status(self.context, self.programs, *id, views),
                generations: generations.collect(),
            }
        });
        let mut pools: Vec<protocol::PoolStatus> = shown.collect();
        pools.sort_by(|a, b| a.name.cmp(&b.name));
        Status {
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            config: in_force.config.path.display().to_string(),
            pools,
            skipped: in_force.config.skipped.clone(),
            last_reload: self.context.handover.last_reload.clone(),
            log: Some(logs::of_daemon(&in_force.config.global.error_log)),
            replaced: invocation::get().is_some_and(Invocation::is_replaced),
            daemon: Some(Box::new(self.context.handover.life())),
            jobs: crate::helpers::jobs::status(in_force),
        }
    }

    fn last_error(&self, id: PoolId, pool: &RunningPool) -> Option<LastError> {
        let kept = self.context.pools.errors.last(&pool.name)?;
        let refusing = self.is_refused(id, pool);
        let summary = kept.report.failure.summary.lines().next();
        Some(LastError {
            id: kept.report.id.to_string(),
            time: kept.epoch_s,
            summary: summary.unwrap_or_default().to_owned(),
            refusing,
            is_over: !refusing && self.context.pools.is_well(pool),
        })
    }

    /// Whether a pool's requests are refused because its application fails.
    fn is_refused(&self, id: PoolId, pool: &RunningPool) -> bool {
        let Context { pools, helpers, .. } = self.context;
        let serving = pool.serving;
        let program = serving.and_then(|serving| self.programs.running.get(&serving));
        let generation = serving.and_then(|serving| pools.generations.get(&serving));
        let programs = generation.map(|it| pools.helper_processes_status(it));
        let programs = programs.unwrap_or_default();
        let is = |stage: BackendStage| programs.iter().any(|program| program.state == stage.name());
        helpers.pid(HelperId::Responder(id)).is_some()
            || program.is_some_and(RunningProgram::is_failing)
            || is(BackendStage::Failing) && !is(BackendStage::Up)
    }

    /// A report of a failed start or of a worker's death at work, for root and the application's user.
    pub(crate) fn error_report(&self, rights: Rights, id: Option<&str>, format: Format) -> Answer {
        let may_read = |found: &KeptReport<'_>| match rights {
            Rights::All => true,
            Rights::Own(uid) => found.uid() == uid,
        };
        let refusals = self.applications.refusals().map(KeptReport::Start);
        let Some(found) = self.context.pools.errors.find(id, refusals, may_read) else {
            return Answer::refusal(self.why_no_report(rights, id));
        };
        let report = match (format, found) {
            (Format::Json, KeptReport::Start(kept)) => kept.report.json(kept.epoch_s),
            (Format::Text, KeptReport::Start(kept)) => kept.report.text().into(),
            (Format::Html, KeptReport::Start(kept)) => kept.report.html().into(),
            (Format::Json, KeptReport::Crash(crash)) => crash.json(),
            (Format::Text, KeptReport::Crash(crash)) => crash.text().into(),
            (Format::Html, KeptReport::Crash(crash)) => crash.html().into(),
        };
        Answer::Report { report }
    }

    /// An instance without a place or a process has an id for its visitors, but no report.
    fn why_no_report(&self, rights: Rights, id: Option<&str>) -> String {
        let Some(id) = id else {
            return "there is no report of any error; only the last few are kept".to_owned();
        };
        let refused = self.applications.last_error(id);
        match refused.filter(|_| matches!(rights, Rights::All)) {
            Some(error) => format!(
                "there is no report of error {id}: {} could not be started: {}",
                error.application, error.message
            ),
            None => format!("there is no report of error {id}; only the last few are kept"),
        }
    }
}

impl Pools {
    fn is_well(&self, pool: &RunningPool) -> bool {
        let serving = pool.serving.filter(|serving| pool.latest == Some(*serving));
        let serving = serving.and_then(|id| self.generations.get(&id));
        serving.is_some_and(|it| {
            // Workers stay while their program restarts.
            let is_program = it.settings.pool.application.program().is_some();
            let has_worker = it
                .slots
                .values()
                .any(|id| self.workers.get(id).is_some_and(|it| it.up));
            it.make.came_up && (!it.make.has_failed || (is_program && has_worker))
        })
    }

    /// Processor time of present workers, microseconds.
    pub(crate) fn cpu_of_workers(&self) -> HashMap<GenerationId, u64> {
        let mut uses = HashMap::new();
        for worker in self.workers.values() {
            let clock = worker.pid.and_then(ProcessClock::of);
            *uses.entry(worker.generation).or_default() += clock.map_or(0, ProcessClock::micros);
        }
        uses
    }

    /// The worker limit of a pool by the latest configuration.
    fn worker_limits(&self, applications: &Applications, id: PoolId, pool: &RunningPool) -> WorkerLimits {
        if let Some(max_children) = applications.max(id) {
            return WorkerLimits {
                max_children,
                ..WorkerLimits::default()
            };
        }
        let latest = pool.latest.or(pool.serving);
        let generation = latest.and_then(|latest| self.generations.get(&latest));
        let Some(pm) = generation.map(|generation| generation.settings.pool.pm) else {
            return WorkerLimits::default();
        };
        let (min_spare_servers, max_spare_servers) = match pm {
            ProcessManager::Dynamic {
                min_spare_servers,
                max_spare_servers,
                ..
            } => (Some(min_spare_servers), Some(max_spare_servers)),
            ProcessManager::Static { .. }
            | ProcessManager::Ondemand { .. }
            | ProcessManager::Ordered { .. } => (None, None),
        };
        WorkerLimits {
            max_children: generation.map_or(0, Generation::most_workers),
            min_spare_servers,
            max_spare_servers,
        }
    }

    fn generation_status(
        &self,
        programs: &Programs,
        id: GenerationId,
        generation: &Generation,
        pool: &RunningPool,
    ) -> protocol::GenerationStatus {
        let state = if pool.serving == Some(id) {
            "serving"
        } else if pool.latest == Some(id) {
            "coming"
        } else {
            "leaving"
        };
        let mut workers: Vec<protocol::WorkerStatus> = generation
            .pages()
            .map(|(slot, worker, page)| {
                let entry = slot_reader::read(page);
                let worker = self.workers.get(&worker);
                let pid = worker.and_then(|worker| worker.pid);
                // A starting worker's page is still empty.
                let since = match (entry.stage, worker) {
                    (RequestStage::Creating, Some(worker)) => worker.begun,
                    _ => entry.since,
                };
                let text = |index: usize| String::from_utf8_lossy(&entry.texts[index]).into_owned();
                protocol::WorkerStatus {
                    slot,
                    // The worker's own value is untrusted.
                    pid,
                    stage: entry.stage.name().to_owned(),
                    for_ms: u64::try_from(clock::now().since(since).as_millis()).unwrap_or(u64::MAX),
                    requests: entry.requests,
                    kept: entry.kept,
                    in_flight: entry.load.is_told.then_some(entry.load.in_flight),
                    idle_streams: entry.load.is_told.then_some(entry.load.quiet),
                    full: entry.load.is_told.then_some(!entry.load.has_room),
                    script: text(3),
                    method: text(0),
                    uri: text(1),
                    query: text(2),
                    route: generation.present_route(slot),
                    memory: None,
                    cpu_ms: (pid.and_then(ProcessClock::of)).map_or(0, |clock| clock.micros() / 1000),
                }
            })
            .collect();
        workers.sort_by_key(|worker| worker.slot);
        let (preloading, unfit) = generation.preloading();
        let mut programs = programs.status(id);
        programs.extend(self.helper_processes_status(generation));
        protocol::GenerationStatus {
            id: id.0,
            state: state.to_owned(),
            pm: generation.settings.pool.pm.name().to_owned(),
            started: generation.settings.started,
            preloader: self.preloader_pid(id),
            preloading,
            unfit,
            left_out: generation.left_out(),
            boot: boot(generation),
            connected_to: generation.make.connected_to.clone(),
            programs,
            workers,
        }
    }

    fn helper_processes_status(&self, generation: &Generation) -> Vec<protocol::ProcessStatus> {
        if !generation.settings.pool.application.traits().starts_from_disk {
            return Vec::new();
        }
        let now = clock::now();
        let mut programs: Vec<protocol::ProcessStatus> = generation
            .pages()
            .filter_map(|(place, worker, page)| {
                let sight = BackendStatus::read(slot_reader::program(page))?;
                let worker = self.workers.get(&worker)?.pid?;
                // It may only name its own children.
                let pid = Some(sight.pid).filter(|pid| *pid > 1 && process::parent(*pid) == Some(worker));
                let is_up = sight.doing == BackendStage::Up && pid.is_some();
                let is_busy = is_up
                    && !matches!(
                        slot_reader::stage(page),
                        RequestStage::Accepting | RequestStage::Creating
                    );
                Some(protocol::ProcessStatus {
                    place,
                    pid,
                    state: sight.doing.name().to_owned(),
                    uptime_ms: is_up.then(|| protocol::millis(now.since(sight.since))),
                    requests: sight.served,
                    sessions: u64::from(is_busy),
                    restarts: sight.ups.saturating_sub(1),
                    memory: None,
                    cpu_ms: None,
                })
            })
            .collect();
        programs.sort_by_key(|program| program.place);
        programs
    }
}

/// The boot of a generation's application, if it boots once; the times are the preloader's.
fn boot(generation: &Generation) -> Option<protocol::Boot> {
    let script = generation.settings.pool.application.php()?.worker.as_ref()?;
    let times = generation.make.boot.as_ref();
    let because = times.and_then(|times| times.boots_again.clone());
    let isolation = times.and_then(|times| times.isolation.clone());
    let is_put_back = script.mode == WorkerMode::Snapshot && because.is_none();
    let paths = script.warm_up_requests.iter();
    let warm_up = paths.zip(times.into_iter().flat_map(|times| &times.warm_up_ms));
    Some(protocol::Boot {
        mode: match because {
            None => script.mode.as_str().to_owned(),
            Some(_) => "ordinary".to_owned(),
        },
        took_ms: times
            .filter(|times| times.boots_again.is_none())
            .map(|times| times.boot_ms),
        isolation,
        because,
        warm_up: warm_up
            .map(|(path, took_ms)| protocol::WarmUp {
                path: path.clone(),
                took_ms: *took_ms,
            })
            .collect(),
        requests: generation.reading().counts.requests,
        rewound: is_put_back.then(|| {
            let [requests, nanos, pages] = generation.rewound();
            protocol::RewoundTotals {
                requests,
                micros: nanos / 1000,
                pages,
            }
        }),
    })
}

fn unreachable(listener: &Listener) -> Option<String> {
    match listener.state() {
        ListenerState::Open if listener.is_for_root_alone() => Some(
            "no user except root can connect: set listen.owner or listen.mode, then reload"
                .to_owned(),
        ),
        ListenerState::Open => None,
        ListenerState::FileGone => Some("it can't be reached: its file is gone; a reload binds the socket again".to_owned()),
        ListenerState::FileTaken => Some(
            "it can't be reached: the path leads to something else; remove it, and a reload binds the socket again"
                .to_owned(),
        ),
        ListenerState::ShutDown if !listener.is_ours() => Some(
            "it can't be reached: a worker has shut the socket down; restart the unit or program that made the socket"
                .to_owned(),
        ),
        ListenerState::ShutDown => Some(
            "it can't be reached: a worker has shut the socket down; a reload binds the socket again".to_owned(),
        ),
    }
}

fn address(address: &Address) -> String {
    match address {
        Address::Unix(path) => path.display().to_string(),
        Address::Tcp(address) => address.to_string(),
        Address::TcpAny(port) => port.to_string(),
    }
}
