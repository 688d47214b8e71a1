//! Sessions: requests, waiting, checkout and return.

use super::action::{Action, Notice, Reason, Refusal};
use super::application::{AppId, Application, length};
use super::event::{Get, InstanceId, Return, SessionId, Target, Wait};
use super::instance_state::{InstanceCause, InstanceState};
use super::options::Options;
use super::pool::{ApplicationPool, Session, Step};
use super::timers::Timer;
use std::sync::Arc;

impl ApplicationPool {
    pub(super) fn get(&mut self, get: Get, step: &mut Step<'_>) {
        let session = get.session;
        match self.admit(get, step) {
            Ok(()) => {}
            Err(refusal) => step.act(Action::Refuse(session, refusal)),
        }
    }

    fn admit(&mut self, get: Get, step: &mut Step<'_>) -> Result<(), Refusal> {
        let session = get.session;
        if self.last_session.is_some_and(|last| last >= session) {
            return Err(Refusal::Stale);
        }
        self.last_session = Some(session);
        let id = match get.target.clone() {
            Target::Application(name, options) => self.merge(name, options),
            Target::Known(name) => *self.names.get(&name).ok_or(Refusal::Unknown)?,
            Target::Group(group, drawn) => {
                return self.get_from_group(&group, drawn, &get, step);
            }
        };
        if let Some(restart_files) = get.restart_files {
            self.take_restart_files(id, restart_files, step);
        }
        let Some(app) = self.apps.get_mut(&id) else {
            return Err(Refusal::Unknown);
        };
        self.touched.insert(id);
        let free = app.free(get.alone).filter(|_| app.waiters.is_empty());
        if let Some(trouble) = app.trouble.filter(|_| app.is_backing_off()) {
            return Err(Refusal::Trouble(trouble));
        }
        if free.is_none() {
            if get.wait == Wait::None {
                self.grow(id, step);
                return Err(Refusal::NoneFree);
            }
            if length(app.waiters.len()).saturating_add(app.queued) >= app.options.queue_limit() {
                let name = Arc::clone(&app.name);
                if !std::mem::replace(&mut app.said_full, true) {
                    step.say(Notice::QueueFull(name));
                }
                return Err(Refusal::QueueFull);
            }
        }
        self.hold(session, id, get.alone);
        match (free, get.wait) {
            (Some(instance), _) => self.check_out(session, instance, step),
            (None, wait) => {
                if let Wait::Until(deadline) = wait {
                    self.timers
                        .set(Timer::Waiter(session), step.now, deadline.since(step.now));
                }
                self.apps.entry(id).and_modify(|app| {
                    app.waiters.insert(session);
                });
            }
        }
        Ok(())
    }

    /// Returns the application with this name, added if unknown, and updates its settings.
    pub(super) fn merge(&mut self, name: Arc<str>, options: Options) -> AppId {
        if let Some(id) = self.names.get(&name).copied() {
            if let Some(app) = self.apps.get_mut(&id).filter(|app| app.options != options) {
                app.options = options;
                self.timers.clear(Timer::Idle(id));
            }
            return id;
        }
        self.begin(Application::new(name, options, self.share()))
    }

    pub(super) fn options_changed(&mut self, name: Arc<str>, options: Options) {
        if self.names.contains_key(&name) {
            let id = self.merge(name, options);
            self.touched.insert(id);
        }
    }

    pub(super) fn begin(&mut self, app: Application) -> AppId {
        let id = AppId(self.next_app);
        self.next_app += 1;
        self.names.insert(Arc::clone(&app.name), id);
        self.apps.insert(id, app);
        self.touched.insert(id);
        id
    }

