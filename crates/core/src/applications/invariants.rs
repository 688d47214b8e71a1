//! Invariants that hold after every step.

use super::application::{AppId, Application, length};
use super::index::{Class, Index, keys};
use super::instance_state::InstanceState;
use super::pool::{ApplicationPool, Counts};
use super::timers::Timer;
use std::collections::BTreeSet;

impl ApplicationPool {
    /// Panics if records disagree, a limit is exceeded, or a request waits although an instance is free.
    pub fn invariants(&self) {
        assert!(self.touched.is_empty(), "every consequence is drawn");
        let sizes: u32 = self.apps.values().map(Application::size).sum();
        assert_eq!(sizes, self.count(), "the sizes add up");
        assert_eq!(self.counts, self.recount(), "the states are counted right");
        self.users.check(self.instances.values());
        let most = self.most_spawning + self.most_spawning / 2;
        let spawning = self.counts.spawning;
        assert!(spawning <= most, "{spawning} of {most} are being started");
        assert!(self.counts.active <= self.count());
        let most = self.max.max(self.excused) + 1;
        assert!(self.count() <= most, "{} of {most} instances", self.count());
        self.check_index();
        for (id, app) in &self.apps {
            self.check_app(*id, app);
        }
        for id in &self.yielding {
            assert_eq!(
                self.instances[id].state,
                InstanceState::Finishing,
                "it gives its place up"
            );
        }
        for (session, held) in &self.sessions {
            match held.instance {
                None => assert!(self.apps[&held.app].waiters.contains(session), "a waiter waits"),
                Some(id) => {
                    let instance = &self.instances[&id];
                    let there = instance.running.contains(session) || instance.queued.contains(session);
                    assert!(there, "a session is at its recorded place");
                }
            }
        }
        let sessions: usize = self.instances.values().map(|one| one.busyness() as usize).sum();
        let waiters: usize = self.apps.values().map(|app| app.waiters.len()).sum();
        assert_eq!(
            sessions + waiters,
            self.sessions.len(),
            "each session is in one place"
        );
        self.check_groups();
    }

    fn check_groups(&self) {
        let members: usize = self.groups.values().map(Vec::len).sum();
        let grouped = self.apps.values().filter(|app| app.group.is_some()).count();
        assert_eq!(members, grouped, "an application is in one group at most");
        for (group, apps) in &self.groups {
            assert!(!apps.is_empty(), "no group is empty");
            for app in apps {
                let app = &self.apps[app];
                assert_eq!(app.group.as_ref(), Some(group), "both know of each other");
                assert!(app.registered && !app.removed, "a member of a group stays");
            }
        }
    }

    fn recount(&self) -> Counts {
        let with = |state| length(self.instances.values().filter(|one| one.state == state).count());
        let spares = self.apps.values().filter_map(|app| app.rolling.as_ref());
        Counts {
            active: length(self.instances.values().filter(|one| one.busyness() > 0).count()),
            spawning: with(InstanceState::Spawning),
            finishing: with(InstanceState::Finishing),
            draining: with(InstanceState::Draining),
            stopping: with(InstanceState::Stopping),
            spares: length(spares.filter(|rolling| rolling.spare.is_some()).count()),
        }
    }

    fn check_index(&self) {
        let mut wanted = 0;
        let mut entries = [0; 5];
        let Index {
            evictable,
            wants,
            yields,
            hopes,
            rolls,
            ..
        } = &self.index;
        for (id, app) in &self.apps {
            assert_eq!(app.keys, keys(app), "an application is filed by its state");
            let now = &app.keys;
            wanted += now.wanted;
            let filed = now.evictable.is_some_and(|used| {
                let of_user = evictable.get(&now.user);
                of_user.is_some_and(|apps| apps.contains(&(used, *id)))
            });
            entries[0] += usize::from(filed);
            let filed = now.wants.is_some_and(|(class, size, session)| {
                let wants = wants.get(&now.user);
                wants.is_some_and(|wants| wants.contains(&(class, size, session, *id)))
            });
            entries[1] += usize::from(filed);
            let filed = now.yields.is_some_and(|(serving, session)| {
                let of_user = yields.get(&now.user);
                of_user.is_some_and(|apps| apps.contains(&(serving, session, *id)))
            });
            entries[2] += usize::from(filed);
            entries[3] += usize::from(now.hopes && hopes.contains(id));
            entries[4] += usize::from(now.rolls && rolls.contains(id));
        }
        let held = [
            evictable.values().map(BTreeSet::len).sum(),
            wants.values().map(BTreeSet::len).sum(),
            yields.values().map(BTreeSet::len).sum(),
            hopes.len(),
            rolls.len(),
        ];
        assert_eq!(entries, held, "the indexes hold exactly the live applications");
        assert_eq!(wanted, self.index.wanted);
        let over = self.apps.values().filter(|app| app.is_over).count();
        assert_eq!(length(over), self.index.over);
        let starving = wants
            .values()
            .flatten()
            .filter(|key| key.0 == Class::Starving)
            .count();
        assert_eq!(length(starving), self.index.starving);
        if let Some((class, ..)) = self.next_want(|_| true) {
            assert!(
                self.next_to_start().is_none(),
                "an application wants a place and is not given the free one"
            );
            let may_evict = class != Class::Spreading && self.counts.stopping < self.index.wanted;
            let held_back = may_evict && !evictable.is_empty();
            assert!(
                !held_back,
                "an application waits for a place while an idle instance could be evicted"
            );
        }
    }

    fn check_app(&self, id: AppId, app: &Application) {
        let mut queued = 0;
        for instance in &app.instances {
            let one = &self.instances[instance];
            assert_eq!(one.app, id);
            let serves = one.state == InstanceState::Serving;
            let idle = app.idle.contains(&(one.used, *instance));
            let busy = app.busy.contains(&(one.load(), *instance));
            assert_eq!(idle, serves && one.busyness() == 0, "the idle are idle");
            assert_eq!(busy, serves && one.busyness() > 0, "the busy are busy");
            assert_eq!(
                app.spawning.contains(instance),
                one.state == InstanceState::Spawning
            );
            let empty = matches!(
                one.state,
                InstanceState::Spawning
                    | InstanceState::Disabled
                    | InstanceState::Working
                    | InstanceState::Stopping
            );
            assert!(!empty || one.busyness() == 0, "{:?} has sessions", one.state);
            let full = matches!(
                one.state,
                InstanceState::Finishing | InstanceState::Disabling | InstanceState::Draining
            );
            assert!(!full || one.busyness() > 0, "{:?} has none", one.state);
            assert!(one.queued.is_empty() || !one.running.is_empty(), "the first runs");
            let timed = matches!(one.state, InstanceState::Spawning | InstanceState::Working);
            assert!(!timed || self.is_timed(*instance), "{:?} has no end", one.state);
            queued += length(one.queued.len());
        }
        assert_eq!(queued, app.queued);
        let lists = app.idle.len() + app.busy.len() + app.spawning.len();
        assert!(lists <= app.instances.len(), "no one is in two lists");
        assert!(
            self.next_of(app).is_none(),
            "a request waits although an instance is free"
        );
        assert!(
            !app.is_backing_off() || app.waiters.is_empty(),
            "requests wait although the application is not tried again yet"
        );
        assert!(!app.removed || app.waiters.is_empty());
        assert_eq!(app.backoff.is_some(), self.timers.is_set(Timer::Backoff(id)));
        assert!(!app.is_over(), "finished sessions are forgotten");
    }
}
