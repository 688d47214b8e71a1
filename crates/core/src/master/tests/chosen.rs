//! A generation whose number of workers the autopilot chooses.

use super::*;
use crate::master::event::Choice;

fn choice(most: u32) -> Choice {
    Choice { most, may_fork: true }
}

fn chosen(pm: ProcessManager, most: u32) -> (World, Vec<Action>) {
    let mut world = World::new();
    let policy = Policy {
        choice: Some(choice(most)),
        ..policy(pm)
    };
    let actions = world.tell(Event::Apply(wanted(FIRST, policy, None)));
    (world, actions)
}

fn retired(actions: &[Action]) -> Vec<WorkerId> {
    let retire = |action: &Action| match action {
        Action::Retire(worker) => Some(*worker),
        _ => None,
    };
    actions.iter().filter_map(retire).collect()
}

#[test]
fn a_choice_bounds_each_process_manager() {
    let dynamic = ProcessManager::Dynamic {
        max_children: 8,
        start_servers: 8,
        min_spare_servers: 8,
        max_spare_servers: 8,
        max_spawn_rate: 32,
        process_idle_timeout: IDLE_TIMEOUT,
    };
    for pm in [ProcessManager::Static { max_children: 8 }, dynamic, ondemand(8)] {
        let (mut world, mut actions) = chosen(pm, 3);
        if matches!(pm, ProcessManager::Ondemand { .. }) {
            world.tell(Event::SourceReady(POOL));
            actions = world.tell(Event::Snapshot(FIRST, Vec::new(), Some(20)));
        }
        let mut workers = world.bring_up(&actions);
        assert_eq!(workers.len(), 3, "{pm:?}");
        let mut grown = world.tell(Event::Chosen(FIRST, choice(5)));
        if matches!(pm, ProcessManager::Ondemand { .. }) {
            assert!(grown.contains(&Action::Watch(POOL)), "{grown:?}");
            grown.extend(world.tell(Event::SourceReady(POOL)));
        }
        if grown.contains(&Action::TakeSnapshot(FIRST)) {
            let rows = workers.iter().map(|worker| world.row(*worker, false)).collect();
            grown.extend(world.tell(Event::Snapshot(FIRST, rows, Some(20))));
        }
        workers.extend(world.bring_up(&grown));
        assert_eq!(workers.len(), 5, "{pm:?}: {grown:?}");
        world.manager.invariants();
    }
}

#[test]
fn workers_beyond_the_choice_leave_and_count_until_they_are_gone() {
    let (mut world, actions) = chosen(ProcessManager::Static { max_children: 8 }, 4);
    let workers = world.bring_up(&actions);
    assert_eq!(
        world.tell(Event::Chosen(FIRST, choice(2))),
        [Action::TakeSnapshot(FIRST)]
    );
    let rows = workers
        .iter()
        .map(|worker| world.row(*worker, *worker == workers[3]))
        .collect();
    let actions = world.tell(Event::Snapshot(FIRST, rows, None));
    assert_eq!(retired(&actions), [workers[3], workers[0]], "the idle one first");
    assert_eq!(
        forks(&world.tell(Event::Chosen(FIRST, choice(4)))),
        [],
        "two are still leaving"
    );
    for (gone, more) in [(workers[3], 1), (workers[0], 1)] {
        let actions = world.tell(Event::WorkerExited(gone, Ended::Code(0), false));
        assert_eq!(forks(&actions).len(), more);
    }
    world.manager.invariants();
}

#[test]
fn without_memory_only_the_first_worker_starts() {
    let none = Choice {
        most: 8,
        may_fork: false,
    };
    let (mut world, actions) = chosen(ProcessManager::Static { max_children: 8 }, 2);
    let workers = world.bring_up(&actions);
    assert_eq!(forks(&world.tell(Event::Chosen(FIRST, none))), []);
    world.tell(Event::WorkerExited(workers[0], Ended::Code(0), false));
    let actions = world.tell(Event::WorkerExited(workers[1], Ended::Code(0), false));
    assert_eq!(forks(&actions).len(), 1, "a pool without a worker serves nobody");
    let more = world.tell(Event::Chosen(FIRST, choice(8)));
    assert_eq!(forks(&actions).len() + forks(&more).len(), 8);
}

#[test]
fn the_operator_s_number_stays() {
    let (mut world, actions) = World::with(ProcessManager::Static { max_children: 2 });
    assert_eq!(world.bring_up(&actions).len(), 2);
    assert_eq!(world.tell(Event::Chosen(FIRST, choice(1))), []);
}
