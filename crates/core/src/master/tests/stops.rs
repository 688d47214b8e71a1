//! The time from SIGTERM to SIGKILL for each kind of stop.

use super::*;

const CONTROL: Duration = Duration::from_secs(5);
const STOP: Duration = Duration::from_secs(20);
const AT_ONCE: Duration = Duration::from_secs(1);
const TERMINATE: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Made {
    Alone,
    Preloaded,
    WithProgram,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// A reload or restart of the pool.
    Replaced,
    /// Removed from the configuration.
    Removed,
    Expired,
    /// SIGQUIT, or SIGTERM with `on_sigterm = "finish"`.
    Finish,
    Terminate,
    /// SIGTERM during SIGQUIT's stop.
    FinishThenTerminate,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Sent {
    term: Option<Duration>,
    kill: Option<Duration>,
}

fn of(made: Made) -> Policy {
    Policy {
        terminate_timeout: Some(TERMINATE),
        stop_timeout: STOP,
        preloader: (made != Made::Alone).then_some(PreloaderPolicy {
            start_timeout: Duration::from_secs(5),
            idle_timeout: Duration::from_secs(60),
            reforks: false,
            is_needed_by_workers: made == Made::WithProgram,
        }),
        ..policy(ProcessManager::Static { max_children: 1 })
    }
}

fn busy(made: Made) -> (World, WorkerId) {
    let mut world = World::new();
    let mut actions = world.tell(Event::Apply(wanted(FIRST, of(made), None)));
    if made != Made::Alone {
        actions = world.tell(Event::PreloaderReady(FIRST));
    }
    let worker = world.bring_up(&actions)[0];
    (world, worker)
}

fn begin(world: &mut World, worker: WorkerId, made: Made, cause: Cause) -> Vec<Action> {
    match cause {
        Cause::Replaced => {
            let alone = Policy {
                preloader: None,
                ..of(made)
            };
            let actions = world.tell(Event::Apply(wanted(SECOND, alone, None)));
            let new = forks(&actions)[0];
            world.tell(Event::Forked(new));
            world.tell(Event::WorkerUp(new))
        }
        Cause::Removed => world.tell(Event::Apply(CoreConfig {
            pools: Vec::new(),
            ..wanted(SECOND, of(made), None)
        })),
        Cause::Expired => {
            let row = world.row(worker, false);
            world.tell(Event::ChildAccept(FIRST));
            loop {
                let due = world.manager.next_deadline();
                world.now = due.expect("a look at the request");
                if !world.tell(Event::Deadline).contains(&Action::TakeSnapshot(FIRST)) {
                    continue;
                }
                let actions = world.tell(Event::Snapshot(FIRST, vec![row], None));
                if actions.contains(&Action::RespondTimeout(worker)) {
                    return actions;
                }
            }
        }
        Cause::Finish => world.tell(Event::Finish),
        Cause::Terminate => world.tell(Event::Terminate),
        Cause::FinishThenTerminate => {
            world.tell(Event::Finish);
            world.pass(CONTROL);
            world.tell(Event::Deadline);
            world.tell(Event::Terminate)
        }
    }
}

/// Stops a worker, and its preloader or program, that react only to SIGKILL.
fn stopped(made: Made, cause: Cause) -> (Sent, Sent) {
    let (mut world, worker) = busy(made);
    let mut actions = begin(&mut world, worker, made, cause);
    let (began, mut sent) = (world.now, (Sent::default(), Sent::default()));
    loop {
        let after = world.now.since(began);
        for action in std::mem::take(&mut actions) {
            match action {
                Action::RespondTimeout(id) | Action::Kill(id, Force::Terminate) if id == worker => {
                    sent.0.term = Some(after);
                }
                Action::Kill(id, Force::Kill) if id == worker => {
                    sent.0.kill = Some(after);
                    let killed = Ended::killed(9);
                    actions.extend(world.tell(Event::WorkerExited(worker, killed, true)));
                }
                Action::StopPreloader(FIRST, Force::Terminate) => sent.1.term = Some(after),
                Action::StopPreloader(FIRST, Force::Kill) => sent.1.kill = Some(after),
                _ => {}
            }
        }
        if !actions.is_empty() {
            continue;
        }
        match world.next_in() {
            Some(due) if after + due < Duration::from_secs(200) => {
                world.now = world.manager.next_deadline().expect("a deadline");
                actions = world.tell(Event::Deadline);
            }
            _ => return sent,
        }
    }
}

const MADE: [Made; 3] = [Made::Alone, Made::Preloaded, Made::WithProgram];

fn gap(sent: &Sent) -> Option<Duration> {
    Some(sent.kill? - sent.term?)
}

#[test]
fn a_worker_has_stop_timeout_unless_its_request_was_too_long_or_the_daemon_ends_at_once() {
    for made in MADE {
        for (cause, term, apart) in [
            (Cause::Replaced, CONTROL, STOP),
            (Cause::Removed, CONTROL, STOP),
            (Cause::Expired, Duration::ZERO, AT_ONCE),
            (Cause::Finish, CONTROL, STOP),
            (Cause::Terminate, Duration::ZERO, AT_ONCE),
        ] {
            let (worker, _) = stopped(made, cause);
            let expected = (Some(term), Some(apart));
            assert_eq!((worker.term, gap(&worker)), expected, "{made:?} {cause:?}");
        }
        let (worker, _) = stopped(made, Cause::FinishThenTerminate);
        assert_eq!(worker.kill, Some(AT_ONCE), "{made:?}");
    }
}

#[test]
fn a_program_is_asked_when_its_workers_are_gone_and_has_stop_timeout_then() {
    for cause in [Cause::Replaced, Cause::Removed, Cause::Finish] {
        let (worker, program) = stopped(Made::WithProgram, cause);
        let asked = worker.kill.expect("the worker stays until it is killed");
        assert_eq!(
            (program.term, gap(&program)),
            (Some(asked + AT_ONCE), Some(STOP)),
            "{cause:?}"
        );
    }
    let (_, program) = stopped(Made::WithProgram, Cause::Terminate);
    assert_eq!(
        (program.term, gap(&program)),
        (Some(Duration::ZERO), Some(AT_ONCE))
    );
}

#[test]
fn a_preloader_has_nothing_to_finish() {
    for cause in [Cause::Replaced, Cause::Removed, Cause::Finish] {
        let (_, preloader) = stopped(Made::Preloaded, cause);
        assert_eq!(
            (preloader.term, gap(&preloader)),
            (Some(AT_ONCE), Some(AT_ONCE)),
            "{cause:?}"
        );
    }
}

#[test]
fn a_program_that_is_being_stopped_ends_with_a_daemon_that_ends_at_once() {
    let (mut world, worker) = busy(Made::WithProgram);
    world.tell(Event::Finish);
    world.tell(Event::WorkerExited(worker, Ended::Code(0), true));
    world.pass(AT_ONCE);
    let terminate = Action::StopPreloader(FIRST, Force::Terminate);
    assert!(world.tell(Event::Deadline).contains(&terminate));
    assert_eq!(world.next_in(), Some(STOP));
    world.tell(Event::Terminate);
    assert_eq!(world.next_in(), Some(AT_ONCE));
}

#[test]
fn a_request_that_an_operator_ends_goes_with_its_worker_which_is_replaced() {
    let (mut world, actions) = World::with(ProcessManager::Static { max_children: 1 });
    let worker = world.bring_up(&actions)[0];
    let actions = world.tell(Event::EndRequest(worker));
    assert_eq!(
        actions[..2],
        [
            Action::Say(Notice::RequestEnded(worker, Force::Terminate)),
            Action::RespondTimeout(worker)
        ]
    );
    assert_eq!(world.tell(Event::EndRequest(worker)), [], "once");
    assert_eq!(
        world.tell(Event::EndRequest(WorkerId(999))),
        [],
        "one that is gone"
    );
    world.pass(Duration::from_secs(1));
    let actions = world.tell(Event::Deadline);
    assert!(
        actions.contains(&Action::Kill(worker, Force::Kill)),
        "{actions:?}"
    );
}

#[test]
fn the_daemon_ends_without_what_can_not_be_killed() {
    let (mut world, actions) = World::with(ProcessManager::Static { max_children: 1 });
    let worker = world.bring_up(&actions)[0];
    world.tell(Event::Terminate);
    world.pass(Duration::from_secs(1));
    assert!(
        world
            .tell(Event::Deadline)
            .contains(&Action::Kill(worker, Force::Kill))
    );
    world.pass(Duration::from_secs(4));
    assert_eq!(world.tell(Event::Deadline), []);
    world.pass(Duration::from_secs(1));
    assert_eq!(
        world.tell(Event::Deadline),
        [
            Action::Say(Notice::WorkerStays(worker)),
            Action::DropGeneration(FIRST),
            Action::ClosePool(POOL),
            Action::Exit(ExitOutcome::Stopped)
        ]
    );
    assert_eq!(world.tell(Event::WorkerExited(worker, Ended::Unknown, false)), []);
    assert_eq!(world.next_in(), None);
}
