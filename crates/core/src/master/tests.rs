//! The core step by step.

mod begins;
mod chosen;
mod refusals;
mod stops;
mod trials;

use super::action::{Action, ExitOutcome, Fact, Force, Notice, WakeOnAccept};
use super::budget;
use super::event::{
    CoreConfig, Ended, Event, GenerationId, Policy, PoolId, PreloaderPolicy, Row, SlotIndex, WantedPool,
    WorkerId,
};
use super::manager::Manager;
use crate::config::ProcessManager;
use forkyard_base::tick::Tick;
use std::time::Duration;

const POOL: PoolId = PoolId(7);
const FIRST: GenerationId = GenerationId(1);
const SECOND: GenerationId = GenerationId(2);
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

struct World {
    manager: Manager,
    now: Tick,
}

impl World {
    fn new() -> World {
        World {
            manager: Manager::default(),
            now: Tick::ZERO + Duration::from_secs(100),
        }
    }

    fn with(pm: ProcessManager) -> (World, Vec<Action>) {
        let mut world = World::new();
        let actions = world.tell(Event::Apply(wanted(FIRST, policy(pm), None)));
        (world, actions)
    }

    fn tell(&mut self, event: Event) -> Vec<Action> {
        let mut actions = Vec::new();
        self.manager.handle(event, self.now, &mut actions);
        actions
    }

    fn bring_up(&mut self, actions: &[Action]) -> Vec<WorkerId> {
        let workers = forks(actions);
        for worker in &workers {
            self.tell(Event::Forked(*worker));
            self.tell(Event::WorkerUp(*worker));
        }
        workers
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
    }

    fn next_in(&self) -> Option<Duration> {
        self.manager.next_deadline().map(|due| due.since(self.now))
    }

    fn row(&self, worker: WorkerId, idle: bool) -> Row {
        Row {
            has_room: false,
            worker,
            idle,
            since: self.now,
            running: !idle,
            executing: !idle,
            kept: 0,
            memory: 0,
        }
    }
}

fn policy(pm: ProcessManager) -> Policy {
    Policy {
        pm,
        choice: None,
        terminate_timeout: None,
        concurrency: 1,
        slow_timeout: None,
        drain_timeout: None,
        stop_timeout: Duration::from_secs(10),
        preloader: None,
        starts_from_disk: false,
    }
}

fn wanted(generation: GenerationId, policy: Policy, process_max: Option<u32>) -> CoreConfig {
    let pools = vec![WantedPool {
        pool: POOL,
        generation,
        policy,
        trial: false,
        share: None,
    }];
    CoreConfig {
        process_max,
        control_timeout: Duration::from_secs(5),
        emergency: None,
        gives_up: true,
        pools,
    }
}

fn ondemand(max_children: u32) -> ProcessManager {
    ProcessManager::Ondemand {
        max_children,
        process_idle_timeout: IDLE_TIMEOUT,
    }
}

fn forks(actions: &[Action]) -> Vec<WorkerId> {
    actions
        .iter()
        .filter_map(|action| {
            if let Action::Fork(worker, _, _) = action {
                Some(*worker)
            } else {
                None
            }
        })
        .collect()
}

const ALWAYS: WakeOnAccept = WakeOnAccept {
    always: true,
    idle_below: 0,
};
const NEVER: WakeOnAccept = WakeOnAccept {
    always: false,
    idle_below: 0,
};

#[test]
fn ondemand_stops_watching_before_it_counts_and_watches_again_once_told() {
    let (mut world, actions) = World::with(ondemand(3));
    assert_eq!(actions, [Action::Watch(POOL), Action::Note(Fact::Up(FIRST))]);
    assert_eq!(
        world.tell(Event::SourceReady(POOL)),
        [
            Action::Unwatch(POOL),
            Action::SetWakeOnAccept(FIRST, ALWAYS),
            Action::TakeSnapshot(FIRST)
        ]
    );
    let worker = WorkerId(0);
    let actions = world.tell(Event::Snapshot(FIRST, Vec::new(), Some(1)));
    assert_eq!(actions, [Action::Fork(worker, FIRST, SlotIndex(0))]);
    world.tell(Event::Forked(worker));
    world.tell(Event::WorkerUp(worker));
    assert_eq!(
        world.tell(Event::ChildAccept(FIRST)),
        [Action::SetWakeOnAccept(FIRST, NEVER), Action::Watch(POOL)]
    );
}

