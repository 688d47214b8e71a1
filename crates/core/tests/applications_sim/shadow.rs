//! A second implementation of the rules, with plain lists.

use forkyard_base::tick::Tick;
use forkyard_core::applications::action::{Action, Disabling, Notice, Reason, Refusal};
use forkyard_core::applications::event::{Event, InstanceId, SessionId, Target, Wait};
use forkyard_core::applications::{Options, RestartMethod};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

#[derive(Debug)]
pub(crate) struct Process {
    pub app: usize,
    pub up: bool,
    pub sessions: Vec<SessionId>,
    pub begun: u32,
    pub used: u64,
    pub leaves: Option<Reason>,
    pub stopped: bool,
    /// Disabled, at work, or possibly so: it may serve or not.
    pub aside: bool,
    pub held_up: bool,
}

#[derive(Debug)]
pub(crate) struct Waiter {
    /// `None`: any application of the group.
    pub app: Option<usize>,
    pub deadline: Option<Tick>,
    pub alone: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Shadow {
    pub apps: Vec<Options>,
    pub max: u32,
    pub reserve: u32,
    pub excused: u32,
    pub processes: BTreeMap<InstanceId, Process>,
    pub waiters: BTreeMap<SessionId, Waiter>,
    pub checked_out: BTreeMap<SessionId, InstanceId>,
    pub leases: BTreeSet<SessionId>,
    /// Sessions of adopted instances, possibly out-of-band work.
    pub adopted: BTreeSet<SessionId>,
    pub resisting: BTreeSet<usize>,
    pub ever_resisted: BTreeSet<usize>,
    pub removed: BTreeSet<InstanceId>,
    pub uses: u64,
}

pub(crate) fn name(app: usize) -> Arc<str> {
    Arc::from(format!("app{app}"))
}

fn number(name: &str) -> usize {
    name[3..].parse().expect("one of our names")
}

impl Shadow {
    pub(crate) fn before(&mut self, event: &Event) {
        match event {
            Event::Get(get) => {
                let app = match &get.target {
                    Target::Application(name, _) | Target::Known(name) => Some(number(name)),
                    Target::Group(..) => None,
                };
                let deadline = match get.wait {
                    Wait::Until(deadline) => Some(deadline),
                    Wait::None | Wait::Endless => None,
                };
                self.waiters.insert(
                    get.session,
                    Waiter {
                        app,
                        deadline,
                        alone: get.alone,
                    },
                );
            }
            Event::Cancel(session) => drop(self.waiters.remove(session)),
            Event::Close(session, _) => self.end(*session),
            Event::Spawned(id) => {
                self.uses += 1;
                let used = self.uses;
                if let Some(process) = self.processes.get_mut(id) {
                    (process.up, process.used) = (true, used);
                    if !process.stopped {
                        self.resisting.remove(&process.app);
                    }
                }
            }
            Event::Exited(id) => {
                if let Some(process) = self.processes.get_mut(id) {
                    process.up = false;
                }
            }
            Event::HeldUp(id, is_held_up) => {
                if let Some(process) = self.processes.get_mut(id) {
                    process.held_up = *is_held_up && !process.sessions.is_empty();
                }
            }
            Event::SetMax(max) => {
                self.excused = self.processes.len() as u32;
                self.max = max.get();
            }
            Event::Disable(id) | Event::Enable(id) | Event::Worked(id) => {
                if let Some(process) = self.processes.get_mut(id) {
                    process.aside = !matches!(event, Event::Worked(_)) || process.aside;
                }
            }
            Event::Remove(name) => {
                let app = number(name);
                let of = self.processes.iter().filter(|(_, process)| process.app == app);
                let of: Vec<InstanceId> = of.map(|(id, _)| *id).collect();
                self.removed.extend(of);
            }
            Event::Adopt(adopted, _) => {
                for one in adopted {
                    self.uses += 1;
                    let process = Process {
                        app: number(&one.application),
                        up: true,
                        sessions: vec![one.session],
                        begun: 0,
                        used: self.uses,
                        leaves: None,
                        stopped: false,
                        aside: false,
                        held_up: false,
                    };
                    self.processes.insert(one.id, process);
                    self.checked_out.insert(one.session, one.id);
                    self.adopted.insert(one.session);
                }
                self.excused = self.processes.len() as u32;
            }
            _ => {}
        }
    }

