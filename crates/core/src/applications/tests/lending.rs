//! Requests, waiting, checkout and return.

use super::*;
use crate::applications::action::{Notice, Trouble};

#[test]
fn the_first_request_starts_an_instance_and_waits_for_it() {
    let mut bench = Bench::new(3);
    let session = bench.ask("a", plain());
    let id = bench.begun()[0];
    assert_eq!(bench.checked_out(session), None);
    bench.tell(Event::Spawned(id));
    assert_eq!(bench.checked_out(session), Some(id));
}

#[test]
fn what_frees_first_serves_first() {
    for existing_first in [true, false] {
        let mut bench = Bench::new(3);
        let old = bench.warm("a", plain());
        let holder = bench.ask("a", plain());
        assert_eq!(bench.checked_out(holder), Some(old));
        let waiter = bench.ask("a", plain());
        let new = bench.begun()[0];
        if existing_first {
            bench.close(holder);
            assert_eq!(bench.checked_out(waiter), Some(old));
        } else {
            bench.tell(Event::Spawned(new));
            assert_eq!(bench.checked_out(waiter), Some(new));
        }
    }
}

#[test]
fn the_one_used_last_is_lent_first_and_waiters_are_served_in_order() {
    let mut bench = Bench::new(2);
    let sessions = [bench.ask("a", plain()), bench.ask("a", plain())];
    for id in [InstanceId(0), InstanceId(1)] {
        bench.tell(Event::Spawned(id));
    }
    bench.close(sessions[1]);
    bench.close(sessions[0]);
    let first = bench.ask("a", plain());
    assert_eq!(bench.checked_out(first), Some(InstanceId(0)));
    let second = bench.ask("a", plain());
    assert_eq!(bench.checked_out(second), Some(InstanceId(1)));
    let waiters = [bench.ask("a", plain()), bench.ask("a", plain())];
    bench.close(second);
    assert_eq!(bench.checked_out(waiters[0]), Some(InstanceId(1)));
    bench.close(first);
    assert_eq!(bench.checked_out(waiters[1]), Some(InstanceId(0)));
}

#[test]
fn without_the_global_queue_the_least_busy_instance_takes_it() {
    let private = Options {
        use_global_queue: false,
        max_request_queue_size: NonZeroU32::new(2),
        ..plain()
    };
    let mut bench = Bench::new(2);
    bench.ask("a", private);
    bench.ask("a", private);
    bench.tell(Event::Spawned(InstanceId(0)));
    bench.tell(Event::Spawned(InstanceId(1)));
    let third = bench.ask("a", private);
    let fourth = bench.ask("a", private);
    // Only the last event's actions are kept.
    assert_eq!(bench.checked_out(fourth), Some(InstanceId(1)));
    let fifth = bench.ask("a", private);
    assert_eq!(bench.refused(fifth), Some(Refusal::QueueFull));
    bench.tell(Event::Exited(InstanceId(0)));
    let lost = |session, began| Action::Lost { session, began };
    assert!(bench.actions.contains(&lost(third, false)), "it had not begun");
    assert!(bench.actions.contains(&lost(SessionId(1), true)));
}

#[test]
fn exactly_max_requests_are_served() {
    let options = Options {
        max_requests: NonZeroU32::new(5),
        ..plain()
    };
    let mut bench = Bench::new(1);
    let first = bench.warm("a", options);
    for _ in 0..4 {
        let session = bench.ask("a", options);
        assert_eq!(bench.checked_out(session), Some(first));
        bench.close(session);
    }
    assert_eq!(bench.stopped(), [first]);
}

#[test]
fn a_waiter_has_a_deadline_and_may_go() {
    let mut bench = Bench::new(1);
    let known = Target::Application(Arc::from("a"), plain());
    let until = Wait::Until(bench.now + Duration::from_secs(5));
    let waiter = bench.request(known.clone(), until, None);
    let gone = bench.ask("a", plain());
    bench.tell(Event::Cancel(gone));
    bench.pass(Duration::from_secs(5));
    assert_eq!(bench.refused(waiter), Some(Refusal::TimedOut));
    bench.tell(Event::Spawned(InstanceId(0)));
    assert_eq!((bench.checked_out(waiter), bench.checked_out(gone)), (None, None));
}

#[test]
fn a_full_queue_refuses_and_says_so_once() {
    let options = Options {
        max_request_queue_size: NonZeroU32::new(1),
        ..plain()
    };
    let mut bench = Bench::new(1);
    bench.ask("a", options);
    let said = |bench: &Bench| {
        let full = |action: &&Action| matches!(action, Action::Say(_));
        bench.actions.iter().filter(full).count()
    };
    for expected in [1, 0] {
        let second = bench.ask("a", options);
        assert_eq!(bench.refused(second), Some(Refusal::QueueFull));
        assert_eq!(said(&bench), expected);
    }
}

