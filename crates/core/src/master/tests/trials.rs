//! The serving generation during its successor's trial.

use super::*;

fn from_disk(pm: ProcessManager) -> Policy {
    Policy {
        starts_from_disk: true,
        ..policy(pm)
    }
}

fn dynamic() -> ProcessManager {
    ProcessManager::Dynamic {
        max_children: 3,
        start_servers: 1,
        min_spare_servers: 1,
        max_spare_servers: 1,
        max_spawn_rate: 8,
        process_idle_timeout: IDLE_TIMEOUT,
    }
}

fn forks_of(id: GenerationId, actions: &[Action]) -> Vec<WorkerId> {
    let fork = |action: &Action| match action {
        Action::Fork(worker, of, _) if *of == id => Some(*worker),
        _ => None,
    };
    actions.iter().filter_map(fork).collect()
}

/// The forks after the only worker took a request while another waits.
fn forked_for_work(world: &mut World, pm: ProcessManager, worker: WorkerId) -> Vec<WorkerId> {
    let mut actions = match pm {
        ProcessManager::Ondemand { .. } => world.tell(Event::SourceReady(POOL)),
        _ => world.tell(Event::ChildAccept(FIRST)),
    };
    let row = world.row(worker, false);
    for id in [FIRST, SECOND] {
        let asked = actions.contains(&Action::TakeSnapshot(id));
        let rows = if id == FIRST { vec![row] } else { Vec::new() };
        if asked {
            actions.extend(world.tell(Event::Snapshot(id, rows, Some(3))));
        }
    }
    forks_of(FIRST, &actions)
}

fn on_trial(pm: ProcessManager, policy: impl Fn(ProcessManager) -> Policy) -> (World, WorkerId) {
    let mut world = World::new();
    let mut actions = world.tell(Event::Apply(wanted(FIRST, policy(pm), None)));
    if let ProcessManager::Ondemand { .. } = pm {
        world.tell(Event::SourceReady(POOL));
        actions = world.tell(Event::Snapshot(FIRST, Vec::new(), Some(1)));
    }
    let worker = world.bring_up(&actions)[0];
    world.tell(Event::ChildAccept(FIRST));
    let row = world.row(worker, true);
    world.tell(Event::Snapshot(FIRST, vec![row], None));
    let actions = world.tell(Event::Apply(wanted(SECOND, policy(pm), None)));
    if actions.contains(&Action::TakeSnapshot(FIRST)) {
        world.tell(Event::Snapshot(FIRST, vec![row], None));
    }
    (world, worker)
}

#[test]
fn another_worker_would_start_the_code_that_is_on_trial() {
    for pm in [dynamic(), ondemand(3)] {
        let (mut world, worker) = on_trial(pm, policy);
        assert_ne!(forked_for_work(&mut world, pm, worker), [], "{pm:?}: in memory");
        let (mut world, worker) = on_trial(pm, from_disk);
        assert_eq!(forked_for_work(&mut world, pm, worker), [], "{pm:?}");
        world.manager.invariants();
        let mut actions = world.tell(Event::Apply(wanted(FIRST, from_disk(pm), None)));
        let row = world.row(worker, false);
        if let ProcessManager::Ondemand { .. } = pm {
            assert!(actions.contains(&Action::Watch(POOL)), "{actions:?}");
            actions = world.tell(Event::SourceReady(POOL));
        }
        assert!(actions.contains(&Action::TakeSnapshot(FIRST)), "{actions:?}");
        let actions = world.tell(Event::Snapshot(FIRST, vec![row], Some(1)));
        assert_ne!(forks_of(FIRST, &actions), [], "{pm:?}");
        world.manager.invariants();
    }
}

#[test]
fn a_worker_that_ends_beside_a_trial_is_replaced_and_an_idle_one_stays() {
    let pm = dynamic();
    let (mut world, worker) = on_trial(pm, from_disk);
    assert_eq!(forked_for_work(&mut world, pm, worker), []);
    let actions = world.tell(Event::WorkerExited(worker, CRASH, true));
    let replaced = world.bring_up(&actions);
    assert_eq!(replaced.len(), 1);
    assert_eq!(forked_for_work(&mut world, pm, replaced[0]), []);

    let pm = ondemand(3);
    let (mut world, worker) = on_trial(pm, from_disk);
    let row = world.row(worker, true);
    world.pass(IDLE_TIMEOUT * 2);
    world.tell(Event::Deadline);
    let actions = world.tell(Event::Snapshot(FIRST, vec![row], None));
    assert!(!actions.contains(&Action::Retire(worker)), "{actions:?}");
}
