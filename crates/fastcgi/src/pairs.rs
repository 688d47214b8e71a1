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
    pub(super) limits: Limits,
    pub(super) repeated: Repeated,
    /// Names and values that may still come.
    bytes_left: usize,
    count_left: usize,
    /// Received bytes that are decoded.
    pub(super) decoded: usize,
}

impl Pairs {
    pub(super) fn new(limits: Limits) -> Pairs {
        Pairs {
            limits,
            repeated: Repeated::default(),
            bytes_left: limits.params_bytes,
            count_left: limits.params_count,
            decoded: 0,
        }
    }

    pub(super) fn restart(&mut self) {
        (self.bytes_left, self.count_left) = (self.limits.params_bytes, self.limits.params_count);
        self.decoded = 0;
    }

    pub(super) fn is_whole(&self, params: &Params) -> bool {
        self.decoded == params.received()
    }

    #[inline]
    pub(super) fn check(&self, pair: PairHead) -> Result<(), Excess> {
        if self.count_left == 0 {
            return Err(Excess::Count);
        }
        if pair.name.saturating_add(pair.value) > self.bytes_left {
            return Err(Excess::Bytes);
        }
        Ok(())
    }

    #[inline]
    pub(super) fn count_in(&mut self, pair: PairHead) {
        self.bytes_left -= pair.name + pair.value;
        self.count_left -= 1;
        self.decoded += pair.total();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(wire: &[u8], cut: usize, limits: Limits) -> Result<Params, Excess> {
        let (mut pairs, mut params) = (Pairs::new(limits), Params::new());
        for piece in wire.chunks(cut) {
            params.receive(piece, &mut pairs)?;
        }
        assert!(pairs.is_whole(&params));
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
        assert_eq!(params.receive(&wire, &mut pairs), Err(Excess::Bytes));
    }
}
