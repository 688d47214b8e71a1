//! The master's loop: the world to events, events to the core, the core's actions to the executor.

use super::event::{Event, Wanted};
use super::executor::{Executor, Extent, Handlers, RunError, SIGNALS, Source, Totals};
use super::manager::Manager;
use crate::config::{self, Config, Finding, Severity, Skipped};
use crate::control::protocol::Complaint;
use crate::estate::Heritage;
use crate::estate::document::Stopping;
use crate::logs::Log;
use crate::sys::file::{remove, replace};
use crate::sys::invocation::Invocation;
use crate::sys::notify::{self, Notifier};
use crate::sys::{self, clock, fd, invocation, process, title};
use crate::tick::Tick;
use mio::{Events, Interest, Poll};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook_mio::v1_0::Signals;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Events taken at once.
const EVENTS: usize = 256;
/// Orders carried out between two looks at everything else.
const ORDERS: usize = 16;

fn system(call: &'static str) -> impl FnOnce(io::Error) -> RunError {
    move |error| RunError::System(sys::Error::from_io(call, "", &error))
}

/// Reads a configuration, or says what is wrong with it.
pub type ReadConfig = Box<dyn FnMut() -> Result<Config, Vec<Complaint>>>;

/// The title of a daemon that is in php-fpm's place.
pub(super) const FPM_TITLE: &str = "php-fpm";

/// What is the daemon's own when the same master runs under different names.
pub struct Persona {
    /// Its name in the log.
    pub name: &'static str,
    /// The word before the colon in process titles.
    pub title: &'static str,
    /// Reads the configuration anew. What is wrong with one that can't be used is said in the log, too.
    pub reload: ReadConfig,
}

impl Persona {
    /// Whether it is in php-fpm's place.
    fn speaks_as_fpm(&self) -> bool {
        self.title == FPM_TITLE
    }

    /// forkyard itself, with the configuration file that it reads anew.
    pub fn forkyard(path: PathBuf) -> Persona {
        Persona {
            name: "forkyard",
            title: "forkyard",
            reload: Box::new(move || reload(&path)),
        }
    }
}

fn reload(path: &Path) -> Result<Config, Vec<Complaint>> {
    match config::load(path) {
        Ok(loaded) => {
            say_findings(&loaded.warnings);
            Ok(loaded.config)
        }
        Err(errors) => {
            for finding in errors.errors() {
                log::error!("{}", finding.said_of(None));
            }
            Err(errors.complaints())
        }
    }
}

