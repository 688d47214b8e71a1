//! Places reserved for applications without instances.

use super::*;
use crate::applications::RestartMethod;

fn reserving(max: u32, reserve: u32) -> Bench {
    let mut bench = Bench::new(max);
    bench.tell(Event::SetReserve(reserve));
    bench
}

fn saturate(bench: &mut Bench, app: &str, options: Options) -> usize {
    for _ in 0..2 * bench.pool.view().max {
        bench.ask(app, options);
        bench.all_up();
    }
    bench.size(app)
}

#[test]
fn an_application_that_saturates_the_pool_leaves_the_reserve() {
    let mut bench = reserving(6, 1);
    assert_eq!(saturate(&mut bench, "flood", plain()), 5);
    let first = bench.ask("quiet", plain());
    bench.starts_for(first);
    bench.ask("quiet", plain());
    assert_eq!(bench.begun(), [], "it has one");
}

#[test]
fn an_application_with_an_instance_takes_no_place_of_the_reserve() {
    let mut bench = reserving(3, 1);
    bench.ask("a", plain());
    bench.ask("b", plain());
    bench.up(0..2);
    bench.ask("a", plain());
    assert_eq!((bench.begun(), bench.stopped()), (vec![], vec![]));
    bench.ask("c", plain());
    assert_eq!(bench.begun().len(), 1, "that is whom it is for");
}

#[test]
fn idle_instances_of_others_are_given_up_for_it_as_ever() {
    let mut bench = reserving(3, 1);
    let [a, b, _] = ["a", "b", "c"].map(|app| bench.warm(app, plain()));
    bench.ask("c", plain());
    bench.ask("c", plain());
    assert_eq!(bench.stopped(), [a], "idle for the longest");
    bench.tell(Event::Exited(a));
    assert_eq!((bench.begun(), bench.stopped()), (vec![], vec![b]));
    bench.tell(Event::Exited(b));
    assert_eq!(bench.begun().len(), 1);
    bench.ask("a", plain());
    assert_eq!(bench.begun().len(), 1, "the reserve was free all the while");
}

#[test]
fn with_a_single_place_and_many_applications_they_take_turns() {
    let mut bench = reserving(1, 1);
    let id = bench.warm("a", plain());
    let running = bench.ask("a", plain());
    let other = bench.ask("b", plain());
    bench.close(running);
    assert_eq!(bench.stopped(), [id]);
    bench.tell(Event::Exited(id));
    bench.starts_for(other);
}

#[test]
fn a_minimum_is_kept_at_the_cost_of_the_reserve() {
    let mut bench = reserving(3, 1);
    let name = Arc::from("db");
    let options = Options {
        min_instances: 3,
        ..plain()
    };
    bench.tell(Event::Add { name, options });
    assert_eq!(bench.begun().len(), 3, "the operator has said so");
}

#[test]
fn restarts_of_what_never_ends_take_no_place_of_the_reserve() {
    for rolls in [false, true] {
        let mut bench = reserving(6, 1);
        let (options, method) = match rolls {
            true => (
                Options {
                    restart_method: RestartMethod::Rolling,
                    ..plain()
                },
                RestartMethod::Rolling,
            ),
            false => (plain(), RestartMethod::Blocking),
        };
        assert_eq!(saturate(&mut bench, "flood", options), 5);
        for _ in 0..3 {
            bench.tell(Event::Restart(Arc::from("flood"), method));
            bench.all_up();
            bench.ask("flood", options);
            bench.all_up();
        }
        let first = bench.ask("quiet", plain());
        let begun = bench.begun();
        assert_eq!(begun.len(), 1, "rolls {rolls}");
        bench.tell(Event::Spawned(begun[0]));
        assert_eq!(bench.checked_out(first), Some(begun[0]));
    }
}

#[test]
fn another_reserve_holds_for_what_is_begun_from_then_on() {
    let mut bench = reserving(4, 3);
    assert_eq!(saturate(&mut bench, "flood", plain()), 1);
    bench.tell(Event::SetReserve(1));
    bench.all_up();
    assert_eq!(bench.size("flood"), 3);
    bench.tell(Event::SetMax(positive(6)));
    assert_eq!(bench.size("flood"), 5);
}
