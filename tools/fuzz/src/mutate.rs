//! Mutates inputs; most results still fit the grammar.

use crate::random::Random;
use crate::{Grammar, Target};
use serde_json::Value;

/// Mutates `input`, with parts of `other`, an input of the same target. Deterministic for a seed.
pub fn mutate(input: &mut Vec<u8>, other: &[u8], target: &Target, seed: u64) {
    let mut random = Random::new(seed);
    let mut mutation = Mutation {
        other,
        words: target.words,
        random: &mut random,
    };
    for _ in 0..=mutation.random.below(3) {
        match target.grammar {
            _ if mutation.random.one_in(4) => mutation.bytes(input),
            Grammar::Records => mutation.records(input),
            Grammar::Lines => mutation.lines(input),
            Grammar::Json => mutation.json(input),
            Grammar::Bytes => mutation.bytes(input),
        }
    }
    input.truncate(target.most_bytes);
}

struct Mutation<'m> {
    other: &'m [u8],
    words: &'static [&'static str],
    random: &'m mut Random,
}

/// Numbers at overflows, sign changes and limits.
const EDGES: [i128; 16] = [
    0,
    1,
    2,
    -1,
    127,
    128,
    255,
    256,
    65_535,
    65_536,
    i32::MAX as i128,
    u32::MAX as i128,
    i64::MAX as i128,
    i64::MIN as i128,
    u64::MAX as i128,
    u64::MAX as i128 + 1,
];

