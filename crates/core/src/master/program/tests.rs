//! Steps of a program's processes.

use super::*;

fn at(millis: u64) -> Tick {
    Tick::ZERO + Duration::from_millis(millis)
}

fn actions(act: impl FnOnce(&mut Vec<ProgramAction>)) -> Vec<ProgramAction> {
    let mut actions = Vec::new();
    act(&mut actions);
    actions
}

fn back_off(index: usize, millis: u64, refuses: bool) -> ProgramAction {
    let delay = Duration::from_millis(millis);
    ProgramAction::BackOff {
        index,
        delay,
        refuses,
    }
}

fn running(processes: usize) -> Program {
    let mut program = Program::new(processes);
    let mut actions = Vec::new();
    program.start(false, &mut actions);
    for index in 0..processes {
        program.up(index, at(0), &mut actions);
    }
    assert_eq!(actions.last(), Some(&ProgramAction::TellReady));
    program
}

#[test]
fn it_is_ready_when_all_were_tried_and_one_is_up() {
    let mut program = Program::new(2);
    assert_eq!(
        actions(|out| program.start(false, out)),
        [ProgramAction::Start(0), ProgramAction::Start(1)]
    );
    assert_eq!(
        actions(|out| program.failed(0, at(1), out)),
        [back_off(0, 100, true)]
    );
    assert_eq!(
        actions(|out| program.up(1, at(2), out)),
        [ProgramAction::TellReady]
    );
    assert_eq!(program.next_deadline(), Some(at(101)));
    assert_eq!(
        actions(|out| program.pass(at(101), out)),
        [ProgramAction::Start(0)]
    );
    assert_eq!(
        actions(|out| program.failed(0, at(102), out)),
        [back_off(0, 200, true)]
    );
    assert_eq!(
        (program.next_deadline(), program.state(0)),
        (Some(at(302)), "failing")
    );
}

#[test]
fn one_that_can_not_be_started_is_the_cores_to_try_again() {
    let mut program = Program::new(2);
    actions(|out| program.start(false, out));
    assert_eq!(
        actions(|out| program.failed(0, at(1), out)),
        [back_off(0, 100, true)]
    );
    let gone = ProgramAction::TellGone { failed: true };
    assert_eq!(
        actions(|out| program.failed(1, at(2), out)),
        [back_off(1, 100, true), gone]
    );
    assert_eq!(program.next_deadline(), None);
    assert_eq!(
        actions(|out| program.start(false, out)),
        [ProgramAction::Start(0), ProgramAction::Start(1)]
    );
}

/// Rows: its lifetime, whether it had a request, the action, and whether it is a habit now.
#[test]
fn one_that_does_not_stay_up_comes_back_later_each_time() {
    const MINUTE: u64 = 60_000;
    let mut program = running(1);
    let mut now = 0;
    for (lived, was_at_work, delay, refuses) in [
        (500, false, Some(100), false),
        (500, false, Some(200), true),
        (500, true, None, false),
        (5_000, false, Some(400), true),
        (MINUTE - 1, false, Some(800), true),
        (MINUTE, false, None, false),
        (10, false, Some(100), false),
        (10, false, Some(200), true),
        (10, false, Some(400), true),
        (10, false, Some(800), true),
        (10, false, Some(1_600), true),
        (10, false, Some(3_200), true),
        (10, false, Some(6_400), true),
        (10, false, Some(12_800), true),
        (10, false, Some(25_600), true),
        (10, false, Some(51_200), true),
        (10, false, Some(MINUTE), true),
        (10, false, Some(MINUTE), true),
        (MINUTE, true, None, false),
        (10, false, Some(100), false),
    ] {
        now += lived;
        let done = actions(|out| program.gone(0, was_at_work, at(now), out));
        match delay {
            None => assert_eq!(done, [ProgramAction::Start(0)], "{lived} {was_at_work}"),
            Some(delay) => {
                assert_eq!(done, [back_off(0, delay, refuses)], "{lived} {was_at_work}");
                assert_eq!(program.next_deadline(), Some(at(now + delay)));
                assert_eq!(program.state(0), if refuses { "failing" } else { "waiting" });
                now += delay;
                let done = actions(|out| program.pass(at(now), out));
                assert_eq!(done, [ProgramAction::Start(0)]);
            }
        }
        now += 50;
        assert_eq!(actions(|out| program.up(0, at(now), out)), []);
    }
}

#[test]
fn one_that_a_request_may_have_ended_comes_back_at_once_within_a_budget() {
    let mut program = running(1);
    let mut now = 100;
    for crash in 0..AT_ONCE {
        let started = actions(|out| program.gone(0, true, at(now), out));
        assert_eq!(started, [ProgramAction::Start(0)], "{crash}");
        actions(|out| program.up(0, at(now + 1), out));
        now += 2;
    }
    // Beyond the budget of a second they wait, never longer than that second.
    for _ in 0..100 {
        actions(|out| program.gone(0, true, at(now), out));
        let due = program.next_deadline();
        assert!(due.is_none_or(|due| due <= at(now + 1_000)));
        now += 1_000;
        actions(|out| program.pass(at(now), out));
        actions(|out| program.up(0, at(now), out));
    }
}

fn on_trial(processes: usize) -> Program {
    let mut program = Program::new(processes);
    let mut actions = Vec::new();
    program.start(true, &mut actions);
    for index in 0..processes {
        program.up(index, at(index as u64), &mut actions);
    }
    assert!(!actions.contains(&ProgramAction::TellReady));
    program
}

