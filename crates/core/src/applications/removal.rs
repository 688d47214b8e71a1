//! Adds and removes applications, and shuts down.

use super::action::{Action, Notice, Reason, Refusal};
use super::application::{AppId, Application};
use super::event::{InstanceId, Removal};
use super::options::Options;
use super::pool::{ApplicationPool, Step};
use super::timers::Timer;
use std::sync::Arc;

impl ApplicationPool {
    pub(super) fn add(
        &mut self,
        name: Arc<str>,
        group: Option<Arc<str>>,
        options: Options,
        step: &mut Step<'_>,
    ) {
        if self.names.contains_key(&name) {
            return step.say(Notice::NameTaken(name));
        }
        if self.ending {
            return;
        }
        let mut app = Application::new(name, options, self.share());
        app.registered = true;
        app.group.clone_from(&group);
        let id = self.begin(app);
        if let Some(group) = group {
            self.groups.entry(group).or_default().push(id);
        }
    }

    pub(super) fn join(&mut self, name: Arc<str>, group: Arc<str>, options: Options) {
        if self.ending {
            return;
        }
        let id = self.merge(name, options);
        if self
            .apps
            .get(&id)
            .is_some_and(|app| app.group.as_ref() == Some(&group))
        {
            return;
        }
        self.leave_group(id);
        if let Some(app) = self.apps.get_mut(&id) {
            app.registered = true;
            app.group = Some(Arc::clone(&group));
            self.groups.entry(group).or_default().push(id);
        }
        self.touched.insert(id);
    }

    pub(super) fn leave(&mut self, name: &str) {
        let Some(id) = self.names.get(name).copied() else {
            return;
        };
        self.leave_group(id);
        if let Some(app) = self.apps.get_mut(&id) {
            app.registered = false;
        }
        self.touched.insert(id);
    }

    fn leave_group(&mut self, id: AppId) {
        let Some(group) = self.apps.get_mut(&id).and_then(|app| app.group.take()) else {
            return;
        };
        if let Some(apps) = self.groups.get_mut(&group) {
            apps.retain(|other| *other != id);
            if apps.is_empty() {
                self.groups.remove(&group);
            }
        }
    }

    pub(super) fn remove(&mut self, id: AppId, removal: Removal, step: &mut Step<'_>) {
        let Some(app) = self.apps.get_mut(&id) else {
            return;
        };
        let name = Arc::clone(&app.name);
        app.removed = true;
        if self.names.get(&name) == Some(&id) {
            self.names.remove(&name);
        }
        self.leave_group(id);
        self.end_rolling(id);
        let refusal = if self.ending {
            Refusal::ShuttingDown
        } else {
            Refusal::Removed
        };
        self.refuse_all(id, refusal, step);
        self.touched.insert(id);
        match removal {
            Removal::Immediate => self.stop_all(id, step),
            Removal::Graceful(deadline) => {
                for instance in self.instances_of(id) {
                    self.retire(instance, Reason::Removed, step);
                }
                if let Some(deadline) = deadline {
                    self.timers
                        .set(Timer::Removal(id), step.now, deadline.since(step.now));
                }
            }
        }
    }

    pub(super) fn stop_all(&mut self, id: AppId, step: &mut Step<'_>) {
        for instance in self.instances_of(id) {
            self.stop(instance, step);
        }
    }

    fn instances_of(&self, id: AppId) -> Vec<InstanceId> {
        self.apps
            .get(&id)
            .map(|app| app.instances.iter().copied().collect())
            .unwrap_or_default()
    }

    pub(super) fn shutdown(&mut self, removal: Removal, step: &mut Step<'_>) {
        self.ending = true;
        for app in self.apps.keys().copied().collect::<Vec<_>>() {
            let each = match removal {
                Removal::Graceful(_) => Removal::Graceful(None),
                Removal::Immediate => Removal::Immediate,
            };
            self.remove(app, each, step);
        }
        if let Removal::Graceful(Some(deadline)) = removal {
            self.timers
                .set(Timer::Shutdown, step.now, deadline.since(step.now));
        }
    }

    pub(super) fn finish(&mut self, step: &mut Step<'_>) {
        if self.ending && !self.finished && self.apps.is_empty() {
            self.finished = true;
            self.timers.clear(Timer::Shutdown);
            step.act(Action::Finished);
        }
    }
}