/// Runs the daemon until it is told to stop.
///
/// The process has one thread. `libexec` has forkyard's own programs, `heritage` is what the master before this one has
/// left. `ready` is called once every socket listens and the first workers have been asked for.
pub(crate) fn run(
    config: Config,
    handlers: Handlers,
    persona: Persona,
    libexec: &Path,
    heritage: Heritage,
    ready: impl FnOnce(),
) -> Result<(), RunError> {
    title::prepare();
    let log = Log::install();
    log.follow(&config.global).map_err(RunError::Log)?;
    let limit = fd::raise_descriptor_limit().ok();
    limit_master(&config);
    process::become_subreaper()?;
    sys::signal::ignore_pipe();
    let notifier = Notifier::from_environment();
    let poll = Poll::new().map_err(system("epoll_create1"))?;
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD, SIGHUP])
        .map_err(system("sigaction"))?;
    poll.registry()
        .register(&mut signals, SIGNALS, Interest::READABLE)
        .map_err(system("epoll_ctl"))?;
    // php-fpm blocks some before it executes its successor, and we all of them: none came before there was a handler.
    sys::signal::unblock();
    let registry = poll.registry().try_clone().map_err(system("dup"))?;
    let pid_file = config.global.pid.clone();
    let control = config.global.control.clone();
    let interval = config.global.systemd_interval;
    let title = format!("{}: master process ({})", persona.title, config.path.display());
    let mut executor = Executor::new(registry, log, config.clone(), handlers, libexec.to_owned(), limit)
        .map_err(system("dup"))?;
    executor.context.speaks_as_fpm = persona.speaks_as_fpm();
    // What was said to this process is not said to those that it starts.
    let store = Notifier::from_environment().filter(Notifier::keeps_descriptors);
    process::forget_variables(&notify::VARIABLES);
    let names = crate::listen::fpm_variables();
    let (before, stored) = (heritage.config.clone(), heritage.stored.clone());
    let stopping = heritage.document.as_ref().and_then(|document| document.stopping);
    let adopted = executor.adopt(heritage, &config);
    process::forget_variables(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let mut manager = Manager::default();
    if let Some(adopted) = &adopted {
        let mut actions = Vec::new();
        manager.handle(Event::Adopt(adopted.clone()), clock::now(), &mut actions);
        executor.handover.todo.extend(actions);
    }
    if let Some(store) = store {
        executor.open_store(store, &stored, &manager);
    }
    let starts = executor.context.starts(&config);
    executor.reload.hold(starts);
    let (wanted, changes) = match executor.prepare(config, Extent::All) {
        Ok(prepared) => prepared,
        Err(error) => match before.filter(|_| adopted.is_some()) {
            Some(before) => {
                log::error!("the configuration can't be applied, the one before it stays in force: {error}");
                executor.prepare(before, Extent::All).map_err(RunError::Apply)?
            }
            None => return Err(RunError::Apply(error)),
        },
    };
    say_skipped(&changes.skipped);
    match executor.open_control(control.as_deref()) {
        Ok(()) => {}
        Err(error) if adopted.is_some() => log::error!("{error}"),
        Err(error) => return Err(RunError::Control(error)),
    }
    executor.handover.inherited.drop_unwanted();
    if let Some(path) = &pid_file {
        replace(path, std::process::id().to_string().as_bytes())
            .map_err(|error| RunError::Pid(path.clone(), error))?;
    }
    title::set(&title);
    log::info!("{} is running, pid {}", persona.name, std::process::id());
    let mut master = Master {
        poll,
        signals,
        executor,
        manager,
        watchdog: notifier
            .as_ref()
            .and_then(|notifier| notifier.watchdog)
            .map(Watchdog::new),
        bulletin: None,
        notifier,
        reload: persona.reload,
        actions: Vec::new(),
        stopping,
        upgraded_for: None,
        expulsions: super::commands::Expulsions::default(),
        waits_for_routers: false,
        upgrades_after_routers: false,
    };
    master.begin(wanted);
    log::info!("ready to handle connections");
    ready();
    master.tell_ready();
    master.set_bulletin(interval);
    let outcome = master.serve();
    master.executor.end_reporters();
    master.executor.end_stand_ins();
    master.executor.end_routers();
    master.executor.helpers.end_spawner();
    master.executor.pools.remove_socket_files();
    master.executor.clear_store();
    master.executor.control.remove_control_file();
    if let Some(path) = &pid_file {
        let _ = remove(path);
    }
    outcome
}

/// Tells what was found in a configuration that can be used. Of pools that are skipped it is told when that is done.
pub(crate) fn say_findings(findings: &[Finding]) {
    let warnings = findings
        .iter()
        .filter(|finding| finding.severity == Severity::Warning);
    warnings.for_each(|finding| log::warn!("{}", finding.said_of(None)));
}

