//! Shares of users.

use super::*;
use crate::applications::action::{Notice, Reason};

fn of(user: u32) -> Options {
    Options { user, ..plain() }
}

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
    // Half of the starts, rounded up, are the first user's; then the others start.
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

impl Bench {
    fn leaving(&self) -> Vec<InstanceId> {
        let leaves = |action: &Action| match action {
            Action::Say(Notice::Leaves(id, Reason::Evicted)) => Some(*id),
            _ => None,
        };
        self.actions.iter().filter_map(leaves).collect()
    }

    fn user_of(&self, id: InstanceId) -> u32 {
        self.pool.instances[&id].user
    }

    fn end(&mut self, id: InstanceId) {
        for session in self.pool.instances[&id].running.clone() {
            self.close(session);
        }
        self.tell(Event::Exited(id));
    }
}

fn flood(bench: &mut Bench, user: u32, applications: u32) {
    let one = Options {
        max_per_app: NonZeroU32::new(1),
        ..of(user)
    };
    for name in 0..applications {
        let name = format!("{user}.{name}");
        bench.ask(&name, one);
        bench.tell(Event::Spawned(bench.begun()[0]));
        for _ in 0..3 {
            bench.ask(&name, one);
        }
    }
}

#[test]
fn a_user_who_has_all_places_gives_the_next_one_to_another() {
    let mut bench = bench(4, 4);
    flood(&mut bench, 1, 4);
    // Another application of this user asked first and waits.
    bench.ask("more", of(1));
    assert_eq!(bench.leaving(), []);
    for name in ["other", "other two"] {
        bench.ask(name, of(2));
        let leaving = bench.leaving();
        assert_eq!(
            leaving.len(),
            1,
            "{name}: one gives its place up after its request"
        );
        bench.end(leaving[0]);
        let begun = bench.begun();
        assert_eq!(begun.len(), 1, "{name}");
        assert_eq!(bench.user_of(begun[0]), 2, "{name}");
        bench.tell(Event::Spawned(begun[0]));
    }
    // Both have half; the first in line gets the next place.
    bench.ask("other three", of(2));
    assert_eq!(bench.leaving(), []);
}

#[test]
fn of_two_that_wait_the_one_whose_user_has_less_than_half_is_first() {
    let mut bench = bench(4, 4);
    flood(&mut bench, 1, 3);
    let theirs = bench.ask("busy", of(3));
    let busy = bench.next_up();
    bench.ask("d", of(1));
    bench.ask("other", of(2));
    bench.close(theirs);
    bench.tell(Event::Exited(busy));
    assert_eq!(bench.begun().len(), 1);
    assert_eq!(bench.user_of(bench.begun()[0]), 2);
}

#[test]
fn an_idle_instance_of_the_user_who_has_most_goes_first() {
    let mut bench = bench(4, 4);
    bench.warm("other", of(2));
    let first = bench.warm("a", of(1));
    bench.warm("b", of(1));
    bench.warm("c", of(1));
    bench.ask("third", of(3));
    assert_eq!(bench.stopped(), [first]);
}
