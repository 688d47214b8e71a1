//! Runs targets on their seeds and on mutated seeds.

use crate::random::{Random, number};
use crate::{Target, mutate};
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

/// Inputs of each target; `FORKYARD_FUZZ_INPUTS` overrides the number.
const INPUTS: u64 = 2000;

/// Returns the files in `fuzz/corpus` of a target.
///
/// # Panics
/// If there are none.
pub fn seeds(target: &Target) -> Vec<Vec<u8>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let directory = directory.join(target.name);
    let files =
        std::fs::read_dir(&directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let mut files: Vec<PathBuf> = files.map(|file| file.expect("a file").path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{} has no corpus", target.name);
    let read = |path: &PathBuf| std::fs::read(path).expect("readable");
    files.iter().map(read).collect()
}

fn run(target: &Target, input: &[u8]) {
    let outcome = catch_unwind(|| (target.run)(input));
    assert!(
        outcome.is_ok(),
        "{} fails with b\"{}\"",
        target.name,
        input.escape_ascii()
    );
}

/// Runs every target on nothing, on its seeds, and on a fixed number of mutated seeds.
///
/// # Panics
/// If a target fails; names the input.
pub fn check(targets: &[Target]) {
    let inputs = number("FORKYARD_FUZZ_INPUTS").unwrap_or(INPUTS);
    for target in targets {
        let seeds = seeds(target);
        run(target, b"");
        seeds.iter().for_each(|seed| run(target, seed));
        for number in 0..inputs {
            let mut random = Random::new(number);
            let mut input = seeds[random.below(seeds.len())].clone();
            mutate(&mut input, &seeds, random.next());
            input.truncate(target.most_bytes);
            run(target, &input);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{check, target};

    #[test]
    #[should_panic(expected = "glob fails with b\"")]
    fn a_target_that_fails_is_named() {
        check(&[target("glob", 100, |input| assert!(input.is_empty()))]);
    }
}