/// Tells which pools can't be had, and why.
pub(super) fn say_skipped(skipped: &[Skipped]) {
    for one in skipped {
        for reason in &one.reasons {
            match &one.pool {
                Some(pool) => log::error!("[pool {pool}] {reason}"),
                None => log::error!("{reason}"),
            }
        }
        log::error!("{one}");
    }
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

/// Tells the service manager what the pools do, now and then.
struct Bulletin {
    interval: Duration,
    due: Tick,
    /// Requests up to the one before.
    requests: u64,
}

impl Bulletin {
    fn new(interval: Duration) -> Bulletin {
        log::info!("systemd monitor interval set to {}ms", interval.as_millis());
        Bulletin {
            interval,
            due: clock::now() + interval,
            requests: 0,
        }
    }

    /// php-fpm's words.
    fn text(&mut self, totals: &Totals) -> String {
        let Totals {
            active,
            idle,
            requests,
            slow,
        } = *totals;
        // A reload begins to count anew.
        let new = requests.checked_sub(self.requests).unwrap_or(requests);
        self.requests = requests;
        let rate = new as f64 / self.interval.as_secs_f64();
        format!(
            "READY=1\nSTATUS=Processes active: {active}, idle: {idle}, Requests: {requests}, slow: {slow}, \
             Traffic: {rate:.2}req/sec"
        )
    }
}

/// Tells the service manager that the loop turns, twice in each of its intervals.
struct Watchdog {
    interval: Duration,
    due: Tick,
}

impl Watchdog {
    fn new(limit: Duration) -> Watchdog {
        let interval = limit / 2;
        Watchdog {
            interval,
            due: clock::now() + interval,
        }
    }
}

pub(super) struct Master {
    poll: Poll,
    pub(super) signals: Signals,
    pub(super) executor: Executor,
    pub(super) manager: Manager,
    pub(super) notifier: Option<Notifier>,
    watchdog: Option<Watchdog>,
    bulletin: Option<Bulletin>,
    pub(super) reload: ReadConfig,
    actions: Vec<super::action::Action>,
    /// The daemon is ending.
    pub(super) stopping: Option<Stopping>,
    /// The core drains, and is told to finish once the routers have.
    waits_for_routers: bool,
    /// The new program takes over once the routers have finished.
    pub(super) upgrades_after_routers: bool,
    pub(super) expulsions: super::commands::Expulsions,
    /// Who asked for the upgrade that is under way.
    pub(super) upgraded_for: Option<u64>,
}

impl Master {
    /// Performs what follows from what was taken over, then applies the configuration; or goes on ending.
    fn begin(&mut self, wanted: Wanted) {
        for action in std::mem::take(&mut self.executor.handover.todo) {
            self.executor.perform(action);
        }
        // Neither program got SIGCHLD for children that ended while one replaced the other.
        self.executor.reap();
        self.settle();
        match self.stopping {
            None => {}
            Some(Stopping::Finish) => self.tell(Event::Finish),
            Some(Stopping::Terminate) => self.tell(Event::Terminate),
        }
        self.tell(Event::Apply(wanted));
    }

    fn serve(&mut self) -> Result<(), RunError> {
        let mut events = Events::with_capacity(EVENTS);
        let mut again: Vec<Source> = Vec::new();
        loop {
            if let Some(outcome) = self.executor.context.outcome {
                return match outcome {
                    super::action::Outcome::Stopped => {
                        log::info!("exiting, bye-bye!");
                        Ok(())
                    }
                    super::action::Outcome::NoWorkerAtStart => Err(RunError::NoWorker),
                };
            }
            self.continue_upgrade();
            self.executor.save(&self.manager, self.stopping);
            let is_idle = again.is_empty()
                && !self.executor.control.has_orders()
                && !self.executor.processes.has_more_dead;
            let timeout = if is_idle {
                self.timeout()
            } else {
                Some(Duration::ZERO)
            };
            match self.poll.poll(&mut events, timeout) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(system("epoll_wait")(error)),
            }
            if self.executor.processes.has_more_dead {
                self.take_signals(vec![SIGCHLD]);
            }
            let mut sources: Vec<Source> = std::mem::take(&mut again);
            let mut orders: Vec<i32> = Vec::new();
            for event in &events {
                if event.token() == SIGNALS {
                    let children;
                    (children, orders) = self.signals.pending().partition(|signal| *signal == SIGCHLD);
                    self.take_signals(children);
                } else {
                    sources.extend(self.executor.context.source(event.token()));
                }
            }
            for source in sources {
                if let Source::Status(pool) = source {
                    self.executor.reporter_wanted(pool, self.manager.serving(pool));
                } else if self.executor.attend(source) {
                    again.push(source);
                }
                self.settle();
            }
            // What workers wrote before a signal came is in the log before what the signal leads to.
            self.take_signals(orders);
            for _ in 0..ORDERS {
                let Some((asker, request)) = self.executor.control.next_order() else {
                    break;
                };
                self.obey(asker, &request);
            }
            if let Some((asker, request)) = self.executor.control.next_order_of_guests() {
                self.obey(asker, &request);
            }
            let manager = &self.manager;
            self.executor
                .tend_reporters(clock::now(), |pool| manager.serving(pool));
            self.executor.tend_routers(clock::now());
            self.executor.tend_control(clock::now());
            self.executor.tend_spawner(clock::now());
            self.executor.tend_programs(clock::now());
            self.executor.tend_entries(clock::now());
            self.settle();
            self.finish_when_routers_have();
            self.expel();
            self.feed_watchdog();
            self.publish_bulletin();
            if self
                .manager
                .next_deadline()
                .is_some_and(|deadline| deadline <= clock::now())
            {
                self.tell(Event::Deadline);
            }
        }
    }

    /// The core makes what routers ask for until they have finished.
    fn finish_when_routers_have(&mut self) {
        if self.waits_for_routers && !self.executor.applications.has_routers() {
            self.waits_for_routers = false;
            self.tell(Event::Finish);
        }
    }

    /// Tells the service manager that requests are served.
    pub(super) fn tell_ready(&self) {
        if let Some(notifier) = &self.notifier {
            let pid = std::process::id();
            notifier.tell(&format!(
                "READY=1\nSTATUS=Ready to handle connections\nMAINPID={pid}\n"
            ));
        }
    }

    fn feed_watchdog(&mut self) {
        let now = clock::now();
        if let (Some(watchdog), Some(notifier)) = (&mut self.watchdog, &self.notifier) {
            if watchdog.due <= now {
                watchdog.due = now + watchdog.interval;
                notifier.tell("WATCHDOG=1\n");
            }
        }
    }

    /// Without a service manager that wants to know, nothing is due.
    pub(super) fn set_bulletin(&mut self, interval: Option<Duration>) {
        let is_known = self.bulletin.as_ref().map(|bulletin| bulletin.interval) == interval;
        if self.notifier.is_some() && !is_known {
            self.bulletin = interval.map(Bulletin::new);
        }
    }

    fn publish_bulletin(&mut self) {
        let now = clock::now();
        if let (Some(bulletin), Some(notifier)) = (&mut self.bulletin, &self.notifier) {
            if bulletin.due <= now {
                bulletin.due = now + bulletin.interval;
                notifier.tell(&bulletin.text(&self.executor.pools.totals()));
            }
        }
    }

    fn tell_stopping(&self) {
        if let Some(notifier) = &self.notifier {
            notifier.tell("STOPPING=1\nSTATUS=Stopping\n");
        }
    }

    fn timeout(&self) -> Option<Duration> {
        let watchdog = self.watchdog.as_ref().map(|watchdog| watchdog.due);
        let bulletin = self.bulletin.as_ref().map(|bulletin| bulletin.due);
        let deadline = [
            self.manager.next_deadline(),
            watchdog,
            bulletin,
            self.executor.helpers.reporters_deadline(),
            self.executor.applications.routers_deadline(),
            self.executor.control.control_deadline(),
            self.expulsions.deadline(),
            self.executor.helpers.spawner_deadline(),
            self.executor.helpers.programs_deadline(),
            self.executor.entries_deadline(),
            self.executor.handover.upgrade_deadline(),
        ]
        .into_iter()
        .flatten()
        .min()?;
        let left = deadline.since(clock::now());
        // epoll_wait counts milliseconds: rounded up, so that the deadline has come when it returns.
        Some(Duration::from_millis(
            u64::try_from(left.as_micros().div_ceil(1000)).unwrap_or(u64::MAX),
        ))
    }

    /// Tells the core, and performs what it wants, until nothing more follows.
    pub(super) fn tell(&mut self, event: Event) {
        self.executor.context.happened.push_back(event);
        self.settle();
    }

    fn settle(&mut self) {
        while let Some(event) = self.executor.context.happened.pop_front() {
            log::trace!("{event:?}");
            self.manager.handle(event, clock::now(), &mut self.actions);
            for action in self.actions.drain(..) {
                self.executor.perform(action);
            }
        }
        self.executor.finish_reload();
    }

    pub(super) fn take_signals(&mut self, signals: Vec<i32>) {
        for signal in signals {
            match signal {
                SIGTERM | SIGINT => {
                    log::info!("Terminating ...");
                    self.tell_stopping();
                    self.stopping = Some(Stopping::Terminate);
                    self.executor.kill_routers();
                    self.tell(Event::Terminate);
                }
                SIGQUIT => {
                    log::info!("Finishing ...");
                    self.tell_stopping();
                    let before = self.stopping.get_or_insert(Stopping::Finish);
                    // Routers have applications started as long as somebody waits.
                    let waits = *before == Stopping::Finish && self.executor.finish_routers();
                    self.waits_for_routers = waits;
                    self.tell(if waits { Event::Drain } else { Event::Finish });
                }
                SIGUSR1 => {
                    self.reopen_logs();
                    self.executor.pools.reopen_slow_logs();
                }
                SIGUSR2 => {
                    if let Some(notifier) = &self.notifier {
                        notifier.tell_reloading();
                    }
                    if invocation::get().is_some_and(Invocation::is_replaced) {
                        self.upgrade();
                    } else {
                        if let Err(answer) = self.reload(Extent::Changed, None) {
                            log::debug!("{answer:?}");
                        }
                        self.tell_ready();
                    }
                }
                SIGCHLD => {
                    self.executor.reap();
                    self.settle();
                }
                // A daemon has no terminal whose end would concern it.
                _ => log::info!("SIGHUP is ignored; SIGUSR2 reloads"),
            }
        }
    }
}
