//! The frame around a hand-over document: a header with length and checksum.
//!
//! The master alternates between two copies and appends frames with changes to the newer one. If it is killed while
//! writing a copy, the other copy is still intact. If it is killed while appending a change, only that change is lost.

const MAGIC: [u8; 8] = *b"forkyard";
/// The frame's version, not the document's.
const FORMAT: u32 = 1;
/// Magic, format, checksum, sequence number, length.
const HEADER_BYTES: usize = 8 + 4 + 4 + 8 + 8;
/// The longest body. A hundred thousand workers take 20 MiB.
pub const MOST_BYTES: usize = 256 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("it does not begin as one")]
    Foreign,
    #[error("it has format {0}, not {FORMAT}")]
    Format(u32),
    #[error("it is cut short")]
    Short,
    #[error("its checksum is wrong")]
    Checksum,
}

/// Frames a body. The copy with the higher `sequence` is newer.
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

/// Returns a frame's sequence number and body. Bytes after the body are ignored.
///
/// # Errors
/// The frame is invalid.
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

/// Returns the first frame's sequence number and all consecutive bodies. Stops at the first frame that is invalid or
/// not newer than the one before: a remnant of earlier writes.
///
/// # Errors
/// The first frame is invalid.
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

fn after<'b>(bytes: &'b [u8], body: &[u8]) -> &'b [u8] {
    bytes.get(HEADER_BYTES + body.len()..).unwrap_or_default()
}

/// Covers the whole frame except the checksum.
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
