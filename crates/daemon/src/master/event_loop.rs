//! The master's loop: input to events, events to the core, the core's actions to the executor.

use super::executor::Executor;
use super::frontend::ReadConfig;
use super::service::Service;
use crate::context::failure::RunError;
use crate::context::named_socket::NamedSocket;
use crate::context::sources::SIGNALS;
use crate::context::sources::Source;
use forkyard_base::tick::Tick;
use forkyard_core::master::action::{Action, ExitOutcome};
use forkyard_core::master::event::{CoreConfig, Event, PoolId};
use forkyard_core::master::lifecycle::Lifecycle;
use forkyard_core::master::manager::Manager;
use forkyard_core::master::reload_diff::ReloadScope;
use forkyard_core::master::reload_plan::Changes;
use forkyard_protocol::control::DaemonMode;
use forkyard_protocol::handover::document::Stopping;
use forkyard_protocol::last_reload::ReloadCause;
use forkyard_sys::{self as sys, clock};
use mio::{Events, Poll};
use signal_hook::consts::SIGCHLD;
use signal_hook_mio::v1_0::Signals;
use std::io;
use std::time::Duration;

const EVENTS: usize = 256;
/// The most control requests in one turn of the loop.
const REQUESTS: usize = 16;

pub(super) fn system(call: &'static str) -> impl FnOnce(io::Error) -> RunError {
    move |error| RunError::System(sys::Error::from_io(call, "", &error))
}

pub(super) struct Master {
    pub(super) poll: Poll,
    pub(super) signals: Signals,
    pub(super) executor: Executor,
    pub(super) manager: Manager,
    pub(super) service: Service,
    pub(super) read_config: ReadConfig,
    pub(super) lifecycle: Lifecycle,
    /// Whether load balancers may send requests here.
    pub(super) mode: DaemonMode,
    /// Removed pools, with the deadline of their workers.
    pub(super) expulsions: Vec<(Tick, Vec<PoolId>)>,
}

impl Master {
    /// Performs the actions of the take-over, then applies the configuration or continues a stop.
    pub(super) fn begin(&mut self, wanted: CoreConfig) {
        for action in std::mem::take(&mut self.executor.context.handover.todo) {
            self.executor.perform(action);
        }
        // Neither program got SIGCHLD for a child that exited during the replacement.
        self.executor.reap();
        self.perform_actions();
        match self.lifecycle.stopping() {
            None => {}
            Some(Stopping::Finish) => self.tell(Event::Finish),
            Some(Stopping::Terminate) => self.tell(Event::Terminate),
        }
        self.tell(Event::Apply(wanted));
        sys::heap::trim();
    }

    pub(super) fn serve(&mut self) -> Result<(), RunError> {
        let mut events = Events::with_capacity(EVENTS);
        let mut again: Vec<Source> = Vec::new();
        loop {
            if let Some(outcome) = self.executor.context.services.outcome {
                return end(outcome);
            }
            self.executor.save(&self.manager, self.lifecycle.stopping());
            self.wait(&mut events, again.is_empty())?;
            let (sources, signals) = self.take(&events, std::mem::take(&mut again));
            for source in sources {
                if self.on_ready(source) {
                    again.push(source);
                }
            }
            again.append(&mut self.executor.context.services.again);
            // Logs workers' output from before a signal first.
            self.take_signals(signals);
            self.handle_requests();
            self.restart_if_asked();
            self.executor.poll(clock::now(), &self.manager);
            self.executor.send_numbers(self.daemon_mode());
            self.perform_actions();
            self.expel();
            self.service.poll(&self.executor);
            let due = self.manager.next_deadline();
            if due.is_some_and(|due| due <= clock::now()) {
                self.tell(Event::Deadline);
            }
            self.deploy_on();
            self.follow_lifecycle();
            if self
                .executor
                .watch
                .take_changes(&mut self.executor.context.services.sources)
            {
                log::info!("files of pools have changed");
                if let Err(answer) = self.reload(ReloadScope::Settings, ReloadCause::Files, None) {
                    log::debug!("{answer:?}");
                }
            }
        }
    }