#[test]
fn ondemand_counts_upon_an_idle_worker_for_a_while_only() {
    let (mut world, _) = World::with(ondemand(3));
    world.tell(Event::SourceReady(POOL));
    let actions = world.tell(Event::Snapshot(FIRST, Vec::new(), Some(1)));
    let worker = world.bring_up(&actions)[0];
    world.tell(Event::ChildAccept(FIRST));
    let row = world.row(worker, true);
    world.pass(Duration::from_millis(5));
    world.tell(Event::SourceReady(POOL));
    assert_eq!(world.tell(Event::Snapshot(FIRST, vec![row], Some(1))), []);
    world.pass(Duration::from_secs(1));
    assert_eq!(world.tell(Event::Deadline), [Action::TakeSnapshot(FIRST)]);
    assert_eq!(
        forks(&world.tell(Event::Snapshot(FIRST, vec![row], Some(1)))).len(),
        1
    );
}

#[test]
fn a_burst_is_answered_with_as_many_workers_as_wait_up_to_the_most() {
    let (mut world, _) = World::with(ondemand(3));
    world.tell(Event::SourceReady(POOL));
    let actions = world.tell(Event::Snapshot(FIRST, Vec::new(), Some(5)));
    assert_eq!(forks(&actions).len(), 3);
    assert!(actions.contains(&Action::Say(Notice::MaxChildrenReached(POOL, 3))));
    assert_eq!(
        actions.last(),
        Some(&Action::SetWakeOnAccept(FIRST, NEVER)),
        "full: no one needs to tell"
    );
    world.bring_up(&actions);
    assert_eq!(world.tell(Event::ChildAccept(FIRST)), []);
    let actions = world.tell(Event::WorkerExited(WorkerId(1), Ended::Code(0), false));
    assert_eq!(actions.last(), Some(&Action::Watch(POOL)));
}

#[test]
fn idle_workers_are_retired_and_then_nothing_is_due() {
    let (mut world, _) = World::with(ondemand(3));
    world.tell(Event::SourceReady(POOL));
    let actions = world.tell(Event::Snapshot(FIRST, Vec::new(), Some(1)));
    let worker = world.bring_up(&actions)[0];
    world.tell(Event::ChildAccept(FIRST));
    let row = world.row(worker, true);
    assert_eq!(world.next_in(), Some(IDLE_TIMEOUT));
    world.pass(IDLE_TIMEOUT);
    assert_eq!(world.tell(Event::Deadline), [Action::TakeSnapshot(FIRST)]);
    assert_eq!(
        world.tell(Event::Snapshot(FIRST, vec![row], Some(0))),
        [Action::Retire(worker)]
    );
    let actions = world.tell(Event::WorkerExited(worker, Ended::Code(0), false));
    assert_eq!(
        actions,
        [
            Action::Note(Fact::Gone(worker)),
            Action::Say(Notice::WorkerGone(worker, Ended::Code(0), true))
        ]
    );
    assert_eq!(world.next_in(), None);
}

#[test]
fn static_workers_are_replaced_at_once_but_not_if_they_die_before_they_are_up() {
    let (mut world, actions) = World::with(ProcessManager::Static { max_children: 2 });
    let workers = world.bring_up(&actions);
    assert_eq!(world.next_in(), None);
    let actions = world.tell(Event::WorkerExited(workers[0], Ended::Code(0), false));
    let next = forks(&actions)[0];
    world.tell(Event::Forked(next));
    let actions = world.tell(Event::WorkerExited(next, Ended::Code(1), false));
    assert_eq!(forks(&actions), []);
    assert!(actions.contains(&Action::Say(Notice::BackingOff(POOL, Duration::from_millis(100)))));
    assert!(actions.contains(&Action::Note(Fact::Fails(FIRST))));
    world.pass(Duration::from_millis(100));
    assert_eq!(forks(&world.tell(Event::Deadline)).len(), 1);
}

#[test]
fn a_worker_that_has_done_its_requests_before_it_was_seen_to_be_up_has_not_failed() {
    let (mut world, actions) = World::with(ProcessManager::Static { max_children: 1 });
    let worker = world.bring_up(&actions)[0];
    let next = forks(&world.tell(Event::WorkerExited(worker, Ended::Code(0), true)))[0];
    world.tell(Event::Forked(next));
    let actions = world.tell(Event::WorkerExited(next, Ended::Code(0), true));
    assert_eq!(forks(&actions).len(), 1, "{actions:?}");
    assert!(!actions.contains(&Action::Note(Fact::Fails(FIRST))));
}

