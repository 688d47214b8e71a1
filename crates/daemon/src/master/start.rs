//! Starts the master from a configuration and the previous master's state, and cleans up after it.

use super::event_loop::{Master, system};
use super::executor::Executor;
use super::frontend::{Frontend, say_skipped};
use super::service::Service;
use crate::context::failure::RunError;
use crate::context::services::Handlers;
use crate::context::sources::SIGNALS;
use crate::handover::InheritedState;
use crate::handover::adoption::AdoptingParts;
use crate::reload::say_interval;
use forkyard_config::{self as config, Config};
use forkyard_core::master::event::{CoreConfig, Event};
use forkyard_core::master::lifecycle::Lifecycle;
use forkyard_core::master::manager::Manager;
use forkyard_core::master::reload_diff::ReloadScope;
use forkyard_core::master::reload_plan::Changes;
use forkyard_host::logs::Log;
use forkyard_protocol::control::{Complaint, DaemonMode, millis};
use forkyard_protocol::last_reload::{LastReload, ReloadCause};
use forkyard_sys::file::{remove, replace};
use forkyard_sys::notify::{self, Notifier};
use forkyard_sys::{self as sys, clock, fd, process, title};
use mio::{Interest, Poll};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook_mio::v1_0::Signals;
use std::path::Path;
use std::time::Duration;

/// How long the daemon's end waits for the last output of applications.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// Runs the daemon until it stops.
///
/// The process has one thread. `libexec` has forkyard's programs, `inherited` is the previous master's state. `ready`
/// is called when every socket listens and the first workers were requested.
///
/// # Errors
/// The daemon could not start, or no worker could be started at all.
pub fn run(
    config: Config,
    handlers: Handlers,
    frontend: Frontend,
    libexec: &Path,
    inherited: InheritedState,
    ready: impl FnOnce(),
) -> Result<(), RunError> {
    title::prepare();
    let begun = clock::now();
    let log = Log::install();
    log.follow(&config.global).map_err(RunError::Log)?;
    let limit = fd::raise_descriptor_limit().ok();
    limit_master(&config);
    process::become_subreaper()?;
    if sys::identity::is_root() {
        sys::keyring::begin_closed()
            .unwrap_or_else(|error| log::warn!("{error}; it is shared with all pools"));
    }
    sys::signal::ignore_pipe();
    let notifier = Notifier::from_environment();
    let poll = Poll::new().map_err(system("epoll_create1"))?;
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD, SIGHUP])
        .map_err(system("sigaction"))?;
    poll.registry()
        .register(&mut signals, SIGNALS, Interest::READABLE)
        .map_err(system("epoll_ctl"))?;
    // php-fpm blocks some signals before it executes its successor, and forkyard all: no handler was installed until
    // now.
    sys::signal::unblock();
    let registry = poll.registry().try_clone().map_err(system("dup"))?;
    let pid_file = config.global.pid.clone();
    let interval = config.global.systemd_interval;
    let title = format!("{}: master process ({})", frontend.title, config.path.display());
    let mut executor = Executor::new(registry, log, config.clone(), handlers, libexec.to_owned(), limit)
        .map_err(system("dup"))?;
    executor.context.services.speaks_as_fpm = frontend.speaks_as_fpm();
    // php-fpm writes each line, and programs that read its log count them.
    if !frontend.speaks_as_fpm() {
        log.gather();
    }
    // Child processes must not inherit these variables.
    let store = Notifier::from_environment().filter(Notifier::keeps_descriptors);
    executor.context.services.is_followed = store.is_some();
    process::forget_variables(&notify::VARIABLES);
    let names = forkyard_host::listen::fpm_variables();
    let (before, stored) = (inherited.config.clone(), inherited.stored.clone());
    let document = inherited.document.as_ref();
    let stopping = document.and_then(|document| document.stopping);
    let reload_before = document.and_then(|document| document.last_reload.clone());
    // Keeps the previous result if the same configuration was read, or none could be.
    let reload_before = reload_before.filter(|_| before.as_ref() == Some(&config));
    executor.orphans.daemon_stops = stopping.is_some();
    let crashes = document.map_or(&[][..], |document| &document.crashes);
    executor.context.pools.errors.take_crashes(crashes);
    let autopilots = document.map_or(&[][..], |document| &document.autopilots);
    executor.autopilots.take(autopilots);
    let began = executor.context.handover.resume(document);
    let mut parts = AdoptingParts {
        programs: &mut executor.programs,
        autopilots: &mut executor.autopilots,
        releases: &mut executor.releases,
        archive: &mut executor.archive,
    };
    let adopted = executor.context.adopt(&mut parts, inherited, &config);
    process::forget_variables(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let mut manager = Manager::default();
    if let Some(adopted) = &adopted {
        let mut actions = Vec::new();
        manager.handle(Event::Adopt(adopted.clone()), clock::now(), &mut actions);
        executor.context.handover.todo.extend(actions);
    }
    if let Some(store) = store {
        executor.open_fd_store(store, &stored, &manager);
    }
    let starts = executor.context.services.starts(&config);
    executor.context.in_force.hold(starts);
    if adopted.is_none() {
        executor
            .preloaders
            .start_first_zygote(&mut executor.context, &config);
        executor.settle();
    }
    let opened = open(
        &mut executor,
        config,
        before.filter(|_| adopted.is_some()),
        adopted.is_some(),
    );
    let (wanted, changes) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            executor.preloaders.end_zygotes();
            executor.context.spawner.end();
            // A socket that was taken over must not be removed.
            if adopted.is_none() {
                executor.context.pools.remove_socket_files();
                executor.control.remove_control_file();
            }
            // The next master takes these over.
            std::mem::forget(executor);
            return Err(error);
        }
    };
    if let Some(last) = reload_before {
        executor.context.handover.remember_reload(last);
    }
    say_skipped(&changes.skipped);
    executor.jobs.set(&mut executor.context);
    executor.web.set(&mut executor.context);
    title::set(&title);
    log::info!("{} is running, pid {}", frontend.name, std::process::id());
    let mut master = Master {
        poll,
        signals,
        executor,
        manager,
        service: Service::new(notifier),
        read_config: frontend.read_config,
        lifecycle: Lifecycle::resume(stopping),
        mode: DaemonMode::Serving,
        expulsions: Vec::new(),
    };
    master.begin(wanted);
    log::info!("ready to handle connections");
    let took = began.took_ms.unwrap_or_else(|| millis(clock::now().since(begun)));
    master.executor.context.handover.record(began.lasting(took));
    ready();
    master.service.tell_ready();
    if master.executor.context.services.speaks_as_fpm || master.service.is_there() {
        say_interval(interval);
    }
    master.service.set_bulletin(interval);
    let outcome = master.serve();
    master.executor.end_helpers();
    master.executor.orphans.end();
    master.executor.context.pools.close_app_logs();
    sys::process::finish_appending(LAST_WORDS);
    master.executor.preloaders.end_zygotes();
    master.executor.context.spawner.end();
    master.executor.context.pools.remove_socket_files();
    master.executor.context.services.leave_group_parent();
    master.executor.clear_fd_store();
    master.executor.control.remove_control_file();
    if let Some(path) = &pid_file {
        let _ = remove(path);
    }
    // The kernel closes the rest when the process exits, without waiting.
    std::mem::forget(master);
    outcome
}