    /// Waits for events or the next deadline. `is_idle`: no source has more to read.
    fn wait(&mut self, events: &mut Events, is_idle: bool) -> Result<(), RunError> {
        let executor = &self.executor;
        let is_idle = is_idle && !executor.web.is_due();
        let is_idle =
            is_idle && !executor.control.has_requests() && !executor.context.processes.has_more_dead;
        let timeout = if is_idle {
            self.timeout()
        } else {
            Some(Duration::ZERO)
        };
        match self.poll.poll(events, timeout) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(system("epoll_wait")(error)),
        }
    }

    /// What the daemon is about, for load balancers.
    pub(super) fn daemon_mode(&self) -> DaemonMode {
        match self.lifecycle.stopping() {
            Some(_) => DaemonMode::Ending,
            None => self.mode,
        }
    }

    fn take(&mut self, events: &Events, mut sources: Vec<Source>) -> (Vec<Source>, Vec<i32>) {
        if self.executor.context.processes.has_more_dead {
            self.take_signals(vec![SIGCHLD]);
        }
        let mut signals = Vec::new();
        for event in events {
            if event.token() == SIGNALS {
                let children;
                (children, signals) = self.signals.pending().partition(|signal| *signal == SIGCHLD);
                self.take_signals(children);
            } else {
                sources.extend(self.executor.context.services.source(event.token()));
            }
        }
        (sources, signals)
    }

    /// Reads a source. Returns `true` if it has more.
    fn on_ready(&mut self, source: Source) -> bool {
        let is_more = match source {
            Source::Status(pool) => {
                let serving = self.manager.serving(pool);
                let executor = &mut self.executor;
                executor
                    .reporters
                    .needed(&mut executor.context, &executor.preloaders, pool, serving);
                false
            }
            other => self.executor.on_ready(other),
        };
        self.perform_actions();
        is_more
    }

    fn handle_requests(&mut self) {
        for _ in 0..REQUESTS {
            let Some((asker, request)) = self.executor.control.next_request() else {
                break;
            };
            self.handle_request(asker, &request);
        }
        if let Some((asker, request)) = self.executor.control.next_request_of_guests() {
            self.handle_request(asker, &request);
        }
    }

    fn timeout(&self) -> Option<Duration> {
        let deadline = [
            self.manager.next_deadline(),
            self.service.deadline(),
            self.expulsions.iter().map(|(until, _)| *until).min(),
            self.executor.next_deadline(),
        ];
        let left = deadline.into_iter().flatten().min()?.since(clock::now());
        // epoll_wait counts milliseconds; rounding up means the deadline has passed when it returns.
        Some(Duration::from_millis(
            u64::try_from(left.as_micros().div_ceil(1000)).unwrap_or(u64::MAX),
        ))
    }

    /// Lets the core apply a prepared configuration, and follows that until it is done. `sockets`: those from before.
    pub(super) fn apply(
        &mut self,
        (wanted, changes): (CoreConfig, Changes),
        sockets: Vec<NamedSocket>,
        asker: Option<u64>,
        by: Option<ReloadCause>,
    ) {
        let Executor { context, reload, .. } = &mut self.executor;
        reload.begin(&mut context.services, changes, sockets, asker, by);
        self.tell(Event::Apply(wanted));
    }

    /// Passes an event to the core, and performs its actions until none follows.
    pub(super) fn tell(&mut self, event: Event) {
        self.executor.context.services.tell(event);
        self.perform_actions();
    }

    pub(super) fn perform_actions(&mut self) {
        self.executor.settle();
        let mut actions: Vec<Action> = Vec::new();
        while let Some(event) = self.executor.context.services.happened.pop_front() {
            log::trace!("{event:?}");
            self.manager.handle(event, clock::now(), &mut actions);
            for action in actions.drain(..) {
                self.executor.perform(action);
            }
        }
        self.executor.end_turn();
    }
}

fn end(outcome: ExitOutcome) -> Result<(), RunError> {
    match outcome {
        ExitOutcome::Stopped => {
            log::info!("exiting, bye-bye!");
            Ok(())
        }
        ExitOutcome::NoWorkerAtStart => Err(RunError::NoWorker),
    }
}
