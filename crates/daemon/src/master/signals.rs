//! The master's reaction to each signal. Control requests (`control_requests.rs`) call the same functions.
//!
//! * SIGUSR2: an upgrade if the executable's file was replaced (another device, inode, size or time than at the start),
//!   otherwise a reload.
//! * A reload (`reload`): the configuration is read; `prepare` in `crates/daemon/src/reload/prepare.rs` opens its sockets
//!   and files; `Event::Apply` lets the core replace the workers of changed pools (`apply` in `crates/core/src/master/reload.rs`).
//!   The old workers serve until the new ones are warm. After an error everything stays unchanged.
//! * An upgrade (`upgrade`): the states are in `crates/core/src/master/lifecycle.rs`, and `advance` carries them out.
//!   The new program tries to read the configuration (`rehearse`); if it can, routers finish, and the master executes
//!   it with the same pid and sockets (`hand_over`). If it can't, this program reloads and continues
//!   (`resume_service`).

use super::event_loop::Master;
use super::frontend::say_skipped;
use crate::handover::upgrade::UpgradeError;
use forkyard_config::OnSigterm;
use forkyard_core::master::event::Event;
use forkyard_core::master::lifecycle::{Asker, LifecycleAction, LifecycleCause};
use forkyard_core::master::reload_diff::ReloadScope;
use forkyard_host::logs::Log;
use forkyard_protocol::control::{Answer, Complaint, DaemonMode};
use forkyard_protocol::last_reload::{LastReload, ReloadCause};
use forkyard_protocol::last_upgrade::UpgradeCause;
use forkyard_protocol::past_event::{EventKind, Happening};
use forkyard_sys::invocation::{self, Invocation};
use forkyard_sys::{self as sys, clock};
use signal_hook::consts::{SIGCHLD, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};

impl Master {
    pub(super) fn take_signals(&mut self, signals: Vec<i32>) {
        for signal in signals {
            match signal {
                SIGTERM if self.finishes_at_term() => self.finish(),
                SIGTERM | SIGINT => {
                    log::info!("Terminating ...");
                    self.record(EventKind::Stop, "the daemon ends, with its workers");
                    self.service.tell_stopping();
                    self.advance(LifecycleCause::Terminate);
                }
                SIGQUIT => self.finish(),
                SIGUSR1 => drop(self.reopen_logs()),
                SIGUSR2 => {
                    let ends = self.lifecycle.stopping().is_some();
                    // systemd already has STOPPING=1 and gets no RELOADING=1.
                    if !ends {
                        self.service.tell_reloading();
                    }
                    if invocation::get().is_some_and(Invocation::is_replaced) {
                        self.upgrade(None);
                    } else {
                        if let Err(answer) = self.reload(ReloadScope::Changed, ReloadCause::Signal, None) {
                            log::debug!("{answer:?}");
                        }
                        // The configuration is in force, but new workers may not be warm yet; `forkyard reload` waits
                        // for them.
                        if !ends {
                            self.service.tell_ready();
                        }
                    }
                }
                SIGCHLD => {
                    self.executor.reap();
                    self.perform_actions();
                }
                // A daemon has no terminal.
                _ => log::info!("SIGHUP is ignored; SIGUSR2 reloads"),
            }
        }
    }

    fn finish(&mut self) {
        log::info!("Finishing ...");
        self.record(EventKind::Stop, "the daemon ends after the running requests");
        self.service.tell_stopping();
        let routers = self.executor.applications.has_routers();
        self.advance(LifecycleCause::Quit { routers });
    }

    fn record(&mut self, kind: EventKind, text: impl Into<String>) {
        let what = Happening::of_daemon(kind, text);
        self.executor.context.handover.record(what);
    }

    /// Whether SIGTERM counts as SIGQUIT: the first one, if the configuration or a drain demands it.
    fn finishes_at_term(&self) -> bool {
        let is_wanted = self.executor.context.in_force.config.global.on_sigterm == OnSigterm::Finish;
        self.lifecycle.stopping().is_none() && (is_wanted || self.mode == DaemonMode::Draining)
    }

