//! No user keeps another from starts and places.

use super::*;

fn of(user: u32) -> Options {
    Options { user, ..plain() }
}

/// A pool in which so many instances may be started at a time.
fn bench(max: u32, spawning: u32) -> Bench {
    let mut bench = Bench::new(max);
    bench.pool = ApplicationPool::new(positive(max), positive(spawning));
    bench
}

#[test]
fn starts_of_one_user_that_hang_hold_no_other_up() {
    let mut bench = bench(10, 4);
    for name in ["a", "b", "c", "d"] {
        bench.ask(name, of(1));
        assert_eq!(bench.begun().len(), 1, "no other user waits");
    }
    bench.ask("e", of(1));
    assert_eq!(bench.begun(), []);
    bench.ask("other", of(2));
    assert_eq!(bench.begun().len(), 1, "another user's begins beside them");
    bench.ask("other two", of(2));
    assert_eq!(bench.begun().len(), 1);
    bench.ask("other three", of(2));
    assert_eq!(bench.begun(), [], "there are as many as may be");
}

#[test]
fn a_user_has_half_of_the_starts_while_another_waits() {
    let mut bench = bench(20, 5);
    let mut first = Vec::new();
    for name in 0..8 {
        bench.ask(&format!("a{name}"), of(1));
        first.extend(bench.begun());
    }
    let mut others: Vec<InstanceId> = Vec::new();
    for name in 0..4 {
        bench.ask(&format!("b{name}"), of(2));
        others.extend(bench.begun());
    }
    assert_eq!((first.len(), others.len()), (5, 2));
    // The first user's have half, rounded up, as soon as they have ended; the others begin then.
    for id in first.drain(..2).collect::<Vec<_>>() {
        bench.tell(Event::Spawned(id));
        assert_eq!(bench.begun(), []);
    }
    bench.tell(Event::Spawned(first[0]));
    assert_eq!(bench.begun().len(), 1);
}

#[test]
fn a_single_user_has_all_starts() {
    let mut bench = bench(6, 6);
    for name in 0..6 {
        bench.ask(&name.to_string(), of(1));
        assert_eq!(bench.begun().len(), 1, "{name}");
    }
}
