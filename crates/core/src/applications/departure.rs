//! State changes of instances up to their exit.

use super::action::{Action, Disabling, Force, Notice, Reason, Trouble};
use super::application::AppId;
use super::event::InstanceId;
use super::instance_state::{self, InstanceCause, InstanceState};
use super::pool::{ApplicationPool, Step};
use super::timers::Timer;

impl ApplicationPool {
    /// Removes an instance from its application's ordered lists. Call before changing a sort key.
    pub(super) fn unfile(&mut self, id: InstanceId) {
        let Some(instance) = self.instances.get(&id) else {
            return;
        };
        if let Some(app) = self.apps.get_mut(&instance.app) {
            app.idle.remove(&(instance.used, id));
            app.busy.remove(&(instance.load(), id));
        }
    }

    pub(super) fn file(&mut self, id: InstanceId) {
        let Some(instance) = self
            .instances
            .get(&id)
            .filter(|one| one.state == InstanceState::Serving)
        else {
            return;
        };
        if let Some(app) = self.apps.get_mut(&instance.app) {
            match instance.busyness() {
                0 => app.idle.insert((instance.used, id)),
                _ => app.busy.insert((instance.load(), id)),
            };
        }
    }

    pub(super) fn change(&mut self, id: InstanceId, cause: InstanceCause, step: &mut Step<'_>) {
        let Some((before, app)) = self.instances.get(&id).map(|one| (one.state, one.app)) else {
            return;
        };
        let after = instance_state::next(before, cause);
        if before == after {
            return;
        }
        self.unfile(id);
        self.count_state(id, app, before, false);
        self.timers.clear(Timer::Instance(id));
        if let Some(instance) = self.instances.get_mut(&id) {
            instance.state = after;
        }
        self.count_state(id, app, after, true);
        if before == InstanceState::Finishing {
            self.yielding.remove(&id);
        }
        self.file(id);
        self.touched.insert(app);
        let options = self.apps[&app].options;
        match after {
            InstanceState::Draining => {
                if let Some(most) = options.drain_timeout {
                    self.timers.set(Timer::Instance(id), step.now, most);
                }
            }
            InstanceState::Working => {
                self.timers
                    .set(Timer::Instance(id), step.now, options.work_timeout);
                step.act(Action::Work(id));
            }
            InstanceState::Disabled => step.act(Action::Disabled(id, Disabling::Done)),
            InstanceState::Stopping => {
                if before == InstanceState::Spawning {
                    return step.act(Action::Stop(id, Force::Kill));
                }
                step.act(Action::Stop(id, Force::Ask));
                self.timers
                    .set(Timer::Instance(id), step.now, options.stop_timeout);
            }
            InstanceState::Spawning
            | InstanceState::Serving
            | InstanceState::Finishing
            | InstanceState::Disabling => {}
        }
        if before == InstanceState::Disabling
            && matches!(after, InstanceState::Draining | InstanceState::Stopping)
        {
            step.act(Action::Disabled(id, Disabling::Gone));
        }
        if matches!(
            after,
            InstanceState::Draining | InstanceState::Stopping | InstanceState::Finishing
        ) {
            self.is_leaving(id, app, step);
        }
    }

    fn count_state(&mut self, id: InstanceId, app: AppId, state: InstanceState, enters: bool) {
        if let Some(instance) = self.instances.get(&id) {
            self.users.count(instance.user, state, enters);
        }
        let count = match state {
            InstanceState::Spawning => &mut self.counts.spawning,
            InstanceState::Finishing => &mut self.counts.finishing,
            InstanceState::Draining => &mut self.counts.draining,
            InstanceState::Stopping => &mut self.counts.stopping,
            InstanceState::Working => match self.apps.get_mut(&app) {
                Some(app) => &mut app.working,
                None => return,
            },
            InstanceState::Serving | InstanceState::Disabling | InstanceState::Disabled => return,
        };
        *count = if enters { *count + 1 } else { *count - 1 };
        if state == InstanceState::Spawning {
            if let Some(app) = self.apps.get_mut(&app) {
                match enters {
                    true => app.spawning.insert(id),
                    false => app.spawning.remove(&id),
                };
            }
        }
    }

    fn is_leaving(&mut self, id: InstanceId, app: AppId, step: &mut Step<'_>) {
        let Some(app) = self.apps.get_mut(&app) else {
            return;
        };
        app.work_wanted.remove(&id);
        if app.disable_after.remove(&id) {
            step.act(Action::Disabled(id, Disabling::Gone));
        }
        if let Some(rolling) = &mut app.rolling {
            rolling.old.remove(&id);
            if rolling.spare == Some(id) {
                rolling.spare = None;
                self.counts.spares -= 1;
            }
        }
    }

