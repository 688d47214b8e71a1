//! Escapes text from outside, and shortens it where a line would be too long.

use forkyard_base::text::is_control;
use forkyard_config::access::Escape;
use std::io::Write;
use std::ops::Range;

const MARK: &[u8] = b"...";

pub(super) fn escape(text: &[u8], escape: Escape, line: &mut Vec<u8>) {
    match escape {
        Escape::Default => escape_default(text, line),
        Escape::Json => escape_json(text, line),
        Escape::None => line.extend_from_slice(text),
    }
}

fn escape_default(text: &[u8], line: &mut Vec<u8>) {
    for &byte in text {
        if byte < b' ' || matches!(byte, 0x7f | b'"' | b'\\') {
            let _ = write!(line, "\\x{byte:02X}");
        } else {
            line.push(byte);
        }
    }
}

/// Escapes the inside of a JSON string. Invalid UTF-8 becomes U+FFFD. Also escapes what a terminal or a line reader
/// might interpret.
fn escape_json(text: &[u8], line: &mut Vec<u8>) {
    for chunk in text.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '"' => line.extend_from_slice(b"\\\""),
                '\\' => line.extend_from_slice(b"\\\\"),
                '\n' => line.extend_from_slice(b"\\n"),
                '\r' => line.extend_from_slice(b"\\r"),
                '\t' => line.extend_from_slice(b"\\t"),
                c if is_control(c) => {
                    let _ = write!(line, "\\u{:04x}", u32::from(c));
                }
                c => line.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        if !chunk.invalid().is_empty() {
            line.extend_from_slice("\u{fffd}".as_bytes());
        }
    }
}

/// Shortens the texts of a JSON line, longest first, to `room` bytes. Cuts the line only if the rest alone is longer.
pub(super) fn fit(line: &mut Vec<u8>, texts: &[Range<usize>], room: usize) {
    let all: usize = texts.iter().map(ExactSizeIterator::len).sum();
    let Some(room_for_texts) = room.checked_sub(line.len() - all) else {
        line.truncate(room);
        return;
    };
    let most = share(texts, room_for_texts);
    let mut shorter = Vec::with_capacity(room);
    let mut at = 0;
    for text in texts {
        shorter.extend_from_slice(&line[at..text.start]);
        at = text.end;
        add_shortened(&line[text.clone()], most, &mut shorter);
    }
    shorter.extend_from_slice(&line[at..]);
    *line = shorter;
}

fn share(texts: &[Range<usize>], mut room: usize) -> usize {
    let mut lengths: Vec<usize> = texts.iter().map(ExactSizeIterator::len).collect();
    lengths.sort_unstable();
    let mut left = lengths.len();
    for length in lengths {
        if length > room / left {
            return room / left;
        }
        room -= length;
        left -= 1;
    }
    usize::MAX
}

fn add_shortened(text: &[u8], most: usize, line: &mut Vec<u8>) {
    if text.len() <= most {
        line.extend_from_slice(text);
        return;
    }
    let mark = &MARK[..MARK.len().min(most)];
    let (mut end, mut next) = (0, 0);
    while next <= most - mark.len() && next < text.len() {
        end = next;
        next += match text[next..] {
            [b'\\', b'u', ..] => 6,
            [b'\\', ..] => 2,
            [0xf0..=0xff, ..] => 4,
            [0xe0..=0xef, ..] => 3,
            [0xc0..=0xdf, ..] => 2,
            _ => 1,
        };
    }
    line.extend_from_slice(&text[..end]);
    line.extend_from_slice(mark);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &[u8]) -> Vec<u8> {
        let mut line = Vec::new();
        escape(text, Escape::Json, &mut line);
        line
    }

    fn read(inside: &[u8]) -> Option<String> {
        let text = [b"\"", inside, b"\""].concat();
        serde_json::from_slice(&text).ok()
    }

    #[test]
    fn every_byte_can_be_in_a_json_string() {
        for first in 0..=255_u8 {
            for second in 0..=255_u8 {
                let text = [b'a', first, second, b'z'];
                let said = read(&json(&text)).expect("JSON");
                assert_eq!(said, String::from_utf8_lossy(&text), "{text:?}");
                assert!(!json(&text).iter().any(|byte| *byte < b' ' || *byte == 0x7f));
            }
        }
        assert_eq!(json("\u{9b}\u{2028}".as_bytes()), b"\\u009b\\u2028");
    }

    #[test]
    fn a_text_is_cut_between_characters_and_escapes() {
        let text = json("a\"b\\c\n\u{1}\u{9b}\u{e4}\u{20ac}\u{1f600}z".as_bytes());
        for most in 0..text.len() + 2 {
            let mut line = Vec::new();
            add_shortened(&text, most, &mut line);
            assert!(line.len() <= most);
            let said = read(&line);
            assert!(said.is_some(), "{most}: {}", String::from_utf8_lossy(&line));
            assert_eq!(line == text, most >= text.len());
        }
    }

    #[test]
    fn the_longest_are_shortened_first() {
        let mut line = b"<aaaaaaaaaa|bb|cccccccccccccccccccc>".to_vec();
        let texts = [1..11, 12..14, 15..35];
        for room in 0..line.len() + 1 {
            let mut cut = line.clone();
            fit(&mut cut, &texts, room);
            assert!(cut.len() <= room);
            if room >= 4 {
                assert!(cut.starts_with(b"<") && cut.ends_with(b">"), "{room}");
            }
        }
        fit(&mut line, &texts, 26);
        assert_eq!(line, b"<aaaaaaaaaa|bb|ccccccc...>");
    }
}
