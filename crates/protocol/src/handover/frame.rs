//! How a document lies in memory: a line that says what follows and how to tell that all of it is there.
//!
//! A master that keeps its document up to date has two copies and writes them in turn. Killed in the middle of one it has
//! spoilt that one only, and the other says what was so before. Behind a copy come frames with what has changed since. Killed in
//! the middle of one of these, the master has spoilt what it said last.

use std::fmt;

/// The first bytes.
const MAGIC: [u8; 8] = *b"forkyard";
/// Of this format, not of the document in it.
const FORMAT: u32 = 1;
/// Magic, format, checksum, sequence number, length.
const HEADER_BYTES: usize = 8 + 4 + 4 + 8 + 8;
/// The longest body: a hundred thousand workers take 20 MiB.
pub const MOST_BYTES: usize = 256 << 20;

/// Why a frame is not to be believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameError {
    /// It does not begin as a frame does.
    Foreign,
    /// It is of a format that this program does not know.
    Format(u32),
    /// It is shorter than it says.
    Short,
    /// The checksum is not that of what is there.
    Checksum,
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FrameError::Foreign => f.write_str("it does not begin as one"),
            FrameError::Format(format) => write!(f, "it has format {format}, not {FORMAT}"),
            FrameError::Short => f.write_str("it is cut short"),
            FrameError::Checksum => f.write_str("its checksum is wrong"),
        }
    }
}

impl std::error::Error for FrameError {}

/// Puts a body into a frame. `sequence`: of two copies the one with the higher number is the newer.
pub fn encode(sequence: u64, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES + body.len());
    bytes.extend(MAGIC);
    bytes.extend(FORMAT.to_le_bytes());
    bytes.extend(0_u32.to_le_bytes());
    bytes.extend(sequence.to_le_bytes());
    bytes.extend((body.len() as u64).to_le_bytes());
    bytes.extend(body);
    let checksum = checksum(&bytes);
    bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// Takes a body out of its frame, with its sequence number. What follows the body is not looked at.
///
/// # Errors
/// The bytes are no whole frame.
pub fn decode(bytes: &[u8]) -> Result<(u64, &[u8]), FrameError> {
    let header = bytes.get(..HEADER_BYTES).ok_or(FrameError::Short)?;
    if header[..8] != MAGIC {
        return Err(FrameError::Foreign);
    }
    let format = word(&header[8..12]);
    if format != FORMAT {
        return Err(FrameError::Format(format));
    }
    let (sequence, length) = (long(&header[16..24]), long(&header[24..32]));
    let end = usize::try_from(length)
        .ok()
        .filter(|length| *length <= MOST_BYTES)
        .map(|length| HEADER_BYTES + length)
        .ok_or(FrameError::Short)?;
    let frame = bytes.get(..end).ok_or(FrameError::Short)?;
    if word(&header[12..16]) != checksum(frame) {
        return Err(FrameError::Checksum);
    }
    Ok((sequence, &frame[HEADER_BYTES..]))
}

/// The bodies of frames that stand one behind the other, with the number of the first. They end with
/// the first that is not whole, or is not newer than the one before it: a remnant of what was there earlier.
///
/// # Errors
/// The bytes do not begin with a whole frame.
pub fn decode_all(bytes: &[u8]) -> Result<(u64, Vec<&[u8]>), FrameError> {
    let (first, body) = decode(bytes)?;
    let (mut bodies, mut last, mut rest) = (vec![body], first, after(bytes, body));
    while let Ok((sequence, body)) = decode(rest) {
        if sequence <= last {
            break;
        }
        bodies.push(body);
        (last, rest) = (sequence, after(rest, body));
    }
    Ok((first, bodies))
}

/// What follows the frame of this body, with which `bytes` begin.
fn after<'b>(bytes: &'b [u8], body: &[u8]) -> &'b [u8] {
    bytes.get(HEADER_BYTES + body.len()..).unwrap_or_default()
}

/// Of the whole frame without the checksum itself.
fn checksum(frame: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&frame[..12]);
    hasher.update(&frame[16..]);
    hasher.finalize()
}

fn word(bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .rev()
        .fold(0, |word, byte| word << 8 | u32::from(*byte))
}

fn long(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .rev()
        .fold(0, |word, byte| word << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_in_comes_out() {
        let mut bytes = encode(7, b"{}");
        assert_eq!(decode(&bytes), Ok((7, &b"{}"[..])));
        bytes.extend(b"the rest of a longer one that was there before");
        assert_eq!(decode(&bytes), Ok((7, &b"{}"[..])));
    }

    #[test]
    fn every_bit_counts() {
        let good = encode(0x0102_0304_0506, b"{\"version\":1}");
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&bad).is_err(), "bit {bit}");
        }
        for length in 0..good.len() {
            assert!(decode(&good[..length]).is_err(), "{length} bytes");
        }
    }

    #[test]
    fn frames_follow_one_another_up_to_what_is_older_or_not_whole() {
        let frames = [(4, "a"), (5, "bc"), (9, ""), (7, "old"), (10, "after it")];
        let bytes: Vec<u8> = frames
            .iter()
            .flat_map(|(sequence, body)| encode(*sequence, body.as_bytes()))
            .collect();
        assert_eq!(decode_all(&bytes), Ok((4, vec![&b"a"[..], b"bc", b""])));
        let whole = 2 * HEADER_BYTES + 3;
        for length in 0..whole {
            let expected = match length {
                0..=HEADER_BYTES => Err(FrameError::Short),
                _ => Ok((4, vec![&b"a"[..]])),
            };
            assert_eq!(decode_all(&bytes[..length]), expected, "{length} bytes");
        }
        assert_eq!(decode_all(&bytes[..whole]), Ok((4, vec![&b"a"[..], b"bc"])));
    }

    #[test]
    fn half_of_a_new_one_over_an_old_one_is_neither() {
        let (old, new) = (encode(1, &[b'o'; 100]), encode(2, &[b'n'; 80]));
        for written in 1..new.len() {
            let mut torn = old.clone();
            torn[..written].copy_from_slice(&new[..written]);
            let is_old_prefix = new[..written] == old[..written];
            assert!(is_old_prefix || decode(&torn).is_err(), "{written} bytes written");
        }
    }
}