#[test]
fn beside_one_that_serves_it_has_to_live_before_it_is_ready() {
    let mut program = on_trial(2);
    assert_eq!(program.next_deadline(), Some(at(1) + PROOF));
    assert_eq!(actions(|out| program.pass(at(1_000), out)), []);
    assert_eq!(
        actions(|out| program.pass(at(1_001), out)),
        [ProgramAction::TellReady]
    );
    program.takes_over();
    assert_eq!(
        actions(|out| program.gone(0, false, at(1_100), out)),
        [back_off(0, 100, false)]
    );
}

/// Rows: when the first of two processes exits, and whether the other is stopped.
#[test]
fn beside_one_that_serves_an_end_is_a_failed_start() {
    let gone = ProgramAction::TellGone { failed: true };
    for ended in [1, 300, 1_000] {
        let mut program = on_trial(2);
        assert_eq!(
            actions(|out| program.gone(0, false, at(ended), out)),
            [back_off(0, 100, true), ProgramAction::Stop(1, Force::Kill)],
            "{ended}"
        );
        assert_eq!(actions(|out| program.gone(1, false, at(ended + 1), out)), [gone]);
        assert_eq!(program.next_deadline(), None);
    }
    let mut program = on_trial(2);
    actions(|out| program.pass(at(1_001), out));
    let ended = actions(|out| program.gone(0, false, at(1_002), out));
    assert_eq!(ended, [back_off(0, 100, true)]);
    let ended = actions(|out| program.gone(1, false, at(1_003), out));
    assert_eq!(ended, [back_off(1, 100, true), gone]);
}

#[test]
fn one_on_trial_that_is_not_wanted_has_not_failed() {
    let mut program = on_trial(2);
    actions(|out| program.gone(0, false, at(10), out));
    assert_eq!(actions(|out| program.stop(Force::Kill, out)), []);
    let gone = ProgramAction::TellGone { failed: false };
    assert_eq!(actions(|out| program.gone(1, false, at(20), out)), [gone]);
}

#[test]
fn another_master_goes_on_with_what_is_up() {
    let mut out = Vec::new();
    let mut program = Program::resume(&[true, false], at(0), &mut out);
    assert_eq!(out, [ProgramAction::Start(1)]);
    assert_eq!(actions(|out| program.start(false, out)), []);
    assert_eq!(actions(|out| program.up(1, at(1), out)), []);
    assert_eq!(
        actions(|out| program.gone(0, false, at(60_000), out)),
        [ProgramAction::Start(0)]
    );
}

#[test]
fn it_goes_as_hard_as_it_must() {
    let mut program = running(3);
    actions(|out| program.gone(0, false, at(10), out));
    actions(|out| program.gone(1, true, at(2_000), out));
    let stop = |force| ProgramAction::Stop(2, force);
    assert_eq!(
        actions(|out| program.stop(Force::Ask, out)),
        [ProgramAction::Cancel(1), stop(Force::Ask)]
    );
    // It came up although its start was canceled.
    let came = actions(|out| program.up(1, at(2_100), out));
    assert_eq!(came, [ProgramAction::Stop(1, Force::Ask)]);
    assert_eq!(
        actions(|out| program.stop(Force::Kill, out)),
        [ProgramAction::Stop(1, Force::Kill), stop(Force::Kill)]
    );
    assert_eq!(actions(|out| program.gone(1, false, at(2_200), out)), []);
    let gone = ProgramAction::TellGone { failed: false };
    assert_eq!(actions(|out| program.gone(2, false, at(2_300), out)), [gone]);
    assert_eq!(actions(|out| program.stop(Force::Kill, out)), []);
}

#[test]
fn it_always_comes_to_an_end() {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut below = |limit: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % limit
    };
    for _ in 0..2_000 {
        let count = 1 + below(3) as usize;
        let mut program = Program::new(count);
        let (mut out, mut now) = (Vec::new(), 0);
        let mut world = vec![0_u8; count];
        program.start(below(2) == 0, &mut out);
        let mut gone = 0;
        for step in 0..60 {
            for action in std::mem::take(&mut out) {
                match action {
                    ProgramAction::Start(index) => {
                        assert_eq!(world[index], 0);
                        world[index] = 1;
                    }
                    ProgramAction::Cancel(index) => assert_eq!(world[index], 1),
                    ProgramAction::Stop(index, _) => assert_ne!(world[index], 0),
                    ProgramAction::BackOff { index, .. } => assert_eq!(world[index], 0),
                    ProgramAction::TellReady => assert!(program.is_up() && gone == 0),
                    ProgramAction::TellGone { .. } => {
                        assert!(world.iter().all(|it| *it == 0));
                        gone += 1;
                    }
                }
            }
            now += below(400);
            let index = below(count as u64) as usize;
            match (world[index], below(3)) {
                (1, 0) => {
                    world[index] = 0;
                    program.failed(index, at(now), &mut out);
                }
                (1, _) => {
                    world[index] = 2;
                    program.up(index, at(now), &mut out);
                }
                (2, 0 | 1) => {
                    world[index] = 0;
                    program.gone(index, false, at(now), &mut out);
                }
                _ => program.pass(at(now), &mut out),
            }
            if step == 40 {
                program.stop(Force::Kill, &mut out);
            }
        }
        for (index, state) in world.iter().enumerate().take(count) {
            match state {
                1 => program.failed(index, at(now), &mut out),
                2 => program.gone(index, false, at(now), &mut out),
                _ => {}
            }
        }
        gone += out
            .iter()
            .filter(|action| matches!(action, ProgramAction::TellGone { .. }))
            .count();
        assert_eq!(gone, 1);
    }
}
