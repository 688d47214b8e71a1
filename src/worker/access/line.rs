//! One line of the access log.

use super::head::Head;
use crate::config::access::{CpuPart, DurationUnit, Token};
use crate::sys::clock::{CpuTimes, format_local_time};
use std::io::Write;
use std::net::IpAddr;

/// What a line may hold.
#[derive(Debug)]
pub(super) struct Facts<'a> {
    pub(super) pool: &'a str,
    pub(super) method: &'a [u8],
    pub(super) uri: &'a [u8],
    pub(super) query: &'a [u8],
    pub(super) script: &'a [u8],
    pub(super) user: &'a [u8],
    pub(super) params: &'a [Option<Vec<u8>>],
    pub(super) content_length: u64,
    pub(super) peer: Option<IpAddr>,
    pub(super) status: u16,
    pub(super) head: &'a Head,
    /// Bytes.
    pub(super) memory: u64,
    /// How long the request took, microseconds.
    pub(super) micros: u64,
    pub(super) cpu: CpuTimes,
    pub(super) begun_epoch: u64,
    pub(super) logged_epoch: u64,
}

/// Renders a line without its newline, which fits into `limit` bytes with it. `false`: it was cut.
pub(super) fn render(format: &[Token], facts: &Facts<'_>, limit: usize, line: &mut Vec<u8>) -> bool {
    let mut params = facts.params.iter();
    for token in format {
        add(token, facts, &mut params, line);
        if line.len() >= limit {
            line.truncate(limit.saturating_sub(1));
            return false;
        }
    }
    true
}

fn add<'a>(
    token: &Token,
    facts: &Facts<'a>,
    params: &mut impl Iterator<Item = &'a Option<Vec<u8>>>,
    line: &mut Vec<u8>,
) {
    let or_dash = |text: &'a [u8]| if text.is_empty() { b"-" } else { text };
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
        Token::Param(_) => escape(params.next().and_then(Option::as_deref).unwrap_or(b"-"), line),
        Token::Script => escape(or_dash(facts.script), line),
        Token::ContentLength => number(line, format_args!("{}", facts.content_length)),
        Token::Method => escape(or_dash(facts.method), line),
        Token::Memory(unit) => number(line, format_args!("{}", facts.memory / (*unit).max(1))),
        Token::Pool => escape(or_dash(facts.pool.as_bytes()), line),
        Token::Header(name) => escape(facts.head.value(name).unwrap_or(b"-"), line),
        Token::Pid => number(line, format_args!("{}", std::process::id())),
        Token::ParentPid => number(line, format_args!("{}", std::os::unix::process::parent_id())),
        Token::Query => escape(facts.query, line),
        Token::QueryMark if facts.query.is_empty() => {}
        Token::QueryMark => line.push(b'?'),
        Token::Uri => escape(facts.uri, line),
        Token::Peer => match facts.peer {
            Some(peer) => number(line, format_args!("{peer}")),
            None => line.push(b'-'),
        },
        Token::Status => number(line, format_args!("{}", facts.status)),
        Token::Begun(format) => escape(&format_local_time(facts.begun_epoch, format), line),
        Token::Logged(format) => escape(&format_local_time(facts.logged_epoch, format), line),
        Token::User => escape(facts.user, line),
    }
}

fn number(line: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    // Writing to memory can't fail.
    let _ = line.write_fmt(text);
}

fn percent(facts: &Facts<'_>, part: CpuPart) -> f64 {
    let used = match part {
        CpuPart::Total => facts.cpu.user_micros + facts.cpu.system_micros,
        CpuPart::User => facts.cpu.user_micros,
        CpuPart::System => facts.cpu.system_micros,
    };
    used as f64 / facts.micros.max(1) as f64 * 100.0
}

/// Adds what a client may have sent. What could end a line, or a quoted field in it, is shown and not passed on.
fn escape(text: &[u8], line: &mut Vec<u8>) {
    for &byte in text {
        if byte < b' ' || matches!(byte, 0x7f | b'"' | b'\\') {
            number(line, format_args!("\\x{byte:02X}"));
        } else {
            line.push(byte);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::access::parse_format;

    fn rendered(format: &str, limit: usize) -> (String, bool) {
        let mut head = Head::default();
        head.take(b"Status: 404 x\r\nX-A: v\r\n\r\n");
        let facts = Facts {
            pool: "www",
            method: b"GET",
            uri: b"/a\nb\"c\\",
            query: b"q=1",
            script: b"",
            user: b"",
            params: &[Some(b"one".to_vec()), None],
            content_length: 7,
            peer: "127.0.0.1".parse().ok(),
            status: head.status(),
            head: &head,
            memory: 3 << 20,
            micros: 1_234_567,
            cpu: CpuTimes {
                user_micros: 500_000,
                system_micros: 117_283,
            },
            begun_epoch: 0,
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
    fn a_line_is_bounded() {
        assert_eq!(rendered("0123456789", 8), ("0123456".to_owned(), false));
        assert_eq!(rendered("0123456", 8), ("0123456".to_owned(), true));
    }
}