const CRASH: Ended = Ended::killed(11);

#[test]
fn a_worker_that_crashes_at_work_is_replaced_at_once_within_a_budget() {
    let (mut world, actions) = World::with(ProcessManager::Static { max_children: 1 });
    let mut worker = world.bring_up(&actions)[0];
    for crash in 0..budget::AT_LEAST {
        let actions = world.tell(Event::WorkerExited(worker, CRASH, true));
        assert_eq!(forks(&actions).len(), 1, "{crash}: {actions:?}");
        worker = world.bring_up(&actions)[0];
    }
    let actions = world.tell(Event::WorkerExited(worker, CRASH, true));
    let wait = Duration::from_secs(1) / budget::AT_LEAST;
    assert_eq!(forks(&actions), []);
    assert!(actions.contains(&Action::Say(Notice::CrashingFast(POOL, budget::AT_LEAST, wait))));
    world.pass(wait);
    let actions = world.tell(Event::Deadline);
    worker = world.bring_up(&actions)[0];
    let actions = world.tell(Event::WorkerExited(worker, CRASH, false));
    assert_eq!(forks(&actions), []);
    assert!(
        actions
            .iter()
            .any(|action| matches!(action, Action::Say(Notice::NoWorkerPossible(POOL, Some(_)))))
    );
}

#[test]
fn a_crash_at_work_does_not_keep_an_ondemand_pool_from_growing() {
    let (mut world, _) = World::with(ProcessManager::Ondemand {
        max_children: 5,
        process_idle_timeout: IDLE_TIMEOUT,
    });
    for _ in 0..20 {
        world.tell(Event::SourceReady(POOL));
        let actions = world.tell(Event::Snapshot(FIRST, Vec::new(), Some(1)));
        let worker = world.bring_up(&actions)[0];
        let actions = world.tell(Event::WorkerExited(worker, CRASH, true));
        assert!(actions.contains(&Action::Watch(POOL)), "{actions:?}");
        world.pass(Duration::from_millis(50));
    }
}

#[test]
fn dynamic_is_told_when_too_few_are_idle() {
    let (mut world, actions) = World::with(ProcessManager::Dynamic {
        max_children: 8,
        start_servers: 2,
        min_spare_servers: 1,
        max_spare_servers: 3,
        max_spawn_rate: 4,
        process_idle_timeout: IDLE_TIMEOUT,
    });
    assert_eq!(
        actions[0],
        Action::SetWakeOnAccept(
            FIRST,
            WakeOnAccept {
                always: false,
                idle_below: 1
            }
        )
    );
    let workers = world.bring_up(&actions);
    assert_eq!((workers.len(), world.next_in()), (2, None));
    assert_eq!(
        world.tell(Event::ChildAccept(FIRST)),
        [Action::TakeSnapshot(FIRST)]
    );
    let rows: Vec<Row> = workers.iter().map(|worker| world.row(*worker, false)).collect();
    assert_eq!(forks(&world.tell(Event::Snapshot(FIRST, rows, Some(2)))).len(), 3);
}

#[test]
fn a_request_that_runs_too_long_is_ended_with_its_worker() {
    let timeout = Duration::from_secs(30);
    let mut world = World::new();
    let policy = Policy {
        terminate_timeout: Some(timeout),
        ..policy(ProcessManager::Static { max_children: 1 })
    };
    let actions = world.tell(Event::Apply(wanted(FIRST, policy, None)));
    assert_eq!(actions[0], Action::SetWakeOnAccept(FIRST, ALWAYS));
    let worker = world.bring_up(&actions)[0];
    assert_eq!(world.next_in(), None);
    assert_eq!(
        world.tell(Event::ChildAccept(FIRST)),
        [Action::SetWakeOnAccept(FIRST, NEVER)]
    );
    let row = world.row(worker, false);
    world.pass(timeout);
    assert_eq!(
        world.tell(Event::Deadline),
        [
            Action::SetWakeOnAccept(FIRST, ALWAYS),
            Action::TakeSnapshot(FIRST)
        ]
    );
    let actions = world.tell(Event::Snapshot(FIRST, vec![row], None));
    assert_eq!(
        actions[..2],
        [
            Action::Say(Notice::RequestTimedOut(worker, timeout, Force::Terminate)),
            Action::RespondTimeout(worker)
        ]
    );
    world.pass(Duration::from_secs(1));
    assert!(
        world
            .tell(Event::Deadline)
            .contains(&Action::Kill(worker, Force::Kill))
    );
}

