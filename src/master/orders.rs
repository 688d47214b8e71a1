//! What the master is told to do while it runs: reload, upgrade, open its logs anew, answer.

use super::event::Event;
use super::executor::{Extent, UpgradeError};
use super::run::Master;
use crate::control::protocol::{Answer, Complaint, Request};
use crate::logs::Log;
use crate::sys;
use crate::sys::notify::Notifier;

impl Master {
    /// Lets the program that is on disk now take this one's place, if it can: it tries first. The reload that goes with
    /// it happens either way, in the new program or in this one.
    pub(crate) fn upgrade(&mut self) {
        if let Some(why) = self.why_no_upgrade() {
            return log::info!("{why}");
        }
        log::info!("the program was replaced, trying whether the new one can take over");
        if let Err(error) = self.executor.rehearse(&self.manager, self.stopping) {
            self.upgrade_failed(&error);
        }
    }

    fn why_no_upgrade(&self) -> Option<&'static str> {
        if self.stopping.is_some() {
            return Some("the daemon is ending, there is no upgrade");
        }
        let is_under_way = self.executor.handover.rehearsal.is_some() || self.upgrades_after_routers;
        is_under_way.then_some("an upgrade is under way")
    }

    pub(super) fn continue_upgrade(&mut self) {
        let next = match std::mem::take(&mut self.upgrades_after_routers) {
            true if self.executor.applications.has_routers() => {
                self.upgrades_after_routers = true;
                return;
            }
            true => Some(Ok(())),
            false => self.executor.continue_upgrade(),
        };
        let error = match next {
            None => return,
            Some(Err(error)) => error,
            Some(Ok(())) if self.executor.finish_routers() => {
                // Until they have, connections wait in the listening sockets.
                self.upgrades_after_routers = true;
                return;
            }
            Some(Ok(())) => {
                // A signal that this program has taken, and not acted upon, would be lost with it.
                let mask = sys::signal::block_all();
                let pending = self.signals.pending().collect();
                self.take_signals(pending);
                if self.stopping.is_some() {
                    return sys::signal::restore(&mask);
                }
                log::info!("the new program takes over");
                if let Some(asker) = self.upgraded_for.take() {
                    self.executor.answer(asker, &Answer::Upgrading {});
                }
                self.executor.save(&self.manager, self.stopping);
                let variables = self.notifier.as_ref().map_or(&[][..], Notifier::variables);
                let error = self.executor.hand_over(&self.manager, self.stopping, variables);
                sys::signal::restore(&mask);
                error
            }
        };
        self.upgrade_failed(&error);
    }

    fn upgrade_failed(&mut self, error: &UpgradeError) {
        log::error!("the new program can't take over, this one goes on: {error}");
        self.executor.raise_routers();
        if let Some(asker) = self.upgraded_for.take() {
            let message = format!("the new program can't take over, the old one goes on: {error}");
            self.executor.answer(asker, &Answer::refusal(message));
        }
        if let Err(answer) = self.reload(Extent::Changed, None) {
            log::debug!("{answer:?}");
        }
        self.tell_ready();
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
    }

    /// Reads, checks and prepares the new configuration; whatever is wrong with it, the old one goes on, and the answer
    /// is given back. Otherwise `asker` is answered once the reload is done.
    pub(super) fn reload(&mut self, extent: Extent, asker: Option<u64>) -> Result<(), Answer> {
        if self.stopping.is_some() {
            let why = "the daemon is ending, its configuration is not reloaded";
            log::info!("{why}");
            return Err(Answer::refusal(why.to_owned()));
        }
        log::info!("Reloading in progress ...");
        let refused = |errors| Answer::Error {
            message: "the configuration is not reloaded, the old one stays in force".to_owned(),
            errors,
        };
        let config = match (self.reload)() {
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
                self.set_bulletin(global.systemd_interval);
                super::run::say_skipped(&changes.skipped);
                self.executor.begin_reload(changes, sockets, asker);
                self.tell(Event::Apply(wanted));
                Ok(())
            }
            Err(error) => {
                log::error!("the configuration is not reloaded, the old one stays in force: {error}");
                Err(refused(vec![Complaint::text(error.to_string())]))
            }
        }
    }

    /// Does what somebody asked for over the control socket.
    pub(super) fn obey(&mut self, asker: u64, request: &Request) {
        let rights = self.executor.control.rights(asker);
        if !Master::is_for_owners(request, rights) {
            let message = "permission denied: root and the daemon's own user may ask for that";
            return self.executor.answer(asker, &Answer::refusal(message.to_owned()));
        }
        let answer = match request {
            Request::Restart { .. }
            | Request::RestartPool { .. }
            | Request::Detach { .. }
            | Request::Disable { .. }
            | Request::Enable { .. }
            | Request::Resize { .. }
            | Request::Take { .. }
            | Request::Return { .. }
            | Request::PoolAdd { .. }
            | Request::PoolRemove { .. } => match self.command(asker, request) {
                Some(answer) => answer,
                None => return,
            },
            Request::Ping {} => Answer::Pong {
                pid: std::process::id(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
            },
            Request::Status {} => return self.executor.begin_status(asker),
            Request::Error { id, format } => self.executor.pools.error_report(rights, id.as_deref(), *format),
            Request::Upgrade {} => {
                if let Some(why) = self.why_no_upgrade() {
                    return self.executor.answer(asker, &Answer::refusal(why.to_owned()));
                }
                self.upgraded_for = Some(asker);
                return self.upgrade();
            }
            Request::Reload { all } => {
                let extent = if *all { Extent::All } else { Extent::Changed };
                if let Some(notifier) = &self.notifier {
                    notifier.tell_reloading();
                }
                let result = self.reload(extent, Some(asker));
                self.tell_ready();
                match result {
                    Ok(()) => return,
                    Err(answer) => answer,
                }
            }
        };
        self.executor.answer(asker, &answer);
    }
}
