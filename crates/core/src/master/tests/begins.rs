//! Starts of generations and their trials.

use super::*;

const PM: ProcessManager = ProcessManager::Static { max_children: 1 };

fn two(first: GenerationId, second: GenerationId) -> CoreConfig {
    let pool = |pool, generation| WantedPool {
        pool,
        generation,
        policy: policy(PM),
        trial: false,
        share: None,
    };
    CoreConfig {
        pools: vec![pool(POOL, first), pool(PoolId(8), second)],
        ..wanted(first, policy(PM), Some(1))
    }
}

#[test]
fn of_a_pool_that_begins_the_first_worker_is_told_once() {
    let (mut world, actions) = World::with(ProcessManager::Static { max_children: 2 });
    assert!(!actions.contains(&Action::Note(Fact::Up(FIRST))));
    let workers = forks(&actions);
    for worker in &workers {
        world.tell(Event::Forked(*worker));
    }
    let up = [Action::Note(Fact::Up(FIRST))];
    assert_eq!(world.tell(Event::WorkerUp(workers[0])), up);
    assert_eq!(world.tell(Event::WorkerUp(workers[1])), []);
}

#[test]
fn a_pool_that_begins_without_room_is_told_once() {
    let mut world = World::new();
    let waits = Action::Note(Fact::Waits(SECOND));
    let actions = world.tell(Event::Apply(two(FIRST, SECOND)));
    assert_eq!(actions.iter().filter(|action| **action == waits).count(), 1);
    let worker = world.bring_up(&actions)[0];
    let actions = world.tell(Event::WorkerExited(worker, Ended::Code(0), false));
    assert!(!actions.contains(&waits));
}

#[test]
fn a_worker_that_leaves_makes_room_for_a_pool_that_begins() {
    let mut world = World::new();
    let actions = world.tell(Event::Apply(wanted(FIRST, policy(PM), Some(1))));
    let old = world.bring_up(&actions)[0];
    let other = WantedPool {
        pool: PoolId(8),
        generation: SECOND,
        policy: policy(PM),
        trial: false,
        share: None,
    };
    let actions = world.tell(Event::Apply(CoreConfig {
        pools: vec![other],
        ..wanted(SECOND, policy(PM), Some(1))
    }));
    assert!(actions.contains(&Action::Retire(old)));
    assert!(
        !actions.contains(&Action::Note(Fact::Waits(SECOND))),
        "{actions:?}"
    );
    let actions = world.tell(Event::WorkerExited(old, Ended::Code(0), false));
    let new = forks(&actions)[0];
    world.tell(Event::Forked(new));
    assert!(
        world
            .tell(Event::WorkerUp(new))
            .contains(&Action::Note(Fact::Up(SECOND)))
    );
}

#[test]
fn of_many_ondemand_pools_with_workers_few_are_tried_at_a_time() {
    const POOLS: u32 = 6;
    let all = |first: u32| {
        let pool = |at| WantedPool {
            pool: PoolId(at),
            generation: GenerationId(first + at),
            policy: policy(ondemand(1)),
            trial: false,
            share: None,
        };
        CoreConfig {
            pools: (0..POOLS).map(pool).collect(),
            ..wanted(FIRST, policy(ondemand(1)), None)
        }
    };
    let mut world = World::new();
    world.tell(Event::Apply(all(100)));
    let mut rows = Vec::new();
    for at in 0..POOLS {
        world.tell(Event::SourceReady(PoolId(at)));
        let actions = world.tell(Event::Snapshot(GenerationId(100 + at), Vec::new(), Some(1)));
        let worker = world.bring_up(&actions)[0];
        rows.push(world.row(worker, true));
    }
    world.tell(Event::Apply(all(200)));
    let mut tried = Vec::new();
    for at in 0..POOLS {
        let row = rows[at as usize];
        let actions = world.tell(Event::Snapshot(GenerationId(100 + at), vec![row], Some(0)));
        tried.extend(forks(&actions));
    }
    assert_eq!(tried.len(), 4);
    world.tell(Event::Forked(tried[0]));
    let actions = world.tell(Event::WorkerUp(tried[0]));
    assert_eq!(forks(&actions).len(), 1, "one serves, and another has its turn");
    world.tell(Event::Forked(tried[1]));
    let actions = world.tell(Event::WorkerExited(tried[1], Ended::Code(1), false));
    assert_eq!(
        forks(&actions).len(),
        1,
        "one has failed, and another has its turn"
    );
}
