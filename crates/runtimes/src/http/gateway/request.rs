//! Parses an HTTP request and rewrites it for a process: new head, framed body.
//!
//! A process gets one request per connection, so data hidden after the body never arrives.

use super::super::answer::{names, number};
use super::super::chunks::{Chunks, Piece};
use super::super::head::is_passed;
use fastcgi::Params;

const MOST_BYTES: usize = 64 * 1024;
const MOST_FIELDS: usize = 128;
const TRUSTED: &[&str] = &[
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-real-ip",
];

#[derive(Debug)]
pub(super) struct Head {
    pub(super) bytes: Vec<u8>,
    pub(super) used: usize,
    pub(super) body: Body,
    pub(super) is_upgrade: bool,
    pub(super) params: Params,
}

/// Reads a head. `None`: it is not complete.
pub(super) fn read(bytes: &[u8]) -> Result<Option<Head>, &'static str> {
    let mut fields = [httparse::EMPTY_HEADER; MOST_FIELDS];
    let mut request = httparse::Request::new(&mut fields);
    let used = match request.parse(bytes) {
        Ok(httparse::Status::Complete(used)) => used,
        Ok(httparse::Status::Partial) if bytes.len() > MOST_BYTES => {
            return Err("its head is too long");
        }
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err("it is not HTTP"),
    };
    write(&request, used).map(Some)
}

fn write(request: &httparse::Request<'_, '_>, used: usize) -> Result<Head, &'static str> {
    let (Some(method), Some(target), Some(version)) = (request.method, request.path, request.version) else {
        return Err("it is not HTTP");
    };
    if !target.starts_with('/') && target != "*" {
        return Err("its target is no path");
    }
    let mut head = format!("{method} {target} HTTP/1.{version}\r\n").into_bytes();
    let mut params = Params::new();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    for (name, value) in [
        ("REQUEST_METHOD", method),
        ("REQUEST_URI", target),
        ("SCRIPT_NAME", path),
        ("QUERY_STRING", query),
    ] {
        params.set(name.as_bytes(), value.as_bytes());
    }
    let (mut length, mut chunked, mut host, mut upgrade, mut wants_upgrade) =
        (None, false, None, None, false);
    let mut said = [false; TRUSTED.len()];
    for field in request.headers.iter() {
        let is = |name: &str| field.name.eq_ignore_ascii_case(name);
        let mut pass = |value: &[u8]| {
            head.extend_from_slice(field.name.as_bytes());
            head.extend_from_slice(b": ");
            head.extend_from_slice(value);
            head.extend_from_slice(b"\r\n");
        };
        let plain = parameter(field.name);
        if is("host") {
            if host.replace(field.value).is_some() {
                return Err("it has more than one Host");
            }
            pass(field.value);
        } else if is("content-length") {
            let number = number(field.value).ok_or("its Content-Length is no number")?;
            if length.replace(number).is_some() {
                return Err("it has more than one Content-Length");
            }
        } else if is("transfer-encoding") {
            if chunked || !field.value.trim_ascii().eq_ignore_ascii_case(b"chunked") {
                return Err("it has a Transfer-Encoding other than \"chunked\"");
            }
            chunked = true;
        } else if is("content-type") {
            pass(field.value);
        } else if is("connection") {
            wants_upgrade |= names(field.value, "upgrade");
        } else if is("upgrade") {
            upgrade = Some(field.value);
        } else if let Some(at) = TRUSTED.iter().position(|name| is(name)) {
            if !std::mem::replace(&mut said[at], true) {
                pass(field.value);
            }
        } else if is_passed(&plain) {
            pass(field.value);
        } else {
            continue;
        }
        params.set(&[b"HTTP_", &*plain].concat(), field.value);
    }
    if host.is_none() && version > 0 {
        return Err("it has no Host");
    }
    let body = match (length, chunked) {
        // Two lengths are ambiguous, and HTTP/1.0 has no Transfer-Encoding (RFC 9112 section 6).
        (_, true) if version == 0 => return Err("it has a Transfer-Encoding, which HTTP/1.0 has not"),
        (Some(_), true) => return Err("it has both Content-Length and Transfer-Encoding"),
        (None, true) => {
            head.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
            Body::Chunked(Chunks::Size)
        }
        (Some(length), false) => {
            head.extend_from_slice(format!("Content-Length: {length}\r\n").as_bytes());
            params.set(b"CONTENT_LENGTH", length.to_string().as_bytes());
            Body::Length(length)
        }
        (None, false) => Body::Length(0),
    };
    // For other protocols (h2c) a tunnel would hide requests from the web server.
    let is_upgrade =
        upgrade.is_some_and(|protocols| names(protocols, "websocket")) && wants_upgrade && version > 0;
    match is_upgrade {
        true => head.extend_from_slice(b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"),
        false => head.extend_from_slice(b"Connection: close\r\n\r\n"),
    }
    Ok(Head {
        bytes: head,
        used,
        body,
        is_upgrade,
        params,
    })
}