    fn end(&mut self, session: SessionId) {
        let Some(id) = self.checked_out.remove(&session) else {
            return;
        };
        self.uses += 1;
        let used = self.uses;
        if let Some(process) = self.processes.get_mut(&id) {
            process.sessions.retain(|other| *other != session);
            process.held_up &= !process.sessions.is_empty();
            process.used = used;
        }
    }

    /// Instances that certainly get sessions.
    fn serving(&self, app: usize) -> impl Iterator<Item = (InstanceId, &Process)> {
        let of = move |process: &Process| process.app == app && process.up && process.leaves.is_none();
        self.processes
            .iter()
            .filter(move |(id, process)| {
                of(process) && !process.stopped && !process.aside && !self.removed.contains(id)
            })
            .map(|(id, process)| (*id, process))
    }

    fn waiting(&self, app: usize) -> usize {
        self.waiters
            .values()
            .filter(|waiter| waiter.app == Some(app))
            .count()
    }

    fn queued(&self, app: usize) -> usize {
        let most = self.at_once(app);
        let of = self.processes.values().filter(|process| process.app == app);
        of.map(|process| process.sessions.len().saturating_sub(most))
            .sum()
    }

    fn at_once(&self, app: usize) -> usize {
        self.apps[app]
            .concurrency
            .map_or(usize::MAX, |most| most.get() as usize)
    }

    /// Checks an action and returns the violation.
    pub(crate) fn check(&mut self, event: &Event, action: &Action, now: Tick) -> Result<(), String> {
        let wrong = |what: &str| Err(format!("{action:?} after {event:?}: {what}"));
        match action {
            Action::Spawn(id, name, _) => {
                let app = number(name);
                if self.processes.contains_key(id) {
                    return wrong("used twice");
                }
                let process = Process {
                    app,
                    up: false,
                    sessions: Vec::new(),
                    begun: 0,
                    used: 0,
                    leaves: None,
                    stopped: false,
                    aside: false,
                    held_up: false,
                };
                self.processes.insert(*id, process);
                let limit = self.apps[app].max_per_app.map_or(u32::MAX, |most| most.get());
                let has = |(other, process): (&InstanceId, &Process)| {
                    process.app == app && !self.removed.contains(other)
                };
                let size = self.processes.iter().filter(|one| has(*one)).count() as u32;
                self.check_reserve(app, event)?;
                let gone = |of: Option<usize>| match event {
                    Event::Exited(gone) | Event::SpawnFailed(gone, _) => {
                        let counted = |one: &Process| {
                            of.is_none_or(|app| app == one.app && !self.removed.contains(gone))
                        };
                        u32::from(self.processes.get(gone).is_some_and(counted))
                    }
                    _ => 0,
                };
                let count = self.processes.len() as u32 - gone(None);
                if size - gone(Some(app)) > limit.saturating_add(1) || count > self.max + 1 {
                    return wrong("more than there may be");
                }
            }
            Action::CheckOut(session, id) => return self.check_lend(*session, *id, action),
            Action::Refuse(session, refusal) => {
                let Some(waiter) = self.waiters.remove(session) else {
                    return wrong("it does not wait");
                };
                match refusal {
                    Refusal::TimedOut if waiter.deadline.is_none_or(|deadline| deadline > now) => {
                        return wrong("it had time");
                    }
                    Refusal::QueueFull => {
                        let app = waiter.app.expect("groups don't queue");
                        let limit = self.apps[app].max_request_queue_size.map_or(0, |most| most.get());
                        if limit == 0 || self.waiting(app) + self.queued(app) < limit as usize {
                            return wrong("there was a place");
                        }
                    }
                    _ => {}
                }
            }
            Action::Lost { session, .. } => {
                let Some(id) = self.checked_out.get(session).copied() else {
                    return wrong("it had no session");
                };
                let crashed =
                    matches!(event, Event::Exited(gone) | Event::SpawnFailed(gone, _) if *gone == id);
                let process = &self.processes[&id];
                let drained = self.apps[process.app].drain_timeout.is_some();
                let late = process.leaves == Some(Reason::RequestTime);
                let deadline = *event == Event::Deadline && (late || drained);
                if !crashed && !deadline {
                    return wrong("no instance may take it");
                }
                self.end(*session);
            }
            Action::Stop(id, _) => {
                let Some(process) = self.processes.get_mut(id) else {
                    return wrong("there is none");
                };
                if !process.sessions.is_empty() {
                    return wrong("it is busy");
                }
                process.stopped = true;
            }
            Action::Work(id) => {
                let app = self.processes.get(id).ok_or("no such instance")?.app;
                let mut earlier = self
                    .adopted
                    .iter()
                    .filter_map(|session| self.checked_out.get(session));
                if earlier.any(|other| self.processes.get(other).is_some_and(|other| other.app == app)) {
                    return wrong("another may work already");
                }
                let process = self.processes.get_mut(id).ok_or("no such instance")?;
                if !process.sessions.is_empty() {
                    return wrong("it is busy");
                }
                process.aside = true;
            }
            Action::Disabled(id, Disabling::Done) => {
                let busy = |process: &Process| !process.sessions.is_empty();
                if self.processes.get(id).is_none_or(busy) {
                    return wrong("it is busy");
                }
            }
            Action::Say(Notice::Resisting(name, _)) => {
                self.resisting.insert(number(name));
                self.ever_resisted.insert(number(name));
            }
            Action::Say(Notice::Restarting(name)) => {
                self.resisting.remove(&number(name));
            }
            Action::Say(Notice::Stays(id)) => match self.processes.get_mut(id) {
                Some(process) if process.leaves == Some(Reason::Evicted) && !process.sessions.is_empty() => {
                    process.leaves = None;
                }
                _ => return wrong("it was not to give its place up"),
            },
            Action::Say(Notice::Leaves(id, reason)) => return self.check_leaves(*id, *reason, action),
            Action::Disabled(..) | Action::Say(_) => {}
        }
        Ok(())
    }