    /// Replaces this program by the one on disk. In a rehearsal that program reads the configuration; if it fails, this
    /// program reloads and continues. Has no effect during a stop or another upgrade.
    pub(super) fn upgrade(&mut self, asker: Asker) {
        match self.lifecycle.why_no_upgrade() {
            Some(why) => log::info!("{why}"),
            None => {
                let by = match asker {
                    Some(_) => UpgradeCause::Command,
                    None => UpgradeCause::Signal,
                };
                self.executor.context.handover.upgrade_begins(by);
                self.advance(LifecycleCause::Upgrade(asker));
            }
        }
    }

    fn rehearse(&mut self) {
        log::info!("the program was replaced, trying whether the new one can take over");
        let left = self.executor.left_state();
        let document = left.document_for_upgrade(&self.manager, self.lifecycle.stopping());
        if let Err(error) = self
            .executor
            .upgrade
            .rehearse(&mut self.executor.context, &document)
        {
            self.upgrade_failed(&error);
        }
    }

    /// Replaces this program by the new one. Returns only if that fails or the daemon stops.
    fn hand_over(&mut self, asker: Asker) {
        // A signal that was received but not handled would be lost.
        let mask = sys::signal::block_all();
        let pending = self.signals.pending().collect();
        self.take_signals(pending);
        if self.lifecycle.stopping().is_some() {
            return sys::signal::restore(&mask);
        }
        log::info!("the new program takes over");
        if let Some(asker) = asker {
            self.executor.answer(asker, &Answer::Upgrading {});
        }
        self.executor.save(&self.manager, None);
        let error = self
            .executor
            .hand_over(&self.manager, None, self.service.variables());
        sys::signal::restore(&mask);
        self.upgrade_failed(&error);
    }

    fn upgrade_failed(&mut self, error: &UpgradeError) {
        // A stop has cancelled the upgrade.
        if self.lifecycle.stopping().is_some() {
            return;
        }
        log::error!("the new program can't take over, this one goes on: {error}");
        self.executor.context.handover.upgrade_failed(&error.to_string());
        if let Some(asker) = self.lifecycle.asker() {
            let message = format!("the new program can't take over, the old one goes on: {error}");
            self.executor.answer(asker, &Answer::refusal(message));
        }
        self.advance(LifecycleCause::Unable);
    }

    fn resume_service(&mut self) {
        self.executor.applications.raise(&mut self.executor.context);
        if let Err(answer) = self.reload(ReloadScope::Changed, ReloadCause::Upgrade, None) {
            log::debug!("{answer:?}");
        }
        self.service.tell_ready();
    }

    /// Opens all logs again. Returns the failures; those logs are written to their old files.
    pub(super) fn reopen_logs(&mut self) -> Vec<String> {
        let mut failures = Vec::new();
        match Log::install().reopen() {
            Ok(()) => log::info!("error log file re-opened"),
            Err(error) => {
                log::error!("unable to re-opened error log file: {error}; the old one is written on");
                failures.push(format!("error_log: {error}"));
            }
        }
        let executor = &mut self.executor;
        let pools = &mut executor.context.pools;
        match pools.reopen_access_logs() {
            Ok(true) => log::info!("access log file re-opened"),
            Ok(false) => {}
            Err(failed) => {
                log::error!("unable to re-opened access log file; the old one is written on");
                failures.extend(failed);
            }
        }
        match pools.reopen_app_logs() {
            Ok(true) => log::info!("application log file re-opened"),
            Ok(false) => {}
            Err(failed) => {
                log::error!("unable to re-open an application's log; the old one is written on");
                failures.extend(failed);
            }
        }
        failures.extend(pools.reopen_slow_logs());
        failures.extend(executor.applications.reopen_access_logs(&executor.context));
        self.record(EventKind::LogsReopened, "the log files were opened again");
        failures
    }

