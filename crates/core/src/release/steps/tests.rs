use super::*;

const STEP: u64 = 60;

fn plan() -> Plan {
    Plan::new(&[1, 10, 50], Duration::from_secs(STEP))
}

#[derive(Default)]
struct Pool {
    deployments: Deployments,
    now: Tick,
    actions: Vec<Action>,
}

impl Pool {
    fn deploy(&mut self, id: u64) -> Vec<Action> {
        self.deployments
            .deploy(DeploymentId(id), plan(), &mut self.actions);
        std::mem::take(&mut self.actions)
    }

    fn event(&mut self, id: u64, event: Event) -> Vec<Action> {
        self.deployments
            .event(DeploymentId(id), event, self.now, &mut self.actions);
        std::mem::take(&mut self.actions)
    }

    /// Passes time with as many compared requests.
    fn pass(&mut self, id: u64, seconds: u64, compared: u64, is_suspicious: bool) -> Vec<Action> {
        self.now = self.now + Duration::from_secs(seconds);
        self.event(
            id,
            Event::Time {
                compared,
                is_suspicious,
            },
        )
    }

    /// A pool with a deployment in the state.
    fn at(state: &str) -> Pool {
        let mut pool = Pool::default();
        if state == "none" {
            return pool;
        }
        pool.deploy(1);
        let steps = match state {
            "trying" => return pool,
            "1" => 0,
            "10" => 1,
            "50" => 2,
            "whole" | "served" => 3,
            "back" => {
                pool.event(1, Event::TrialFailed);
                return pool;
            }
            other => panic!("{other}"),
        };
        pool.event(1, Event::TrialPassed);
        for _ in 0..steps {
            pool.pass(1, STEP, 1000, false);
        }
        if state == "served" {
            pool.event(1, Event::Serves);
        }
        pool
    }
}

const ID: DeploymentId = DeploymentId(1);

fn share(percent: u8) -> Action {
    Action::Share { id: ID, percent }
}

fn returns(cause: Cause) -> Action {
    Action::Return { id: ID, cause }
}

fn ends(id: u64, end: End) -> Action {
    Action::End {
        id: DeploymentId(id),
        end,
    }
}

#[test]
fn each_state_takes_each_event_by_table() {
    let time = Event::Time {
        compared: 1000,
        is_suspicious: false,
    };
    let events = [
        Event::TrialPassed,
        Event::TrialFailed,
        time,
        Event::Worse,
        Event::RollBack,
        Event::Left,
        Event::Serves,
        Event::Gone,
    ];
    let worse = || vec![returns(Cause::Worse)];
    let asked = || vec![returns(Cause::Asked)];
    let left = || vec![returns(Cause::Left)];
    let failed = || vec![returns(Cause::TrialFailed)];
    let serve = || vec![Action::Serve(ID)];
    let rows = [
        (
            "none",
            [vec![], vec![], vec![], vec![], vec![], vec![], vec![], vec![]],
        ),
        (
            "trying",
            [
                vec![share(1)],
                failed(),
                vec![],
                vec![],
                asked(),
                left(),
                vec![],
                vec![],
            ],
        ),
        (
            "1",
            [
                vec![],
                vec![],
                vec![share(10)],
                worse(),
                asked(),
                left(),
                vec![],
                vec![],
            ],
        ),
        (
            "10",
            [
                vec![],
                vec![],
                vec![share(50)],
                worse(),
                asked(),
                left(),
                vec![],
                vec![],
            ],
        ),
        (
            "50",
            [vec![], vec![], serve(), worse(), asked(), left(), vec![], vec![]],
        ),
        (
            "served",
            [
                vec![],
                vec![],
                vec![],
                vec![],
                vec![],
                vec![],
                vec![],
                vec![ends(1, End::Done)],
            ],
        ),
        (
            "whole",
            [
                vec![],
                failed(),
                vec![],
                vec![],
                vec![],
                vec![Action::Undo(ID)],
                vec![],
                vec![ends(1, End::Done)],
            ],
        ),
        (
            "back",
            [
                vec![],
                vec![],
                vec![],
                vec![],
                vec![],
                vec![],
                vec![],
                vec![ends(1, End::RolledBack(Cause::TrialFailed))],
            ],
        ),
    ];
    for (state, expected) in rows {
        for (event, expected) in events.into_iter().zip(expected) {
            let mut pool = Pool::at(state);
            pool.now = pool.now + Duration::from_secs(STEP);
            let before = pool.deployments.clone();
            assert_eq!(pool.event(1, event), expected, "{state}, {event:?}");
            let changes_in_silence = (state, event) == ("whole", Event::Serves);
            assert_eq!(
                pool.deployments == before,
                expected.is_empty() && !changes_in_silence || expected == [Action::Undo(ID)],
                "{state}, {event:?}"
            );
            // A deployment that has gone.
            assert_eq!(Pool::at(state).event(9, event), []);
        }
    }
}

