//! Input that a hostile worker, preloader or client could make up, from seeds. `FORKYARD_SEED` replays the one round that
//! a failure named.

use crate::random::{Random, rounds};
use forkyard::config::RequestSettings;
use forkyard::logs::parse_message;
use forkyard::runtime::php::protocol::Answer;
use forkyard::runtime::php::request_settings::{Rule, Verdict};
use forkyard::scoreboard::layout::header::{MAX_SLOTS, PAST_MAX_ACTIVE, PAST_REQUESTS, USED};
use forkyard::scoreboard::layout::slot;
use forkyard::scoreboard::{census, header};
use forkyard::spawn::effects::own_account;
use forkyard::spawn::letter::Letter;
use forkyard::spawn::plan::{Kind, Plan};
use forkyard::tick::Tick;
use forkyard::worker::Sight;
use std::sync::Arc;
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

/// Changes some bytes of a JSON text, so that it may still be one.
fn spoil(line: &mut Vec<u8>, random: &mut Random) {
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
}

#[test]
fn a_letter_makes_a_report_or_is_none() {
    let mut plan = Plan::new("app", "/srv/app".into(), "./app", own_account());
    plan.kind = Kind::FastCgi;
    let plan = Arc::new(plan);
    let falls = [
        r#""Timeout""#,
        r#"{"Stranger":"it said hello"}"#,
        r#"{"Fork":{"text":"fork: no memory","errno":12}}"#,
        r#"{"Exited":[{"Code":3},{"word":"a","path":null,"fault":"x","remedy":null},false]}"#,
        r#"{"Exited":[{"Signal":{"number":11,"core":true}},{"word":"","path":"/a","fault":null,"remedy":null},true]}"#,
    ];
    let understood = std::cell::Cell::new(0);
    rounds(ROUNDS, |random| {
        let fall = falls[random.below(falls.len())];
        let numbers = [edge(random), edge(random), edge(random)];
        let [started, prepared, ended] = numbers;
        let mut line = format!(
            r#"{{"id":7,"pid":77,"fall":{fall},"started":{started},"prepared":{prepared},"executed":null,"ended":{ended},
            "output":"o\u001b\n","envvars":"A=b"}}"#
        )
        .into_bytes();
        spoil(&mut line, random);
        if let Some(letter) = Letter::decode(&line) {
            understood.set(understood.get() + 1);
            let now = Tick::from_nanos(edge(random));
            let report = letter.report(Arc::clone(&plan), now);
            assert!(report.started <= report.ended && report.ended <= now);
            assert_eq!(report.plan.group, "app");
            assert!(!report.text().contains('\u{1b}') && !report.line().contains('\n'));
            assert!(report.html().contains("</html>") && report.json(0).is_object());
        }
        assert_eq!(Letter::decode(&random.bytes(200)), None);
    });
    assert!(understood.get() > 0);
    assert_eq!(Letter::decode("[".repeat(100_000).as_bytes()), None);
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
        spoil(&mut line, random);
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
        // What is told of a program is one of the known states, or nothing.
        let _ = Sight::read(census::program(&page)).map(|sight| sight.doing.name());
        let stage = page[slot::STAGE].load(Ordering::Relaxed);
        assert!(stage <= u64::from(u32::MAX) || census::stage(&page) == entry.stage);
        // What the master does with a slot's counts, beside its own: they never go down, and nothing else changes.
        let own: Vec<AtomicU64> = (0..PAGE_WORDS).map(|_| AtomicU64::new(edge(random))).collect();
        let numbers = || -> Vec<u64> { own.iter().map(|word| word.load(Ordering::Relaxed)).collect() };
        let mut before = numbers();
        for _ in 0..3 {
            header::add(&own, PAST_REQUESTS, entry.requests);
            header::raise(&own, PAST_MAX_ACTIVE, entry.max_active);
            before[PAST_REQUESTS] = before[PAST_REQUESTS].saturating_add(entry.requests);
            before[PAST_MAX_ACTIVE] = before[PAST_MAX_ACTIVE].max(entry.max_active);
            assert_eq!(numbers(), before);
        }
        // A slot is in use or not, and so stay all others; a number that no slot has changes nothing.
        let slot = random.below(MAX_SLOTS + 64);
        for is_used in [true, false] {
            header::set_used(&own, slot, is_used);
            assert_eq!(header::used(&own, slot), is_used && slot < MAX_SLOTS);
            if slot < MAX_SLOTS {
                let bit = 1 << (slot % 64);
                let word = &mut before[USED + slot / 64];
                *word = if is_used { *word | bit } else { *word & !bit };
            }
            assert_eq!(numbers(), before, "slot {slot}");
        }
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