    /// Stops an instance after its sessions, unless it leaves already.
    pub(super) fn retire(&mut self, id: InstanceId, reason: Reason, step: &mut Step<'_>) {
        let state = self.instances.get(&id).map(|one| one.state);
        if matches!(
            state,
            None | Some(InstanceState::Draining | InstanceState::Stopping)
        ) {
            return;
        }
        step.say(Notice::Leaves(id, reason));
        self.change(id, InstanceCause::Retire, step);
        self.emptied(id, step);
    }

    pub(super) fn emptied(&mut self, id: InstanceId, step: &mut Step<'_>) {
        if self.instances.get(&id).is_some_and(|one| one.busyness() == 0) {
            self.change(id, InstanceCause::Emptied, step);
        }
    }

    pub(super) fn stop(&mut self, id: InstanceId, step: &mut Step<'_>) {
        self.lose_sessions(id, step);
        self.change(id, InstanceCause::Stop, step);
    }

    fn kill(&mut self, id: InstanceId, step: &mut Step<'_>) {
        self.stop(id, step);
        self.timers.clear(Timer::Instance(id));
        step.act(Action::Stop(id, Force::Kill));
    }

    fn lose_sessions(&mut self, id: InstanceId, step: &mut Step<'_>) {
        let Some(instance) = self.instances.get(&id) else {
            return;
        };
        let queued = instance.queued.iter().map(|session| (*session, false));
        let running = instance.running.iter().map(|session| (*session, true));
        // The private queue first, so that no queued request starts.
        for (session, began) in queued.chain(running).collect::<Vec<_>>() {
            self.end_session(session, id, step);
            step.act(Action::Lost { session, began });
        }
    }

    pub(super) fn exited(&mut self, id: InstanceId, step: &mut Step<'_>) {
        let Some(instance) = self.instances.get(&id) else {
            return;
        };
        let (state, app, processed) = (instance.state, instance.app, instance.processed);
        let wanted = matches!(
            state,
            InstanceState::Stopping | InstanceState::Draining | InstanceState::Finishing
        );
        let had = instance.busyness() > 0;
        // A crash during a request is no evidence against the code.
        let had_work = processed > 0 || !instance.running.is_empty();
        self.drop_instance(id, step);
        if state == InstanceState::Spawning {
            return self.failed(app, Trouble::Died, step);
        }
        if !wanted || had {
            step.say(Notice::Ended(id));
        }
        if !wanted && !had_work {
            self.failed(app, Trouble::Died, step);
        }
    }

    pub(super) fn drop_instance(&mut self, id: InstanceId, step: &mut Step<'_>) {
        self.lose_sessions(id, step);
        self.unfile(id);
        self.yielding.remove(&id);
        self.timers.clear(Timer::Instance(id));
        let Some(instance) = self.instances.get(&id) else {
            return;
        };
        self.count_state(id, instance.app, instance.state, false);
        let Some(instance) = self.instances.remove(&id) else {
            return;
        };
        if instance.state == InstanceState::Disabling {
            step.act(Action::Disabled(id, Disabling::Gone));
        }
        self.is_leaving(id, instance.app, step);
        if let Some(app) = self.apps.get_mut(&instance.app) {
            app.instances.remove(&id);
        }
        self.touched.insert(instance.app);
    }

    pub(super) fn instance_due(&mut self, id: InstanceId, step: &mut Step<'_>) {
        let Some(instance) = self.instances.get(&id) else {
            return;
        };
        let app = instance.app;
        match instance.state {
            InstanceState::Spawning => {
                step.say(Notice::Leaves(id, Reason::StartTimeout));
                self.change(id, InstanceCause::Stop, step);
                self.failed(app, Trouble::TimedOut, step);
            }
            InstanceState::Draining => {
                step.say(Notice::DrainTimedOut(id));
                self.stop(id, step);
            }
            InstanceState::Working => {
                step.say(Notice::Leaves(id, Reason::Work));
                self.kill(id, step);
            }
            InstanceState::Stopping => {
                step.say(Notice::StopTimedOut(id));
                step.act(Action::Stop(id, Force::Kill));
            }
            InstanceState::Serving
            | InstanceState::Finishing
            | InstanceState::Disabling
            | InstanceState::Disabled => {}
        }
    }

    /// Kills the instance of a request that exceeded `max_request_time`.
    pub(super) fn lasted(&mut self, session: super::event::SessionId, step: &mut Step<'_>) {
        if let Some(id) = self.sessions.get(&session).and_then(|held| held.instance) {
            step.say(Notice::Leaves(id, Reason::RequestTime));
            self.kill(id, step);
        }
    }

    pub(super) fn forget(&mut self, id: AppId) {
        let Some(app) = self.apps.get(&id).filter(|app| app.is_over()) else {
            return;
        };
        self.index.change(id, &app.keys, false);
        for timer in [Timer::Idle(id), Timer::Backoff(id), Timer::Forgive(id)] {
            self.timers.clear(timer);
        }
        if !app.removed {
            self.names.remove(&app.name);
        }
        self.apps.remove(&id);
    }
}
