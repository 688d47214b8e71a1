//! Incremental parser for the header of a CGI answer (RFC 3875 sections 5 and 6).

use crate::is_token;

const MOST_BYTES: usize = 64 * 1024;
const SHOWN_BYTES: usize = 120;

/// Fields of one connection, which a program must not set (RFC 3875 section 6.3.4, RFC 9110 section 7.6.1).
const HOP_BY_HOP: &[&str] = &[
    "connection",
    "keep-alive",
    "transfer-encoding",
    "upgrade",
    "trailer",
];

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Malformed {
    #[error("it wrote nothing; a header and an empty line were expected")]
    Empty,
    #[error("its output ended within the header: no empty line follows it")]
    Ended,
    #[error("its header is longer than {MOST_BYTES} bytes")]
    TooLong,
    #[error("a line of its header is not \"Name: value\": {0:?}")]
    Line(String),
    #[error(
        "its Status is {0:?}; three digits from 100, a space and a reason are expected, such as \"404 Not Found\""
    )]
    Status(String),
    #[error("its Content-Length is {0:?}; the number of bytes is expected, in digits")]
    Length(String),
    #[error("its header has no Content-Type, Location or Status; one is required")]
    NoField,
}

pub(super) type Whole<'b> = (Vec<u8>, &'b [u8]);

#[derive(Debug)]
pub(super) struct Head {
    read: Vec<u8>,
    /// The program sends a full HTTP header ("non-parsed header").
    is_http: bool,
}

impl Head {
    pub(super) fn new(is_http: bool) -> Head {
        Head {
            read: Vec::new(),
            is_http,
        }
    }

    /// Parses the next bytes. Returns the header and the rest of `bytes` once the header is complete.
    pub(super) fn take<'b>(&mut self, bytes: &'b [u8]) -> Result<Option<Whole<'b>>, Malformed> {
        let before = self.read.len();
        self.read.extend_from_slice(bytes);
        let Some(end) = end_of_header(&self.read, before.saturating_sub(3)) else {
            if self.read.len() > MOST_BYTES {
                return Err(Malformed::TooLong);
            }
            return Ok(None);
        };
        let header = self.rewrite(&self.read[..end])?;
        Ok(Some((header, &bytes[end - before..])))
    }

    pub(super) fn ended(&self) -> Malformed {
        match self.read.is_empty() {
            true => Malformed::Empty,
            false => Malformed::Ended,
        }
    }

    fn rewrite(&self, header: &[u8]) -> Result<Vec<u8>, Malformed> {
        let mut rewritten = Vec::with_capacity(header.len() + 16);
        let mut has_field = false;
        let lines = header
            .split(|byte| *byte == b'\n')
            .map(|line| line.strip_suffix(b"\r").unwrap_or(line));
        for (number, line) in lines.filter(|line| !line.is_empty()).enumerate() {
            if number == 0 && self.is_http {
                let status = http_status(line).ok_or_else(|| wrong(line))?;
                rewritten.extend_from_slice(b"Status: ");
                rewritten.extend_from_slice(status);
                rewritten.extend_from_slice(b"\r\n");
                has_field = true;
                continue;
            }
            let name = field_name(line).ok_or_else(|| wrong(line))?;
            let is = |other: &&str| name.eq_ignore_ascii_case(other.as_bytes());
            if self.is_http && HOP_BY_HOP.iter().any(is) {
                continue;
            }
            let value = line[name.len() + 1..].trim_ascii();
            if is(&"status") && !is_status(value) {
                return Err(Malformed::Status(shown(value)));
            }
            if is(&"content-length") && (value.is_empty() || !value.iter().all(u8::is_ascii_digit)) {
                return Err(Malformed::Length(shown(value)));
            }
            has_field |= ["content-type", "location", "status"].iter().any(is);
            rewritten.extend_from_slice(line);
            rewritten.extend_from_slice(b"\r\n");
        }
        if !has_field {
            return Err(Malformed::NoField);
        }
        rewritten.extend_from_slice(b"\r\n");
        Ok(rewritten)
    }
}

/// The offset of the body, after the first empty line (LF or CR LF).
fn end_of_header(bytes: &[u8], from: usize) -> Option<usize> {
    if bytes.first() == Some(&b'\n') {
        return Some(1);
    }
    if bytes.starts_with(b"\r\n") {
        return Some(2);
    }
    (from..bytes.len())
        .filter(|at| bytes[*at] == b'\n')
        .find_map(|at| match bytes.get(at + 1) {
            Some(b'\n') => Some(at + 2),
            Some(b'\r') if bytes.get(at + 2) == Some(&b'\n') => Some(at + 3),
            _ => None,
        })
}