    /// Reads, checks and prepares the new configuration. Returns the answer if that fails, and the old configuration
    /// stays in force; otherwise `asker` is answered when the reload is done.
    pub(super) fn reload(
        &mut self,
        extent: ReloadScope,
        by: ReloadCause,
        asker: Option<u64>,
    ) -> Result<(), Answer> {
        if self.lifecycle.stopping().is_some() {
            let why = "the daemon is ending, its configuration is not reloaded";
            log::info!("{why}");
            return Err(Answer::refusal(why.to_owned()));
        }
        log::info!("Reloading in progress ...");
        self.executor.context.handover.config_is_read();
        let config = match (self.read_config)() {
            Ok(config) => config,
            Err(errors) => {
                log::error!("the configuration is not reloaded, the old one stays in force");
                return Err(self.refuse_reload(by, errors));
            }
        };
        let global = config.global.clone();
        let sockets = self.executor.reporters.named_sockets(&self.executor.context);
        let starts = self.executor.context.services.starts(&config);
        match self.executor.prepare(config, extent) {
            Ok((wanted, changes)) => {
                self.executor.context.in_force.hold(starts);
                if let Err(error) = Log::install().follow(&global) {
                    log::error!("the old log is written on: {error}");
                }
                if let Err(error) = self.executor.control.open(
                    &mut self.executor.context,
                    &self.executor.applications,
                    &global,
                ) {
                    log::error!("the control socket stays where it was: {error}");
                }
                self.executor.jobs.set(&mut self.executor.context);
                self.executor.web.set(&mut self.executor.context);
                self.service.set_bulletin(global.systemd_interval);
                say_skipped(&changes.skipped);
                self.apply((wanted, changes), sockets, asker, Some(by));
                sys::heap::trim();
                Ok(())
            }
            Err(error) => {
                log::error!("the configuration is not reloaded, the old one stays in force: {error}");
                Err(self.refuse_reload(by, vec![Complaint::text(error.to_string())]))
            }
        }
    }

    pub(super) fn compare(&mut self, all: bool) -> Answer {
        let scope = match all {
            true => ReloadScope::All,
            false => ReloadScope::Changed,
        };
        log::debug!("the configuration that is written is compared with the one in force");
        match (self.read_config)() {
            Ok(config) => Answer::Changes(Box::new(
                self.executor.comparer(scope).what_a_reload_changes(config),
            )),
            Err(errors) => Answer::Error {
                message: "the configuration would not be reloaded, the old one would stay in force"
                    .to_owned(),
                errors,
            },
        }
    }

    fn refuse_reload(&mut self, by: ReloadCause, errors: Vec<Complaint>) -> Answer {
        let last = LastReload::refused(clock::epoch_seconds(), by, &errors);
        let error = last.error.as_deref().unwrap_or_default();
        let text = format!("{}: {}: {error}", by.in_words(), last.result.in_words());
        self.record(EventKind::ReloadRefused, text);
        self.executor.context.handover.remember_reload(last);
        Answer::Error {
            message: "the configuration is not reloaded, the old one stays in force".to_owned(),
            errors,
        }
    }

    pub(super) fn follow_lifecycle(&mut self) {
        if self.lifecycle.waits_for_routers() && !self.executor.applications.has_routers() {
            self.advance(LifecycleCause::RoutersGone);
        }
        match self
            .executor
            .upgrade
            .continue_upgrade(&self.executor.context.pools)
        {
            None => {}
            Some(Ok(())) => {
                let routers = self.executor.applications.has_routers();
                self.advance(LifecycleCause::Able { routers });
            }
            Some(Err(error)) => self.upgrade_failed(&error),
        }
    }

    pub(super) fn advance(&mut self, cause: LifecycleCause) {
        let (lifecycle, step) = self.lifecycle.after(cause);
        self.lifecycle = lifecycle;
        self.executor.orphans.daemon_stops = lifecycle.stopping().is_some();
        match step {
            LifecycleAction::Nothing => {}
            LifecycleAction::Rehearse => self.rehearse(),
            LifecycleAction::FinishRouters if self.executor.finish_routers() => {}
            LifecycleAction::FinishRouters => self.advance(LifecycleCause::RoutersGone),
            LifecycleAction::HandOver(asker) => self.hand_over(asker),
            LifecycleAction::GoOn => self.resume_service(),
            LifecycleAction::Drain if self.executor.finish_routers() => {
                self.executor.jobs.stop(&mut self.executor.context);
                self.tell(Event::Drain);
            }
            LifecycleAction::Drain => self.advance(LifecycleCause::RoutersGone),
            LifecycleAction::Finish => {
                self.executor.jobs.stop(&mut self.executor.context);
                self.tell(Event::Finish);
            }
            LifecycleAction::Terminate => {
                self.executor.jobs.stop(&mut self.executor.context);
                self.executor.applications.kill(&mut self.executor.context);
                self.tell(Event::Terminate);
            }
        }
    }
}
