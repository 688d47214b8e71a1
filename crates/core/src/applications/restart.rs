//! Restarts instances with old code when `tmp/restart.txt` was touched (`take_restart_files`) or on a command.
//!
//! The router has the directory checked at most every `stat_throttle_rate` (`ask` in
//! `crates/router/src/router/app_index.rs`). `restart` retires all old instances; in a rolling restart `roll` in
//! `capacity.rs` starts each new one and `roll_on` retires an old one. The master makes a generation for each restart
//! (`order_instance` in `crates/daemon/src/applications/instances.rs`).

use super::action::{Notice, Reason};
use super::application::{AppId, Rolling};
use super::event::InstanceId;
use super::instance_state::{InstanceCause, InstanceState};
use super::options::RestartMethod;
use super::pool::{ApplicationPool, Step};
use super::timers::Timer;
use crate::life::backoff::Backoff;
use std::sync::Arc;

/// The identity of a file's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileState {
    /// Modification time in nanoseconds since 1970.
    pub modified_ns: i128,
    /// Inode number.
    pub inode: u64,
}

/// The state of an application's restart files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RestartFiles {
    /// `restart.txt`; `None`: it does not exist.
    pub restart: Option<FileState>,
    /// Whether `always_restart.txt` exists.
    pub always: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Known {
    #[default]
    Nothing,
    Seen(Option<FileState>),
}

