//! What each signal has the master do; `control_requests.rs` has how.

use super::lifecycle::LifecycleCause;
use super::reload_diff::ReloadScope;
use super::run::Master;
use crate::config::OnSigterm;
use crate::control::protocol::DaemonMode;
use crate::sys::invocation::{self, Invocation};
use signal_hook::consts::{SIGCHLD, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};

impl Master {
    /// Does what signals are for.
    pub(super) fn take_signals(&mut self, signals: Vec<i32>) {
        for signal in signals {
            match signal {
                SIGTERM if self.finishes_at_term() => self.finish(),
                SIGTERM | SIGINT => {
                    log::info!("Terminating ...");
                    self.service.tell_stopping();
                    self.advance(LifecycleCause::Terminate);
                }
                SIGQUIT => self.finish(),
                SIGUSR1 => self.reopen_logs(),
                SIGUSR2 => {
                    let ends = self.lifecycle.stopping().is_some();
                    // systemd has had STOPPING=1 by then, and is sent no RELOADING=1.
                    if !ends {
                        self.service.tell_reloading();
                    }
                    if invocation::get().is_some_and(Invocation::is_replaced) {
                        self.upgrade(None);
                    } else {
                        if let Err(answer) = self.reload(ReloadScope::Changed, None) {
                            log::debug!("{answer:?}");
                        }
                        if !ends {
                            self.service.tell_ready();
                        }
                    }
                }
                SIGCHLD => {
                    self.executor.reap();
                    self.perform_actions();
                }
                // A daemon has no terminal whose end would concern it.
                _ => log::info!("SIGHUP is ignored; SIGUSR2 reloads"),
            }
        }
    }

    /// Lets requests that run finish, and ends.
    fn finish(&mut self) {
        log::info!("Finishing ...");
        self.service.tell_stopping();
        let routers = self.executor.applications.has_routers();
        self.advance(LifecycleCause::Quit { routers });
    }

    /// Whether SIGTERM is taken as SIGQUIT: the first one, if the configuration or a drain says so.
    fn finishes_at_term(&self) -> bool {
        let is_wanted = self.executor.reload.config().global.on_sigterm == OnSigterm::Finish;
        self.lifecycle.stopping().is_none() && (is_wanted || self.mode == DaemonMode::Draining)
    }
}
