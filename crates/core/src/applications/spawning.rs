//! Starts of instances and their failures.

use super::action::{Action, Disabling, Notice, Refusal, Trouble};
use super::application::AppId;
use super::event::{ErrorId, InstanceId};
use super::index::Class;
use super::instance::Instance;
use super::instance_state::{InstanceCause, InstanceState};
use super::pool::{ApplicationPool, Step};
use super::timers::Timer;
use crate::life::backoff::{Backoff, LONGEST};
use std::sync::Arc;
use std::time::Duration;

/// Time after which failures are forgotten.
pub(super) const FORGIVEN_AFTER: Duration = Duration::from_secs(180);

impl ApplicationPool {
    pub(super) fn spawn(&mut self, id: AppId, step: &mut Step<'_>) -> Option<InstanceId> {
        let app = self.apps.get_mut(&id)?;
        let new = InstanceId(self.next_instance);
        self.next_instance += 1;
        app.instances.insert(new);
        app.spawning.insert(new);
        self.counts.spawning += 1;
        let instance = Instance::new(id, app.restarts, app.options.user, step.now);
        self.users.count(instance.user, instance.state, true);
        self.instances.insert(new, instance);
        self.timers
            .set(Timer::Instance(new), step.now, app.options.start_timeout);
        self.touched.insert(id);
        step.act(Action::Spawn(new, Arc::clone(&app.name), app.restarts));
        Some(new)
    }

    /// Starts an instance that no request waits for, unless one starts already.
    pub(super) fn grow(&mut self, id: AppId, step: &mut Step<'_>) {
        let Some(app) = self.apps.get(&id) else {
            return;
        };
        let class = match app.serving() {
            0 => Class::Starving,
            _ => Class::Growing,
        };
        let user = app.options.user;
        let place = self.count() < self.places(class) && self.may_start(user);
        if app.spawning.is_empty() && app.room() > 0 && place && self.index.wants.is_empty() {
            self.spawn(id, step);
        }
    }

    pub(super) fn spawned(&mut self, id: InstanceId, step: &mut Step<'_>) {
        let Some(instance) = self
            .instances
            .get(&id)
            .filter(|one| one.state == InstanceState::Spawning)
        else {
            return;
        };
        let app_id = instance.app;
        self.uses += 1;
        let used = self.uses;
        if let Some(instance) = self.instances.get_mut(&id) {
            (instance.used, instance.used_at) = (used, step.now);
        }
        self.change(id, InstanceCause::Up, step);
        self.timers.clear(Timer::Backoff(app_id));
        self.timers.clear(Timer::Forgive(app_id));
        let Some(app) = self.apps.get_mut(&app_id) else {
            return;
        };
        app.delays.lives(step.now);
        (app.trouble, app.backoff, app.resisting) = (None, None, false);
        for other in std::mem::take(&mut app.disable_after) {
            self.disable(other, step);
        }
        self.roll_on(app_id, id, step);
    }

    pub(super) fn spawn_failed(&mut self, id: InstanceId, error: ErrorId, step: &mut Step<'_>) {
        let Some(instance) = self.instances.get(&id) else {
            return;
        };
        let (app, state) = (instance.app, instance.state);
        self.drop_instance(id, step);
        if state == InstanceState::Spawning {
            self.failed(app, Trouble::Failed(error), step);
        }
    }

    pub(super) fn failed(&mut self, id: AppId, trouble: Trouble, step: &mut Step<'_>) {
        let Some(app) = self.apps.get_mut(&id) else {
            return;
        };
        app.trouble = Some(trouble);
        let mut delay = None;
        // Simultaneous failures count once.
        if app.backoff.is_none() {
            delay = app.delays.fail(step.now, LONGEST);
            if let Some(delay) = delay {
                app.backoff = Some(step.now + delay);
                self.timers.set(Timer::Backoff(id), step.now, delay);
            }
        }
        self.timers.set(Timer::Forgive(id), step.now, FORGIVEN_AFTER);
        let name = Arc::clone(&app.name);
        step.say(Notice::Trouble(Arc::clone(&name), trouble, delay));
        let alone = app.spawning.is_empty();
        let helpless = alone && app.serving() == 0 && app.working == 0;
        if app.rolling.is_some() && app.serving() > 0 {
            app.resisting = true;
            self.end_rolling(id);
            step.say(Notice::Resisting(name, trouble));
        }
        if alone {
            self.give_up_disabling(id, step);
        }
        if helpless {
            self.refuse_all(id, Refusal::Trouble(trouble), step);
        }
        self.touched.insert(id);
    }

    fn give_up_disabling(&mut self, id: AppId, step: &mut Step<'_>) {
        let waiting = self
            .apps
            .get_mut(&id)
            .map(|app| std::mem::take(&mut app.disable_after));
        for instance in waiting.unwrap_or_default() {
            step.act(Action::Disabled(instance, Disabling::Impossible));
        }
    }

    pub(super) fn backoff_over(&mut self, id: AppId) {
        if let Some(app) = self.apps.get_mut(&id) {
            app.backoff = None;
            self.touched.insert(id);
        }
    }

    pub(super) fn forgive(&mut self, id: AppId) {
        if let Some(app) = self.apps.get_mut(&id).filter(|app| app.backoff.is_none()) {
            (app.delays, app.trouble) = (Backoff::default(), None);
            self.touched.insert(id);
        }
    }
}
