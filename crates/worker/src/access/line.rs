//! Formats one line of the access log.

use super::LoggedRequest;
use super::text::{escape, fit};
use forkyard_config::access::{CpuPart, DurationUnit, Escape, Format, Token};
use forkyard_sys::clock::{CpuTimes, format_local_time};
use std::borrow::Cow;
use std::io::Write;

#[derive(Debug)]
pub(super) struct RequestFacts<'a> {
    pub(super) pool: &'a str,
    pub(super) request: &'a LoggedRequest,
    pub(super) status: u16,
    /// In microseconds.
    pub(super) micros: u64,
    pub(super) cpu: CpuTimes,
    pub(super) logged_epoch: u64,
}

/// Appends a line without its newline, to fit `limit` with it. Returns false if it was cut.
pub(super) fn render(format: &Format, facts: &RequestFacts<'_>, limit: usize, line: &mut Vec<u8>) -> bool {
    let mut params = facts.request.params.iter();
    let is_json = format.escape == Escape::Json;
    let mut texts = Vec::new();
    for token in &format.tokens {
        let from = line.len();
        match text(token, facts, &mut params, format.escape) {
            Some(text) => {
                escape(&text, format.escape, line);
                if is_json {
                    texts.push(from..line.len());
                }
            }
            None => add(token, facts, line),
        }
        if line.len() >= limit && !is_json {
            line.truncate(limit.saturating_sub(1));
            return false;
        }
    }
    let is_whole = line.len() < limit;
    if !is_whole {
        fit(line, &texts, limit.saturating_sub(1));
    }
    is_whole
}

/// Appends text from outside, escaped; JSON lines shorten it if they are too long.
fn text<'a>(
    token: &Token,
    facts: &RequestFacts<'a>,
    params: &mut impl Iterator<Item = &'a Option<Vec<u8>>>,
    escape: Escape,
) -> Option<Cow<'a, [u8]>> {
    let nothing: &[u8] = match escape {
        Escape::Json => b"",
        Escape::Default | Escape::None => b"-",
    };
    let or_nothing = |text: &'a [u8]| if text.is_empty() { nothing } else { text };
    let text = match token {
        Token::Param(_) => params.next().and_then(Option::as_deref).unwrap_or(nothing),
        Token::Script => or_nothing(&facts.request.script),
        Token::Method => or_nothing(&facts.request.method),
        Token::Pool => or_nothing(facts.pool.as_bytes()),
        Token::Header(name) => facts.request.head.value(name).unwrap_or(nothing),
        Token::Query => &facts.request.query,
        Token::Uri => &facts.request.uri,
        Token::User => &facts.request.user,
        Token::Peer if facts.request.peer.is_none() => nothing,
        Token::Begun(format) => {
            let seconds = facts.request.begun_epoch_micros / 1_000_000;
            return Some(format_local_time(seconds, format).into());
        }
        Token::Logged(format) => return Some(format_local_time(facts.logged_epoch, format).into()),
        _ => return None,
    };
    Some(text.into())
}

fn add(token: &Token, facts: &RequestFacts<'_>, line: &mut Vec<u8>) {
    let seconds = |micros: u64| (micros / 1_000_000, micros % 1_000_000);
    match token {
        Token::Text(text) => line.extend_from_slice(text.as_bytes()),
        Token::Cpu(part) => number(line, format_args!("{:.2}", percent(facts, *part))),
        Token::Duration(DurationUnit::Seconds) => {
            number(line, format_args!("{:.3}", facts.micros as f64 / 1e6));
        }
        Token::Duration(DurationUnit::Milliseconds) => {
            number(line, format_args!("{:.3}", facts.micros as f64 / 1e3));
        }
        Token::Duration(DurationUnit::Microseconds) => number(line, format_args!("{}", facts.micros)),
        Token::Duration(DurationUnit::Exact) => {
            let (whole, rest) = seconds(facts.micros);
            number(line, format_args!("{whole}.{rest:06}"));
        }
        Token::CpuTime => {
            let (whole, rest) = seconds(facts.cpu.user_micros + facts.cpu.system_micros);
            number(line, format_args!("{whole}.{rest:06}"));
        }
        Token::BegunExactly => {
            let (whole, rest) = seconds(facts.request.begun_epoch_micros);
            let time = format_local_time(whole, "%Y-%m-%dT%H:%M:%S%z");
            let (time, zone) = time.split_at(time.len().saturating_sub(5));
            let (hours, minutes) = zone.split_at(zone.len().min(3));
            line.extend_from_slice(time);
            number(line, format_args!(".{rest:06}"));
            line.extend_from_slice(hours);
            line.push(b':');
            line.extend_from_slice(minutes);
        }
        Token::ContentLength => number(line, format_args!("{}", facts.request.content_length)),
        Token::Memory(unit) => number(line, format_args!("{}", facts.request.memory / (*unit).max(1))),
        Token::Pid => number(line, format_args!("{}", std::process::id())),
        Token::ParentPid => number(line, format_args!("{}", std::os::unix::process::parent_id())),
        Token::QueryMark if facts.request.query.is_empty() => {}
        Token::QueryMark => line.push(b'?'),
        Token::Peer => {
            if let Some(peer) = facts.request.peer {
                number(line, format_args!("{peer}"));
            }
        }
        Token::Status => number(line, format_args!("{}", facts.status)),
        Token::Param(_)
        | Token::Script
        | Token::Method
        | Token::Pool
        | Token::Header(_)
        | Token::Query
        | Token::Uri
        | Token::User
        | Token::Begun(_)
        | Token::Logged(_) => {}
    }
}

