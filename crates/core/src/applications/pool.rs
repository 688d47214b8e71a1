//! The application pool: owns all applications, instances and sessions, and handles events.

use super::action::{Action, Notice, Reason};
use super::application::{AppId, Application};
use super::event::{Event, InstanceId, SessionId};
use super::index::Index;
use super::instance::Instance;
use super::instance_state::InstanceCause;
use super::timers::{Timer, Timers};
use super::users::Users;
use forkyard_base::tick::Tick;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::num::NonZeroU32;
use std::sync::Arc;

#[derive(Debug, Default)]
pub struct ApplicationPool {
    pub(super) max: u32,
    pub(super) reserve: u32,
    pub(super) most_spawning: u32,
    pub(super) users: Users,
    pub(super) apps: BTreeMap<AppId, Application>,
    pub(super) names: HashMap<Arc<str>, AppId>,
    pub(super) groups: BTreeMap<Arc<str>, Vec<AppId>>,
    pub(super) instances: BTreeMap<InstanceId, Instance>,
    pub(super) sessions: HashMap<SessionId, Session>,
    pub(super) index: Index,
    pub(super) timers: Timers,
    pub(super) counts: Counts,
    pub(super) yielding: BTreeSet<InstanceId>,
    pub(super) touched: BTreeSet<AppId>,
    pub(super) next_app: u64,
    pub(super) next_instance: u64,
    pub(super) last_session: Option<SessionId>,
    /// Rises with each use of an instance.
    pub(super) uses: u64,
    /// Instances that may exceed a lowered total.
    pub(super) excused: u32,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counts {
    pub active: u32,
    pub spawning: u32,
    pub finishing: u32,
    pub draining: u32,
    pub stopping: u32,
    /// Instances that replace an old one that has not retired.
    pub spares: u32,
}

#[derive(Debug)]
pub(super) struct Session {
    pub app: AppId,
    /// `None`: it waits.
    pub instance: Option<InstanceId>,
    /// Whether it needs an instance for itself.
    pub alone: bool,
}

pub(super) struct Step<'a> {
    pub now: Tick,
    pub actions: &'a mut Vec<Action>,
}

impl Step<'_> {
    pub(super) fn act(&mut self, action: Action) {
        self.actions.push(action);
    }

    pub(super) fn say(&mut self, notice: Notice) {
        self.actions.push(Action::Say(notice));
    }
}

impl ApplicationPool {
    /// Returns a pool for at most `max` instances, `most_spawning` of them starting.
    pub fn new(max: NonZeroU32, most_spawning: NonZeroU32) -> ApplicationPool {
        ApplicationPool {
            max: max.get(),
            most_spawning: most_spawning.get(),
            ..ApplicationPool::default()
        }
    }

    /// Reserves places for applications without instances.
    pub fn with_reserve(mut self, reserve: u32) -> ApplicationPool {
        self.reserve = reserve;
        self
    }

    /// Handles an event that happened at `now` and appends actions in order.
    pub fn handle(&mut self, event: Event, now: Tick, actions: &mut Vec<Action>) {
        let step = &mut Step { now, actions };
        match event {
            Event::Get(get) => self.get(get, step),
            Event::Cancel(session) => self.cancel(session),
            Event::Close(session, back) => self.close(session, back, step),
            Event::Spawned(id) => self.spawned(id, step),
            Event::SpawnFailed(id, error) => self.spawn_failed(id, error, step),
            Event::Exited(id) => self.exited(id, step),
            Event::Restart(name, method) => self.restart_named(&name, method, step),
            Event::Seen(name, restart_files) => {
                if let Some(app) = self.names.get(&name).copied() {
                    self.take_restart_files(app, restart_files, step);
                }
            }
            Event::Changed(name, options) => self.options_changed(name, options),
            Event::SetMax(max) => self.set_max(max.get()),
            Event::SetReserve(reserve) => self.set_reserve(reserve),
            Event::Add { name, options } => self.add(name, options, step),
            Event::Join { name, group, options } => self.join(name, group, options),
            Event::Leave(name) => self.leave(&name),
            Event::Remove(name) => self.remove(&name, step),
            Event::WorkWanted(id) => self.work_wanted(id),
            Event::Worked(id) => self.change(id, InstanceCause::Worked, step),
            Event::Found(id, session) => self.found(id, session, step),
            Event::HeldUp(id, is_held_up) => self.held_up(id, is_held_up),
            Event::Measured(id, bytes) => self.measured(id, bytes, step),
            Event::Disable(id) => self.disable(id, step),
            Event::Enable(id) => self.enable(id, step),
            Event::Detach(id) => self.retire(id, Reason::Detached, step),
            Event::Adopt(instances, next) => self.adopt(instances, next, step),
            Event::Deadline => self.deadline(step),
        }
        self.settle(step);
        if cfg!(debug_assertions) {
            self.invariants();
        }
    }

    /// When the next `Deadline` is due.
    pub fn next_deadline(&self) -> Option<Tick> {
        self.timers.next()
    }

    /// Counts all instances in any state.
    pub fn count(&self) -> u32 {
        super::application::length(self.instances.len())
    }

    fn deadline(&mut self, step: &mut Step<'_>) {
        while let Some(timer) = self.timers.take_due(step.now) {
            match timer {
                Timer::Waiter(session) => self.waited(session, step),
                Timer::Session(session) => self.lasted(session, step),
                Timer::Instance(id) => self.instance_due(id, step),
                Timer::Idle(app) => self.idle_due(app, step),
                Timer::Backoff(app) => self.backoff_over(app),
                Timer::Forgive(app) => self.forgive(app),
            }
        }
    }
}
