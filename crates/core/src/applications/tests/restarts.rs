//! Restarts.

use super::*;
use crate::applications::{FileState, RestartMethod};

fn rolling() -> Options {
    Options {
        restart_method: RestartMethod::Rolling,
        ..plain()
    }
}

fn two(options: Options, max: u32) -> Bench {
    let mut bench = Bench::new(max);
    let sessions = [bench.ask("a", options), bench.ask("a", options)];
    bench.up(0..2);
    for session in sessions {
        bench.close(session);
    }
    bench
}

fn restart(bench: &mut Bench, method: RestartMethod) {
    bench.tell(Event::Restart(Arc::from("a"), method));
}

#[test]
fn a_blocking_restart_replaces_all_and_busy_ones_after_their_sessions() {
    let options = Options {
        min_instances: 1,
        ..plain()
    };
    let mut bench = two(options, 4);
    let held = bench.ask("a", options);
    let busy = bench.checked_out(held).expect("one is free");
    restart(&mut bench, RestartMethod::Blocking);
    assert_eq!(bench.stopped().len(), 1);
    assert_eq!(bench.begun().len(), 1, "17: the minimum is restored");
    bench.close(held);
    assert_eq!(bench.stopped(), [busy]);
}

#[test]
fn a_restart_drops_what_is_being_started() {
    let mut bench = Bench::new(2);
    let waiter = bench.ask("a", plain());
    restart(&mut bench, RestartMethod::Blocking);
    assert!(
        bench.actions.contains(&Action::Stop(InstanceId(0), Force::Kill)),
        "72"
    );
    assert_eq!(bench.begun(), [InstanceId(1)]);
    bench.tell(Event::Spawned(InstanceId(0)));
    assert_eq!(bench.checked_out(waiter), None);
    bench.tell(Event::Spawned(InstanceId(1)));
    assert_eq!(bench.checked_out(waiter), Some(InstanceId(1)), "73");
}

#[test]
fn a_rolling_restart_goes_one_by_one_even_in_a_full_pool() {
    let mut bench = two(rolling(), 2);
    restart(&mut bench, RestartMethod::Rolling);
    for (new, old) in [(2, 1), (3, 0)] {
        assert_eq!(bench.begun(), [InstanceId(new)]);
        assert_eq!(bench.stopped(), []);
        bench.tell(Event::Spawned(InstanceId(new)));
        assert_eq!(bench.stopped(), [InstanceId(old)], "after the new one is up");
        assert_eq!(bench.begun(), [], "one at a time");
        bench.tell(Event::Exited(InstanceId(old)));
    }
    let view = bench.pool.view();
    assert!(!view.applications[0].rolling);
    assert_eq!(view.count, 2);
}

#[test]
fn a_restart_that_says_no_more_rolls_where_a_place_is_free() {
    let options = Options {
        restart_method: RestartMethod::Fitting,
        ..plain()
    };
    for (max, rolls) in [(3, true), (2, false)] {
        let mut bench = two(options, max);
        let method = bench.pool.restart_method("a");
        assert_eq!(method == Some(RestartMethod::Rolling), rolls, "{max}");
        restart(&mut bench, RestartMethod::Fitting);
        assert_eq!(bench.stopped().is_empty(), rolls, "{max}");
        assert_eq!(bench.begun().len(), usize::from(rolls), "{max}");
    }
}

#[test]
fn a_program_behind_instances_is_replaced_as_in_a_rolling_restart() {
    let options = Options {
        shares_program: true,
        max_requests: NonZeroU32::new(4),
        memory_limit: Some(100),
        ..plain()
    };
    let mut bench = two(options, 3);
    let third = bench.ask("a", options);
    assert_eq!(bench.begun(), []);
    bench.close(third);
    let fourth = bench.ask("a", options);
    let view = bench.pool.view();
    assert!(view.applications[0].rolling && view.applications[0].restarts == 1);
    let new = bench.begun()[0];
    assert_eq!(bench.stopped(), []);
    bench.close(fourth);
    bench.tell(Event::Measured(InstanceId(0), 101));
    assert_eq!(bench.pool.view().applications[0].restarts, 1, "it is under way");
    bench.tell(Event::Spawned(new));
    assert_eq!(bench.stopped(), [InstanceId(1)]);
    let newest = bench.begun()[0];
    bench.tell(Event::Exited(InstanceId(1)));
    bench.tell(Event::Spawned(newest));
    bench.tell(Event::Exited(InstanceId(0)));
    bench.tell(Event::Measured(new, 100));
    assert!(!bench.pool.view().applications[0].rolling);
    bench.tell(Event::Measured(new, 101));
    assert_eq!(bench.pool.view().applications[0].restarts, 2, "it is too large");
}

#[test]
fn old_instances_go_on_when_new_code_can_not_be_started() {
    let mut bench = two(rolling(), 3);
    restart(&mut bench, RestartMethod::Rolling);
    let new = bench.begun()[0];
    bench.tell(Event::SpawnFailed(new, error(9)));
    assert!(bench.pool.view().applications[0].resisting);
    assert_eq!((bench.begun(), bench.stopped()), (Vec::new(), Vec::new()));
    bench.pass(Duration::from_secs(3_600));
    let session = bench.ask("a", rolling());
    assert!(bench.checked_out(session).is_some(), "they serve");
    restart(&mut bench, RestartMethod::Rolling);
    assert_eq!(bench.begun().len(), 1, "the next restart tries again");
}

#[test]
fn restart_files_restart_when_they_appear_or_change() {
    let mut bench = two(plain(), 4);
    let look = |modified_ns, always| RestartFiles {
        restart: Some(FileState {
            modified_ns,
            inode: 1,
        }),
        always,
    };
    let target = || Target::Application(Arc::from("a"), plain());
    for (restart_files, restarts) in [
        (look(1, false), false),
        (look(1, false), false),
        (look(2, false), true),
        (RestartFiles::default(), false),
        (look(3, true), true),
    ] {
        let session = bench.request(target(), Wait::Endless, Some(restart_files));
        assert_eq!(!bench.stopped().is_empty(), restarts, "{restart_files:?}");
        bench.all_up();
        bench.close(session);
    }
}

#[test]
fn requests_do_not_stop_what_the_one_before_started() {
    let always = RestartFiles {
        restart: None,
        always: true,
    };
    let mut bench = Bench::new(4);
    let target = || Target::Application(Arc::from("a"), plain());
    let first = bench.request(target(), Wait::Endless, Some(always));
    bench.request(target(), Wait::Endless, Some(always));
    bench.tell(Event::Spawned(InstanceId(0)));
    assert_eq!(bench.checked_out(first), Some(InstanceId(0)));
}
