//! What signals (`signals.rs`) and requests over the control socket have the master do while it runs: reload, upgrade, open its
//! logs anew, answer.
//!
//! `reload` goes on with `prepare` in `executor/prepare.rs` (what is opened for the new configuration) and `apply` in
//! `crates/core/src/master/reload.rs` (which generations come and go). The steps of an upgrade are in
//! `crates/core/src/master/lifecycle.rs`; `advance` in `run.rs` carries them out.

use super::event::Event;
use super::executor::UpgradeError;
use super::frontend::say_skipped;
use super::lifecycle::{Asker, LifecycleCause};
use super::reload_diff::ReloadScope;
use super::run::Master;
use crate::control::protocol::{Answer, Complaint, DaemonMode, Request};
use crate::logs::Log;
use crate::router::messages::AdminRequest;
use crate::sys;
use serde_json::Value;
use std::time::Duration;

impl Master {
    /// Lets the program that is on disk now take this one's place, if it can. In a rehearsal it reads the configuration; if it
    /// can't take over, this program goes on, and reloads. A daemon that ends, or is at an upgrade already, only says so.
    pub(super) fn upgrade(&mut self, asker: Asker) {
        match self.lifecycle.why_no_upgrade() {
            Some(why) => log::info!("{why}"),
            None => self.advance(LifecycleCause::Upgrade(asker)),
        }
    }

    pub(super) fn rehearse(&mut self) {
        log::info!("the program was replaced, trying whether the new one can take over");
        if let Err(error) = self.executor.rehearse(&self.manager, self.lifecycle.stopping()) {
            self.upgrade_failed(&error);
        }
    }