#[test]
fn a_failed_start_is_told_to_all_who_wait_and_repeated_ones_back_off() {
    let mut bench = Bench::new(2);
    let (first, second) = (bench.ask("a", plain()), bench.ask("a", plain()));
    let trouble = |number| Some(Refusal::Trouble(Trouble::Failed(error(number))));
    for (id, waits) in [(0, true), (1, false)] {
        bench.tell(Event::SpawnFailed(InstanceId(id), error(id)));
        assert_eq!(
            bench.refused(first).is_none(),
            waits,
            "as long as another is being started"
        );
    }
    assert_eq!(
        (bench.refused(first), bench.refused(second)),
        (trouble(1), trouble(1))
    );
    let third = bench.ask("a", plain());
    assert_eq!(bench.refused(third), trouble(1), "fails fast");
    bench.pass(Duration::from_millis(100));
    bench.ask("a", plain());
    let id = bench.begun()[0];
    bench.tell(Event::SpawnFailed(id, error(3)));
    bench.pass(Duration::from_millis(199));
    let fourth = bench.ask("a", plain());
    assert_eq!(
        bench.refused(fourth),
        trouble(3),
        "the second delay is twice the first"
    );
}

/// An instance counts as good after a minute.
#[test]
fn delays_grow_until_an_instance_has_lived_for_a_minute() {
    let mut bench = Bench::new(8);
    let delay = |bench: &Bench| {
        let said = bench.actions.iter().rev().find_map(|action| match action {
            Action::Say(Notice::Trouble(_, _, delay)) => *delay,
            _ => None,
        });
        said.expect("a delay").as_millis()
    };
    for expected in [100, 200] {
        bench.ask("a", plain());
        let id = bench.begun()[0];
        bench.tell(Event::SpawnFailed(id, error(1)));
        assert_eq!(delay(&bench), expected);
        bench.pass(Duration::from_millis(expected as u64));
    }
    let holder = bench.ask("a", plain());
    let id = bench.next_up();
    assert_eq!(bench.checked_out(holder), Some(id));
    for (lived, expected) in [(30, 400), (60, 100)] {
        bench.pass(Duration::from_secs(lived));
        bench.ask("a", plain());
        let other = bench.begun()[0];
        bench.tell(Event::SpawnFailed(other, error(2)));
        assert_eq!(delay(&bench), expected, "after {lived} s");
        bench.pass(Duration::from_millis(expected as u64));
        bench.next_up();
    }
}

#[test]
fn a_request_that_ends_its_instance_is_no_failed_start() {
    let mut bench = Bench::new(2);
    for round in 0..5 {
        let session = bench.ask("a", plain());
        let id = bench.next_up();
        assert_eq!(
            bench.checked_out(session),
            Some(id),
            "{round}: nothing is waited for"
        );
        bench.tell(Event::Exited(id));
        let has_trouble = |action: &Action| matches!(action, Action::Say(Notice::Trouble(..)));
        assert!(!bench.actions.iter().any(has_trouble), "{:?}", bench.actions);
    }
    let session = bench.ask("a", plain());
    let id = bench.begun()[0];
    bench.tell(Event::Exited(id));
    assert_eq!(bench.refused(session), Some(Refusal::Trouble(Trouble::Died)));
}

#[test]
fn instances_that_live_go_on_when_another_can_not_be_started() {
    let mut bench = Bench::new(2);
    let id = bench.warm("a", plain());
    let holder = bench.ask("a", plain());
    let waiter = bench.ask("a", plain());
    let new = bench.begun()[0];
    bench.tell(Event::SpawnFailed(new, error(1)));
    assert_eq!(bench.refused(waiter), None);
    bench.close(holder);
    assert_eq!(bench.checked_out(waiter), Some(id));
}

#[test]
fn a_start_that_takes_too_long_is_killed_and_told() {
    let mut bench = Bench::new(1);
    let waiter = bench.ask("a", plain());
    bench.pass(Duration::from_secs(90));
    assert!(bench.actions.contains(&Action::Stop(InstanceId(0), Force::Kill)));
    assert_eq!(bench.refused(waiter), Some(Refusal::Trouble(Trouble::TimedOut)));
    bench.tell(Event::Spawned(InstanceId(0)));
    bench.pass(Duration::from_millis(100));
    let second = bench.ask("a", plain());
    assert_eq!(bench.checked_out(second), None, "late");
    bench.tell(Event::Exited(InstanceId(0)));
    assert_eq!(bench.begun(), [InstanceId(1)], "its place is free only now");
}

