//! Fuzz targets for a program's answers, requests to it, and the shared table.

use super::answer::{HttpAnswer, Malformed, Part};
use super::head::{Framing, write};
use super::table::{ProcessEntry, Table, words};
use fastcgi::Params;
use forkyard_config::Address;
use forkyard_fuzz::{in_pieces, words_of};

#[derive(Debug, PartialEq)]
struct Read {
    head: Option<Vec<u8>>,
    body: Vec<u8>,
    ended: bool,
    may_end: bool,
    keeps: bool,
    wrong: Option<Malformed>,
}

struct Reader {
    answer: HttpAnswer,
    kept: Vec<u8>,
    read: Read,
}

impl Reader {
    fn new(is_head: bool) -> Reader {
        Reader {
            answer: HttpAnswer::new(is_head, false),
            kept: Vec::new(),
            read: Read {
                head: None,
                body: Vec::new(),
                ended: false,
                may_end: false,
                keeps: false,
                wrong: None,
            },
        }
    }

    fn take(&mut self, piece: &[u8]) {
        self.kept.extend_from_slice(piece);
        while self.read.wrong.is_none() && !self.read.ended {
            let (used, part) = match self.answer.take(&self.kept) {
                Ok(taken) => taken,
                Err(malformed) => {
                    self.read.wrong = Some(malformed);
                    break;
                }
            };
            assert!(used <= self.kept.len());
            let is_done = used == 0 && part == Part::More;
            match part {
                Part::More => {}
                Part::Head(head) => assert_eq!(self.read.head.replace(head), None, "two heads"),
                Part::Body(range) => {
                    assert!(range.end <= used, "a body beyond what was used");
                    self.read.body.extend_from_slice(&self.kept[range]);
                }
                Part::End => self.read.ended = true,
            }
            self.kept.drain(..used);
            if is_done {
                break;
            }
        }
        assert_eq!(self.answer.has_begun(), self.read.head.is_some());
    }

    fn end(mut self) -> Read {
        self.read.may_end = self.answer.may_end();
        self.read.keeps = self.answer.keeps();
        self.read
    }
}

fn read(input: &[u8], is_head: bool) -> Read {
    let mut reader = Reader::new(is_head);
    reader.take(input);
    reader.end()
}

/// Pieces of any size yield the same answer. Its head has one field per line and no connection fields; a length that is
/// passed on is the body's. The output parses to itself.
pub(crate) fn answer(input: &[u8]) {
    for is_head in [false, true] {
        let whole = read(input, is_head);
        let mut pieces = Reader::new(is_head);
        in_pieces(input, |piece| pieces.take(piece));
        let pieces = pieces.end();
        if whole.wrong.is_none() {
            assert_eq!(whole, pieces);
        } else {
            assert_eq!((&whole.head, &whole.wrong), (&pieces.head, &pieces.wrong));
        }
        assert!(!whole.keeps || whole.ended, "kept before its end");
        if let Some(head) = &whole.head {
            check(head, &whole, is_head);
        }
    }
}

fn check(head: &[u8], read: &Read, is_head: bool) {
    let fields = head.strip_suffix(b"\r\n\r\n").expect("an empty line at the end");
    let lines: Vec<&[u8]> = fields.split(|byte| *byte == b'\n').collect();
    let mut lengths = Vec::new();
    let mut rebuilt = Vec::new();
    for (number, line) in lines.iter().enumerate() {
        let is_last = number + 1 == lines.len();
        let line = if is_last {
            line
        } else {
            line.strip_suffix(b"\r").expect("CR LF")
        };
        assert!(!line.contains(&b'\r') && !line.contains(&0), "{line:?}");
        let colon = line.iter().position(|byte| *byte == b':').expect("a field");
        let (name, value) = (line[..colon].to_ascii_lowercase(), line[colon + 1..].trim_ascii());
        assert_eq!(number == 0, name == b"status" && number == 0);
        let hop: [&[u8]; 6] = [
            b"connection",
            b"keep-alive",
            b"te",
            b"trailer",
            b"transfer-encoding",
            b"upgrade",
        ];
        assert!(!hop.contains(&&*name), "{line:?}");
        if name == b"content-length" {
            lengths.push(value.to_vec());
        }
        if number == 0 {
            rebuilt.extend_from_slice(b"HTTP/1.1 ");
            rebuilt.extend_from_slice(value);
        } else {
            rebuilt.extend_from_slice(line);
        }
        rebuilt.extend_from_slice(b"\r\n");
    }
    assert!(lengths.windows(2).all(|pair| pair[0] == pair[1]), "two lengths");
    if let Some(length) = lengths.first() {
        assert!(
            length.iter().all(u8::is_ascii_digit),
            "{:?}",
            length.escape_ascii().to_string()
        );
        let number = std::str::from_utf8(length)
            .ok()
            .and_then(|text| text.parse::<u64>().ok());
        let is_empty = is_head || head.starts_with(b"Status: 304") || head.starts_with(b"Status: 204");
        if read.ended && !is_empty {
            assert_eq!(
                number,
                Some(read.body.len() as u64),
                "the length that is passed on"
            );
        }
    } else {
        rebuilt.extend_from_slice(format!("Content-Length: {}\r\n", read.body.len()).as_bytes());
    }
    rebuilt.extend_from_slice(b"\r\n");
    rebuilt.extend_from_slice(&read.body);
    if read.ended && !is_head {
        let again = self::read(&rebuilt, false);
        assert!(again.ended && again.wrong.is_none(), "{again:?}");
        assert_eq!(again.body, read.body);
    }
}

