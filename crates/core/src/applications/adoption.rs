//! Takes over the instances of an earlier pool.

use super::event::{Adopted, InstanceId, SessionId};
use super::instance::Instance;
use super::instance_state::InstanceState;
use super::pool::{ApplicationPool, Step};
use super::timers::Timer;

impl ApplicationPool {
    /// Takes over running instances, each with a session. They may exceed the total.
    pub(super) fn adopt(&mut self, instances: Vec<Adopted>, next: InstanceId, step: &mut Step<'_>) {
        for adopted in instances {
            self.adopt_one(adopted, step);
        }
        self.next_instance = self.next_instance.max(next.0);
        self.excused = self.excused.max(self.count());
    }

    fn adopt_one(&mut self, adopted: Adopted, step: &mut Step<'_>) {
        let Adopted { id, session, .. } = adopted;
        let is_stale = self.last_session.is_some_and(|last| last >= session);
        if is_stale || self.instances.contains_key(&id) {
            return;
        }
        self.last_session = Some(session);
        let app = self.merge(adopted.application, adopted.options);
        let Some(application) = self.apps.get_mut(&app) else {
            return;
        };
        application.registered = true;
        application.instances.insert(id);
        let most = application.options.max_request_time;
        self.uses += 1;
        let mut instance = Instance::new(app, application.restarts, application.options.user, step.now);
        instance.state = InstanceState::Serving;
        self.users.count(instance.user, instance.state, true);
        instance.running.insert(session);
        instance.adopted = Some(session);
        instance.used = self.uses;
        self.instances.insert(id, instance);
        self.counts.active += 1;
        self.file(id);
        self.hold(session, app, false);
        if let Some(held) = self.sessions.get_mut(&session) {
            held.instance = Some(id);
        }
        if let Some(most) = most {
            self.timers.set(Timer::Session(session), step.now, most);
        }
        self.next_instance = self.next_instance.max(id.0.saturating_add(1));
        self.touched.insert(app);
    }

    /// Records a session that an adopted instance reports. Adopted sessions may exceed the instance's limit.
    pub(super) fn found(&mut self, id: InstanceId, session: SessionId, step: &Step<'_>) {
        let is_new =
            self.last_session.is_none_or(|last| session < last) && !self.sessions.contains_key(&session);
        let Some(instance) = self
            .instances
            .get(&id)
            .filter(|one| one.is_taken_over() && is_new)
        else {
            return;
        };
        let app = instance.app;
        self.unfile(id);
        self.hold(session, app, false);
        if let (Some(held), Some(instance)) = (self.sessions.get_mut(&session), self.instances.get_mut(&id)) {
            held.instance = Some(id);
            instance.running.insert(session);
        }
        self.file(id);
        if let Some(most) = self.apps[&app].options.max_request_time {
            self.timers.set(Timer::Session(session), step.now, most);
        }
        self.touched.insert(app);
    }
}