#[test]
fn a_step_lasts_by_table() {
    // Step times that have passed, compared requests, suspicion, and whether the step ends.
    let rows = [
        (0, 1000, false, false),
        (1, 1000, false, true),
        (1, ENOUGH_REQUESTS, false, true),
        (1, ENOUGH_REQUESTS - 1, false, false),
        (2, 0, false, false),
        (3, 0, false, true),
        (1, 1000, true, false),
        (4, 1000, true, false),
        (9, 1000, true, false),
        (10, 1000, true, true),
        (3, 0, true, false),
        (10, 0, true, true),
    ];
    for (times, compared, is_suspicious, ends) in rows {
        let mut pool = Pool::at("1");
        let actions = pool.pass(1, times * STEP, compared, is_suspicious);
        let mut expected = Vec::new();
        if ends && compared < ENOUGH_REQUESTS {
            expected.push(Action::NotCompared { id: ID, percent: 1 });
        }
        if ends && is_suspicious {
            expected.push(Action::Doubted { id: ID, percent: 1 });
        }
        expected.extend(ends.then_some(share(10)));
        assert_eq!(actions, expected, "{times}, {compared}, {is_suspicious}");
    }
}

#[test]
fn a_second_deployment_replaces_the_first_below_half() {
    let rows = [
        ("none", vec![]),
        ("trying", vec![ends(1, End::Replaced)]),
        ("1", vec![ends(1, End::Replaced)]),
        ("10", vec![ends(1, End::Replaced)]),
        ("50", vec![Action::Waits(DeploymentId(2))]),
        ("whole", vec![Action::Waits(DeploymentId(2))]),
        ("served", vec![ends(1, End::Done)]),
        ("back", vec![ends(1, End::RolledBack(Cause::TrialFailed))]),
    ];
    for (state, mut expected) in rows {
        let mut pool = Pool::at(state);
        let waits = expected.contains(&Action::Waits(DeploymentId(2)));
        if !waits {
            expected.push(Action::Try(DeploymentId(2)));
        }
        assert_eq!(pool.deploy(2), expected, "{state}");
        let present = pool.deployments.present().map(|(id, _)| id);
        assert_eq!(present, Some(DeploymentId(if waits { 1 } else { 2 })), "{state}");
    }
}

#[test]
fn the_last_deployment_that_waits_follows() {
    let mut pool = Pool::at("50");
    pool.deploy(2);
    assert_eq!(
        pool.deploy(3),
        [Action::Waits(DeploymentId(3)), ends(2, End::Replaced)]
    );
    let mut taking_over = Pool::at("whole");
    taking_over.deploy(2);
    assert_eq!(
        taking_over.event(1, Event::Serves),
        [ends(1, End::Done), Action::Try(DeploymentId(2))]
    );
    assert_eq!(
        pool.event(1, Event::Worse),
        [
            returns(Cause::Worse),
            ends(1, End::RolledBack(Cause::Worse)),
            Action::Try(DeploymentId(3))
        ]
    );
    // One that waits can be called off.
    let mut pool = Pool::at("whole");
    pool.deploy(2);
    assert_eq!(
        pool.event(2, Event::RollBack),
        [ends(2, End::RolledBack(Cause::Asked))]
    );
    pool.deploy(3);
    // The command of the next one moves the link.
    assert_eq!(pool.event(1, Event::Left), []);
    assert_eq!(
        pool.event(3, Event::Left),
        [ends(3, End::RolledBack(Cause::Left))]
    );
    assert_eq!(pool.event(1, Event::Gone), [ends(1, End::Done)]);
    assert_eq!(pool.deployments.present(), None);
}

#[test]
fn a_plan_has_rising_percentages() {
    let percents = |of: &[u8]| Plan::new(of, Duration::ZERO).percents;
    assert_eq!(percents(&[1, 10, 50]), [1, 10, 50]);
    assert_eq!(percents(&[0, 10, 10, 5, 99, 100, 255]), [10, 99]);
    let mut deployments = Deployments::default();
    let mut actions = Vec::new();
    deployments.deploy(ID, Plan::new(&[], Duration::ZERO), &mut actions);
    deployments.event(ID, Event::TrialPassed, Tick::ZERO, &mut actions);
    assert_eq!(actions, [Action::Try(ID), Action::Serve(ID)]);
    assert_eq!(deployments.percent(), 100);
}

#[test]
fn an_upgrade_keeps_the_deployments() {
    for state in ["none", "trying", "1", "10", "50", "whole", "served", "back"] {
        let mut pool = Pool::at(state);
        if ["50", "whole"].contains(&state) {
            pool.deploy(2);
        }
        let before = &pool.deployments;
        let present = before
            .present()
            .map(|(id, state)| (id, before.plan().unwrap().clone(), state));
        let waiting = before.waiting().map(|(id, plan)| (id, plan.clone()));
        assert_eq!(Deployments::resume(present, waiting), pool.deployments, "{state}");
    }
}
