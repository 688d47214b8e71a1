//! Failed starts and refused requests.

use super::*;

fn refusals(actions: &[Action]) -> usize {
    let is_refusal = |action: &&Action| matches!(action, Action::UnavailableResponder(POOL, FIRST, _));
    actions.iter().filter(is_refusal).count()
}

#[test]
fn a_pool_whose_workers_fail_at_their_start_refuses_until_one_is_up() {
    let (mut world, mut actions) = World::with(ProcessManager::Static { max_children: 1 });
    for failure in 0..3 {
        let worker = forks(&actions)[0];
        assert!(!actions.contains(&Action::StopUnavailableResponder(POOL)));
        world.tell(Event::Forked(worker));
        let failed = world.tell(Event::WorkerExited(worker, Ended::Code(70), false));
        assert_eq!(refusals(&failed), 1, "{failure}: {failed:?}");
        world.pass(Duration::from_millis(100) * (1 << failure));
        actions = world.tell(Event::Deadline);
    }
    let worker = forks(&actions)[0];
    world.tell(Event::Forked(worker));
    let actions = world.tell(Event::WorkerUp(worker));
    assert!(
        actions.contains(&Action::StopUnavailableResponder(POOL)),
        "{actions:?}"
    );
    for had_work in [true, false] {
        let actions = world.tell(Event::WorkerExited(worker, CRASH, had_work));
        assert_eq!(refusals(&actions), 0, "{had_work}: {actions:?}");
    }
}

#[test]
fn a_worker_that_somebody_kills_at_its_start_is_no_failed_start() {
    let (mut world, actions) = World::with(ProcessManager::Static { max_children: 1 });
    let worker = forks(&actions)[0];
    world.tell(Event::Forked(worker));
    let killed = Ended::killed(9);
    let actions = world.tell(Event::WorkerExited(worker, killed, false));
    assert_eq!(refusals(&actions), 0, "{actions:?}");
}

#[test]
fn a_pool_with_a_good_worker_does_not_refuse() {
    let (mut world, actions) = World::with(ProcessManager::Static { max_children: 2 });
    let workers = forks(&actions);
    for worker in &workers {
        world.tell(Event::Forked(*worker));
    }
    world.tell(Event::WorkerUp(workers[0]));
    let actions = world.tell(Event::WorkerExited(workers[1], Ended::Code(70), false));
    assert_eq!(refusals(&actions), 0, "{actions:?}");
    // The failure is an old one.
    let actions = world.tell(Event::WorkerExited(workers[0], CRASH, true));
    assert_eq!(refusals(&actions), 0, "{actions:?}");
}