impl Mutation<'_> {
    fn word(&mut self) -> Vec<u8> {
        match self.words {
            [] => self.random.bytes(8),
            words => self.random.pick(words).as_bytes().to_vec(),
        }
    }

    fn edge(&mut self) -> i128 {
        self.random.pick(&EDGES)
    }

    /// A random piece of at most `most` bytes.
    fn piece(&mut self, of: &[u8], most: usize) -> Vec<u8> {
        let from = self.random.below(of.len() + 1);
        let length = self.random.below(most.min(of.len() - from) + 1);
        of[from..from + length].to_vec()
    }

    fn bytes(&mut self, input: &mut Vec<u8>) {
        let at = self.random.below(input.len() + 1);
        let end = at + self.random.below(16.min(input.len() - at) + 1);
        let insert = |input: &mut Vec<u8>, bytes: Vec<u8>| drop(input.splice(at..at, bytes));
        match self.random.below(10) {
            0 if at < input.len() => input[at] = self.random.next() as u8,
            1 if at < input.len() => input[at] ^= 1 << self.random.below(8),
            2 if at < input.len() => input[at] = self.random.pick(&[0, 0x7f, 0x80, 0xff]),
            3 => drop(input.drain(at..end)),
            4 => input.truncate(at),
            5 => {
                let bytes = self.random.bytes(8);
                insert(input, bytes);
            }
            6 => {
                let own = input[at..end].to_vec();
                insert(input, own);
            }
            7 => {
                let other = self.piece(self.other, 64);
                insert(input, other);
            }
            8 => {
                let number = self.edge().to_string().into_bytes();
                insert(input, number);
            }
            _ => {
                let word = self.word();
                insert(input, word);
            }
        }
    }

    fn lines(&mut self, input: &mut Vec<u8>) {
        let mut lines: Vec<Vec<u8>> = input.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
        let at = self.random.below(lines.len());
        match self.random.below(8) {
            0 => drop(lines.remove(at)),
            1 => lines.insert(at, lines[at].clone()),
            2 => {
                let other = self.random.below(lines.len());
                lines.swap(at, other);
            }
            3 => {
                let others: Vec<&[u8]> = self.other.split(|byte| *byte == b'\n').collect();
                let line = self.random.pick(&others).to_vec();
                lines.insert(at, line);
            }
            4 => {
                let word = self.word();
                lines.insert(at, word);
            }
            5 | 6 => {
                let line = &mut lines[at];
                if let Some(sign) = line.iter().position(|byte| b"=: ".contains(byte)) {
                    line.truncate(sign + 1);
                }
                let value = match self.random.below(3) {
                    0 => self.edge().to_string().into_bytes(),
                    1 => self.piece(self.other, 20),
                    _ => self.word(),
                };
                lines[at].extend(value);
            }
            _ => self.bytes(&mut lines[at]),
        }
        *input = lines.join(&b'\n');
    }

    fn json(&mut self, input: &mut Vec<u8>) {
        let Ok(mut value) = serde_json::from_slice(input) else {
            return self.bytes(input);
        };
        let other = serde_json::from_slice(self.other).unwrap_or(Value::Null);
        self.value(&mut value, &other);
        *input = value.to_string().into_bytes();
    }

    /// Mutates a value, or one inside it.
    fn value(&mut self, value: &mut Value, other: &Value) {
        let goes_in = !self.random.one_in(4);
        match value {
            Value::Object(fields) if goes_in && !fields.is_empty() => {
                let at = self.random.below(fields.len());
                let Some(key) = fields.keys().nth(at).cloned() else {
                    return;
                };
                match self.random.below(8) {
                    0 => drop(fields.remove(&key)),
                    1 => {
                        let word = String::from_utf8_lossy(&self.word()).into_owned();
                        let moved = fields.remove(&key).unwrap_or_default();
                        fields.insert(word, moved);
                    }
                    2 => {
                        let word = String::from_utf8_lossy(&self.word()).into_owned();
                        let new = self.new_value(other);
                        fields.insert(word, new);
                    }
                    _ => {
                        let beside = other.get(&key).unwrap_or(other);
                        if let Some(inner) = fields.get_mut(&key) {
                            self.value(inner, beside);
                        }
                    }
                }
            }
            Value::Array(items) if goes_in && !items.is_empty() => {
                let at = self.random.below(items.len());
                match self.random.below(6) {
                    0 => drop(items.remove(at)),
                    1 => items.insert(at, items[at].clone()),
                    2 => {
                        let new = self.new_value(other);
                        items.push(new);
                    }
                    _ => self.value(&mut items[at], other.get(at).unwrap_or(other)),
                }
            }
            value => *value = self.new_value(other),
        }
    }

    fn new_value(&mut self, other: &Value) -> Value {
        match self.random.below(9) {
            0 => Value::Null,
            1 => Value::Bool(self.random.one_in(2)),
            2 | 3 => {
                let number = self.edge();
                let whole = i64::try_from(number).map(Value::from);
                whole
                    .or(u64::try_from(number).map(Value::from))
                    .unwrap_or_default()
            }
            4 => Value::from(self.random.next() as f64 / 7.0),
            5 => other.clone(),
            6 => Value::Array(vec![other.clone()]),
            7 => Value::String(String::from_utf8_lossy(&self.random.bytes(12)).into_owned()),
            _ => Value::String(String::from_utf8_lossy(&self.word()).into_owned()),
        }
    }

    fn records(&mut self, input: &mut Vec<u8>) {
        let mut records = split(input);
        if records.is_empty() {
            return self.bytes(input);
        }
        let at = self.random.below(records.len());
        match self.random.below(10) {
            0 => drop(records.remove(at)),
            1 => records.insert(at, records[at].clone()),
            2 => {
                let other = self.random.below(records.len());
                records.swap(at, other);
            }
            3 => {
                let others = split(self.other);
                if !others.is_empty() {
                    records.insert(at, others[self.random.below(others.len())].clone());
                }
            }
            4 => records[at].kind = self.random.below(13) as u8,
            5 => records[at].id = self.random.below(4) as u16,
            6 => {
                let padding = self.random.pick(&[0, 1, 7, 8, 255]);
                records[at].padding = vec![0xa5; padding];
            }
            7 => {
                let mut second = records[at].clone();
                let cut = self.random.below(second.content.len() + 1);
                second.content = records[at].content.split_off(cut);
                records.insert(at + 1, second);
            }
            8 => {
                let length = self.random.pick(&[0, 1, 7, 8, 9, 255, 256, 65_535]);
                records[at].said = Some(length);
            }
            _ => self.bytes(&mut records[at].content),
        }
        input.clear();
        for record in &records {
            record.encode(input);
        }
    }
}

#[derive(Clone)]
struct Record {
    version: u8,
    kind: u8,
    id: u16,
    content: Vec<u8>,
    padding: Vec<u8>,
    /// The header's length, if it is wrong.
    said: Option<u16>,
}

impl Record {
    fn encode(&self, wire: &mut Vec<u8>) {
        let length = self.said.unwrap_or(self.content.len() as u16);
        wire.extend([self.version, self.kind]);
        wire.extend(self.id.to_be_bytes());
        wire.extend(length.to_be_bytes());
        wire.extend([self.padding.len() as u8, 0]);
        wire.extend_from_slice(&self.content);
        wire.extend_from_slice(&self.padding);
    }
}

/// Splits an input into records; the last one may be cut.
fn split(mut wire: &[u8]) -> Vec<Record> {
    let mut records = Vec::new();
    while let Some((&[version, kind, a, b, c, d, padding, _], rest)) = wire.split_first_chunk() {
        let length = usize::from(u16::from_be_bytes([c, d])).min(rest.len());
        let (content, rest) = rest.split_at(length);
        let (padding, rest) = rest.split_at(usize::from(padding).min(rest.len()));
        records.push(Record {
            version,
            kind,
            id: u16::from_be_bytes([a, b]),
            content: content.to_vec(),
            padding: padding.to_vec(),
            said: None,
        });
        wire = rest;
    }
    records
}