    /// Checks out a free instance of the randomly chosen application, or of the next application that has one.
    fn get_from_group(
        &mut self,
        group: &Arc<str>,
        drawn: u64,
        get: &Get,
        step: &mut Step<'_>,
    ) -> Result<(), Refusal> {
        let apps = self.groups.get(group).ok_or(Refusal::Unknown)?;
        let first = usize::try_from(drawn % apps.len().max(1) as u64).unwrap_or(0);
        let in_turn = apps[first..].iter().chain(&apps[..first]);
        let free = |id: &&AppId| {
            let app = &self.apps[id];
            app.waiters.is_empty() && app.free(get.alone).is_some()
        };
        let drawn = apps.get(first).copied();
        match in_turn.copied().find(|id| free(&id)) {
            Some(id) => {
                self.hold(get.session, id, get.alone);
                if let Some(instance) = self.apps[&id].free(get.alone) {
                    self.check_out(get.session, instance, step);
                }
                Ok(())
            }
            None => {
                if let Some(id) = drawn {
                    self.grow(id, step);
                }
                Err(Refusal::NoneFree)
            }
        }
    }

    pub(super) fn hold(&mut self, session: SessionId, app: AppId, alone: bool) {
        let instance = None;
        self.sessions.insert(session, Session { app, instance, alone });
    }

    pub(super) fn release(&mut self, session: SessionId) -> Option<Session> {
        let held = self.sessions.remove(&session)?;
        self.timers.clear(Timer::Waiter(session));
        self.timers.clear(Timer::Session(session));
        self.touched.insert(held.app);
        Some(held)
    }

    /// Serves waiting requests, oldest first, and refuses those that can't get an instance.
    pub(super) fn serve(&mut self, id: AppId, step: &mut Step<'_>) {
        while let Some(app) = self.apps.get(&id) {
            let Some((session, instance)) = self.next_of(app) else {
                break;
            };
            self.take_waiter(id, session);
            self.check_out(session, instance, step);
        }
        let Some(app) = self.apps.get_mut(&id) else {
            return;
        };
        if app.waiters.is_empty() {
            app.said_full = false;
        } else if let Some(trouble) = app.trouble.filter(|_| app.is_backing_off()) {
            self.refuse_all(id, Refusal::Trouble(trouble), step);
        } else {
            let hope = app.wanted().0;
            self.dispatch(id, hope, step);
        }
    }

    /// The first waiting request that can be served. Requests for an exclusive instance don't block others.
    pub(super) fn next_of(&self, app: &Application) -> Option<(SessionId, InstanceId)> {
        let alone = |session: &SessionId| self.sessions.get(session).is_some_and(|held| held.alone);
        let first = *app.waiters.first()?;
        if let Some(instance) = app.free(alone(&first)) {
            return Some((first, instance));
        }
        let instance = app.free(false)?;
        let other = app.waiters.iter().find(|session| !alone(session))?;
        Some((*other, instance))
    }

    /// With private queues: checks out busy instances to requests that starting ones, plus `more`, can't serve. Returns
    /// whether it did.
    pub(super) fn dispatch(&mut self, id: AppId, more: u32, step: &mut Step<'_>) -> bool {
        let mut checked_out = false;
        while let Some(app) = self.apps.get(&id) {
            let hope = length(app.spawning.len()).saturating_add(more);
            let waiting = length(app.waiters.len());
            let stays = waiting <= hope.saturating_mul(app.options.at_once());
            let (Some(session), Some(busy)) = (app.waiters.first().copied(), app.busy.first().copied())
            else {
                break;
            };
            if app.options.use_global_queue || stays {
                break;
            }
            self.take_waiter(id, session);
            self.check_out(session, busy.1, step);
            checked_out = true;
        }
        checked_out
    }

    fn take_waiter(&mut self, id: AppId, session: SessionId) {
        self.timers.clear(Timer::Waiter(session));
        if let Some(app) = self.apps.get_mut(&id) {
            app.waiters.remove(&session);
        }
    }

