//! Further cases of Passenger's tests, with its numbers.

use super::*;
use crate::applications::action::Disabling;
use crate::applications::{FileState, RestartMethod};

fn two_at_once() -> Options {
    Options {
        concurrency: NonZeroU32::new(2),
        max_per_app: NonZeroU32::new(2),
        ..plain()
    }
}

#[test]
fn the_least_busy_of_several_busy_instances_takes_the_next_8() {
    let mut bench = Bench::new(2);
    let mut held: Vec<SessionId> = (0..3).map(|_| bench.ask("a", two_at_once())).collect();
    bench.up([0, 1]);
    bench.close(held.remove(0));
    let third = bench.ask("a", two_at_once());
    let busiest = bench.checked_out(third).expect("both have room");
    let fourth = bench.ask("a", two_at_once());
    let other = bench.checked_out(fourth).expect("one has room");
    assert_ne!(busiest, other);
    // All are full: the first with room serves (9).
    let fifth = bench.ask("a", two_at_once());
    assert_eq!(bench.checked_out(fifth), None);
    bench.close(third);
    assert_eq!(bench.checked_out(fifth), Some(busiest));
    for session in held.into_iter().chain([fourth, fifth]) {
        bench.close(session);
    }
    assert_eq!(bench.pool.view().active, 0);
}

#[test]
fn restart_files_that_are_there_already_are_no_reason_18() {
    let mut bench = Bench::new(2);
    let restart_files = RestartFiles {
        restart: Some(FileState {
            modified_ns: 1,
            inode: 1,
        }),
        always: false,
    };
    let target = Target::Application(Arc::from("a"), plain());
    let session = bench.request(target, Wait::Endless, Some(restart_files));
    let id = bench.next_up();
    assert_eq!(bench.checked_out(session), Some(id));
}

#[test]
fn of_an_idle_and_a_busy_instance_the_idle_one_makes_room_21() {
    let mut bench = Bench::new(2);
    let sessions = [bench.ask("a", plain()), bench.ask("a", plain())];
    bench.up([0, 1]);
    bench.close(sessions[0]);
    let waiter = bench.ask("b", plain());
    assert_eq!(bench.stopped(), [InstanceId(0)]);
    bench.tell(Event::Exited(InstanceId(0)));
    bench.starts_for(waiter);
    bench.close(sessions[1]);
    assert_eq!(bench.stopped(), [], "the busy one lives on");
}

#[test]
fn who_asks_first_for_a_place_that_another_is_taking_is_served_in_turn_25() {
    let mut bench = Bench::new(1);
    let first = bench.ask("a", plain());
    let second = bench.ask("b", plain());
    let id = bench.begun();
    assert_eq!(id, [], "the only place is taken by a's");
    bench.tell(Event::Spawned(InstanceId(0)));
    assert_eq!(
        bench.checked_out(first),
        Some(InstanceId(0)),
        "its request comes first"
    );
    bench.close(first);
    assert_eq!(bench.stopped(), [InstanceId(0)], "then it yields");
    bench.tell(Event::Exited(InstanceId(0)));
    bench.starts_for(second);
}

#[test]
fn a_waiter_has_what_was_detached_started_again_31() {
    let mut bench = Bench::new(1);
    let id = bench.warm("a", plain());
    let holder = bench.ask("a", plain());
    let waiter = bench.ask("a", plain());
    bench.tell(Event::Detach(id));
    bench.close(holder);
    bench.tell(Event::Exited(id));
    bench.starts_for(waiter);
}

#[test]
fn in_a_full_pool_an_instance_is_disabled_without_another_51() {
    let mut bench = Bench::new(2);
    let sessions = [bench.ask("a", plain()), bench.ask("a", plain())];
    bench.up([0, 1]);
    bench.tell(Event::Disable(InstanceId(0)));
    assert_eq!(bench.actions, [], "50: it has a request");
    bench.tell(Event::Disable(InstanceId(0)));
    assert_eq!(bench.actions, [], "50: asked for again, it is answered once");
    bench.close(sessions[0]);
    assert_eq!(bench.actions, [Action::Disabled(InstanceId(0), Disabling::Done)]);
    bench.close(sessions[1]);
    assert_eq!(bench.begun(), []);
}

#[test]
fn a_restart_during_a_restart_begins_anew_78() {
    let mut bench = Bench::new(2);
    let old = bench.warm("a", plain());
    let restart = |bench: &mut Bench| {
        bench.tell(Event::Restart(Arc::from("a"), RestartMethod::Blocking));
    };
    restart(&mut bench);
    let waiter = bench.ask("a", plain());
    let dropped = bench.begun()[0];
    restart(&mut bench);
    assert!(bench.actions.contains(&Action::Stop(dropped, Force::Kill)));
    for id in [old, dropped] {
        bench.tell(Event::Exited(id));
    }
    let new = InstanceId(dropped.0 + 1);
    bench.tell(Event::Spawned(new));
    assert_eq!(bench.checked_out(waiter), Some(new));
    let view = bench.pool.view();
    assert_eq!((view.count, view.applications[0].restarts), (1, 2));
}

#[test]
fn an_application_is_removed_while_it_restarts_13() {
    let mut bench = Bench::new(2);
    let old = bench.warm("a", plain());
    bench.tell(Event::Restart(Arc::from("a"), RestartMethod::Rolling));
    let new = bench.begun()[0];
    bench.tell(Event::Remove(Arc::from("a")));
    for id in [old, new] {
        assert!(
            bench
                .actions
                .iter()
                .any(|action| matches!(action, Action::Stop(one, _) if *one == id))
        );
    }
    bench.tell(Event::Exited(new));
    bench.tell(Event::Exited(old));
    assert_eq!(bench.pool.view().count, 0);
}