fn parameter(name: &str) -> Vec<u8> {
    let letter = |byte: u8| match byte {
        b'-' => b'_',
        other => other.to_ascii_uppercase(),
    };
    name.bytes().map(letter).collect()
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Body {
    Length(u64),
    Chunked(Chunks),
}

impl Body {
    pub(super) fn has_ended(&self) -> bool {
        matches!(self, Body::Length(0) | Body::Chunked(Chunks::Over))
    }

    /// Copies the body's bytes to `out` and returns how many were used. `None`: invalid. Pass the rest again with more
    /// input.
    pub(super) fn take(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Option<usize> {
        match self {
            Body::Length(left) => {
                let count = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                out.extend_from_slice(&bytes[..count]);
                *left -= count as u64;
                Some(count)
            }
            Body::Chunked(chunks) => {
                let mut used = 0;
                while let Some(piece) = chunks.next(&bytes[used..]).ok()? {
                    match piece {
                        Piece::Framing(count) => used += count,
                        Piece::Data(count) => {
                            out.extend_from_slice(format!("{count:x}\r\n").as_bytes());
                            out.extend_from_slice(&bytes[used..used + count]);
                            out.extend_from_slice(b"\r\n");
                            used += count;
                        }
                        // Another parser could end the line there.
                        Piece::Trailer(count) if bytes[used..used + count - 2].contains(&b'\n') => {
                            return None;
                        }
                        Piece::Trailer(count) => used += count,
                        Piece::Last(count) => {
                            out.extend_from_slice(b"0\r\n\r\n");
                            used += count;
                        }
                    }
                }
                Some(used)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(text: &str) -> Result<Head, &'static str> {
        read(text.as_bytes())?.ok_or("more")
    }

    #[test]
    fn a_head_is_written_anew() {
        let found = head(
            "GET /a?b=c HTTP/1.1\r\nHost: x\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nCookie: a\r\n\
             X-Forwarded-For: 1.2.3.4\r\nX-Forwarded-For: 6.6.6.6\r\nX_Forwarded_For: 7.7.7.7\r\nX_Real_IP: 8\r\n\
             X-Forwarded-Port: 1\r\nProxy: evil\r\nKeep-Alive: 5\r\nTE: trailers\r\nExpect: 100-continue\r\n\r\nrest",
        )
        .unwrap();
        let text = String::from_utf8(found.bytes).unwrap();
        assert_eq!(
            text,
            "GET /a?b=c HTTP/1.1\r\nHost: x\r\nCookie: a\r\nX-Forwarded-For: 1.2.3.4\r\nConnection: Upgrade\r\n\
             Upgrade: websocket\r\n\r\n"
        );
        assert!(found.is_upgrade && found.body.has_ended());
        assert_eq!(found.params.get(b"QUERY_STRING"), Some(&b"b=c"[..]));
        assert_eq!(found.params.get(b"HTTP_COOKIE"), Some(&b"a"[..]));
        let plain = head("POST / HTTP/1.0\r\nContent-Length: 3\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n")
            .unwrap();
        assert!(!plain.is_upgrade && plain.body == Body::Length(3));
        assert!(
            String::from_utf8(plain.bytes)
                .unwrap()
                .ends_with("Content-Length: 3\r\nConnection: close\r\n\r\n")
        );
    }

    #[test]
    fn of_protocols_only_websocket_is_passed_on() {
        for (offered, wanted) in [
            ("websocket", true),
            ("WebSocket", true),
            ("h2c, websocket", true),
            ("h2c", false),
            ("TLS/1.0", false),
            ("websocket/13", false),
        ] {
            let text = format!(
                "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: {offered}\r\nForwarded: for=6.6.6.6\r\n\r\n"
            );
            let found = head(&text).unwrap();
            assert_eq!(found.is_upgrade, wanted, "{offered}");
            let end = match wanted {
                true => "Connection: Upgrade\r\nUpgrade: websocket",
                false => "Connection: close",
            };
            let text = String::from_utf8(found.bytes).unwrap();
            assert_eq!(
                text,
                format!("GET / HTTP/1.1\r\nHost: a\r\n{end}\r\n\r\n"),
                "{offered}"
            );
        }
    }

    #[test]
    fn what_two_readers_could_read_differently_is_refused() {
        for (fields, why) in [
            ("Host: a\r\nHost: b", "it has more than one Host"),
            ("X: y", "it has no Host"),
            (
                "Host: a\r\nContent-Length: 3\r\nContent-Length: 3",
                "it has more than one Content-Length",
            ),
            ("Host: a\r\nContent-Length: +3", "its Content-Length is no number"),
            (
                "Host: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked",
                "it has both Content-Length and Transfer-Encoding",
            ),
            (
                "Host: a\r\nTransfer-Encoding: gzip",
                "it has a Transfer-Encoding other than \"chunked\"",
            ),
        ] {
            let text = format!("POST / HTTP/1.1\r\n{fields}\r\n\r\n");
            assert_eq!(head(&text).map(|_| ()), Err(why), "{fields}");
        }
        assert_eq!(
            head("CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n").map(|_| ()),
            Err("its target is no path")
        );
        assert_eq!(
            head("GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n").map(|_| ()),
            Err("its target is no path")
        );
        assert_eq!(head("GET / HTTP/1.1\r\nHost: a\r\n").map(|_| ()), Err("more"));
        assert_eq!(head("\0\0\0\0").map(|_| ()), Err("it is not HTTP"));
    }

    #[test]
    fn a_body_ends_where_it_ends_whatever_the_pieces() {
        let text = b"3;x=y\r\nhel\r\n2\r\nlo\r\n0\r\nTrailer: x\r\n\r\nGET /hidden HTTP/1.1\r\n\r\n";
        for step in [1, 2, 3, 7, 1000] {
            let mut body = Body::Chunked(Chunks::Size);
            let (mut kept, mut out) = (Vec::new(), Vec::new());
            for piece in text.chunks(step) {
                kept.extend_from_slice(piece);
                let used = body.take(&kept, &mut out).unwrap();
                kept.drain(..used);
            }
            assert!(body.has_ended());
            assert_eq!(kept, b"GET /hidden HTTP/1.1\r\n\r\n");
            let sent = String::from_utf8(out).unwrap();
            let data: String = sent.split("\r\n").skip(1).step_by(2).collect();
            assert_eq!(data, "hello", "{step}: {sent}");
            assert!(sent.ends_with("0\r\n\r\n") && !sent.contains("Trailer"));
        }
        let mut body = Body::Length(4);
        let mut out = Vec::new();
        assert_eq!(body.take(b"helloGET", &mut out), Some(4));
        assert!(body.has_ended() && out == b"hell");
        assert_eq!(Body::Chunked(Chunks::Size).take(b"x\r\n", &mut out), None);
        assert_eq!(Body::Chunked(Chunks::End).take(b"xx", &mut out), None);
    }
}