    pub(super) fn check_out(&mut self, session: SessionId, id: InstanceId, step: &mut Step<'_>) {
        self.unfile(id);
        self.uses += 1;
        let (Some(instance), Some(held)) = (self.instances.get_mut(&id), self.sessions.get_mut(&session))
        else {
            return;
        };
        let Some(app) = self.apps.get_mut(&instance.app) else {
            return;
        };
        held.instance = Some(id);
        if held.alone {
            instance.lease = Some(session);
        }
        self.counts.active += u32::from(instance.busyness() == 0);
        if length(instance.running.len()) < app.options.at_once() {
            instance.running.insert(session);
            if let Some(most) = app.options.max_request_time {
                self.timers.set(Timer::Session(session), step.now, most);
            }
        } else {
            instance.queued.insert(session);
            app.queued += 1;
        }
        instance.begun = instance.begun.saturating_add(1);
        (instance.used, instance.used_at) = (self.uses, step.now);
        let (app_id, shares_program) = (instance.app, app.options.shares_program);
        let (number, begun) = if shares_program {
            app.begun = app
                .begun
                .saturating_add(u32::from(instance.restarts == app.restarts));
            (app.restarts.into(), app.begun)
        } else {
            (id.0, instance.begun)
        };
        // Old instances that can't be replaced continue.
        let most = app.options.most_requests(number).filter(|_| !app.resisting);
        let finishing = most.is_some_and(|most| begun >= most);
        self.touched.insert(app_id);
        self.file(id);
        step.act(Action::CheckOut(session, id));
        if finishing && shares_program {
            self.renew(app_id, Reason::MaxRequests, step);
        } else if finishing {
            step.say(Notice::Leaves(id, Reason::MaxRequests));
            self.change(id, InstanceCause::Finish, step);
        }
    }

    pub(super) fn close(&mut self, session: SessionId, back: Return, step: &mut Step<'_>) {
        let Some(id) = self.sessions.get(&session).and_then(|held| held.instance) else {
            return;
        };
        self.end_session(session, id, step);
        let Some(instance) = self.instances.get_mut(&id) else {
            return;
        };
        match back {
            Return::Ok => instance.processed = instance.processed.saturating_add(1),
            Return::Failed
                if matches!(
                    instance.state,
                    InstanceState::Serving | InstanceState::Finishing | InstanceState::Disabling
                ) =>
            {
                return self.retire(id, Reason::Failed, step);
            }
            Return::Failed => {}
        }
        self.emptied(id, step);
    }

    /// Removes a session from its instance and starts the next of its private queue.
    pub(super) fn end_session(&mut self, session: SessionId, id: InstanceId, step: &mut Step<'_>) {
        self.release(session);
        self.unfile(id);
        self.uses += 1;
        let Some(instance) = self.instances.get_mut(&id) else {
            return;
        };
        let Some(app) = self.apps.get_mut(&instance.app) else {
            return;
        };
        if instance.queued.remove(&session) {
            app.queued -= 1;
        }
        instance.running.remove(&session);
        instance.lease = instance.lease.filter(|lease| *lease != session);
        instance.held_up &= instance.busyness() > 0;
        if length(instance.running.len()) < app.options.at_once() {
            if let Some(next) = instance.queued.pop_first() {
                app.queued -= 1;
                instance.running.insert(next);
                if let Some(most) = app.options.max_request_time {
                    self.timers.set(Timer::Session(next), step.now, most);
                }
            }
        }
        self.counts.active -= u32::from(instance.busyness() == 0);
        (instance.used, instance.used_at) = (self.uses, step.now);
        self.file(id);
    }

    pub(super) fn cancel(&mut self, session: SessionId) {
        if let Some(held) = self.sessions.get(&session).filter(|held| held.instance.is_none()) {
            let app = held.app;
            self.take_waiter(app, session);
            self.release(session);
        }
    }

    pub(super) fn waited(&mut self, session: SessionId, step: &mut Step<'_>) {
        self.cancel(session);
        step.act(Action::Refuse(session, Refusal::TimedOut));
    }

    pub(super) fn refuse_all(&mut self, id: AppId, refusal: Refusal, step: &mut Step<'_>) {
        let waiters = self.apps.get_mut(&id).map(|app| std::mem::take(&mut app.waiters));
        for session in waiters.unwrap_or_default() {
            self.release(session);
            step.act(Action::Refuse(session, refusal));
        }
    }
}
