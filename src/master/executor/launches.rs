//! Starts preloaders with the spawning kit, and handles its answers.

use super::app_log::{outlet_of_preloader, whose};
use super::generation::Generation;
use super::output::Lines;
use super::preloader::{Command, Preloader};
use super::programs::RunningProgram;
use super::promotion::refork_at;
use super::sources::Source;
use super::spawner::{OutputLine, Purpose, Started, Tidings};
use super::start_source::Source as StartSource;
use super::{Context, Executor, Helpers, Pools, Who};
use crate::config::sharing;
use crate::confine;
use crate::master::event::{Ended, Event, GenerationId};
use crate::master::failed_starts::Kept;
use crate::runtime::php::ini_snapshot;
use crate::runtime::{self, Launch};
use crate::spawn::event::Token;
use crate::spawn::plan::{Account, Internal, Kind, Plan};
use crate::spawn::report::Report;
use crate::sys::fd::{null, socket_pair};
use crate::sys::guarded::Guarded;
use crate::sys::identity::Identity;
use crate::sys::{Error, clock};
use crate::tick::Tick;
use crate::worker::{self, Settings};
use crate::zygotes::Members;
use nix::sys::signal::Signal;
use nix::sys::socket::SockType;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::Arc;

/// The exit code of a preloader that could not be started: EX_SOFTWARE of sysexits.h.
const EXIT_SOFTWARE: i32 = 70;
/// Room for a preloader's process title beyond its arguments.
const TITLE_ROOM_BYTES: usize = 96;
const PRELOADER_CHANNEL: RawFd = runtime::php::protocol::SOCKET;
pub(super) const LAST_LINES: usize = 4;
const MOST_LINES_OF_A_REPORT: usize = 200;

struct Launching {
    purpose: Purpose,
    name: String,
    /// Sent first, with these descriptors.
    settings: Settings,
    descriptors: Vec<OwnedFd>,
    /// The sources of a zygote.
    common: Option<Settings>,
    source: StartSource,
    secrets: BTreeMap<String, String>,
    problem: Option<String>,
}

impl Executor {
    pub(super) fn start_preloader(&mut self, id: GenerationId) {
        let is_program = self.pools.has_program(id);
        self.recall_unfit(id);
        let started = match self.attach(id) {
            Ok(_) if is_program => self.start_program(id),
            Ok(false) => self.try_start_preloader(id),
            attached => attached.map(|_| ()),
        };
        if let Err(error) = started {
            log::error!(
                "[pool {}] can't start the preloader: {error}",
                self.pools.generation_name(id)
            );
            self.context
                .happened
                .push_back(Event::PreloaderGone(id, Ended::Code(EXIT_SOFTWARE)));
        }
    }

    pub(super) fn try_start_preloader(&mut self, id: GenerationId) -> Result<(), Error> {
        self.open(id)?;
        let generation = self.pools.generations.get(&id);
        let pool = generation.map(|it| Arc::clone(&it.settings.pool));
        let source = pool.map(|pool| self.reload.start_source(&self.context, &pool));
        let source = source.unwrap_or_default();
        self.pools.note_origin(id, source.fingerprint);
        let problem = self.pools.read_env_file(id).err();
        // A zygote also serves other pools, so a fault of this pool is reported for an own preloader.
        let common = self.pools.generations.get(&id).and_then(Generation::common);
        let common = common.filter(|_| problem.is_none());
        let (name, settings, descriptors) = match &common {
            // It gets nothing of a pool.
            Some(common) => (sharing::ZYGOTE.to_owned(), common.clone(), vec![null()?]),
            None => {
                let (mut settings, descriptors) = self.pools.context(id)?.take_apart();
                if self.pools.loads_in_workers(id) {
                    Arc::make_mut(&mut settings.pool).application.load_in_workers();
                }
                (settings.pool.name.clone(), settings, descriptors)
            }
        };
        let launching = Launching {
            purpose: Purpose::Preloader(id),
            name,
            settings,
            descriptors,
            common,
            source,
            secrets: self.pools.secrets(id),
            problem,
        };
        let started = self.launch_preloader(launching)?;
        if let Some(preloader) = started {
            let (pid, token) = (preloader.pid, preloader.start);
            log::debug!(
                "[pool {}] preloader {pid} started",
                self.pools.generation_name(id)
            );
            self.helpers.take_preloader(&mut self.pools, id, preloader);
            if let Some(resources) = self.pools.resources_mut(id) {
                resources.promotions = 0;
            }
            self.watch_preloader(pid, token);
        }
        self.drain_spawner();
        Ok(())
    }

