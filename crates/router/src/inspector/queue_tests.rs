use super::*;
use crate::inspector::sample;
use forkyard_protocol::reason::Reason;

fn queue() -> Queue {
    Queue::new(vec!["/srv".into()])
}

fn at(ms: u64) -> Tick {
    Tick::ZERO + Duration::from_millis(ms)
}

fn request(number: u64, root: &str) -> InspectRequest {
    InspectRequest {
        number,
        root: root.into(),
        link: None,
    }
}

fn seen(number: u64) -> InspectReply {
    sample::reply(number, Err(Reason(String::new())))
}

fn ask(queue: &mut Queue, asker: Asker, number: u64, root: &str, now: Tick) -> Vec<QueueAction> {
    assert!(queue.has_room(asker));
    let mut actions = Vec::new();
    queue.ask(asker, request(number, root), now, &mut actions);
    actions
}

fn did(what: impl FnOnce(&mut Vec<QueueAction>)) -> Vec<QueueAction> {
    let mut actions = Vec::new();
    what(&mut actions);
    actions
}

fn given(actions: &[QueueAction]) -> Vec<u64> {
    let numbers = actions.iter().filter_map(|action| match action {
        QueueAction::Give(_, look) => Some(look.number),
        _ => None,
    });
    numbers.collect()
}

fn answered(actions: &[QueueAction]) -> Vec<(Asker, u64)> {
    let numbers = actions.iter().filter_map(|action| match action {
        QueueAction::Answer(asker, seen) => Some((*asker, seen.number)),
        _ => None,
    });
    numbers.collect()
}

#[test]
fn a_look_is_given_and_its_answer_goes_to_who_asked() {
    let mut queue = queue();
    let actions = ask(&mut queue, Asker::Router, 7, "/srv/a", at(0));
    assert_eq!(
        actions,
        [QueueAction::Start(0), QueueAction::Give(0, request(7, "/srv/a"))]
    );
    let actions = ask(&mut queue, Asker::Master, 7, "/srv/b", at(0));
    assert_eq!(
        actions,
        [QueueAction::Start(1), QueueAction::Give(1, request(7, "/srv/b"))]
    );
    assert_eq!(queue.next_deadline(), Some(at(5000)));
    let actions = did(|actions| queue.answered(1, seen(7), at(1), actions));
    assert_eq!(actions, [QueueAction::Answer(Asker::Master, seen(7))]);
    let actions = did(|actions| queue.answered(0, seen(7), at(1), actions));
    assert_eq!(actions, [QueueAction::Answer(Asker::Router, seen(7))]);
    assert_eq!(queue.next_deadline(), None);
    let actions = ask(&mut queue, Asker::Router, 8, "/srv/a", at(2));
    assert_eq!(actions, [QueueAction::Give(0, request(8, "/srv/a"))]);
}

#[test]
fn a_site_that_hangs_leaves_children_to_the_others() {
    let mut queue = queue();
    for number in 0..10 {
        let actions = ask(
            &mut queue,
            Asker::Router,
            number,
            &format!("/srv/bad/{number}"),
            at(0),
        );
        assert_eq!(given(&actions).is_empty(), number >= CHILDREN_PER_SHARE as u64);
    }
    assert_eq!(
        given(&ask(&mut queue, Asker::Router, 10, "/srv/good", at(1))),
        [10]
    );
    assert_eq!(
        given(&ask(&mut queue, Asker::Master, 11, "/srv/bad/x", at(1))),
        Vec::<u64>::new()
    );
    assert_eq!(
        given(&ask(&mut queue, Asker::Master, 12, "/srv/fine", at(1))),
        [12]
    );
    // The first two time out and their children are killed. Until these exit, the site gets no replacement.
    let actions = did(|actions| queue.late(at(5000), actions));
    let killed = actions
        .iter()
        .filter(|action| matches!(action, QueueAction::Kill(_)))
        .count();
    assert_eq!((killed, given(&actions)), (2, vec![]));
    assert_eq!(
        answered(&actions),
        (0..10).map(|number| (Asker::Router, number)).collect::<Vec<_>>()
    );
    did(|actions| queue.answered(2, seen(10), at(5000), actions));
    assert_eq!(
        given(&ask(&mut queue, Asker::Router, 13, "/srv/good", at(5000))),
        [13]
    );
    let actions = did(|actions| queue.gone(0, at(5001), actions));
    assert_eq!(given(&actions), [11]);
    assert!(
        did(|actions| queue.answered(1, seen(1), at(5002), actions)).is_empty(),
        "too late"
    );
}

