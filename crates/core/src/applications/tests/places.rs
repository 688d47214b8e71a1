//! Places: who gets them and who gives them up.

use super::*;
use crate::applications::action::Disabling;
use crate::applications::instance_state::InstanceState;

#[test]
fn in_a_full_pool_the_instance_that_idles_longest_makes_room() {
    let mut bench = Bench::new(2);
    let old = bench.warm("a", plain());
    let young = bench.warm("b", plain());
    let waiter = bench.ask("c", plain());
    assert_eq!(bench.stopped(), [old]);
    assert_eq!(bench.begun(), [], "it still has its place");
    bench.tell(Event::Exited(old));
    bench.starts_for(waiter);
    let again = bench.ask("b", plain());
    assert_eq!(bench.checked_out(again), Some(young));
}

#[test]
fn neither_busy_ones_nor_minima_are_evicted() {
    let kept = Options {
        min_instances: 1,
        ..plain()
    };
    let mut bench = Bench::new(2);
    bench.warm("a", kept);
    bench.warm("b", plain());
    let busy = bench.ask("b", plain());
    let waiter = bench.ask("c", plain());
    assert_eq!(bench.stopped(), []);
    bench.close(busy);
    assert_eq!(bench.stopped().len(), 1, "70: it yields after its session");
    let id = bench.stopped()[0];
    bench.tell(Event::Exited(id));
    bench.starts_for(waiter);
}

fn flooded() -> (Bench, Vec<SessionId>, SessionId) {
    let mut bench = Bench::new(3);
    let mut held: Vec<SessionId> = (0..3).map(|_| bench.ask("flood", plain())).collect();
    bench.up(0..3);
    held.extend((0..20).map(|_| bench.ask("flood", plain())));
    let first = bench.ask("quiet", plain());
    (bench, held, first)
}

#[test]
fn a_flood_does_not_starve_anothers_first_request() {
    let (mut bench, held, first) = flooded();
    let mut stopped = Vec::new();
    for session in &held[..3] {
        bench.close(*session);
        stopped.extend(bench.stopped());
    }
    assert_eq!(stopped.len(), 1, "one place is given up, not more");
    bench.tell(Event::Exited(stopped[0]));
    bench.starts_for(first);
}

#[test]
fn the_application_that_is_free_first_gives_its_place_up() {
    let (mut bench, held, _) = flooded();
    bench.close(held[2]);
    assert_eq!(bench.stopped(), [InstanceId(2)]);
    for (at, id) in [(0, 0), (1, 1)] {
        bench.close(held[at]);
        assert_eq!(bench.stopped(), []);
        assert_eq!(bench.checked_out(held[3 + at]), Some(InstanceId(id)));
    }
}

#[test]
fn a_session_that_is_the_last_for_hours_keeps_no_place_from_others() {
    let once = Options {
        max_requests: NonZeroU32::new(1),
        ..plain()
    };
    let mut bench = Bench::new(2);
    let _for_hours = bench.ask("worn", once);
    bench.tell(Event::Spawned(InstanceId(0)));
    let running = bench.ask("flood", plain());
    bench.tell(Event::Spawned(InstanceId(1)));
    let waiting = bench.ask("quiet", plain());
    let later = bench.ask("flood", plain());
    bench.close(running);
    assert_eq!(bench.stopped(), [InstanceId(1)]);
    bench.tell(Event::Exited(InstanceId(1)));
    let new = bench.next_up();
    assert_eq!(
        (bench.checked_out(waiting), bench.checked_out(later)),
        (Some(new), None)
    );
}

#[test]
fn with_one_place_the_request_that_waits_longest_is_next() {
    let mut bench = Bench::new(1);
    let id = bench.warm("a", plain());
    let running = bench.ask("a", plain());
    let before = bench.ask("a", plain());
    let other = bench.ask("b", plain());
    let after = bench.ask("a", plain());
    bench.close(running);
    assert_eq!(bench.checked_out(before), Some(id), "it came first");
    bench.close(before);
    assert_eq!(bench.checked_out(after), None);
    assert_eq!(bench.stopped(), [id]);
    bench.tell(Event::Exited(id));
    bench.starts_for(other);
}

#[test]
fn the_total_may_change_in_both_directions() {
    let mut bench = Bench::new(3);
    let sessions: Vec<SessionId> = (0..3).map(|_| bench.ask("a", plain())).collect();
    bench.up(0..3);
    bench.close(sessions[0]);
    bench.tell(Event::SetMax(positive(1)));
    assert_eq!(bench.stopped(), [InstanceId(0)], "the idle one goes at once");
    bench.close(sessions[1]);
    bench.close(sessions[2]);
    for id in 0..3 {
        bench.tell(Event::Exited(InstanceId(id)));
    }
    assert!(bench.pool.count() <= 1);
    let waiting = [bench.ask("b", plain()), bench.ask("c", plain())];
    bench.tell(Event::SetMax(positive(4)));
    assert!(
        bench.size("b") + bench.size("c") == 2,
        "61: {waiting:?} get theirs"
    );
}