    pub(super) fn start_zygote(&mut self, common: Settings) -> Result<(), Error> {
        let source = self.reload.start_source(&self.context, &common.pool);
        let launching = Launching {
            purpose: Purpose::Zygote,
            name: sharing::ZYGOTE.to_owned(),
            settings: common.clone(),
            descriptors: vec![null()?],
            common: Some(common),
            source,
            secrets: BTreeMap::new(),
            problem: None,
        };
        if let Some(preloader) = self.launch_preloader(launching)? {
            let (pid, token) = (preloader.pid, preloader.start);
            log::debug!("zygote {pid} started");
            self.helpers.preloaders.insert(pid, preloader);
            self.watch_preloader(pid, token);
        }
        self.drain_spawner();
        Ok(())
    }

    /// Starts a preloader and sends its settings. Returns `None` on failure; the kit reports why.
    fn launch_preloader(&mut self, launching: Launching) -> Result<Option<Preloader>, Error> {
        let mut settings = launching.settings;
        let (channel, theirs) = socket_pair(SockType::Stream)?;
        crate::sys::fd::set_nonblocking(theirs.as_fd(), false)?;
        let mut launch = runtime::launch(&settings.pool.application, &self.context.libexec)?;
        if let Some(ini) = launching.source.ini {
            launch.arguments.push(ini_snapshot::OPTION.to_owned());
            launch.script = Some(ini);
        }
        let title = format!("{}: preloader {}", settings.pool.title, launching.name);
        let executable = super::slow::identify(&launch.path);
        let mut plan = plan(&launching.name, &settings, &launch);
        plan.secrets = launching.secrets;
        plan.problems.extend(launching.problem);
        let arguments = std::iter::once(title).chain(launch.arguments);
        plan.internal = Some(Internal {
            program: launch.path,
            arguments: arguments.chain([" ".repeat(TITLE_ROOM_BYTES)]).collect(),
        });
        let mut descriptors = vec![(theirs, PRELOADER_CHANNEL)];
        descriptors.extend(launch.script.map(|script| (script, runtime::SCRIPT)));
        let token = self.helpers.spawner.spawn(plan, descriptors, launching.purpose);
        // If there is no pid, the answer has already come.
        let Some(pid) = self.helpers.spawner.pid(token) else {
            return Ok(None);
        };
        // Only a zygote may send descriptors, because no script of a pool runs in it: it sends its memory.
        let is_zygote = launching.common.is_some();
        let channel = match is_zygote {
            true => Guarded::with_descriptors(channel),
            false => Guarded::new(channel),
        };
        let mut preloader = Preloader::new(pid, channel, Some(token));
        preloader.executable = executable;
        if let Some(common) = launching.common {
            preloader.members = Members::of_zygote(common);
            preloader.origin = launching.source.fingerprint;
        }
        let names = match launching.purpose {
            Purpose::Preloader(id) if !is_zygote => self.helpers.ask_for_scripts(&self.pools, id),
            _ => None,
        };
        if !is_zygote {
            settings.refork_at = refork_at(&settings, 0);
        }
        let begin = Command::Begin {
            context: settings,
            warms_up: names.is_some(),
            is_zygote,
            is_for_many: launching.purpose == Purpose::Zygote,
        };
        preloader.send(&begin, launching.descriptors);
        if let Some(names) = names {
            preloader.send(&Command::Warm { parcel: None }, vec![names]);
        }
        Ok(Some(preloader))
    }

    fn watch_preloader(&mut self, pid: i32, start: Option<Token>) {
        let Some(preloader) = self.helpers.preloaders.get(&pid) else {
            return;
        };
        let sources = &mut self.context.sources;
        let watched = sources.watch_both(&preloader.channel, Source::Preloader(pid));
        if let (Err(error), Some(token)) = (watched, start) {
            self.helpers.spawner.complain(token, &error.to_string());
            self.helpers.spawner.cancel(token);
        }
    }

    /// Handles a starting process's input; its channel first.
    pub(super) fn on_spawner_ready(&mut self, token: mio::Token) {
        let starting = self.helpers.preloaders.values().filter(|p| p.start.is_some());
        for pid in starting.map(|p| p.pid).collect::<Vec<_>>() {
            self.hear_preloader(pid);
        }
        self.helpers.spawner.ready(token);
        self.drain_spawner();
    }

    pub(in crate::master) fn poll_spawner(&mut self, now: Tick) {
        self.helpers.spawner.pass(now);
        self.drain_spawner();
    }

