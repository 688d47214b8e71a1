//! Upkeep of healthy instances: idle timeouts, disabling, memory limits, out-of-band work.

use super::action::{Action, Disabling, Reason};
use super::application::AppId;
use super::event::InstanceId;
use super::index::Class;
use super::instance_state::{InstanceCause, InstanceState};
use super::pool::{ApplicationPool, Step};
use super::timers::Timer;

impl ApplicationPool {
    /// Stops instances that exceeded their idle time, longest first, down to the minimum.
    pub(super) fn idle_due(&mut self, id: AppId, step: &mut Step<'_>) {
        while let Some(app) = self.apps.get(&id) {
            let (Some((_, instance)), Some(most)) = (app.idle.first(), app.options.max_idle_time) else {
                break;
            };
            let instance = *instance;
            let long = self.instances[&instance].used_at + most <= step.now;
            if !long || app.serving() <= app.options.minimum() || app.resisting {
                break;
            }
            self.retire(instance, Reason::Idle, step);
        }
        self.touched.insert(id);
    }

    pub(super) fn measured(&mut self, id: InstanceId, bytes: u64, step: &mut Step<'_>) {
        let Some(instance) = self.instances.get(&id) else {
            return;
        };
        let (app_id, app) = (instance.app, &self.apps[&instance.app]);
        let served = matches!(
            instance.state,
            InstanceState::Serving | InstanceState::Disabling | InstanceState::Disabled
        );
        if !served || app.options.memory_limit.is_none_or(|limit| bytes <= limit) {
            return;
        }
        match app.options.shares_program {
            false => self.retire(id, Reason::Memory, step),
            // Instances of the previous program are leaving anyway.
            true if instance.restarts != app.restarts => {}
            true => self.renew(app_id, Reason::Memory, step),
        }
    }

    pub(super) fn held_up(&mut self, id: InstanceId, is_held_up: bool) {
        let Some(instance) = self.instances.get(&id) else {
            return;
        };
        let app = instance.app;
        self.unfile(id);
        if let Some(instance) = self.instances.get_mut(&id) {
            instance.held_up = is_held_up && instance.busyness() > 0;
        }
        self.file(id);
        self.touched.insert(app);
    }

    pub(super) fn work_wanted(&mut self, id: InstanceId) {
        let Some(instance) = self.instances.get(&id) else {
            return;
        };
        if matches!(
            instance.state,
            InstanceState::Serving | InstanceState::Disabling | InstanceState::Disabled
        ) {
            if let Some(app) = self.apps.get_mut(&instance.app) {
                app.work_wanted.insert(id);
                self.touched.insert(instance.app);
            }
        }
    }

    /// Starts out-of-band work in one idle instance if that delays no request.
    pub(super) fn begin_work(&mut self, id: AppId, step: &mut Step<'_>) {
        let Some(app) = self.apps.get(&id) else {
            return;
        };
        let spared = app.waiters.is_empty() || app.serving() > 1;
        if app.work_wanted.is_empty() || app.working > 0 || !spared || app.removed {
            return;
        }
        // An adopted instance may do work for the earlier pool.
        if app.instances.iter().any(|id| self.instances[id].is_taken_over()) {
            return;
        }
        let idle = |id: &&InstanceId| {
            let instance = &self.instances[id];
            instance.state == InstanceState::Serving && instance.busyness() == 0
        };
        if let Some(instance) = app.work_wanted.iter().find(idle).copied() {
            self.apps.entry(id).and_modify(|app| {
                app.work_wanted.remove(&instance);
            });
            self.change(instance, InstanceCause::Work, step);
        }
    }

    pub(super) fn disable(&mut self, id: InstanceId, step: &mut Step<'_>) {
        let Some(instance) = self.instances.get(&id) else {
            return step.act(Action::Disabled(id, Disabling::Gone));
        };
        let app_id = instance.app;
        match instance.state {
            InstanceState::Serving => {}
            InstanceState::Disabling => return,
            InstanceState::Disabled => return step.act(Action::Disabled(id, Disabling::Already)),
            InstanceState::Spawning | InstanceState::Working => {
                return step.act(Action::Disabled(id, Disabling::Impossible));
            }
            InstanceState::Finishing | InstanceState::Draining | InstanceState::Stopping => {
                return step.act(Action::Disabled(id, Disabling::Gone));
            }
        }
        let user = self.apps.get(&app_id).map_or(0, |app| app.options.user);
        let places = self.places(Class::Growing) as usize;
        let may_start = self.may_start(user);
        let Some(app) = self.apps.get_mut(&app_id) else {
            return;
        };
        if app.serving() > 1 {
            app.work_wanted.remove(&id);
            self.change(id, InstanceCause::Disable, step);
            return self.emptied(id, step);
        }
        // The only serving instance continues until another is up.
        let place = places > self.instances.len() && may_start;
        if app.spawning.is_empty() && (app.room() == 0 || !place) {
            return step.act(Action::Disabled(id, Disabling::Impossible));
        }
        let begun = !app.spawning.is_empty();
        app.disable_after.insert(id);
        if !begun {
            self.spawn(app_id, step);
        }
    }

    pub(super) fn enable(&mut self, id: InstanceId, step: &mut Step<'_>) {
        let Some(instance) = self.instances.get(&id) else {
            return;
        };
        let waited = self
            .apps
            .get_mut(&instance.app)
            .is_some_and(|app| app.disable_after.remove(&id));
        if waited || instance.state == InstanceState::Disabling {
            step.act(Action::Disabled(id, Disabling::Canceled));
        }
        self.change(id, InstanceCause::Enable, step);
    }

    pub(super) fn is_timed(&self, id: InstanceId) -> bool {
        self.timers.is_set(Timer::Instance(id))
    }
}
