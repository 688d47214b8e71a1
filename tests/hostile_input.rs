//! Input that a hostile worker, preloader or client could make up, from seeds. `FORKYARD_SEED` replays the one round that
//! a failure named.

mod random;

use forkyard::config::RequestSettings;
use forkyard::logs::parse_message;
use forkyard::runtime::php::protocol::Answer;
use forkyard::runtime::php::request_settings::{Rule, Verdict};
use forkyard::scoreboard::layout::slot;
use forkyard::scoreboard::{census, header};
use random::{Random, rounds};
use std::sync::atomic::{AtomicU64, Ordering};

const ROUNDS: u64 = 3_000;
const PAGE_WORDS: usize = 512;

/// A number near an edge, where sums overflow and signs change, or any other.
fn edge(random: &mut Random) -> u64 {
    let edges = [
        0,
        1,
        u64::MAX,
        u64::MAX - 1,
        1 << 63,
        (1 << 63) - 1,
        1 << 32,
        1 << 31,
        u64::from(u32::MAX),
    ];
    match random.below(2) {
        0 => random.pick(&edges),
        _ => random.next() >> random.below(64),
    }
}

#[test]
fn a_message_is_a_level_and_the_rest() {
    rounds(ROUNDS, |random| {
        let line = random.bytes(3000);
        let (_, text) = parse_message(&line);
        let known = line.first().is_some_and(|first| (b'1'..=b'5').contains(first));
        let content = if known { &line[1..] } else { &line[..] };
        assert_eq!(text, String::from_utf8_lossy(content));
    });
}

#[test]
fn an_answer_is_one_of_the_protocol_s_or_none() {
    let good = [
        r#"{"result":"ready","version":"8.2.35"}"#,
        r#"{"result":"ok","worker":5,"pid":77}"#,
        r#"{"result":"error","worker":5,"message":"no"}"#,
        r#"{"result":"error","message":"no"}"#,
    ];
    rounds(ROUNDS, |random| {
        let mut line = good[random.below(good.len())].as_bytes().to_vec();
        for _ in 0..random.below(6) {
            let at = random.below(line.len());
            match random.below(4) {
                0 => line[at] = random.next() as u8,
                1 => drop(line.remove(at)),
                2 => line.insert(at, b"{}[]\",:0e-9\\u"[random.below(13)]),
                _ => line
                    .splice(at..at, edge(random).to_string().into_bytes())
                    .for_each(drop),
            }
            if line.is_empty() {
                break;
            }
        }
        // What is understood says the same again when it is written down.
        if let Ok(answer) = serde_json::from_slice::<Answer>(&line) {
            let again = serde_json::to_vec(&answer).expect("JSON");
            assert_eq!(serde_json::from_slice::<Answer>(&again).expect("its own"), answer);
        }
        let _ = serde_json::from_slice::<Answer>(&random.bytes(200));
    });
    // Nesting has an end before the stack has one.
    assert!(serde_json::from_str::<Answer>(&"[".repeat(100_000)).is_err());
    assert!(serde_json::from_str::<Answer>(&"{\"result\":".repeat(100_000)).is_err());
}

#[test]
fn a_slot_is_read_within_its_page_whatever_is_in_it() {
    rounds(ROUNDS, |random| {
        let page: Vec<AtomicU64> = (0..PAGE_WORDS).map(|_| AtomicU64::new(edge(random))).collect();
        page[slot::LENGTHS].store(edge(random), Ordering::Relaxed);
        let entry = census::read(&page);
        for (text, (_, room)) in entry.texts.iter().zip(slot::TEXTS) {
            assert!(text.len() <= room);
        }
        assert_eq!(
            entry.consistent,
            page[slot::SEQUENCE].load(Ordering::Relaxed) & 1 == 0
        );
        let stage = page[slot::STAGE].load(Ordering::Relaxed);
        assert!(stage <= u64::from(u32::MAX) || census::stage(&page) == entry.stage);
        // What the master does with a slot's counts, beside its own.
        let own: Vec<AtomicU64> = (0..PAGE_WORDS).map(|_| AtomicU64::new(0)).collect();
        let past = forkyard::scoreboard::layout::header::PAST_REQUESTS;
        for _ in 0..3 {
            header::add(&own, past, entry.requests);
            header::raise(&own, past, entry.max_active);
        }
        assert!(!header::used(
            &own,
            random.below(forkyard::scoreboard::layout::header::MAX_SLOTS)
        ));
    });
}

#[test]
fn a_setting_s_name_is_judged_whatever_it_is() {
    rounds(ROUNDS, |random| {
        let mut rule = Rule::new(RequestSettings::Harmless, Vec::new());
        for _ in 0..100 {
            let name = String::from_utf8_lossy(&random.bytes(300)).into_owned();
            match rule.judge(&name) {
                Verdict::Set => panic!("{name:?} is harmless"),
                Verdict::Refuse(text) => assert!(text.len() < 1000, "{text}"),
            }
        }
    });
}
