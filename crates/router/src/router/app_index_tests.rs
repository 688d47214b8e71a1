use super::*;
use crate::inspector::sample;
use forkyard_protocol::reason::Reason;

const RATE: Duration = Duration::from_secs(10);

fn found(root: &str) -> FoundApplication {
    FoundApplication {
        restart: Some((5, 6)),
        ..sample::found(root, 1000)
    }
}

fn at(seconds: u64) -> Tick {
    Tick::ZERO + Duration::from_secs(100 + seconds)
}

fn number(answer: Lookup) -> u64 {
    match answer {
        Lookup::Wait(Some(look)) => look.number,
        other => panic!("{other:?}"),
    }
}

#[test]
fn several_wait_for_one_look_which_is_good_for_a_while() {
    let mut roots = AppIndex::default();
    let look = number(roots.ask(b"/srv/current", 1, RATE, at(0)));
    assert_eq!(roots.ask(b"/srv/current", 2, RATE, at(0)), Lookup::Wait(None));
    let seen = |number, root| sample::reply(number, Ok(found(root)));
    let options = Bounds::default();
    let inspected = roots
        .seen(seen(look, "/srv/one"), &options, at(1))
        .expect("it was asked");
    assert_eq!(inspected.waiting, [1, 2]);
    assert_eq!(
        inspected.restart_files.restart,
        Some(FileState {
            modified_ns: 5,
            inode: 6
        })
    );
    let first = inspected.known.expect("an application");
    assert_eq!(&*first.name, "/srv/one");
    assert_eq!(roots.seen(seen(look, "/srv/one"), &options, at(1)), None, "once");
    assert_eq!(
        roots.ask(b"/srv/current", 3, RATE, at(10)),
        Lookup::Known(first.clone())
    );
    let look = number(roots.ask(b"/srv/current", 4, RATE, at(11)));
    assert_eq!(roots.before(b"/srv/current"), Some(first));
    let inspected = roots
        .seen(seen(look, "/srv/two"), &options, at(11))
        .expect("it was asked");
    assert_eq!(
        inspected.known.map(|known| known.name.to_string()),
        Some("/srv/two".to_owned())
    );
    number(roots.ask(b"/srv/current", 5, Duration::ZERO, at(11)));
}

#[test]
fn a_refusal_is_said_once_a_minute_and_remembered() {
    let mut roots = AppIndex::default();
    let refused = |number| sample::reply(number, Err(Reason("there is nothing".to_owned())));
    let options = Bounds::default();
    let mut said = 0;
    for second in 0..120 {
        match roots.ask(b"/srv/none", second, Duration::ZERO, at(second)) {
            Lookup::Wait(Some(look)) => {
                let inspected = roots
                    .seen(refused(look.number), &options, at(second))
                    .expect("it was asked");
                assert_eq!(inspected.known, None);
                said += usize::from(inspected.say.is_some());
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(
            roots.ask(b"/srv/none", 0, Duration::ZERO, at(second)),
            Lookup::Refused(None)
        );
    }
    assert_eq!(said, 2);
}

#[test]
fn a_look_that_failed_says_nothing_of_what_is_there() {
    let mut roots = AppIndex::default();
    let options = Bounds::default();
    let failed = |number| InspectReply {
        number,
        found: Err(Reason("no process could be made".to_owned())),
        is_unknown: true,
        refusal: None,
    };
    let inspected =
        |roots: &mut AppIndex, number| roots.seen(failed(number), &options, at(1)).expect("it was asked");
    let look = number(roots.ask(b"/srv/shop", 1, RATE, at(0)));
    let first = inspected(&mut roots, look);
    assert_eq!(
        (first.looked, first.known, first.say.is_some()),
        (false, None, true)
    );
    let look = number(roots.ask(b"/srv/shop", 2, RATE, at(1)));
    let seen = sample::reply(look, Ok(found("/srv/shop")));
    let known = roots
        .seen(seen, &options, at(2))
        .and_then(|inspected| inspected.known);
    let look = number(roots.ask(b"/srv/shop", 3, RATE, at(12)));
    let second = inspected(&mut roots, look);
    assert!(!second.looked && second.known.is_some() && second.known == known);
    number(roots.ask(b"/srv/shop", 4, RATE, at(12)));
}

#[test]
fn any_number_of_roots_costs_bounded_memory() {
    let mut roots = AppIndex::default();
    for number in 0..(MOST as u64 + MOST_LOOKS as u64) {
        let root = format!("/srv/{number}");
        let now = Tick::from_nanos(number + 1);
        if let Lookup::Wait(Some(look)) = roots.ask(root.as_bytes(), number, RATE, now) {
            let seen = InspectReply {
                number: look.number,
                found: Err(Reason(String::new())),
                is_unknown: false,
                refusal: None,
            };
            roots.seen(seen, &Bounds::default(), now);
        }
        assert!(roots.entries.len() <= MOST);
    }
    let mut busy = 0;
    for number in 0..2 * MOST_LOOKS {
        let answer = roots.ask(format!("/new/{number}").as_bytes(), 1, RATE, at(500));
        busy += usize::from(answer == Lookup::Busy);
    }
    assert_eq!((busy, roots.looks.len()), (MOST_LOOKS, MOST_LOOKS));
}

#[test]
fn what_can_be_no_path_is_not_looked_at() {
    assert!(is_possible(b"/srv/shop"));
    for wrong in [&b""[..], b"srv/shop", b"/srv\0/shop", b"/srv/\xff", &[b'/'; 5000]] {
        assert!(!is_possible(wrong));
    }
}