#[test]
fn a_new_generation_is_warm_before_the_old_one_leaves() {
    let (mut world, actions) = World::with(ProcessManager::Static { max_children: 2 });
    let old = world.bring_up(&actions);
    let preloader = PreloaderPolicy {
        start_timeout: Duration::from_secs(5),
        reforks: false,
        idle_timeout: Duration::from_secs(60),
        is_needed_by_workers: false,
    };
    let new = Policy {
        preloader: Some(preloader),
        ..policy(ProcessManager::Static { max_children: 2 })
    };
    let actions = world.tell(Event::Apply(wanted(SECOND, new, None)));
    assert_eq!(actions, [Action::StartPreloader(SECOND)]);
    let actions = world.tell(Event::PreloaderReady(SECOND));
    let workers = forks(&actions);
    for worker in &workers {
        world.tell(Event::Forked(*worker));
    }
    assert_eq!(world.tell(Event::WorkerUp(workers[0])), []);
    assert_eq!(
        world.tell(Event::WorkerUp(workers[1])),
        [
            Action::Note(Fact::Serves(SECOND)),
            Action::Say(Notice::GenerationServes(SECOND)),
            Action::Retire(old[0]),
            Action::Retire(old[1]),
            Action::Note(Fact::Up(SECOND))
        ]
    );
    world.tell(Event::WorkerExited(old[0], Ended::Code(0), false));
    let actions = world.tell(Event::WorkerExited(old[1], Ended::Code(0), false));
    assert_eq!(actions.last(), Some(&Action::DropGeneration(FIRST)));
}

#[test]
fn a_preloader_that_is_started_again_in_place_of_one_that_was_late_has_its_whole_time() {
    let time = Duration::from_secs(5);
    let preloader = PreloaderPolicy {
        start_timeout: time,
        reforks: false,
        idle_timeout: Duration::from_secs(60),
        is_needed_by_workers: false,
    };
    let policy = Policy {
        preloader: Some(preloader),
        ..policy(ProcessManager::Static { max_children: 1 })
    };
    let mut world = World::new();
    let actions = world.tell(Event::Apply(wanted(FIRST, policy, None)));
    assert_eq!(actions, [Action::StartPreloader(FIRST)]);
    world.pass(time);
    let actions = world.tell(Event::Deadline);
    assert_eq!(actions.last(), Some(&Action::StopPreloader(FIRST, Force::Kill)));
    assert_eq!(world.tell(Event::PreloaderAgain(FIRST)), []);
    assert_eq!(world.next_in(), Some(time));
    assert_eq!(forks(&world.tell(Event::PreloaderReady(FIRST))).len(), 1);
    assert_eq!(world.tell(Event::PreloaderAgain(FIRST)), []);
}

#[test]
fn a_generation_that_is_kept_takes_over_how_long_its_workers_may_take_to_leave() {
    let pm = ProcessManager::Static { max_children: 1 };
    let (mut world, actions) = World::with(pm);
    let old = world.bring_up(&actions);
    let longer = Policy {
        drain_timeout: Some(Duration::from_secs(60)),
        ..policy(pm)
    };
    assert_eq!(world.tell(Event::Apply(wanted(FIRST, longer, None))), []);
    let actions = world.tell(Event::Apply(wanted(SECOND, longer, None)));
    let new = forks(&actions)[0];
    world.tell(Event::Forked(new));
    assert!(world.tell(Event::WorkerUp(new)).contains(&Action::Retire(old[0])));
    assert_eq!(world.next_in(), Some(Duration::from_secs(60)));
}

#[test]
fn where_there_is_no_room_the_old_generation_makes_some() {
    let mut world = World::new();
    let pm = ProcessManager::Static { max_children: 1 };
    let actions = world.tell(Event::Apply(wanted(FIRST, policy(pm), Some(1))));
    let old = world.bring_up(&actions)[0];
    let actions = world.tell(Event::Apply(wanted(SECOND, policy(pm), Some(1))));
    assert_eq!(actions.last(), Some(&Action::TakeSnapshot(FIRST)));
    let row = world.row(old, true);
    assert_eq!(
        world.tell(Event::Snapshot(FIRST, vec![row], None)),
        [Action::Retire(old)]
    );
    let actions = world.tell(Event::WorkerExited(old, Ended::Code(0), false));
    assert_eq!(forks(&actions).len(), 1);
}

