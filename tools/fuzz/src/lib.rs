//! Fuzz targets: functions that feed a parser of untrusted input.
#![forbid(unsafe_code)]

mod check;
mod mutate;
#[path = "../../../tests/random/mod.rs"]
mod random;

pub use check::{check, seeds};
pub use mutate::mutate;

use random::Random;
use std::fmt::Debug;
use std::sync::atomic::AtomicU64;

/// A parser under test.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// The target's name, and its corpus's.
    pub name: &'static str,
    /// The longest input tried, in bytes.
    pub most_bytes: usize,
    /// Feeds the parser; panics on a broken promise.
    pub run: fn(&[u8]),
}

/// Creates a target; arguments in the order of [`Target`]'s fields.
pub const fn target(name: &'static str, most_bytes: usize, run: fn(&[u8])) -> Target {
    Target {
        name,
        most_bytes,
        run,
    }
}

/// Derives further choices from the input, such as where to split it.
fn random_of(input: &[u8]) -> Random {
    let hash = input.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    Random::new(hash)
}

/// Calls `take` with pieces of the input, some of them empty.
pub fn in_pieces(input: &[u8], mut take: impl FnMut(&[u8])) {
    let mut random = random_of(input);
    let most = [1, 3, 20, 300][random.below(4)];
    let mut rest = input;
    while !rest.is_empty() {
        let (piece, later) = rest.split_at(rest.len().min(random.below(most + 1)));
        // Each piece in separate memory, so that sanitizers detect reads beyond it.
        let alone = Box::<[u8]>::from(piece);
        take(&alone);
        rest = later;
    }
}

/// Numbers derived from the input, each below the given limit.
pub fn numbers_of(input: &[u8]) -> impl FnMut(usize) -> usize {
    let mut random = random_of(input);
    move |bound| random.below(bound)
}

/// A number derived from the input, below `bound`.
pub fn number_of(input: &[u8], bound: usize) -> usize {
    random_of(input).below(bound)
}

/// Shared memory that starts with the input, a word for each eight bytes, and is zero after it.
pub fn words_of(input: &[u8], count: usize) -> Vec<AtomicU64> {
    let mut bytes = input.to_vec();
    bytes.resize(count * 8, 0);
    let words = bytes
        .chunks_exact(8)
        .map(|word| word.try_into().unwrap_or_default());
    words
        .map(|word| AtomicU64::new(u64::from_ne_bytes(word)))
        .collect()
}

/// Checks that a value comes back if it is written and read again.
///
/// # Panics
/// If it doesn't.
pub fn comes_back<T>(value: &T)
where
    T: serde::Serialize + serde::de::DeserializeOwned + PartialEq + Debug,
{
    let written = match serde_json::to_vec(value) {
        Ok(written) => written,
        Err(error) => panic!("{value:?} can't be written: {error}"),
    };
    match serde_json::from_slice::<T>(&written) {
        Ok(again) => assert_eq!(again, *value),
        Err(error) => panic!("{value:?} can't be read again: {error}"),
    }
}

/// Checks that a value that is read comes back.
///
/// # Panics
/// If it doesn't.
pub fn survives<T>(input: &[u8]) -> Option<T>
where
    T: serde::Serialize + serde::de::DeserializeOwned + PartialEq + Debug,
{
    let value: T = serde_json::from_slice(input).ok()?;
    comes_back(&value);
    Some(value)
}

/// Whether a text fits into one line of a log or terminal.
pub fn is_one_line(text: &str) -> bool {
    !text.contains(['\n', '\r', '\0', '\u{1b}'])
}
