//! Measures in simulated time how a flood of requests for one application delays another's visitors. Clients of the flood
//! repeat at once; a quiet application gets a request now and then.

use crate::random::{Random, number};
use forkyard_base::tick::Tick;
use forkyard_core::applications::action::Action;
use forkyard_core::applications::event::{Event, Get, InstanceId, Return, SessionId, Target, Wait};
use forkyard_core::applications::{ApplicationPool, Options, RestartMethod};
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

const PLACES: u32 = 4;
const START: Duration = Duration::from_millis(200);
const STOP: Duration = Duration::from_millis(2);
/// The longest session; the shortest takes half.
const SESSION: Duration = Duration::from_millis(40);
const RESTARTS: Duration = Duration::from_secs(2);
const QUIET_REQUESTS: usize = 300;
const FLOOD: &str = "flood";
const MANY: [&str; 12] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];
const QUIET: &str = "quiet";

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Next {
    Up(InstanceId),
    Gone(InstanceId),
    Ends(SessionId),
    AsksQuietly,
    Restarts,
}

struct World {
    pool: ApplicationPool,
    random: Random,
    now: Tick,
    events: BTreeSet<(Tick, u64, Next)>,
    asked: BTreeMap<SessionId, (&'static str, Tick)>,
    number: u64,
    /// The flood's first sessions that never end.
    endless: u32,
    restarts: Option<RestartMethod>,
    /// The owner of the flooded applications. 0: a single application of the quiet one's owner.
    user: u32,
    waited: Vec<Duration>,
}

impl World {
    fn new(seed: u64) -> World {
        let places = NonZeroU32::new(PLACES).expect("some");
        World {
            pool: ApplicationPool::new(places, places),
            random: Random::new(seed),
            now: Tick::from_nanos(1),
            events: BTreeSet::new(),
            asked: BTreeMap::new(),
            number: 0,
            endless: 0,
            restarts: None,
            user: 0,
            waited: Vec::new(),
        }
    }

    fn with_reserve(mut self, reserve: u32) -> World {
        self.pool = self.pool.with_reserve(reserve);
        self
    }

    /// Returns the quiet application's 99th percentile, with `clients` of the flood and `endless` sessions at the same time.
    fn run(mut self, clients: u32, endless: u32) -> Duration {
        self.endless = endless;
        let names: &[&str] = if self.user == 0 { &[FLOOD] } else { &MANY };
        for name in names.iter().cycle().take(clients as usize) {
            self.ask(name);
        }
        self.after(START * 10, Next::AsksQuietly);
        self.after(RESTARTS, Next::Restarts);
        while self.waited.len() < QUIET_REQUESTS {
            let asked = self.asked.values().filter(|(who, _)| *who == QUIET).count();
            assert!(asked < QUIET_REQUESTS, "its visitors wait for ever");
            let deadline = self.pool.next_deadline();
            let first = self.events.first().copied().expect("something happens");
            match deadline.filter(|due| *due <= first.0) {
                Some(due) => {
                    self.now = self.now.max(due);
                    self.tell(Event::Deadline);
                }
                None => {
                    self.events.remove(&first);
                    self.now = self.now.max(first.0);
                    self.happen(first.2);
                }
            }
        }
        self.waited.sort();
        self.waited[self.waited.len() * 99 / 100]
    }

    fn after(&mut self, time: Duration, next: Next) {
        self.number += 1;
        self.events.insert((self.now + time, self.number, next));
    }

    fn happen(&mut self, next: Next) {
        match next {
            Next::Up(id) => self.tell(Event::Spawned(id)),
            Next::Gone(id) => self.tell(Event::Exited(id)),
            Next::AsksQuietly => {
                self.ask(QUIET);
                let pause = self.random.millis(50, 600);
                self.after(pause, Next::AsksQuietly);
            }
            Next::Restarts => {
                if let Some(method) = self.restarts {
                    self.tell(Event::Restart(Arc::from(FLOOD), method));
                    self.after(RESTARTS, Next::Restarts);
                }
            }
            Next::Ends(session) => {
                let (who, since) = self.asked.remove(&session).expect("it was asked for");
                self.tell(Event::Close(session, Return::Ok));
                match who {
                    QUIET => self.waited.push(self.now.since(since)),
                    flood => self.ask(flood),
                }
            }
        }
    }

    fn ask(&mut self, who: &'static str) {
        self.number += 1;
        let session = SessionId(self.number);
        self.asked.insert(session, (who, self.now));
        let options = Options {
            user: if who == QUIET { 0 } else { self.user },
            ..Options::default()
        };
        self.tell(Event::Get(Get {
            session,
            target: Target::Application(Arc::from(who), options),
            wait: Wait::Endless,
            restart_files: None,
            alone: false,
        }));
    }

    fn tell(&mut self, event: Event) {
        let mut actions = Vec::new();
        self.pool.handle(event, self.now, &mut actions);
        self.pool.invariants();
        for action in actions {
            match action {
                Action::Spawn(id, ..) => self.after(START, Next::Up(id)),
                Action::Stop(id, _) => self.after(STOP, Next::Gone(id)),
                Action::CheckOut(session, _) => self.checked_out(session),
                Action::Say(_) => {}
                other => panic!("{other:?} is not to happen"),
            }
        }
    }

    fn checked_out(&mut self, session: SessionId) {
        if self.asked[&session].0 == FLOOD && self.endless > 0 {
            self.endless -= 1;
            return;
        }
        let most = SESSION.as_millis() as u32;
        let time = self.random.millis(most / 2, most);
        self.after(time, Next::Ends(session));
    }
}

/// Twice the time without a flood, and a start.
fn bound() -> Duration {
    2 * World::new(1).run(0, 0) + START
}

#[test]
fn a_flood_costs_another_applications_visitors_a_session_and_a_start_at_most() {
    let seeds = if number("FORKYARD_SIM_SEEDS").is_some() {
        1
    } else {
        5
    };
    for seed in 1..=seeds {
        let beside = World::new(seed).run(60, 0);
        assert!(
            beside < bound(),
            "seed {seed}: {beside:?} beside a flood, {:?} allowed",
            bound()
        );
    }
}

#[test]
fn sessions_of_the_flood_that_never_end_keep_no_place_from_others() {
    for endless in 1..PLACES {
        let beside = World::new(1).run(60, endless);
        // With few places, an instance of the flood may just be starting.
        let bound = bound() + START;
        assert!(
            beside < bound,
            "{endless} that never end: {beside:?}, {bound:?} allowed"
        );
    }
}

#[test]
fn with_a_reserve_no_number_of_sessions_that_never_end_keeps_others_from_theirs() {
    for reserve in 1..PLACES {
        for restarts in [None, Some(RestartMethod::Blocking), Some(RestartMethod::Rolling)] {
            let mut world = World::new(1).with_reserve(reserve);
            world.restarts = restarts;
            let beside = world.run(60, u32::MAX);
            assert!(
                beside < bound(),
                "a reserve of {reserve}, restarts {restarts:?}: {beside:?}, {:?} allowed",
                bound()
            );
        }
    }
}

/// Another user waits at most for the first instance and its session.
#[test]
fn a_flood_for_all_applications_of_a_user_costs_another_user_a_session_and_two_starts_at_most() {
    let bound = bound() + START;
    for seed in 1..=3 {
        let mut world = World::new(seed);
        world.user = 1;
        let beside = world.run(600, 0);
        assert!(beside < bound, "seed {seed}: {beside:?}, {bound:?} allowed");
    }
}