#[test]
fn a_start_at_which_nothing_can_be_made_ends_the_daemon() {
    let (mut world, actions) = World::with(ProcessManager::Static { max_children: 2 });
    let workers = forks(&actions);
    world.tell(Event::ForkFailed(workers[0]));
    let actions = world.tell(Event::ForkFailed(workers[1]));
    assert_eq!(actions.last(), Some(&Action::Exit(ExitOutcome::NoWorkerAtStart)));
}

#[test]
fn a_daemon_that_does_not_give_up_tries_again() {
    let mut world = World::new();
    let wanted = CoreConfig {
        gives_up: false,
        ..wanted(FIRST, policy(ProcessManager::Static { max_children: 1 }), None)
    };
    let workers = forks(&world.tell(Event::Apply(wanted)));
    world.tell(Event::ForkFailed(workers[0]));
    let due = world.manager.next_deadline().expect("another try");
    world.now = due;
    assert_eq!(forks(&world.tell(Event::Deadline)).len(), 1);
}

#[test]
fn a_worker_that_was_up_may_still_turn_out_not_to_be_known() {
    let (mut world, actions) = World::with(ProcessManager::Static { max_children: 1 });
    let worker = forks(&actions)[0];
    world.tell(Event::WorkerUp(worker));
    let actions = world.tell(Event::Terminate);
    assert!(
        !actions.contains(&Action::Kill(worker, Force::Terminate)),
        "its process is not known yet: {actions:?}"
    );
    let actions = world.tell(Event::ForkFailed(worker));
    assert_eq!(actions.last(), Some(&Action::Exit(ExitOutcome::Stopped)));
    assert_eq!(world.next_in(), None);
}

#[test]
fn finishing_waits_terminates_and_kills() {
    let (mut world, actions) = World::with(ProcessManager::Static { max_children: 1 });
    let worker = world.bring_up(&actions)[0];
    assert_eq!(world.tell(Event::Finish), [Action::Retire(worker)]);
    world.pass(Duration::from_secs(5));
    assert!(
        world
            .tell(Event::Deadline)
            .contains(&Action::Kill(worker, Force::Terminate))
    );
    world.pass(Duration::from_secs(10));
    assert!(
        world
            .tell(Event::Deadline)
            .contains(&Action::Kill(worker, Force::Kill))
    );
    let actions = world.tell(Event::WorkerExited(worker, Ended::killed(9), false));
    assert_eq!(
        actions[2..],
        [
            Action::DropGeneration(FIRST),
            Action::ClosePool(POOL),
            Action::Exit(ExitOutcome::Stopped)
        ]
    );
}

/// A second generation is coming; its preloader was asked for this worker.
fn asked_of_a_preloader() -> (World, WorkerId) {
    let pm = ProcessManager::Static { max_children: 1 };
    let (mut world, actions) = World::with(pm);
    world.bring_up(&actions);
    let preloader = PreloaderPolicy {
        start_timeout: Duration::from_secs(5),
        reforks: false,
        idle_timeout: Duration::from_secs(60),
        is_needed_by_workers: false,
    };
    world.tell(Event::Apply(wanted(
        SECOND,
        Policy {
            preloader: Some(preloader),
            ..policy(pm)
        },
        None,
    )));
    let worker = forks(&world.tell(Event::PreloaderReady(SECOND)))[0];
    (world, worker)
}

#[test]
fn a_coming_generation_that_loses_its_preloader_gets_another_before_it_serves() {
    let (mut world, worker) = asked_of_a_preloader();
    world.tell(Event::Forked(worker));
    world.tell(Event::PreloaderGone(SECOND, Ended::Code(1)));
    assert_eq!(world.tell(Event::WorkerUp(worker)), []);
    world.pass(Duration::from_millis(100));
    assert_eq!(world.tell(Event::Deadline), [Action::StartPreloader(SECOND)]);
    let actions = world.tell(Event::PreloaderReady(SECOND));
    assert_eq!(actions[0], Action::Note(Fact::Serves(SECOND)));
}

#[test]
fn a_worker_that_is_up_before_its_preloader_has_answered_is_still_waited_for() {
    let (mut world, worker) = asked_of_a_preloader();
    world.tell(Event::WorkerUp(worker));
    world.pass(Duration::from_secs(60));
    let late = world.tell(Event::Deadline);
    assert!(
        late.contains(&Action::StopPreloader(SECOND, Force::Kill)),
        "it owes an answer: {late:?}"
    );
}