#[test]
fn failed_returns_have_the_instance_replaced() {
    let options = Options {
        min_instances: 2,
        max_per_app: NonZeroU32::new(2),
        ..plain()
    };
    let mut bench = Bench::new(4);
    let name = Arc::from("db");
    bench.tell(Event::Add { name, options });
    assert_eq!(bench.begun().len(), 2, "init_count");
    bench.all_up();
    let known = Target::Known(Arc::from("db"));
    let session = bench.request(known.clone(), Wait::None, None);
    let id = bench.checked_out(session).expect("one is free");
    bench.tell(Event::Close(session, Return::Failed));
    assert_eq!(bench.stopped(), [id]);
    bench.tell(Event::Exited(id));
    bench.next_up();
    bench.tell(Event::Close(session, Return::Failed));
    assert_eq!(bench.actions, [], "returned twice");
    let held = bench.request(known.clone(), Wait::None, None);
    assert!(bench.checked_out(held).is_some());
    bench.request(known.clone(), Wait::None, None);
    let none = bench.request(known, Wait::None, None);
    assert_eq!(bench.refused(none), Some(Refusal::NoneFree));
}

#[test]
fn a_group_lends_what_is_free_in_any_of_its_pools() {
    let options = Options {
        min_instances: 1,
        max_per_app: NonZeroU32::new(1),
        ..plain()
    };
    let mut bench = Bench::new(4);
    for name in ["p0", "p1"] {
        let (name, group) = (Arc::from(name), Arc::from("g"));
        bench.tell(Event::Join { name, group, options });
        bench.next_up();
    }
    let any = |drawn| Target::Group(Arc::from("g"), drawn);
    let first = bench.request(any(1), Wait::None, None);
    assert_eq!(bench.checked_out(first), Some(InstanceId(1)));
    let second = bench.request(any(3), Wait::None, None);
    assert_eq!(bench.checked_out(second), Some(InstanceId(0)), "the next in turn");
    let third = bench.request(any(0), Wait::None, None);
    assert_eq!(bench.refused(third), Some(Refusal::NoneFree));
    for name in ["p0", "p1"] {
        bench.tell(Event::Remove(Arc::from(name)));
    }
    let fourth = bench.request(any(0), Wait::None, None);
    assert_eq!(bench.refused(fourth), Some(Refusal::Unknown));
}

#[test]
fn applications_join_groups_and_leave_them() {
    let options = Options {
        min_instances: 1,
        max_per_app: NonZeroU32::new(1),
        ..plain()
    };
    let join = |name: &str, group: &str| Event::Join {
        name: Arc::from(name),
        group: Arc::from(group),
        options,
    };
    let mut bench = Bench::new(4);
    bench.tell(join("new", "g"));
    let new = bench.next_up();
    let old = bench.warm("old", options);
    bench.tell(join("old", "g"));
    bench.tell(join("old", "g"));
    let of = |group: &str| Target::Group(Arc::from(group), 0);
    let both = [new, old].map(|id| {
        let session = bench.request(of("g"), Wait::None, None);
        assert_eq!(bench.checked_out(session), Some(id));
        session
    });
    for session in both {
        bench.tell(Event::Close(session, Return::Ok));
    }
    bench.tell(join("old", "h"));
    let moved = bench.request(of("h"), Wait::None, None);
    assert_eq!(bench.checked_out(moved), Some(old));
    bench.tell(Event::Leave(Arc::from("old")));
    bench.tell(Event::Leave(Arc::from("nobody")));
    let none = bench.request(of("h"), Wait::None, None);
    assert_eq!(bench.refused(none), Some(Refusal::Unknown), "the group is empty");
    bench.tell(Event::Close(moved, Return::Ok));
    let still = Target::Known(Arc::from("old"));
    let still = bench.request(still, Wait::None, None);
    assert_eq!(bench.checked_out(still), Some(old), "it serves on");
}

#[test]
fn a_request_that_lasts_too_long_costs_its_instance() {
    let options = Options {
        max_request_time: Some(Duration::from_secs(3)),
        ..plain()
    };
    let mut bench = Bench::new(1);
    let id = bench.warm("a", options);
    let session = bench.ask("a", options);
    bench.pass(Duration::from_secs(3));
    assert!(bench.actions.contains(&Action::Lost { session, began: true }));
    assert!(bench.actions.contains(&Action::Stop(id, Force::Kill)));
}
