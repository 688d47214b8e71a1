//! Runs targets on their corpora and on mutations of them.

use crate::random::{Random, number};
use crate::{Target, mutate};
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Inputs of each target; `FORKYARD_FUZZ_INPUTS` overrides the number.
const INPUTS: u64 = 500;

fn corpus(target: &Target) -> Vec<(String, Vec<u8>)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let directory = directory.join(target.name);
    let files =
        std::fs::read_dir(&directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let mut files: Vec<PathBuf> = files.map(|file| file.expect("a file").path()).collect();
    files.sort();
    let read = |path: &PathBuf| (path.display().to_string(), std::fs::read(path).expect("readable"));
    files.iter().map(read).collect()
}

/// Names the failing input.
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

/// Runs every target on its corpus and on a fixed, reproducible number of mutations.
///
/// # Panics
/// If a target fails; names each failure and its input.
pub fn check(targets: &[Target]) {
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(target) = targets.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if catch_unwind(|| run_all(target)).is_err() {
                        failed.lock().expect("no panic within").push(target.name);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().expect("no panic within");
    assert!(failed.is_empty(), "these fail: {failed:?}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Grammar, target, words};

    #[test]
    fn mutations_are_of_the_target_s_grammar() {
        let target = target("any", Grammar::Json, words::CONTROL, 400, |_| {});
        let mut understood = 0;
        for round in 0..1000 {
            let mut input = br#"{"command":"resize","pool":"www","max":3}"#.to_vec();
            mutate(&mut input, br#"{"command":"ping"}"#, &target, round);
            understood += usize::from(serde_json::from_slice::<serde_json::Value>(&input).is_ok());
        }
        assert!(understood > 400, "{understood}");
    }

    #[test]
    #[should_panic(expected = "these fail: [\"glob\"]")]
    fn a_target_that_fails_is_named() {
        check(&[target("glob", Grammar::Bytes, &[], 100, |input| {
            assert!(input.is_empty())
        })]);
    }
}