/// The field name: a token before a colon (RFC 9110 section 5.6.2).
fn field_name(line: &[u8]) -> Option<&[u8]> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    let name = &line[..colon];
    let is_clean = !line.contains(&0) && !line.contains(&b'\r');
    (!name.is_empty() && name.iter().all(|byte| is_token(*byte)) && is_clean).then_some(name)
}

/// The code and reason of a status line (RFC 9112 section 4).
fn http_status(line: &[u8]) -> Option<&[u8]> {
    let rest = line.strip_prefix(b"HTTP/")?;
    let space = rest.iter().position(|byte| *byte == b' ')?;
    let status = rest[space + 1..].trim_ascii();
    (is_status(status) && !status.contains(&b'\r') && !status.contains(&0)).then_some(status)
}

/// Whether a status begins with three digits from 100 and an optional reason follows.
fn is_status(status: &[u8]) -> bool {
    let (code, reason) = status.split_at(status.len().min(3));
    let is_code = code.len() == 3 && code[0] != b'0' && code.iter().all(u8::is_ascii_digit);
    is_code && reason.first().is_none_or(|byte| *byte == b' ')
}

fn wrong(line: &[u8]) -> Malformed {
    Malformed::Line(shown(line))
}

fn shown(text: &[u8]) -> String {
    String::from_utf8_lossy(&text[..text.len().min(SHOWN_BYTES)]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(is_http: bool, pieces: &[&str]) -> Result<(String, String), Malformed> {
        let mut head = Head::new(is_http);
        for (number, piece) in pieces.iter().enumerate() {
            if let Some((header, rest)) = head.take(piece.as_bytes())? {
                let body = [rest, pieces[number + 1..].concat().as_bytes()].concat();
                let text = |bytes| String::from_utf8(bytes).unwrap();
                return Ok((text(header), text(body)));
            }
        }
        Err(head.ended())
    }

    #[test]
    fn a_header_is_read_from_any_pieces() {
        let answer = "Content-Type: text/plain\nX-A: b\r\n\r\nbody\n\nmore";
        let wanted = (
            "Content-Type: text/plain\r\nX-A: b\r\n\r\n".to_owned(),
            "body\n\nmore".to_owned(),
        );
        assert_eq!(read(false, &[answer]), Ok(wanted.clone()));
        for cut in 1..answer.len() {
            let (a, b) = answer.split_at(cut);
            assert_eq!(read(false, &[a, b]), Ok(wanted.clone()), "cut at {cut}");
        }
        let letters: Vec<&str> = answer.split("").collect();
        assert_eq!(read(false, &letters), Ok(wanted));
    }

    #[test]
    fn what_is_no_header_is_told() {
        assert_eq!(read(false, &[]), Err(Malformed::Empty));
        assert_eq!(read(false, &["Status: 200\n"]), Err(Malformed::Ended));
        assert_eq!(read(false, &["hello\n\n"]), Err(Malformed::Line("hello".into())));
        assert_eq!(
            read(false, &["a b: c\n\n"]),
            Err(Malformed::Line("a b: c".into()))
        );
        assert_eq!(read(false, &["X-A: b\n\n"]), Err(Malformed::NoField));
        for status in ["OK", "", "20", "2000 OK", "099 Low", "200OK", "-20 x"] {
            let text = format!("Status: {status}\n\n");
            assert_eq!(read(false, &[&text]), Err(Malformed::Status(status.into())));
        }
        for length in ["five", "", "-5", "+5", "5 6"] {
            let text = format!("Content-Type: a/b\nContent-Length: {length}\n\n");
            assert_eq!(read(false, &[&text]), Err(Malformed::Length(length.into())));
        }
        let fine = read(false, &["Status:204\nContent-Length: 0 \n\n"]);
        assert_eq!(
            fine.map(|(header, _)| header),
            Ok("Status:204\r\nContent-Length: 0 \r\n\r\n".into())
        );
        assert_eq!(read(false, &["\nbody"]), Err(Malformed::NoField));
        let long = "a".repeat(MOST_BYTES + 1);
        assert_eq!(read(false, &[&long]), Err(Malformed::TooLong));
    }

    #[test]
    fn a_program_that_speaks_http_is_put_into_cgis_words() {
        let answer = "HTTP/1.0 404 Not here\r\nConnection: close\r\nContent-Type: text/html\r\n\r\n<p>";
        let header = "Status: 404 Not here\r\nContent-Type: text/html\r\n\r\n";
        assert_eq!(read(true, &[answer]), Ok((header.into(), "<p>".into())));
        assert!(matches!(
            read(true, &["Status: 200\n\n"]),
            Err(Malformed::Line(_))
        ));
    }
}