#[test]
fn the_cleaner_keeps_the_minimum() {
    let options = Options {
        min_instances: 1,
        max_idle_time: Some(Duration::from_secs(10)),
        ..plain()
    };
    let mut bench = Bench::new(3);
    let sessions: Vec<SessionId> = (0..3).map(|_| bench.ask("a", options)).collect();
    bench.up(0..3);
    for session in sessions {
        bench.close(session);
        bench.now = bench.now + Duration::from_secs(1);
    }
    bench.pass(Duration::from_secs(20));
    assert_eq!(
        bench.stopped(),
        [InstanceId(0), InstanceId(1)],
        "the longest idle first"
    );
}

#[test]
fn disabling_waits_for_sessions_and_for_a_replacement() {
    let mut bench = Bench::new(2);
    let id = bench.warm("a", plain());
    bench.tell(Event::Disable(id));
    let new = bench.begun()[0];
    let session = bench.ask("a", plain());
    assert_eq!(bench.checked_out(session), Some(id), "41: it serves until then");
    bench.tell(Event::Spawned(new));
    bench.close(session);
    assert!(bench.actions.contains(&Action::Disabled(id, Disabling::Done)));
    bench.tell(Event::Disable(id));
    assert_eq!(bench.actions, [Action::Disabled(id, Disabling::Already)]);
    bench.tell(Event::Disable(new));
    assert_eq!(
        bench.actions,
        [Action::Disabled(new, Disabling::Impossible)],
        "42"
    );
    bench.tell(Event::Enable(id));
    let view = bench.pool.view();
    assert!(
        view.applications[0]
            .instances
            .iter()
            .all(|one| one.state == InstanceState::Serving)
    );
}

#[test]
fn a_failed_replacement_ends_the_disabling() {
    let mut bench = Bench::new(2);
    let id = bench.warm("a", plain());
    bench.tell(Event::Disable(id));
    let new = bench.begun()[0];
    bench.tell(Event::SpawnFailed(new, error(1)));
    assert!(
        bench
            .actions
            .contains(&Action::Disabled(id, Disabling::Impossible)),
        "44"
    );
}

#[test]
fn a_detached_instance_drains_until_its_deadline() {
    let options = Options {
        drain_timeout: Some(Duration::from_secs(2)),
        ..plain()
    };
    let mut bench = Bench::new(2);
    let id = bench.warm("a", options);
    let session = bench.ask("a", options);
    bench.tell(Event::Detach(id));
    assert_eq!(bench.stopped(), [], "34");
    bench.tell(Event::Detach(id));
    assert_eq!(bench.actions, [], "36");
    bench.pass(Duration::from_secs(2));
    assert!(bench.actions.contains(&Action::Lost { session, began: true }));
    assert_eq!(bench.stopped(), [id]);
    bench.pass(Duration::from_secs(60));
    assert!(bench.actions.contains(&Action::Stop(id, Force::Kill)));
}

#[test]
fn out_of_band_work_is_done_by_one_at_a_time() {
    let mut bench = Bench::new(2);
    let sessions = [bench.ask("a", plain()), bench.ask("a", plain())];
    for id in 0..2 {
        bench.tell(Event::Spawned(InstanceId(id)));
        bench.tell(Event::WorkWanted(InstanceId(id)));
    }
    bench.close(sessions[0]);
    assert!(bench.actions.contains(&Action::Work(InstanceId(0))));
    bench.close(sessions[1]);
    assert!(!bench.actions.contains(&Action::Work(InstanceId(1))), "76");
    bench.tell(Event::Worked(InstanceId(0)));
    assert!(bench.actions.contains(&Action::Work(InstanceId(1))));
}

#[test]
fn too_much_memory_costs_the_instance_after_its_session() {
    let options = Options {
        memory_limit: Some(1_000),
        ..plain()
    };
    let mut bench = Bench::new(1);
    let id = bench.warm("a", options);
    let session = bench.ask("a", options);
    bench.tell(Event::Measured(id, 1_000));
    assert_eq!(bench.actions, []);
    bench.tell(Event::Measured(id, 1_001));
    assert_eq!(bench.stopped(), []);
    bench.close(session);
    assert_eq!(bench.stopped(), [id]);
}

#[test]
fn a_removed_application_is_gone_after_its_sessions_and_its_name_is_free() {
    let mut bench = Bench::new(3);
    let add = |options| Event::Add {
        name: Arc::from("db"),
        options,
    };
    let options = Options {
        min_instances: 1,
        ..plain()
    };
    bench.tell(add(options));
    bench.tell(Event::Spawned(InstanceId(0)));
    bench.tell(add(options));
    assert!(matches!(bench.actions[..], [Action::Say(_)]), "an existing name");
    let held = bench.ask("db", options);
    bench.tell(Event::Remove(Arc::from("db")));
    bench.tell(add(options));
    assert_eq!(bench.begun(), [InstanceId(1)], "the name is free");
    bench.close(held);
    assert_eq!(bench.stopped(), [InstanceId(0)]);
    bench.tell(Event::Exited(InstanceId(0)));
    assert_eq!((bench.size("db"), bench.pool.view().count), (1, 1));
}
