//! Tests of single rules, including those of Passenger's pool and pooler.

mod adoption;
mod concurrent;
mod lending;
mod more;
mod places;
mod reserve;
mod restarts;
mod users;

use super::action::{Action, Force, Refusal};
use super::event::{ErrorId, Event, Get, InstanceId, Return, SessionId, Target, Wait};
use super::{ApplicationPool, Options, RestartFiles};
use forkyard_base::tick::Tick;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

struct Bench {
    pool: ApplicationPool,
    now: Tick,
    next: u64,
    actions: Vec<Action>,
}

fn positive(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).expect("not zero")
}

impl Bench {
    fn new(max: u32) -> Bench {
        Bench {
            pool: ApplicationPool::new(positive(max), positive(32)),
            now: Tick::from_nanos(1),
            next: 0,
            actions: Vec::new(),
        }
    }

    fn tell(&mut self, event: Event) -> &[Action] {
        self.actions.clear();
        self.pool.handle(event, self.now, &mut self.actions);
        &self.actions
    }

    fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        let mut all = Vec::new();
        while let Some(due) = self.pool.next_deadline().filter(|due| *due <= until) {
            self.now = due;
            self.tell(Event::Deadline);
            all.append(&mut self.actions);
        }
        (self.now, self.actions) = (until, all);
    }

    fn ask(&mut self, app: &str, options: Options) -> SessionId {
        self.request(Target::Application(Arc::from(app), options), Wait::Endless, None)
    }

    fn request(&mut self, target: Target, wait: Wait, restart_files: Option<RestartFiles>) -> SessionId {
        self.next += 1;
        let session = SessionId(self.next);
        self.tell(Event::Get(Get {
            session,
            target,
            wait,
            restart_files,
            alone: false,
        }));
        session
    }

    fn warm(&mut self, app: &str, options: Options) -> InstanceId {
        let session = self.ask(app, options);
        let id = self.next_up();
        self.close(session);
        id
    }

    fn up(&mut self, numbers: impl IntoIterator<Item = u64>) {
        for number in numbers {
            self.tell(Event::Spawned(InstanceId(number)));
        }
    }

    /// All instances that were just begun come up.
    fn all_up(&mut self) {
        let begun = self.begun();
        self.up(begun.into_iter().map(|id| id.0));
    }

    /// The first instance that was just begun comes up.
    fn next_up(&mut self) -> InstanceId {
        let id = self.begun()[0];
        self.tell(Event::Spawned(id));
        id
    }

    /// The instance that was just begun comes up and gets this session.
    fn starts_for(&mut self, session: SessionId) -> InstanceId {
        let id = self.next_up();
        assert_eq!(self.checked_out(session), Some(id));
        id
    }

    fn close(&mut self, session: SessionId) {
        self.tell(Event::Close(session, Return::Ok));
    }

    fn begun(&self) -> Vec<InstanceId> {
        let begun = |action: &Action| match action {
            Action::Spawn(id, ..) => Some(*id),
            _ => None,
        };
        self.actions.iter().filter_map(begun).collect()
    }

    fn checked_out(&self, session: SessionId) -> Option<InstanceId> {
        self.actions.iter().find_map(|action| match action {
            Action::CheckOut(to, id) if *to == session => Some(*id),
            _ => None,
        })
    }

    fn refused(&self, session: SessionId) -> Option<Refusal> {
        self.actions.iter().find_map(|action| match action {
            Action::Refuse(to, why) if *to == session => Some(*why),
            _ => None,
        })
    }

    fn stopped(&self) -> Vec<InstanceId> {
        let stopped = |action: &Action| match action {
            Action::Stop(id, Force::Ask) => Some(*id),
            _ => None,
        };
        self.actions.iter().filter_map(stopped).collect()
    }

    fn size(&self, app: &str) -> usize {
        let view = self.pool.view();
        let of = view.applications.iter().find(|one| &*one.name == app);
        of.map_or(0, |one| one.instances.len())
    }
}

fn plain() -> Options {
    Options {
        max_idle_time: None,
        restart_method: super::RestartMethod::Blocking,
        ..Options::default()
    }
}

fn error(number: u64) -> ErrorId {
    ErrorId(number)
}

#[test]
fn a_removal_waits_for_sessions_and_then_for_processes() {
    let mut bench = Bench::new(2);
    let session = bench.ask("a", plain());
    let id = bench.next_up();
    let waiting = bench.ask("a", plain());
    let second = bench.begun()[0];
    bench.tell(Event::Remove(Arc::from("a")));
    assert_eq!(bench.refused(waiting), Some(Refusal::Removed));
    assert!(
        bench.actions.contains(&Action::Stop(second, Force::Kill)),
        "14: still being started"
    );
    assert_eq!(bench.stopped(), []);
    bench.close(session);
    assert_eq!(bench.stopped(), [id]);
    bench.tell(Event::SpawnFailed(second, error(1)));
    bench.tell(Event::Exited(id));
    assert_eq!(bench.pool.view().count, 0);
}