#[test]
fn processes_that_can_not_be_killed_are_bounded() {
    let mut queue = queue();
    let mut now = at(0);
    let mut started = 0;
    for number in 0..1000 {
        now = now + Duration::from_secs(1);
        let mut actions = Vec::new();
        queue.late(now, &mut actions);
        let asker = Asker::ALL[number as usize % 2];
        if queue.has_room(asker) {
            queue.ask(
                asker,
                request(number, &format!("/srv/{number}")),
                now,
                &mut actions,
            );
        }
        started += actions
            .iter()
            .filter(|action| matches!(action, QueueAction::Start(_)))
            .count();
    }
    assert_eq!(started, MOST_CHILDREN);
    did(|actions| queue.late(now + TIMEOUT, actions));
    did(|actions| queue.late(now + TIMEOUT + TIMEOUT, actions));
    assert_eq!(queue.next_deadline(), None);
    for id in 0..MOST_CHILDREN as u64 {
        did(|actions| queue.gone(id, now, actions));
    }
    assert_eq!(given(&ask(&mut queue, Asker::Router, 1, "/srv/a", now)), [1]);
}

#[test]
fn an_asker_that_asks_much_delays_the_other_by_one_look() {
    let mut queue = queue();
    let mut number = 0;
    while queue.has_room(Asker::Router) {
        number += 1;
        ask(
            &mut queue,
            Asker::Router,
            number,
            &format!("/srv/{number}"),
            at(0),
        );
    }
    assert_eq!(number as usize, MOST_WAITING + CHILDREN);
    ask(&mut queue, Asker::Master, 1000, "/srv/x", at(1));
    ask(&mut queue, Asker::Master, 1001, "/srv/y", at(1));
    let next: Vec<u64> = (0..4)
        .flat_map(|child: u64| {
            given(&did(|actions| {
                queue.answered(child, seen(child + 1), at(2), actions)
            }))
        })
        .collect();
    assert_eq!(
        next.iter().filter(|number| **number >= 1000).count(),
        2,
        "{next:?}"
    );
}

#[test]
fn a_child_that_ends_or_lies_is_answered_for() {
    let mut queue = queue();
    ask(&mut queue, Asker::Router, 1, "/srv/a", at(0));
    let actions = did(|actions| queue.gone(0, at(1), actions));
    assert_eq!(answered(&actions), [(Asker::Router, 1)]);
    ask(&mut queue, Asker::Router, 2, "/srv/a", at(2));
    let actions = did(|actions| queue.answered(1, seen(77), at(3), actions));
    assert_eq!(answered(&actions), [(Asker::Router, 2)]);
    assert!(actions.contains(&QueueAction::Kill(1)));
    assert!(did(|actions| queue.answered(99, seen(1), at(3), actions)).is_empty());
}

fn found(number: u64, root: &str, user: u32) -> InspectReply {
    sample::reply(number, Ok(sample::found(root, user)))
}

#[test]
fn a_user_with_many_sites_has_half_of_the_children() {
    let mut queue = queue();
    for (number, (root, user)) in [("/srv/a", 1), ("/srv/b", 1), ("/srv/c", 1), ("/srv/d", 2)]
        .into_iter()
        .enumerate()
    {
        let number = number as u64;
        ask(&mut queue, Asker::Router, number, root, at(0));
        queue.answered(0, found(number, root, user), at(0), &mut Vec::new());
    }
    let mut given_to = |number: u64, root: &str| given(&ask(&mut queue, Asker::Router, number, root, at(1)));
    assert_eq!(given_to(10, "/srv/a/x"), [10]);
    assert_eq!(given_to(11, "/srv/b"), [11]);
    for number in 12..60 {
        assert!(given_to(number, "/srv/c").is_empty(), "{number}");
    }
    assert_eq!(given_to(60, "/srv/d"), [60]);
    assert_eq!(given_to(61, "/srv/new"), [61]);
}

#[test]
fn whoever_has_nothing_under_way_goes_first() {
    let mut queue = queue();
    let mut answers = Vec::new();
    for (number, root) in [(1, "/srv/a"), (2, "/srv/b"), (3, "/srv/c"), (4, "/srv/d")] {
        answers.extend(given(&ask(&mut queue, Asker::Router, number, root, at(0))));
    }
    assert_eq!(answers, [1, 2, 3, 4]);
    for (number, root) in [(5, "/srv/a"), (6, "/srv/a"), (7, "/srv/e")] {
        assert!(given(&ask(&mut queue, Asker::Router, number, root, at(1))).is_empty());
    }
    let actions = did(|actions| queue.answered(3, seen(4), at(2), actions));
    assert_eq!(given(&actions), [7]);
    let actions = did(|actions| queue.answered(2, seen(3), at(2), actions));
    assert_eq!(given(&actions), [5]);
}