/// Opens the control socket, the pid file and everything that the configuration needs, or the previous configuration if
/// that fails.
fn open(
    executor: &mut Executor,
    config: Config,
    before: Option<Config>,
    is_adopted: bool,
) -> Result<(CoreConfig, Changes), RunError> {
    let (global, pid_file) = (config.global.clone(), config.global.pid.clone());
    let by = match is_adopted {
        true => ReloadCause::Takeover,
        false => ReloadCause::Start,
    };
    let opened = match (executor.prepare(config, ReloadScope::All), before) {
        (Ok(opened), _) => {
            let last = LastReload::applied(clock::epoch_seconds(), by, &opened.1.skipped);
            executor.context.handover.remember_reload(last);
            opened
        }
        (Err(error), Some(before)) => {
            log::error!("the configuration can't be applied, the one before it stays in force: {error}");
            let errors = [Complaint::text(error.to_string())];
            let last = LastReload::refused(clock::epoch_seconds(), by, &errors);
            executor.context.handover.remember_reload(last);
            executor
                .prepare(before, ReloadScope::All)
                .map_err(RunError::Apply)?
        }
        (Err(error), None) => return Err(RunError::Apply(error)),
    };
    match executor
        .control
        .open(&mut executor.context, &executor.applications, &global)
    {
        Ok(()) => {}
        Err(error) if is_adopted => log::error!("{error}"),
        Err(error) => return Err(RunError::Control(error)),
    }
    executor.context.handover.inherited.drop_unwanted();
    if let Some(path) = &pid_file {
        replace(path, std::process::id().to_string().as_bytes())
            .map_err(|error| RunError::Pid(path.clone(), error))?;
    }
    Ok(opened)
}

fn limit_master(config: &Config) {
    let global = &config.global;
    let failed = |result: Result<(), sys::Error>| {
        if let Err(error) = result {
            log::error!("{error}");
        }
    };
    if let Some(files) = global.rlimit_files {
        failed(sys::identity::limit_descriptors(files, files));
    }
    match global.rlimit_core {
        Some(config::CoreLimit::Bytes(bytes)) => failed(sys::identity::limit_core(Some(bytes))),
        Some(config::CoreLimit::Unlimited) => failed(sys::identity::limit_core(None)),
        None => {}
    }
    if let (Some(nice), true) = (global.process_priority, sys::identity::is_root()) {
        failed(sys::identity::set_priority(nice));
    }
}
