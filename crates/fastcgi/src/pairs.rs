//! Name-value pairs (section 3.4), which may be split across records anywhere.

use super::params::{Limits, Params, Repeated};

/// Encodes a pair; ignores one whose lengths exceed 31 bits.
pub fn append_pair(wire: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    let (Some(name_length), Some(value_length)) = (wire_length(name), wire_length(value)) else {
        return;
    };
    for length in [name_length, value_length] {
        match u8::try_from(length) {
            Ok(short) if short < LONG => wire.push(short),
            _ => wire.extend_from_slice(&(length | LONG_FLAG).to_be_bytes()),
        }
    }
    wire.extend_from_slice(name);
    wire.extend_from_slice(value);
}

fn wire_length(text: &[u8]) -> Option<u32> {
    u32::try_from(text.len())
        .ok()
        .filter(|length| length & LONG_FLAG == 0)
}

const LONG: u8 = 0x80;
const LONG_FLAG: u32 = 0x8000_0000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PairHead {
    pub(super) head: usize,
    pub(super) name: usize,
    pub(super) value: usize,
}

impl PairHead {
    #[inline]
    pub(super) fn decode(wire: &[u8]) -> Option<PairHead> {
        match *wire {
            [name, value, ..] if (name | value) & LONG == 0 => Some(PairHead {
                head: 2,
                name: usize::from(name),
                value: usize::from(value),
            }),
            _ => {
                let (name, first) = decode_length(wire)?;
                let (value, second) = decode_length(wire.get(first..)?)?;
                Some(PairHead {
                    head: first + second,
                    name,
                    value,
                })
            }
        }
    }

    /// 31-bit lengths can't overflow a 64-bit `usize`; saturates elsewhere.
    pub(super) fn total(self) -> usize {
        self.head.saturating_add(self.name).saturating_add(self.value)
    }
}

fn decode_length(wire: &[u8]) -> Option<(usize, usize)> {
    match *wire {
        [short, ..] if short & LONG == 0 => Some((usize::from(short), 1)),
        [first, second, third, fourth, ..] => Some((
            (u32::from_be_bytes([first, second, third, fourth]) & !LONG_FLAG) as usize,
            4,
        )),
        _ => None,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Excess {
    Bytes,
    Count,
}

#[derive(Debug)]
pub(super) struct Pairs {
    limits: Limits,
    pub(super) repeated: Repeated,
    bytes: usize,
    count: usize,
    /// An incomplete pair.
    carry: Vec<u8>,
}

/// Freed after the request if larger.
const KEPT_CARRY: usize = 64 * 1024;

impl Pairs {
    pub(super) fn memory(&self) -> usize {
        self.carry.capacity()
    }

    pub(super) fn new(limits: Limits) -> Pairs {
        Pairs {
            limits,
            repeated: Repeated::default(),
            bytes: 0,
            count: 0,
            carry: Vec::new(),
        }
    }

    pub(super) fn restart(&mut self) {
        (self.bytes, self.count) = (0, 0);
        self.carry.clear();
        if self.carry.capacity() > KEPT_CARRY {
            self.carry = Vec::new();
        }
    }

    pub(super) fn is_whole(&self) -> bool {
        self.carry.is_empty()
    }

    pub(super) fn receive(&mut self, mut piece: &[u8], params: &mut Params) -> Result<(), Excess> {
        while !self.carry.is_empty() && !piece.is_empty() {
            piece = self.complete(piece, params)?;
        }
        while let Some(pair) = PairHead::decode(piece) {
            self.check(pair)?;
            let Some((_, body)) = piece.split_at_checked(pair.head) else {
                break;
            };
            let Some((_, rest)) = piece.split_at_checked(pair.total()) else {
                break;
            };
            self.count_in(pair);
            params.set_from_wire(body, pair.name, pair.value, self.repeated);
            piece = rest;
        }
        self.carry.extend_from_slice(piece);
        Ok(())
    }

    fn complete<'p>(&mut self, piece: &'p [u8], params: &mut Params) -> Result<&'p [u8], Excess> {
        let Some(pair) = PairHead::decode(&self.carry) else {
            let (byte, rest) = piece.split_at(1);
            self.carry.extend_from_slice(byte);
            if let Some(pair) = PairHead::decode(&self.carry) {
                self.check(pair)?;
                self.store_if_complete(pair, params);
            }
            return Ok(rest);
        };
        let lacking = pair.total().saturating_sub(self.carry.len());
        let (more, rest) = piece.split_at(lacking.min(piece.len()));
        self.carry.extend_from_slice(more);
        self.store_if_complete(pair, params);
        Ok(rest)
    }

    fn store_if_complete(&mut self, pair: PairHead, params: &mut Params) {
        if self.carry.len() == pair.total() {
            self.count_in(pair);
            params.set_from_wire(&self.carry[pair.head..], pair.name, pair.value, self.repeated);
            self.carry.clear();
        }
    }

    fn check(&self, pair: PairHead) -> Result<(), Excess> {
        if self.count >= self.limits.params_count {
            return Err(Excess::Count);
        }
        match self.bytes.checked_add(pair.total() - pair.head) {
            Some(bytes) if bytes <= self.limits.params_bytes => Ok(()),
            _ => Err(Excess::Bytes),
        }
    }

    fn count_in(&mut self, pair: PairHead) {
        self.bytes += pair.name + pair.value;
        self.count += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(wire: &[u8], cut: usize, limits: Limits) -> Result<Params, Excess> {
        let (mut pairs, mut params) = (Pairs::new(limits), Params::new());
        for piece in wire.chunks(cut) {
            pairs.receive(piece, &mut params)?;
        }
        assert!(pairs.is_whole());
        Ok(params)
    }

    #[test]
    fn a_pair_may_be_cut_anywhere() {
        let long = vec![b'v'; 300];
        let mut wire = Vec::new();
        append_pair(&mut wire, b"SHORT", b"value");
        append_pair(&mut wire, b"LONG", &long);
        append_pair(&mut wire, &long, b"");
        append_pair(&mut wire, b"", b"");
        append_pair(&mut wire, &[b'x'; 127], &[b'y'; 128]);
        for cut in 1..=wire.len() {
            let params = decoded(&wire, cut, Limits::default()).unwrap();
            assert_eq!(params.len(), 5, "cut at {cut}");
            assert_eq!(params.get(b"SHORT"), Some(&b"value"[..]));
            assert_eq!(params.get(b"LONG"), Some(&long[..]));
            assert_eq!(params.get(&long), Some(&b""[..]));
            assert_eq!(params.get(&[b'x'; 127]), Some(&[b'y'; 128][..]));
        }
    }

    #[test]
    fn the_limits_are_exact_and_count_repetitions() {
        let mut wire = Vec::new();
        append_pair(&mut wire, b"ab", b"cd");
        append_pair(&mut wire, b"ab", b"cd");
        for cut in 1..=wire.len() {
            let refused = |params_bytes, params_count| {
                decoded(
                    &wire,
                    cut,
                    Limits {
                        params_bytes,
                        params_count,
                    },
                )
                .err()
            };
            assert_eq!(refused(8, 2), None);
            assert_eq!(refused(7, 2), Some(Excess::Bytes));
            assert_eq!(refused(8, 1), Some(Excess::Count));
        }
    }

    #[test]
    fn a_huge_length_is_refused_before_its_bytes_come() {
        let (mut pairs, mut params) = (Pairs::new(Limits::default()), Params::new());
        let wire = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, b'x'];
        assert_eq!(pairs.receive(&wire, &mut params), Err(Excess::Bytes));
    }
}