    pub(super) fn drain_spawner(&mut self) {
        while let Some(tidings) = self.helpers.spawner.next() {
            match tidings {
                Tidings::Line(said) => self.helpers.take_line(&self.context, &self.pools, &said),
                Tidings::Report(report) if self.is_tried_again(&report) => {}
                Tidings::Report(report) => self.helpers.take_report(&mut self.pools, report),
                Tidings::Up(token, Purpose::Preloader(_) | Purpose::Zygote, started) => {
                    self.preloader_up(token, *started);
                }
                Tidings::Failed(token, Purpose::Zygote, report) => self.zygote_start_failed(token, &report),
                Tidings::Failed(token, Purpose::Preloader(id), report) => {
                    self.preloader_failed(token, id, &report);
                }
                Tidings::Up(_, Purpose::Program(id, index), started) => {
                    self.process_up(id, index, *started);
                }
                Tidings::Failed(_, Purpose::Program(id, index), report) => {
                    self.process_failed(id, index, &report);
                }
            }
        }
    }

    fn preloader_up(&mut self, token: Token, started: Started) {
        let Some(pid) = self.helpers.starting(token) else {
            return;
        };
        self.processes.by_pid.insert(pid, Who::Preloader);
        let output = started
            .process
            .output
            .map(|output| Lines::resume(output, started.splitter).in_entries(!self.context.speaks_as_fpm));
        let name = self.helpers.preloader_name(&self.pools, pid);
        let Some(preloader) = self.helpers.preloaders.get_mut(&pid) else {
            return;
        };
        preloader.start = None;
        log::debug!(
            "preloader {pid} is up after {:?}",
            started.up.ended.since(started.up.started)
        );
        if let Some(output) = output {
            let sources = &mut self.context.sources;
            sources.watch_of_pool(&name, output.pipe(), Source::PreloaderOutput(pid));
            preloader.output = Some(output);
        }
        self.helpers
            .preloader_is_ready(&mut self.context, &mut self.pools, pid);
        if let Some(ended) = started.process.gone {
            self.processes.by_pid.remove(&pid);
            self.preloader_gone(pid, ended);
        }
    }

    fn zygote_start_failed(&mut self, token: Token, report: &Report) {
        let exit = exit_of_report(report);
        let Some(pid) = self.helpers.starting(token) else {
            return;
        };
        if !self.zygote_failed(pid, report) {
            self.preloader_gone(pid, exit);
        }
    }

    fn preloader_failed(&mut self, token: Token, id: GenerationId, report: &Report) {
        let exit = exit_of_report(report);
        let starting = self.helpers.starting(token);
        if starting.is_some_and(|pid| self.zygote_failed(pid, report)) {
            return;
        }
        if self.try_again(report) {
            return;
        }
        self.end_trial(id);
        let members = self
            .helpers
            .starting(token)
            .and_then(|pid| self.helpers.preloaders.get(&pid));
        let members: Vec<GenerationId> = members.map_or(vec![id], |it| it.members.all().collect());
        self.applications.note_failure(&members, report);
        self.processes.reported.extend(&members);
        match self.helpers.starting(token) {
            Some(pid) => self.preloader_gone(pid, exit),
            None => self.context.happened.push_back(Event::PreloaderGone(id, exit)),
        }
    }
}

impl Helpers {
    pub(in crate::master) fn spawner_deadline(&self) -> Option<Tick> {
        self.spawner.next_deadline()
    }

    pub(in crate::master) fn end_spawner(&mut self) {
        self.spawner.end();
    }

    fn take_report(&self, pools: &mut Pools, report: Arc<Report>) {
        let before = pools.errors.last(&report.plan.group);
        let is_known = before.is_some_and(|before| {
            let (before, now) = (&before.report.failure, &report.failure);
            (&before.summary, &before.details) == (&now.summary, &now.details)
        });
        say_report(&report, is_known);
        let mut preloaders = self.preloaders.values();
        let found = preloaders.find(|preloader| report.pid == Some(preloader.pid));
        let names: BTreeSet<String> = found
            .into_iter()
            .flat_map(|preloader| preloader.members.all())
            .map(|id| pools.generation_name(id).to_owned())
            .collect();
        let of = match names.is_empty() {
            true => vec![report.plan.group.clone()],
            false => names.into_iter().collect(),
        };
        pools.errors.keep(Kept {
            report,
            epoch_s: clock::epoch_seconds(),
            pools: of,
        });
    }

    fn take_line(&mut self, context: &Context, pools: &Pools, said: &OutputLine) {
        let starting = said.token.and_then(|token| self.starting(token));
        if let Some(preloader) = starting.and_then(|pid| self.preloaders.get_mut(&pid)) {
            let (name, file) = whose(&pools.generations, preloader);
            outlet_of_preloader(context.log, &name, file, preloader.pid).write(&said.line);
            return preloader.note_output(&said.line);
        }
        let program =
            |(id, program): (&GenerationId, &RunningProgram)| program.starts(said.token?).then_some(*id);
        let id = self.programs.iter().find_map(program);
        if let Some(generation) = id.and_then(|id| pools.generations.get(&id)) {
            let kind = "process";
            return generation
                .outlet(context.log, kind, said.pid, "")
                .write(&said.line);
        }
        let text = String::from_utf8_lossy(&said.line).into_owned();
        log::warn!("[pool {}] process {} said: \"{text}\"", said.group, said.pid);
    }