fn number(line: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    let _ = line.write_fmt(text);
}

fn percent(facts: &RequestFacts<'_>, part: CpuPart) -> f64 {
    let used = match part {
        CpuPart::Total => facts.cpu.user_micros + facts.cpu.system_micros,
        CpuPart::User => facts.cpu.user_micros,
        CpuPart::System => facts.cpu.system_micros,
    };
    used as f64 / facts.micros.max(1) as f64 * 100.0
}

#[cfg(test)]
mod tests {
    use super::super::head::AnswerHead;
    use super::*;
    use forkyard_config::access::parse_format;

    fn rendered(format: &str, limit: usize) -> (String, bool) {
        let mut head = AnswerHead::default();
        head.take(b"Status: 404 x\r\nX-A: v\r\n\r\n");
        let request = LoggedRequest {
            method: b"GET".to_vec(),
            uri: b"/a\nb\"c\\".to_vec(),
            query: b"q=1".to_vec(),
            params: vec![Some(b"one".to_vec()), None],
            content_length: 7,
            peer: "127.0.0.1".parse().ok(),
            memory: 3 << 20,
            begun_epoch_micros: 1_500,
            head,
            ..LoggedRequest::default()
        };
        let facts = RequestFacts {
            pool: "www",
            request: &request,
            status: request.head.status(),
            micros: 1_234_567,
            cpu: CpuTimes {
                user_micros: 500_000,
                system_micros: 117_283,
            },
            logged_epoch: 0,
        };
        let mut line = Vec::new();
        let is_whole = render(&parse_format(format).unwrap(), &facts, limit, &mut line);
        (String::from_utf8(line).unwrap(), is_whole)
    }

    #[test]
    fn every_token_is_rendered() {
        for (format, expected) in [
            ("%C %{user}C %{system}C", "50.00 40.50 9.50"),
            ("%d %{milli}d %{micro}d", "1.235 1234.567 1234567"),
            ("%{A}e %{B}e", "one -"),
            ("%f %l %m %n", "- 7 GET www"),
            ("%M %{kilo}M %{mega}M", "3145728 3072 3"),
            ("%{X-A}o %{X-B}o", "v -"),
            ("%q %Q %R %s %u|", "q=1 ? 127.0.0.1 404 |"),
            ("\"%r\" %%", "\"/a\\x0Ab\\x22c\\x5C\" %"),
            ("%{%Y}t %{literal}T", "1970 literal"),
        ] {
            assert_eq!(rendered(format, 1024), (expected.to_owned(), true), "{format}");
        }
    }

    #[test]
    fn text_is_escaped_as_the_format_says() {
        for (format, expected) in [
            (
                "escape=json {\"u\":\"%r\",\"f\":\"%f%{X-B}o\"}",
                "{\"u\":\"/a\\nb\\\"c\\\\\",\"f\":\"\"}",
            ),
            ("escape=none %r %f", "/a\nb\"c\\ -"),
            ("escape=default %r %f", "/a\\x0Ab\\x22c\\x5C -"),
        ] {
            assert_eq!(rendered(format, 1024), (expected.to_owned(), true), "{format}");
        }
    }

    #[test]
    fn json_is_an_object_and_stays_one_when_it_is_shortened() {
        let (line, is_whole) = rendered("json", 1024);
        assert!(is_whole);
        let object: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(object["uri"], "/a\nb\"c\\");
        assert_eq!(object["status"], 404);
        assert!(
            line.contains(",\"duration\":1.234567,\"cpu\":0.617283,"),
            "{line}"
        );
        let time = object["time"].as_str().unwrap_or_default();
        assert_eq!(time.len(), "1970-01-01T00:00:00.001500+00:00".len(), "{time}");
        assert!(time.contains(":00.001500"), "{time}");
        let whole = line.len();
        for limit in whole - 8..=whole {
            let (line, is_whole) = rendered("json", limit);
            assert!(!is_whole && line.len() < limit, "{line}");
            assert!(serde_json::from_str::<serde_json::Value>(&line).is_ok(), "{line}");
        }
    }

    #[test]
    fn a_line_is_bounded() {
        assert_eq!(rendered("0123456789", 8), ("0123456".to_owned(), false));
        assert_eq!(rendered("0123456", 8), ("0123456".to_owned(), true));
    }
}
