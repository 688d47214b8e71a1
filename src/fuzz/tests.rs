//! Every target with its corpus, and with inputs made of it.

use super::random::{Random, number};
use super::{TARGETS, Target, mutate};
use std::collections::BTreeSet;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Inputs of each target; `FORKYARD_FUZZ_INPUTS` says another number.
const INPUTS: u64 = 1_500;

fn corpus_directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus")
}

fn corpus(target: &Target) -> Vec<(String, Vec<u8>)> {
    let directory = corpus_directory().join(target.name);
    let files =
        std::fs::read_dir(&directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let mut files: Vec<PathBuf> = files.map(|file| file.expect("a file").path()).collect();
    files.sort();
    let read = |path: &PathBuf| (path.display().to_string(), std::fs::read(path).expect("readable"));
    files.iter().map(read).collect()
}

/// Names the input that fails.
struct Notice<'i>(&'i Target, &'i str, &'i [u8]);

impl Drop for Notice<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Notice(target, origin, input) = self;
            eprintln!(
                "{} fails with {origin}: b\"{}\"",
                target.name,
                input.escape_ascii()
            );
        }
    }
}

fn run(target: &Target, origin: &str, input: &[u8]) {
    let _notice = Notice(target, origin, input);
    (target.run)(input);
}

fn run_all(target: &Target) {
    let corpus = corpus(target);
    assert!(!corpus.is_empty(), "{} has no corpus", target.name);
    run(target, "nothing", b"");
    for (name, input) in &corpus {
        run(target, name, input);
    }
    let inputs = number("FORKYARD_FUZZ_INPUTS").unwrap_or(INPUTS);
    for round in 0..inputs {
        let mut random = Random::new(round);
        let mut input = corpus[random.below(corpus.len())].1.clone();
        let other = &corpus[random.below(corpus.len())].1;
        mutate(&mut input, other, target, random.next());
        run(target, &format!("the input of round {round}"), &input);
    }
}

#[test]
fn every_parser_keeps_its_promises_whatever_it_is_given() {
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(target) = TARGETS.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if catch_unwind(|| run_all(target)).is_err() {
                        failed.lock().expect("no panic within").push(target.name);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().expect("no panic within");
    assert!(failed.is_empty(), "{failed:?}");
}

#[test]
fn every_corpus_has_its_target() {
    let targets: BTreeSet<String> = TARGETS.iter().map(|target| target.name.to_owned()).collect();
    assert_eq!(targets.len(), TARGETS.len(), "a name is there twice");
    let directories = std::fs::read_dir(corpus_directory()).expect("the corpus");
    let names = directories.map(|entry| {
        entry
            .expect("an entry")
            .file_name()
            .to_string_lossy()
            .into_owned()
    });
    assert_eq!(names.collect::<BTreeSet<String>>(), targets);
}

/// Most mutations leave an input that its parser does not refuse at once.
#[test]
fn mutations_are_of_the_target_s_grammar() {
    let find = |name: &str| {
        TARGETS
            .iter()
            .find(|target| target.name == name)
            .expect("a target")
    };
    let target = find("control_request");
    let mut understood = 0;
    for round in 0..1000 {
        let mut input = br#"{"command":"resize","pool":"www","max":3}"#.to_vec();
        mutate(&mut input, br#"{"command":"ping"}"#, target, round);
        understood += usize::from(serde_json::from_slice::<serde_json::Value>(&input).is_ok());
    }
    assert!(understood > 400, "{understood}");
}