pub(crate) fn request(input: &[u8]) {
    let mut params = Params::new();
    for line in input.split(|byte| *byte == b'\n') {
        let equals = line.iter().position(|byte| *byte == b'=').unwrap_or(line.len());
        params.set(&line[..equals], line.get(equals + 1..).unwrap_or_default());
    }
    let (head, framing) = write(&params);
    let mut fields = vec![httparse::EMPTY_HEADER; 64 + params.len()];
    let mut request = httparse::Request::new(&mut fields);
    let parsed = request.parse(&head);
    let Ok(parsed) = parsed else {
        assert!(
            head.iter()
                .any(|byte| byte.is_ascii_control() && !b"\r\n\t".contains(byte))
                || has_odd_target(&head)
        );
        return;
    };
    assert_eq!(parsed, httparse::Status::Complete(head.len()), "one request");
    let count = |name: &str| {
        let is = |field: &&httparse::Header<'_>| field.name.replace('_', "-").eq_ignore_ascii_case(name);
        request.headers.iter().filter(is).count()
    };
    assert_eq!(count("Host"), 1);
    for name in [
        "Content-Length",
        "Content-Type",
        "Transfer-Encoding",
        "X-Real-IP",
        "X-Forwarded-For",
        "X-Forwarded-Host",
    ] {
        assert!(count(name) <= 1, "{name}");
    }
    assert_eq!(count("X-Forwarded-Proto"), 1);
    for name in ["Expect", "Proxy", "Te", "Trailer", "X-Forwarded-Port"] {
        assert_eq!(count(name), 0, "{name}");
    }
    for name in ["Connection", "Upgrade"] {
        assert_eq!(count(name), usize::from(framing == Framing::Upgrade), "{name}");
    }
    let framed = (count("Content-Length"), count("Transfer-Encoding"));
    let expected = match framing {
        Framing::Nothing | Framing::Upgrade => (0, 0),
        Framing::Length(_) => (1, 0),
        Framing::Chunked => (0, 1),
    };
    assert_eq!(framed, expected);
}

fn has_odd_target(head: &[u8]) -> bool {
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    std::str::from_utf8(line).is_err() || line.starts_with(b" ")
}

/// Any worker of the pool can write these words. Reading them yields an address or `None`, and counting changes only
/// counts.
pub(crate) fn table(input: &[u8]) {
    let words = words_of(input, words(3, 6));
    let table = Table::new(&words, 3);
    let _ = (
        table.failure(),
        table.choose(usize::from(input.first().copied().unwrap_or(0)), &[]),
    );
    for slot in 0..6 {
        table.release_slot(slot);
    }
    for index in [0, 1, 2, 3, usize::MAX / 64] {
        let _ = (table.sessions(index), table.served(index));
        for life in [0, 1, u32::MAX] {
            let entry = ProcessEntry { index, life };
            let before = table.sessions(index);
            if table.take(0, entry) {
                assert_eq!(table.sessions(index), before + 1);
                table.give(0, entry);
                assert_eq!(table.sessions(index), before);
            }
            if let Some(Address::Unix(path)) = table.address(entry) {
                assert!(path.is_absolute());
            }
        }
    }
    let address = Address::Tcp(([127, 0, 0, 1], 80).into());
    if table.publish(1, &address, 1) {
        let entry = table.choose(1, &[]).expect("one is up");
        assert!(table.lives(entry));
        table.withdraw(1);
    }
}