impl Known {
    /// Whether a check requires a restart. The first is the baseline; a removed file is ignored.
    pub(super) fn take_restart_file(&mut self, restart: Option<FileState>) -> bool {
        let before = std::mem::replace(self, Known::Seen(restart));
        match (before, restart) {
            (Known::Nothing, _) | (Known::Seen(_), None) => false,
            (Known::Seen(before), Some(_)) => before != restart,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WhileStarting {
    /// Stop them: they may have read old code.
    Stop,
    /// Keep them: with `always_restart.txt` each check would otherwise stop the instance that the last request waits
    /// for.
    Keep,
}

impl ApplicationPool {
    /// Handles the restart files' state. A new `restart.txt` restarts by `restart_method` (the setting
    /// `rolling_restarts`).
    pub(super) fn take_restart_files(&mut self, id: AppId, restart_files: RestartFiles, step: &mut Step<'_>) {
        let Some(app) = self.apps.get_mut(&id) else {
            return;
        };
        let changed = app.known.take_restart_file(restart_files.restart);
        let method = app.options.restart_method;
        let up = app.instances.len() > app.spawning.len();
        if changed {
            self.restart(id, method, WhileStarting::Stop, step);
        } else if restart_files.always && up {
            self.restart(id, RestartMethod::Blocking, WhileStarting::Keep, step);
        }
    }

    pub(super) fn restart_named(&mut self, name: &Arc<str>, method: RestartMethod, step: &mut Step<'_>) {
        if let Some(id) = self.names.get(name).copied() {
            self.restart(id, method, WhileStarting::Stop, step);
        }
    }

    /// Replaces the program behind the instances once a new one is up.
    pub(super) fn renew(&mut self, id: AppId, reason: Reason, step: &mut Step<'_>) {
        let Some(app) = self.apps.get(&id) else {
            return;
        };
        if app.rolling.is_none() && !app.resisting {
            step.say(Notice::Renewing(Arc::clone(&app.name), reason));
            self.restart(id, RestartMethod::Rolling, WhileStarting::Stop, step);
        }
    }

    /// The default restart method of an application; `None`: unknown. Never [`RestartMethod::Fitting`].
    pub fn restart_method(&self, name: &str) -> Option<RestartMethod> {
        Some(self.fitting(self.options(name)?.restart_method))
    }

    fn fitting(&self, method: RestartMethod) -> RestartMethod {
        match method {
            RestartMethod::Fitting if self.count() < self.max => RestartMethod::Rolling,
            RestartMethod::Fitting => RestartMethod::Blocking,
            RestartMethod::Blocking | RestartMethod::Rolling => method,
        }
    }

    fn restart(&mut self, id: AppId, method: RestartMethod, starting: WhileStarting, step: &mut Step<'_>) {
        let method = self.fitting(method);
        self.end_rolling(id);
        self.timers.clear(Timer::Backoff(id));
        let Some(app) = self.apps.get_mut(&id) else {
            return;
        };
        (app.restarts, app.begun) = (app.restarts.wrapping_add(1), 0);
        app.delays = Backoff::default();
        (app.trouble, app.backoff, app.resisting) = (None, None, false);
        step.say(Notice::Restarting(Arc::clone(&app.name)));
        let restarts = app.restarts;
        let rolls = method == RestartMethod::Rolling && app.serving() > 0;
        let instances: Vec<InstanceId> = app.instances.iter().copied().collect();
        let mut old = Rolling::default();
        for instance in instances {
            let Some(one) = self.instances.get_mut(&instance) else {
                continue;
            };
            match one.state {
                InstanceState::Spawning if starting == WhileStarting::Keep => one.restarts = restarts,
                InstanceState::Serving | InstanceState::Working if rolls => {
                    old.old.insert(instance);
                }
                InstanceState::Spawning => {
                    step.say(Notice::Leaves(instance, Reason::Restart));
                    self.change(instance, InstanceCause::Stop, step);
                }
                InstanceState::Serving
                | InstanceState::Finishing
                | InstanceState::Disabling
                | InstanceState::Disabled
                | InstanceState::Working => {
                    self.retire(instance, Reason::Restart, step);
                }
                InstanceState::Draining | InstanceState::Stopping => {}
            }
        }
        if let Some(app) = self.apps.get_mut(&id).filter(|_| rolls) {
            app.rolling = Some(old);
        }
        self.touched.insert(id);
    }

    pub(super) fn spawn_spare(&mut self, id: AppId, step: &mut Step<'_>) {
        let spare = self.spawn(id, step);
        if let Some(app) = self.apps.get_mut(&id) {
            app.is_over = app.size() > app.max_instances();
        }
        if let Some(rolling) = self.apps.get_mut(&id).and_then(|app| app.rolling.as_mut()) {
            rolling.spare = spare;
            self.counts.spares += 1;
        }
    }

    pub(super) fn roll_on(&mut self, id: AppId, up: InstanceId, step: &mut Step<'_>) {
        let Some(rolling) = self.apps.get_mut(&id).and_then(|app| app.rolling.as_mut()) else {
            return;
        };
        if rolling.spare == Some(up) {
            rolling.spare = None;
            self.counts.spares -= 1;
            if let Some(old) = rolling.old.pop_last() {
                self.retire(old, Reason::Restart, step);
            }
        }
    }

    pub(super) fn finish_rolling(&mut self, id: AppId, step: &mut Step<'_>) {
        let Some(app) = self.apps.get(&id) else {
            return;
        };
        if app.rolling.as_ref().is_some_and(|rolling| rolling.old.is_empty()) {
            step.say(Notice::Restarted(Arc::clone(&app.name)));
            self.end_rolling(id);
        }
    }

    pub(super) fn end_rolling(&mut self, id: AppId) {
        let rolling = self.apps.get_mut(&id).and_then(|app| app.rolling.take());
        if rolling.is_some_and(|rolling| rolling.spare.is_some()) {
            self.counts.spares -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file_state(modified_ns: i128, inode: u64) -> Option<FileState> {
        Some(FileState { modified_ns, inode })
    }

    #[test]
    fn only_a_file_that_appears_or_changes_restarts() {
        let mut known = Known::default();
        assert!(!known.take_restart_file(file_state(1, 1)), "the baseline");
        assert!(!known.take_restart_file(file_state(1, 1)));
        assert!(known.take_restart_file(file_state(2, 1)), "touched");
        assert!(known.take_restart_file(file_state(2, 2)), "replaced");
        assert!(
            known.take_restart_file(file_state(1, 2)),
            "an older time is another time"
        );
        assert!(!known.take_restart_file(None), "removed");
        assert!(!known.take_restart_file(None));
        assert!(known.take_restart_file(file_state(1, 2)), "created");

        let mut absent = Known::default();
        assert!(!absent.take_restart_file(None), "the baseline");
        assert!(absent.take_restart_file(file_state(0, 1)), "created");
    }
}
