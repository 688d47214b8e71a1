//! Instances of an earlier book are taken over.

use super::book::{Book, Step};
use super::event::{Adopted, InstanceId};
use super::instance::Instance;
use super::life::Life;
use super::timers::Timer;

impl Book {
    /// Takes instances over that run already. Each is busy until the session that it comes with is closed. There may be more
    /// than the total allows, as after it was lowered.
    pub(super) fn adopt(&mut self, instances: Vec<Adopted>, next: InstanceId, step: &mut Step<'_>) {
        for adopted in instances {
            self.adopt_one(adopted, step);
        }
        self.next_instance = self.next_instance.max(next.0);
        self.excused = self.excused.max(self.count());
    }

    fn adopt_one(&mut self, adopted: Adopted, step: &mut Step<'_>) {
        let Adopted { id, session, .. } = adopted;
        let is_stale = self.last_ticket.is_some_and(|last| last >= session);
        if is_stale || self.ending || self.instances.contains_key(&id) {
            return;
        }
        self.last_ticket = Some(session);
        let app = self.merge(adopted.application, adopted.options);
        let Some(application) = self.apps.get_mut(&app) else {
            return;
        };
        application.registered = true;
        application.instances.insert(id);
        let most = application.options.max_request_time;
        self.uses += 1;
        let mut instance = Instance::new(app, application.generation, step.now);
        instance.life = Life::Serving;
        instance.running.insert(session);
        instance.adopted = Some(session);
        instance.used = self.uses;
        self.instances.insert(id, instance);
        self.counts.active += 1;
        self.file(id);
        self.hold(session, app, None);
        if let Some(held) = self.held.get_mut(&session) {
            held.instance = Some(id);
        }
        if let Some(most) = most {
            self.timers.set(Timer::Session(session), step.now, most);
        }
        self.next_instance = self.next_instance.max(id.0.saturating_add(1));
        self.touched.insert(app);
    }
}
