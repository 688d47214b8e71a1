//! What another master has left.

use forkyard_daemon::handover::plan::{Facts, Kind, Plan, plan};
use forkyard_fuzz::number_of;
use forkyard_protocol::handover::document::Document;
use forkyard_protocol::handover::frame;
use forkyard_protocol::handover::names::{self, QueueKind};
use forkyard_runtimes::http::table_pages;
use forkyard_scoreboard::layout::{header::MAX_SLOTS, pages};
use std::collections::BTreeSet;

pub(super) fn document(input: &[u8]) {
    let Ok(document) = Document::decode(input) else {
        return;
    };
    assert_eq!(
        Document::decode(&document.encode()).ok().as_ref(),
        Some(&document)
    );
    let facts = facts(&document, number_of(input, 8));
    check(&plan(&document, &facts), &facts);
    check(&plan(&document, &Facts::default()), &Facts::default());
}

fn facts(document: &Document, lacking: usize) -> Facts {
    let mut facts = Facts::default();
    let mut count = 0;
    let mut put = |name: String, kind| {
        count += 1;
        if lacking == 0 || count % (lacking + 3) != 0 {
            facts.kinds.insert(name, kind);
        }
    };
    for pool in &document.pools {
        put(names::listener(pool.id), Kind::Listener);
        QueueKind::HandOff
            .names(pool.id)
            .for_each(|name| put(name, Kind::Packets));
    }
    for generation in &document.generations {
        let slots = generation.slots as usize;
        let kinds = [
            Kind::Memory(pages(slots)),
            Kind::PipeOut,
            Kind::PipeIn,
            Kind::Stream,
            Kind::Stream,
        ];
        names::of_generation(generation.id)
            .into_iter()
            .zip(kinds)
            .for_each(|(name, kind)| put(name, kind));
        let pages = table_pages(generation.places as usize, slots);
        put(names::program_table(generation.id), Kind::Memory(pages));
        for worker in &generation.workers {
            put(names::stop_pipe(worker.id), Kind::PipeIn);
        }
        for program in &generation.programs {
            let [input, _] = names::program(generation.id, program.place);
            put(input, Kind::PipeIn);
        }
    }
    let workers = document
        .generations
        .iter()
        .flat_map(|generation| &generation.workers);
    facts.processes = workers.map(|worker| (worker.pid, worker.start_time)).collect();
    facts
}

fn check(plan: &Plan, facts: &Facts) {
    let mut pools = BTreeSet::new();
    for pool in &plan.pools {
        assert!(pools.insert(pool.id), "a pool twice");
        assert_eq!(facts.kinds.get(&names::listener(pool.id)), Some(&Kind::Listener));
    }
    let (mut generations, mut ids, mut pids) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for generation in &plan.generations {
        assert!(generations.insert(generation.id), "a generation twice");
        assert!((1..=MAX_SLOTS).contains(&(generation.slots as usize)));
        let mut slots = BTreeSet::new();
        for worker in &generation.workers {
            assert!(
                worker.pid > 1 && pids.insert(worker.pid),
                "a process twice, or none: {}",
                worker.pid
            );
            assert!(ids.insert(worker.id) && slots.insert(worker.slot) && worker.slot < generation.slots);
            assert_eq!(facts.processes.get(&worker.pid), Some(&worker.start_time));
        }
        let mut places = BTreeSet::new();
        for program in &generation.programs {
            assert!(program.pid > 1 && program.place < generation.places && places.insert(program.place));
        }
    }
    assert!(
        plan.complaints
            .iter()
            .all(|complaint| !complaint.to_string().is_empty())
    );
}

/// A frame is accepted whole or rejected. The input is used as it stands, and as the body of two frames, each possibly
/// corrupt.
pub(super) fn frames(input: &[u8]) {
    let _ = Document::newest([input, input]);
    if let Ok((sequence, body)) = frame::decode(input) {
        let again = frame::encode(sequence, body);
        assert!(input.starts_with(&again));
    }
    let [older, newer] = [1, 2].map(|sequence| frame::encode(sequence, input));
    assert_eq!(frame::decode(&newer), Ok((2, input)));
    let mut spoilt = newer.clone();
    let at = number_of(input, spoilt.len());
    spoilt[at] ^= 1 << number_of(input, 8);
    assert!(frame::decode(&spoilt).is_err(), "byte {at}");
    assert!(frame::decode(&newer[..number_of(input, newer.len())]).is_err());
    let read = |copies| Document::newest(copies).map_err(|error| error.to_string());
    assert_eq!(read([&older, &spoilt]), read([&older, &older]));
    assert_eq!(read([&spoilt, &older]), read([&older, &older]));
    let whole = frame::encode(1, NOTHING);
    let read_behind = |behind: &[u8]| {
        let both = [whole.as_slice(), behind].concat();
        Document::newest([&both, b""]).map_err(|error| error.to_string())
    };
    if let Ok(document) = read_behind(&newer) {
        let pools: Vec<u32> = document.pools.iter().map(|pool| pool.id).collect();
        let generations: Vec<u32> = document.generations.iter().map(|it| it.id).collect();
        for ids in [pools, generations] {
            assert!(ids.windows(2).all(|pair| pair[0] < pair[1]), "one number twice");
        }
    }
    assert_eq!(read_behind(&older), read_behind(b""));
    assert_eq!(read_behind(&spoilt), read_behind(b""));
}

const NOTHING: &[u8] =
    br#"{"version":1,"program":"0.1.0","master":77,"stopping":null,"descriptor_limit":null,"last_pool":0,
    "last_generation":0,"pools":[],"generations":[]}"#;