    /// An application with enough instances must not start one in the reserve, except during its rolling restart.
    fn check_reserve(&self, app: usize, event: &Event) -> Result<(), String> {
        let options = &self.apps[app];
        let serving = self.serving(app).count() as u32;
        let rolls = options.restart_method != RestartMethod::Blocking || options.shares_program;
        if rolls || serving == 0 || serving < options.min_instances {
            return Ok(());
        }
        let gone = matches!(event, Event::Exited(_) | Event::SpawnFailed(..));
        let count = self.processes.len() as u32 - u32::from(gone);
        if count > self.max.saturating_sub(self.reserve) {
            return Err(format!(
                "app{app} has {serving} that serve and takes a place of the reserve"
            ));
        }
        Ok(())
    }

    fn check_lend(&mut self, session: SessionId, id: InstanceId, action: &Action) -> Result<(), String> {
        let wrong = |what: &str| Err(format!("{action:?}: {what}"));
        let Some(waiter) = self.waiters.remove(&session) else {
            return wrong("it does not wait");
        };
        let Some(process) = self.processes.get(&id) else {
            return wrong("there is no such instance");
        };
        let app = process.app;
        let options = &self.apps[app];
        if !process.up || process.stopped || process.leaves.is_some() {
            return wrong("it does not serve");
        }
        if waiter.app.is_some_and(|asked| asked != app) {
            return wrong("another application was asked for");
        }
        let has_idle = self.serving(app).any(|(_, other)| other.sessions.is_empty());
        let mut older = self.waiters.range(..session);
        if older.any(|(_, other)| other.app == Some(app) && (has_idle || !other.alone)) {
            return wrong("others have waited longer");
        }
        let is_leased = |process: &Process| process.sessions.iter().any(|one| self.leases.contains(one));
        if waiter.alone && !process.sessions.is_empty() && options.use_global_queue {
            return wrong("it is not alone there");
        }
        if (is_leased(process) || process.held_up) && options.use_global_queue {
            return wrong("it is to have no more");
        }
        let most = options.max_requests.filter(|_| !options.shares_program);
        let most = most.map_or(u32::MAX, |most| most.get() + options.max_requests_jitter);
        // An instance that could not be replaced may exceed the limit.
        if process.begun >= most && !self.ever_resisted.contains(&app) {
            return wrong("it has served enough");
        }
        if process.sessions.len() >= self.at_once(app) && options.use_global_queue {
            return wrong("it is full");
        }
        if !process.aside {
            let idle = self.serving(app).filter(|(_, other)| other.sessions.is_empty());
            let last = idle.max_by_key(|(_, other)| other.used);
            if last.is_some_and(|(best, _)| best != id) {
                return wrong("another was used later and is idle");
            }
            let takes = |other: &&Process| !other.held_up && !is_leased(other);
            let others = self.serving(app).map(|(_, other)| other).filter(takes);
            let least = others.map(|other| other.sessions.len()).min();
            if least.is_some_and(|least| least < process.sessions.len()) {
                return wrong("another is less busy");
            }
        }
        self.uses += 1;
        let used = self.uses;
        let process = self.processes.get_mut(&id).expect("looked at above");
        process.sessions.push(session);
        process.begun += 1;
        process.used = used;
        self.checked_out.insert(session, id);
        if waiter.alone {
            self.leases.insert(session);
        }
        Ok(())
    }

