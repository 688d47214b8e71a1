//! Instances of an earlier pool.

use super::*;
use crate::applications::event::Adopted;

fn adopted(id: u64, app: &str, session: u64) -> Adopted {
    Adopted {
        id: InstanceId(id),
        application: Arc::from(app),
        options: Options::default(),
        session: SessionId(session),
    }
}

fn checked_out(actions: &[Action]) -> Vec<(SessionId, InstanceId)> {
    let checked_out = actions.iter().filter_map(|action| match action {
        Action::CheckOut(session, id) => Some((*session, *id)),
        _ => None,
    });
    checked_out.collect()
}

#[test]
fn an_adopted_instance_serves_when_what_it_was_busy_with_is_over() {
    let mut bench = Bench::new(2);
    let all = vec![adopted(7, "a", 1), adopted(9, "b", 2)];
    assert_eq!(bench.tell(Event::Adopt(all, InstanceId(20))), &[]);
    bench.next = 2;
    let waits = bench.ask("a", Options::default());
    assert_eq!(bench.actions, [], "the pool is full and everything is busy");
    let actions = bench.tell(Event::Close(SessionId(1), Return::Ok)).to_vec();
    assert_eq!(checked_out(&actions), [(waits, InstanceId(7))]);
    bench.tell(Event::Exited(InstanceId(9)));
    assert!(bench.actions.contains(&Action::Lost {
        session: SessionId(2),
        began: true
    }));
    bench.ask("c", Options::default());
    let spawned = |action: &Action| matches!(action, Action::Spawn(InstanceId(20), ..));
    assert!(bench.actions.iter().any(spawned), "{:?}", bench.actions);
}

#[test]
fn more_may_be_adopted_than_there_may_be_and_idle_ones_go() {
    let mut bench = Bench::new(1);
    let all = (1..=3).map(|id| adopted(id, "a", id)).collect();
    bench.tell(Event::Adopt(all, InstanceId(4)));
    bench.next = 3;
    let mut stopped = 0;
    for session in 1..=3 {
        let actions = bench.tell(Event::Close(SessionId(session), Return::Ok));
        stopped += actions
            .iter()
            .filter(|one| matches!(one, Action::Stop(..)))
            .count();
    }
    assert_eq!(stopped, 2);
}

#[test]
fn no_instance_works_while_an_earlier_work_may_go_on() {
    let mut bench = Bench::new(3);
    bench.tell(Event::Adopt(
        vec![adopted(1, "a", 1), adopted(2, "a", 2), adopted(3, "b", 3)],
        InstanceId(4),
    ));
    let works = |actions: &[Action]| -> Vec<InstanceId> {
        let works = actions.iter().filter_map(|action| match action {
            Action::Work(id) => Some(*id),
            _ => None,
        });
        works.collect()
    };
    // The first instance may do work that only the earlier pool knows of.
    bench.tell(Event::Close(SessionId(2), Return::Ok));
    assert_eq!(works(bench.tell(Event::WorkWanted(InstanceId(2)))), []);
    assert_eq!(
        works(bench.tell(Event::Close(SessionId(1), Return::Ok))),
        [InstanceId(2)]
    );
}

#[test]
fn what_is_known_already_is_not_adopted() {
    let mut bench = Bench::new(2);
    bench.tell(Event::Adopt(vec![adopted(1, "a", 5)], InstanceId(2)));
    bench.tell(Event::Adopt(
        vec![adopted(1, "b", 6), adopted(2, "a", 5)],
        InstanceId(1),
    ));
    assert_eq!(bench.pool.count(), 1);
    bench.next = 6;
    bench.ask("b", Options::default());
    let spawned = |action: &Action| matches!(action, Action::Spawn(InstanceId(2), ..));
    assert!(bench.actions.iter().any(spawned), "{:?}", bench.actions);
}
