//! Requests, programs' answers to them, and the rules for what their clients get.

use super::super::super::head::Framing;
use super::super::passage::{Limits, Passage};
use super::random::Random;
use forkyard_base::tick::Tick;
use std::time::Duration;

pub(super) const LIMITS: Limits = Limits {
    connect: Duration::from_secs(30),
    client: Duration::from_secs(10),
};

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Kind {
    Plain,
    /// HTTP with a body that is not in chunks although it should be.
    Nonsense,
    /// HTTP with an incomplete head.
    Silent,
    Tunnel,
}

/// A program's answer to a request.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) wire: Vec<u8>,
    /// The client's bytes if the answer is complete.
    pub(super) wanted: Vec<u8>,
    pub(super) waits_for_body: bool,
    /// Closes the connection after so many bytes; `None`: keeps it.
    pub(super) closes_at: Option<usize>,
    /// `wire` is complete before the connection closes.
    pub(super) is_whole: bool,
    pub(super) never_answers: bool,
    pub(super) written: usize,
    /// The body that the program has read.
    pub(super) body: Vec<u8>,
}

#[derive(Debug)]
pub(super) struct Case {
    pub(super) passage: Passage,
    pub(super) kind: Kind,
    pub(super) is_http: bool,
    pub(super) method: &'static str,
    pub(super) body: Vec<u8>,
    /// Bytes that the client will send.
    pub(super) unsent: Vec<u8>,
    /// The client has sent its last FastCGI piece, or closed its side.
    pub(super) has_ended: bool,
    pub(super) got: Vec<u8>,
    /// The plans of the processes that read it, oldest first.
    pub(super) read_by: Vec<Plan>,
    /// The attempts that sent any of it.
    pub(super) sends: usize,
    pub(super) has_sent: bool,
    pub(super) token: Option<u32>,
    pub(super) is_finished: bool,
    pub(super) explained: usize,
    /// When the gateway closed its side.
    pub(super) shut_at: Option<Tick>,
    pub(super) has_left: bool,
    pub(super) is_expired: bool,
    pub(super) is_over: bool,
    pub(super) was_unreachable: bool,
    /// Processes that count it.
    pub(super) held: usize,
    pub(super) since: Tick,
}

impl Case {
    pub(super) fn new(random: &mut Random, id: usize, now: Tick) -> Case {
        let is_http = random.one_in(2);
        let kind = match random.below(10) {
            0 if is_http => Kind::Nonsense,
            1 if is_http => Kind::Silent,
            2 | 3 => Kind::Tunnel,
            _ => Kind::Plain,
        };
        let method = match kind {
            Kind::Tunnel => "GET",
            Kind::Nonsense => "POST",
            _ => random.pick(&["GET", "GET", "HEAD", "POST"]),
        };
        let has_body = method == "POST" || kind == Kind::Tunnel;
        let body = if has_body { random.bytes(60) } else { Vec::new() };
        let is_chunked = kind == Kind::Nonsense || random.one_in(2);
        let mut head = format!("{method} /{id} HTTP/1.1\r\nHost: a\r\n");
        let framing = match (kind, has_body) {
            (Kind::Tunnel, _) => Framing::Upgrade,
            (_, false) => Framing::Nothing,
            (_, true) if is_chunked => Framing::Chunked,
            (_, true) => Framing::Length(body.len() as u64),
        };
        head += &match framing {
            Framing::Nothing => String::new(),
            Framing::Length(_) => format!("Content-Length: {}\r\n", body.len()),
            Framing::Chunked => "Transfer-Encoding: chunked\r\n".to_owned(),
            Framing::Upgrade => "Connection: Upgrade\r\nUpgrade: websocket\r\n".to_owned(),
        };
        head += "\r\n";
        let mut unsent = body.clone();
        if is_http && framing == Framing::Chunked {
            unsent.clear();
            for chunk in body.chunks(9) {
                unsent.extend_from_slice(format!("{:x};x=y\r\n", chunk.len()).as_bytes());
                unsent.extend_from_slice(chunk);
                unsent.extend_from_slice(b"\r\n");
            }
            unsent.extend_from_slice(match kind {
                Kind::Nonsense => b"zz\r\n\r\n",
                _ => b"0\r\n\r\n",
            });
        }
        let passage = match is_http {
            true => {
                unsent.splice(..0, head.bytes());
                Passage::http(LIMITS, now)
            }
            false => Passage::fastcgi(head.into_bytes(), framing, method.as_bytes(), LIMITS),
        };
        if kind == Kind::Silent {
            unsent.truncate(5);
        }
        Case {
            passage,
            kind,
            is_http,
            method,
            body,
            unsent,
            has_ended: false,
            got: Vec::new(),
            read_by: Vec::new(),
            sends: 0,
            has_sent: false,
            token: (!is_http).then_some(0),
            is_finished: false,
            explained: 0,
            shut_at: None,
            has_left: false,
            is_expired: false,
            is_over: false,
            was_unreachable: false,
            held: 0,
            since: now,
        }
    }
}

