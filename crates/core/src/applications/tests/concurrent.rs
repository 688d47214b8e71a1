//! Instances with concurrent requests.

use super::*;
use crate::applications::event::Adopted;

fn many(concurrency: u32) -> Options {
    Options {
        concurrency: NonZeroU32::new(concurrency),
        ..plain()
    }
}

fn endless() -> Options {
    Options {
        concurrency: None,
        ..plain()
    }
}

#[test]
fn slow_requests_of_one_application_take_no_place_from_another() {
    let mut bench = Bench::new(2);
    let first = bench.warm("slow", many(100));
    for _ in 0..6 {
        let session = bench.ask("slow", many(100));
        assert_eq!(bench.checked_out(session), Some(first));
    }
    let other = bench.ask("fast", plain());
    let begun = bench.begun();
    assert_eq!(begun.len(), 1, "there is a place");
    bench.tell(Event::Spawned(begun[0]));
    assert_eq!(bench.checked_out(other), Some(begun[0]));
    assert_eq!((bench.size("slow"), bench.size("fast")), (1, 1));
}

#[test]
fn another_is_begun_only_when_all_are_full_or_held_up() {
    let mut bench = Bench::new(3);
    let first = bench.warm("a", many(2));
    let one = bench.ask("a", many(2));
    assert_eq!((bench.checked_out(one), bench.begun()), (Some(first), vec![]));
    bench.tell(Event::HeldUp(first, true));
    let two = bench.ask("a", many(2));
    assert_eq!(bench.checked_out(two), None, "it would wait there");
    assert_eq!(bench.begun().len(), 1);
    bench.tell(Event::HeldUp(first, false));
    assert_eq!(bench.checked_out(two), Some(first));
    let three = bench.ask("a", many(2));
    assert_eq!(bench.checked_out(three), None, "it is full");
    bench.close(one);
    assert_eq!(bench.checked_out(three), Some(first));
    // An instance without sessions can't be held up.
    bench.tell(Event::HeldUp(first, true));
    bench.close(two);
    bench.close(three);
    bench.tell(Event::HeldUp(first, true));
    let four = bench.ask("a", many(2));
    assert_eq!(bench.checked_out(four), Some(first));
}

#[test]
fn busy_instances_are_spread_over_free_places_and_take_none_from_others() {
    let spread = Options {
        spread: NonZeroU32::new(3),
        ..endless()
    };
    let mut bench = Bench::new(3);
    let idle = bench.warm("b", plain());
    let one = bench.ask("a", spread);
    let first = bench.begun();
    assert_eq!(first.len(), 1);
    bench.tell(Event::Spawned(first[0]));
    assert_eq!(bench.checked_out(one), Some(first[0]));
    let second = bench.begun();
    assert_eq!(second.len(), 1, "all are busy, and there is room");
    bench.tell(Event::Spawned(second[0]));
    let two = bench.ask("a", spread);
    assert_eq!(bench.checked_out(two), Some(second[0]), "the idle one");
    assert_eq!(
        (bench.begun(), bench.stopped()),
        (vec![], vec![]),
        "the pool is full"
    );
    bench.tell(Event::Exited(idle));
    assert_eq!(bench.begun().len(), 1);
}

#[test]
fn a_lease_is_alone_on_an_instance_and_keeps_no_request_from_another() {
    let mut bench = Bench::new(1);
    let first = bench.warm("a", many(100));
    let request = bench.ask("a", many(100));
    assert_eq!(bench.checked_out(request), Some(first));
    let alone = |bench: &mut Bench| {
        bench.next += 1;
        let session = SessionId(bench.next);
        bench.tell(Event::Get(Get {
            session,
            target: Target::Known(Arc::from("a")),
            wait: Wait::Endless,
            restart_files: None,
            alone: true,
        }));
        session
    };
    let lease = alone(&mut bench);
    assert_eq!(bench.checked_out(lease), None);
    let other = bench.ask("a", many(100));
    assert_eq!(
        bench.checked_out(other),
        Some(first),
        "it does not wait behind the lease"
    );
    bench.close(request);
    assert_eq!(bench.checked_out(lease), None);
    bench.close(other);
    assert_eq!(bench.checked_out(lease), Some(first));
    let waits = bench.ask("a", many(100));
    assert_eq!(bench.checked_out(waits), None);
    bench.close(lease);
    assert_eq!(bench.checked_out(waits), Some(first));
}

#[test]
fn sessions_of_an_instance_that_was_taken_over_count() {
    let mut bench = Bench::new(1);
    let adopted = Adopted {
        id: InstanceId(1),
        application: Arc::from("a"),
        options: many(2),
        session: SessionId(10),
    };
    bench.tell(Event::Adopt(vec![adopted], InstanceId(2)));
    bench.tell(Event::Found(InstanceId(1), SessionId(3)));
    bench.tell(Event::Found(InstanceId(1), SessionId(4)));
    bench.close(SessionId(10));
    // No session is found after the closing one.
    bench.tell(Event::Found(InstanceId(1), SessionId(5)));
    let sessions = |bench: &Bench| bench.pool.view().applications[0].instances[0].sessions;
    assert_eq!(sessions(&bench), 2);
    bench.next = 10;
    let waits = bench.ask("a", many(2));
    assert_eq!(bench.checked_out(waits), None);
    bench.close(SessionId(3));
    assert_eq!(bench.checked_out(waits), Some(InstanceId(1)));
    bench.close(SessionId(4));
    assert_eq!(sessions(&bench), 1);
}