    fn starting(&self, token: Token) -> Option<i32> {
        let mut preloaders = self.preloaders.values();
        let found = preloaders.find(|preloader| preloader.start == Some(token));
        found.map(|preloader| preloader.pid)
    }

    /// Notifies the core that a preloader is up and has sent its facts.
    pub(super) fn preloader_is_ready(&mut self, context: &mut Context, pools: &mut Pools, pid: i32) {
        let Some(preloader) = self.preloaders.get(&pid).filter(|p| p.start.is_none()) else {
            return;
        };
        let Some(facts) = preloader.facts.clone() else {
            return;
        };
        let is_zygote = preloader.is_zygote();
        let members: Vec<GenerationId> = preloader.members.kept().collect();
        for id in members {
            if pools.next_mold_pid(id) == Some(pid) {
                context.happened.push_back(Event::NextMoldReady(id));
                continue;
            }
            if is_zygote {
                self.zygote_serves(context, pools, id, facts.clone());
                continue;
            }
            pools.note_facts(id, facts.clone());
            context.happened.push_back(Event::PreloaderReady(id));
        }
    }
}

pub(super) fn summary(report: &Report) -> &str {
    let first = report.failure.summary.lines().next();
    first.unwrap_or_default().trim_end_matches('.')
}

pub(super) fn exit_of_report(report: &Report) -> Ended {
    match report.exit {
        Some(ended) => ended,
        None if report.pid.is_some() => Ended::killed(Signal::SIGKILL as i32),
        None => Ended::Code(EXIT_SOFTWARE),
    }
}

/// The kit's plan for a preloader, which sets limits, user and confinement itself ([`worker::apply_process_settings`]).
fn plan(name: &str, settings: &Settings, launch: &Launch) -> Plan {
    let pool = &settings.pool;
    let root = pool.application.root().or(pool.setup.chdir.as_deref());
    let words = std::iter::once(launch.path.display().to_string()).chain(launch.arguments.iter().cloned());
    let command = words.collect::<Vec<_>>().join(" ");
    let identity = settings.identity.clone();
    let is_root = crate::sys::identity::is_root();
    let mut plan = Plan::new(
        name,
        root.unwrap_or(Path::new("/")).to_owned(),
        &command,
        account(identity.clone()),
    );
    plan.kind = Kind::Wrapper;
    plan.app_type = pool.application.traits().name.to_owned();
    plan.switch_user = identity.is_some() && is_root;
    plan.inherited = Some(worker::environment(settings, std::env::vars_os().collect()));
    plan.no_new_privileges = pool.setup.no_new_privs;
    plan.cgroup = confine::group(pool);
    if let Some(policy) = super::pools::policy(pool).preloader {
        plan.start_timeout = policy.start_timeout;
    }
    plan
}

pub(super) fn account(identity: Option<Identity>) -> Account {
    let identity = identity.unwrap_or_else(|| Identity {
        uid: crate::sys::identity::own_user(),
        gid: nix::unistd::Gid::effective().as_raw(),
        groups: Vec::new(),
        name: None,
        home: None,
        shell: None,
    });
    Account {
        user: identity.name.unwrap_or_else(|| identity.uid.to_string()),
        group: identity.gid.to_string(),
        uid: identity.uid,
        gid: identity.gid,
        groups: identity.groups,
        home: identity.home,
        shell: None,
    }
}

/// Logs a failed start: a line, and the details for the application's author below it. `is_known`: the previous start
/// failed the same way.
pub(super) fn say_report(report: &Report, is_known: bool) {
    let name = &report.plan.group;
    let failure = &report.failure;
    let mut lines = failure.summary.lines();
    let first = lines.next().unwrap_or_default();
    let what = match report.plan.internal {
        Some(_) => "preloader",
        None => "application",
    };
    log::error!(
        "[pool {name}] the {what} can't start: {} (step {}, after {:.3} s; error {})",
        first.trim_end_matches('.'),
        failure.step.name(),
        report.ended.since(report.started).as_secs_f64(),
        report.id,
    );
    if is_known {
        return;
    }
    let details = failure.details.iter().flat_map(|text| text.lines());
    for line in lines.chain(details).take(MOST_LINES_OF_A_REPORT) {
        log::error!("[pool {name}]   {line}");
    }
}
