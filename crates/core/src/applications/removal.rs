//! Adds and removes applications.

use super::action::{Notice, Reason, Refusal};
use super::application::{AppId, Application};
use super::options::Options;
use super::pool::{ApplicationPool, Step};
use std::sync::Arc;

impl ApplicationPool {
    pub(super) fn add(&mut self, name: Arc<str>, options: Options, step: &mut Step<'_>) {
        if self.names.contains_key(&name) {
            return step.say(Notice::NameTaken(name));
        }
        let mut app = Application::new(name, options, self.share());
        app.registered = true;
        self.begin(app);
    }

    pub(super) fn join(&mut self, name: Arc<str>, group: Arc<str>, options: Options) {
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

    pub(super) fn remove(&mut self, name: &str, step: &mut Step<'_>) {
        let Some(id) = self.names.remove(name) else {
            return;
        };
        let Some(app) = self.apps.get_mut(&id) else {
            return;
        };
        app.removed = true;
        let instances = app.instances.clone();
        self.leave_group(id);
        self.end_rolling(id);
        self.refuse_all(id, Refusal::Removed, step);
        self.touched.insert(id);
        for instance in instances {
            self.retire(instance, Reason::Removed, step);
        }
    }
}