pub(super) fn plan(random: &mut Random, case: &Case) -> Plan {
    let body = random.bytes(40);
    let form = random.below(3);
    let (head, cgi, framed) = match form {
        0 => {
            let length = format!("Content-Length: {}\r\n\r\n", body.len());
            (length.clone(), length, body.clone())
        }
        1 if !case.is_http => {
            let mut framed = Vec::new();
            for chunk in body.chunks(7) {
                framed.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
                framed.extend_from_slice(chunk);
                framed.extend_from_slice(b"\r\n");
            }
            framed.extend_from_slice(b"0\r\n\r\n");
            ("Transfer-Encoding: chunked\r\n\r\n".into(), "\r\n".into(), framed)
        }
        _ => ("X-A: b\r\n\r\n".into(), "X-A: b\r\n\r\n".into(), body.clone()),
    };
    let is_head = case.method == "HEAD";
    let framed = if is_head { Vec::new() } else { framed };
    let mut wire = [b"HTTP/1.1 200 OK\r\n", head.as_bytes(), &framed].concat();
    let passed = if is_head { &[][..] } else { &body };
    let mut wanted = match case.is_http {
        true => wire.clone(),
        false => [b"Status: 200 OK\r\n", cgi.as_bytes(), passed].concat(),
    };
    if case.kind == Kind::Tunnel {
        wire = b"HTTP/1.1 101 Switching Protocols\r\nX-A: b\r\n\r\n".to_vec();
        wanted = match case.is_http {
            true => wire.clone(),
            false => b"Status: 101 Switching Protocols\r\nX-A: b\r\n\r\n".to_vec(),
        };
    }
    let until_close = !is_head && (form == 2 || (form == 1 && case.is_http));
    let cut = random.one_in(5).then(|| random.below(wire.len()));
    let closes = case.is_http || until_close || random.one_in(3);
    let closes_at = cut.or(closes.then_some(wire.len()));
    Plan {
        is_whole: cut.is_none(),
        closes_at: closes_at.filter(|_| case.kind != Kind::Tunnel),
        waits_for_body: !random.one_in(3),
        never_answers: random.one_in(12),
        wire,
        wanted,
        written: 0,
        body: Vec::new(),
    }
}

/// Removes the framing of a request as a program would.
pub(super) fn read_body(case: &Case, bytes: &[u8]) -> (Vec<u8>, bool) {
    let (head, mut rest) = bytes.split_at(end_of_head(bytes).unwrap_or(0));
    let head = String::from_utf8_lossy(head).to_ascii_lowercase();
    if case.kind == Kind::Tunnel {
        return (rest.to_vec(), false);
    }
    if !head.contains("transfer-encoding") {
        let is_whole = rest.len() >= case.body.len() || !head.contains("content-length");
        return (rest.to_vec(), is_whole);
    }
    let mut body = Vec::new();
    while let Some(end) = rest.windows(2).position(|pair| pair == b"\r\n") {
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..end]).unwrap(), 16).unwrap();
        if rest.len() < end + 4 + size {
            let there = rest.len().min(end + 2 + size);
            body.extend_from_slice(&rest[end + 2..there]);
            return (body, false);
        }
        body.extend_from_slice(&rest[end + 2..end + 2 + size]);
        rest = &rest[end + 4 + size..];
        if size == 0 {
            assert!(rest.is_empty(), "bytes behind the last chunk");
            return (body, true);
        }
    }
    (body, false)
}