    fn check_leaves(&mut self, id: InstanceId, reason: Reason, action: &Action) -> Result<(), String> {
        let wrong = |what: &str| Err(format!("{action:?}: {what}"));
        let Some(process) = self.processes.get(&id) else {
            return wrong("there is none");
        };
        let (app, busy) = (process.app, !process.sessions.is_empty());
        let minimum = |app: usize| {
            let options = &self.apps[app];
            let limit = options.max_per_app.map_or(u32::MAX, |most| most.get());
            let least = usize::from(self.resisting.contains(&app));
            (options.min_instances.min(limit) as usize).max(least)
        };
        let asides = |app: usize| {
            let aside = |process: &&Process| process.app == app && process.aside && !process.stopped;
            self.processes.values().filter(aside).count()
        };
        if matches!(reason, Reason::Idle | Reason::Evicted) {
            if self.serving(app).count() + asides(app) <= minimum(app) {
                return wrong("it is needed for the minimum");
            }
            if reason == Reason::Idle && self.resisting.contains(&app) {
                return wrong("it can't be replaced");
            }
        }
        if reason == Reason::Idle && busy {
            return wrong("it is busy");
        }
        if reason == Reason::Evicted && !busy && !process.aside {
            for other in 0..self.apps.len() {
                let spare = self.serving(other).count() > minimum(other);
                let older = self
                    .serving(other)
                    .any(|(_, one)| one.sessions.is_empty() && one.used < process.used);
                // Users with more than half of the places come first.
                let is_same_user = self.apps[other].user == self.apps[app].user;
                if spare && older && is_same_user && self.waiting(other) == 0 {
                    return wrong("another has been idle longer");
                }
            }
        }
        self.processes.get_mut(&id).expect("looked at above").leaves = Some(reason);
        Ok(())
    }

    /// Checks what holds after each event.
    pub(crate) fn rest(&mut self, now: Tick) -> Result<(), String> {
        let count = self.processes.len() as u32;
        self.excused = self.excused.min(count);
        if count > self.max.max(self.excused) + 1 {
            return Err(format!("{count} instances, {} allowed", self.max));
        }
        let rolls =
            |options: &Options| options.restart_method != RestartMethod::Blocking || options.shares_program;
        if count > self.max.max(self.excused) && !self.apps.iter().any(rolls) {
            return Err(format!("{count} instances, {} allowed, and none rolls", self.max));
        }
        for (session, waiter) in &self.waiters {
            if waiter.deadline.is_some_and(|deadline| deadline < now) {
                return Err(format!("{session:?} waits past its deadline"));
            }
            let Some(app) = waiter.app else {
                return Err(format!("{session:?} waits for a group"));
            };
            if self.serving(app).any(|(_, one)| one.sessions.is_empty()) {
                return Err(format!("{session:?} waits while an instance idles"));
            }
        }
        for (app, options) in self.apps.iter().enumerate() {
            let limit = options
                .max_request_queue_size
                .map_or(usize::MAX, |most| most.get() as usize);
            if self.waiting(app) > limit {
                return Err(format!("too many wait for {app}"));
            }
        }
        Ok(())
    }
}
