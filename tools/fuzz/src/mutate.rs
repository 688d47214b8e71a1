//! Makes inputs from the seeds of a target.

use crate::random::Random;

/// Numbers at overflows, sign changes and limits.
const EDGES: [&str; 12] = [
    "0",
    "1",
    "-1",
    "128",
    "256",
    "65536",
    "2147483648",
    "4294967295",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
];

/// Removes, repeats and changes pieces of an input, and replaces them by pieces of the seeds. Deterministic for a number.
pub fn mutate(input: &mut Vec<u8>, seeds: &[Vec<u8>], number: u64) {
    let mut random = Random::new(number);
    for _ in 0..=random.below(2) {
        let split = random.pick(&[fields, words, records]);
        let donor = split(&seeds[random.below(seeds.len())]);
        let mut changed;
        let mut pieces = split(input);
        // Words are the values and names of most grammars.
        let places = [0; 2].map(|_| random.below(pieces.len()));
        let at = places
            .into_iter()
            .find(|at| pieces.get(*at).is_some_and(|it| is_word(&it[0])));
        let at = at.unwrap_or(places[0]);
        match random.below(16) {
            _ if pieces.is_empty() => pieces.extend(donor),
            0 => drop(pieces.remove(at)),
            1 => pieces.insert(at, pieces[random.below(pieces.len())]),
            2 => pieces.truncate(at),
            3 | 4 => {
                changed = pieces[at].to_vec();
                let byte = random.below(changed.len());
                let flipped = changed[byte] ^ 1 << random.below(8);
                changed[byte] = random.pick(&[0, 0x7f, 0x80, 0xff, flipped]);
                pieces[at] = &changed;
            }
            5 | 6 => pieces[at] = random.pick(&EDGES).as_bytes(),
            choice => {
                let is_alike = |piece: &&[u8]| is_word(&piece[0]) == is_word(&pieces[at][0]);
                let alike: Vec<&[u8]> = donor.into_iter().filter(is_alike).collect();
                if !alike.is_empty() {
                    pieces.splice(at..at + usize::from(choice > 7), [random.pick(&alike)]);
                }
            }
        }
        *input = pieces.concat();
    }
}

fn is_word(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_-.".contains(byte)
}

fn words(input: &[u8]) -> Vec<&[u8]> {
    input
        .chunk_by(|left, right| is_word(left) == is_word(right))
        .collect()
}

/// Splits lines, and the fields and elements of JSON.
fn fields(input: &[u8]) -> Vec<&[u8]> {
    let is_inside = |left: &u8, right: &u8| !b"\n,{[".contains(left) && !b"}]".contains(right);
    input.chunk_by(is_inside).collect()
}

/// Splits FastCGI records; the rest is split into words.
fn records(mut input: &[u8]) -> Vec<&[u8]> {
    let mut records = Vec::new();
    while let Some([1, _, _, _, high, low, padding, _]) = input.first_chunk() {
        let length = 8 + usize::from(u16::from_be_bytes([*high, *low])) + usize::from(*padding);
        let (record, rest) = input.split_at(length.min(input.len()));
        records.push(record);
        input = rest;
    }
    records.extend(words(input));
    records
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_mutations_keep_the_grammar() {
        let seed = |text: &str| text.as_bytes().to_vec();
        let seeds = [
            seed(r#"{"command":"resize","pool":"www","max":3}"#),
            seed(r#"{"command":"ping"}"#),
        ];
        let mut valid = 0;
        for number in 0..1000 {
            let mut input = seeds[0].clone();
            mutate(&mut input, &seeds, number);
            valid += usize::from(serde_json::from_slice::<serde_json::Value>(&input).is_ok());
        }
        assert!(valid > 300, "{valid}");
    }
}