pub(super) fn end_of_head(bytes: &[u8]) -> Option<usize> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
    end.map(|at| at + 4)
}

fn page(case: &Case) -> Option<u16> {
    let text = std::str::from_utf8(&case.got).ok()?;
    let rest = text.strip_prefix(if case.is_http { "HTTP/1.1 " } else { "Status: " })?;
    let (head, body) = rest.split_once("\r\n\r\n")?;
    let is_own = head.contains("text/plain; charset=utf-8") && body.ends_with('\n');
    is_own.then(|| rest[..3].parse().ok())?
}

pub(super) fn check(case: &Case) -> Result<(), String> {
    let wants = |holds: bool, what: &str| if holds { Ok(()) } else { Err(what.to_owned()) };
    let has_begun = case.kind != Kind::Silent;
    wants(
        case.is_finished || case.has_left || !has_begun,
        "the worker does not know the end",
    )?;
    wants(case.token.is_none(), "a request is counted for ever")?;
    wants(case.held == 0, "a process counts a request for ever")?;
    let may_repeat =
        !case.is_http && case.body.is_empty() && case.method != "POST" && case.kind == Kind::Plain;
    wants(case.sends <= 1 || may_repeat, "sent twice")?;
    for plan in &case.read_by {
        let bytes = plan.body.len().min(case.body.len());
        wants(plan.body == case.body[..bytes], "the body is not the client's")?;
    }
    let (last, earlier) = match case.read_by.split_last() {
        Some((last, earlier)) => (Some(last), earlier),
        None => (None, &[][..]),
    };
    wants(
        earlier.iter().all(|plan| plan.written == 0),
        "sent again after an answer",
    )?;
    if let Some(status) = page(case) {
        wants(case.is_http || case.explained == 1, "no reason")?;
        return match status {
            400 => wants(case.kind == Kind::Nonsense, "400 for a valid request"),
            502 => {
                let is_cut = last.is_some_and(|plan| !plan.is_whole || plan.written < plan.wire.len());
                wants(
                    is_cut || case.was_unreachable || last.is_none(),
                    "502 for an answer",
                )
            }
            503 => wants(last.is_none() || may_repeat, "503 for a request that was read"),
            504 => wants(case.is_http && case.is_expired, "504 without a timeout"),
            _ => Err("an unknown page".to_owned()),
        };
    }
    let is_page = |status: &str| {
        let line = format!("{}{status}", if case.is_http { "HTTP/1.1 " } else { "Status: " });
        let count = line.len().min(case.got.len());
        case.got[..count] == line.as_bytes()[..count]
    };
    if (case.has_left || case.is_expired) && ["400", "502", "503", "504"].iter().any(|status| is_page(status))
    {
        return Ok(());
    }
    wants(case.explained == 0, "a reason without a page")?;
    let wanted = last.map_or(&[][..], |plan| &plan.wanted);
    wants(wanted.starts_with(&case.got), "the answer is not the program's")?;
    let may_lack = case.has_left || case.is_expired || !has_begun || case.kind == Kind::Nonsense;
    let is_cut = last.is_some_and(|plan| !plan.is_whole);
    wants(
        may_lack || is_cut || wanted == case.got,
        "the answer lacks an end",
    )?;
    let has_all = |plan: &Plan| plan.body == case.body || (!plan.waits_for_body && case.kind != Kind::Tunnel);
    wants(
        may_lack || is_cut || last.is_none_or(has_all),
        "the program lacks a part of the body",
    )?;
    wants(may_lack || last.is_some(), "no answer at all")
}