    /// Replaces this program by the new one; returns if that fails, or if the daemon ends.
    pub(super) fn hand_over(&mut self, asker: Asker) {
        // A signal that this program has taken, and not acted upon, would be lost with it.
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

    pub(super) fn upgrade_failed(&mut self, error: &UpgradeError) {
        // A daemon that ends has given it up.
        if self.lifecycle.stopping().is_some() {
            return;
        }
        log::error!("the new program can't take over, this one goes on: {error}");
        if let Some(asker) = self.lifecycle.asker() {
            let message = format!("the new program can't take over, the old one goes on: {error}");
            self.executor.answer(asker, &Answer::refusal(message));
        }
        self.advance(LifecycleCause::Unable);
    }

    pub(super) fn resume_service(&mut self) {
        self.executor.raise_routers();
        if let Err(answer) = self.reload(ReloadScope::Changed, None) {
            log::debug!("{answer:?}");
        }
        self.service.tell_ready();
    }

    /// Opens all logs anew, after they were moved away.
    pub(super) fn reopen_logs(&mut self) {
        match Log::install().reopen() {
            Ok(()) => log::info!("error log file re-opened"),
            Err(error) => {
                log::error!("unable to re-opened error log file: {error}; the old one is written on")
            }
        }
        match self.executor.pools.reopen_access_logs() {
            Some(true) => log::info!("access log file re-opened"),
            Some(false) => log::error!("unable to re-opened access log file; the old one is written on"),
            None => {}
        }
        match self.executor.pools.reopen_app_logs() {
            Some(true) => log::info!("application log file re-opened"),
            Some(false) => log::error!("unable to re-open an application's log; the old one is written on"),
            None => {}
        }
        self.executor.pools.reopen_slow_logs();
    }

    /// Reads, checks and prepares the new configuration; whatever is wrong with it, the old one goes on, and the answer
    /// is given back. Otherwise `asker` is answered once the reload is done.
    pub(super) fn reload(&mut self, extent: ReloadScope, asker: Option<u64>) -> Result<(), Answer> {
        if self.lifecycle.stopping().is_some() {
            let why = "the daemon is ending, its configuration is not reloaded";
            log::info!("{why}");
            return Err(Answer::refusal(why.to_owned()));
        }
        log::info!("Reloading in progress ...");
        let refused = |errors| Answer::Error {
            message: "the configuration is not reloaded, the old one stays in force".to_owned(),
            errors,
        };
        let config = match (self.read_config)() {
            Ok(config) => config,
            Err(errors) => {
                log::error!("the configuration is not reloaded, the old one stays in force");
                return Err(refused(errors));
            }
        };
        let global = config.global.clone();
        let sockets = self.executor.named_sockets();
        let starts = self.executor.context.starts(&config);
        match self.executor.prepare(config, extent) {
            Ok((wanted, changes)) => {
                self.executor.reload.hold(starts);
                if let Err(error) = Log::install().follow(&global) {
                    log::error!("the old log is written on: {error}");
                }
                if let Err(error) = self.executor.open_control(global.control.as_deref()) {
                    log::error!("the control socket stays where it was: {error}");
                }
                self.executor.set_jobs();
                self.service.set_bulletin(global.systemd_interval);
                say_skipped(&changes.skipped);
                self.executor.begin_reload(changes, sockets, asker);
                self.tell(Event::Apply(wanted));
                sys::heap::trim();
                Ok(())
            }
            Err(error) => {
                log::error!("the configuration is not reloaded, the old one stays in force: {error}");
                Err(refused(vec![Complaint::text(error.to_string())]))
            }
        }
    }

    /// Carries out a request that came over the control socket. What is not answered here is answered later, or was already.
    pub(super) fn handle_request(&mut self, asker: u64, request: &Request) {
        let rights = self.executor.control.rights(asker);
        if !Master::is_for_owners(request, rights) {
            let message = "permission denied: root and the daemon's own user may ask for that";
            return self.executor.answer(asker, &Answer::refusal(message.to_owned()));
        }
        let answer = match request {
            Request::Restart {
                application,
                rolling,
                start,
            } => self.restart_application(asker, application, *rolling, *start),
            Request::RestartPool { pool, wait } => self.restart_pool(asker, pool, *wait),
            Request::Detach { pid } => self.about_instance(asker, *pid, AdminRequest::Detach { pid: *pid }),
            Request::Disable { pid } => self.disable(asker, *pid, false),
            Request::Enable { pid } => self.disable(asker, *pid, true),
            Request::Resize { pool, max } => self.resize(asker, pool, *max),
            Request::Take { of, wait_ms } => self.lend(asker, of, wait_ms.map(Duration::from_millis)),
            Request::Return { lease, failed } => {
                let given = self.executor.give_back(asker, *lease, !failed);
                given.err().map(Answer::refusal)
            }
            Request::PoolAdd { file } => self.add_pools(asker, file).err(),
            Request::PoolRemove {
                name,
                immediate,
                deadline_ms,
            } => {
                let limit = match (immediate, deadline_ms) {
                    (true, _) => Some(Duration::ZERO),
                    (false, limit) => limit.map(Duration::from_millis),
                };
                self.remove_pool(asker, name, limit).err()
            }
            Request::Ping {} => Some(Answer::Pong {
                pid: std::process::id(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                mode: match self.lifecycle.stopping() {
                    Some(_) => DaemonMode::Ending,
                    None => self.mode,
                },
            }),
            Request::Drain { end } => {
                self.drain(*end);
                Some(Answer::Done { value: Value::Null })
            }
            Request::ReopenLogs {} => {
                self.reopen_logs();
                Some(Answer::Done { value: Value::Null })
            }
            Request::Status {} => {
                self.executor.begin_status(asker);
                None
            }
            Request::Error { id, format } => Some(self.executor.error_report(rights, id.as_deref(), *format)),
            Request::Upgrade {} => match self.lifecycle.why_no_upgrade() {
                Some(why) => Some(Answer::refusal(why.to_owned())),
                None => {
                    self.upgrade(Some(asker));
                    None
                }
            },
            Request::Reload { all } => {
                let extent = if *all {
                    ReloadScope::All
                } else {
                    ReloadScope::Changed
                };
                self.service.tell_reloading();
                let result = self.reload(extent, Some(asker));
                self.service.tell_ready();
                result.err()
            }
        };
        if let Some(answer) = answer {
            self.executor.answer(asker, &answer);
        }
    }

    fn drain(&mut self, ends: bool) {
        let (mode, said) = match ends {
            true => (DaemonMode::Serving, "ready again"),
            false => (
                DaemonMode::Draining,
                "drained: not ready, and requests are served",
            ),
        };
        self.mode = mode;
        log::info!("{said}");
    }
}
