//! Formats log lines.

use forkyard_base::text::line_with;
use forkyard_config::LogLevel;
use serde::Serialize;
use std::fmt::Write;
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;
use time::{OffsetDateTime, UtcOffset};

const SECONDS: &[BorrowedFormatItem<'static>] =
    format_description!("[day]-[month repr:short]-[year] [hour]:[minute]:[second]");
const MICROSECONDS: &[BorrowedFormatItem<'static>] =
    format_description!("[day]-[month repr:short]-[year] [hour]:[minute]:[second].[subsecond digits:6]");
const RFC3339: &[BorrowedFormatItem<'static>] = format_description!(
    "[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:6][offset_hour sign:mandatory]:[offset_minute]"
);
/// RFC 3164 section 4.1.2.
const SYSLOG: &[BorrowedFormatItem<'static>] =
    format_description!("[month repr:short] [day padding:space] [hour]:[minute]:[second]");

#[derive(Debug, Clone, Copy)]
pub(super) struct About<'a> {
    /// Microseconds since 1970.
    pub(super) micros: u64,
    /// Seconds east of UTC.
    pub(super) utc_offset: i32,
    pub(super) level: LogLevel,
    pub(super) pid: u32,
    /// Function and line.
    pub(super) origin: Option<(&'a str, u32)>,
}

fn level_name(level: LogLevel) -> &'static str {
    match level {
        LogLevel::Debug => "DEBUG",
        LogLevel::Notice => "NOTICE",
        LogLevel::Warning => "WARNING",
        LogLevel::Error => "ERROR",
        LogLevel::Alert => "ALERT",
    }
}

fn time(about: &About<'_>) -> OffsetDateTime {
    let zone = UtcOffset::from_whole_seconds(about.utc_offset).unwrap_or(UtcOffset::UTC);
    let nanos = i128::from(about.micros) * 1_000;
    OffsetDateTime::from_unix_timestamp_nanos(nanos)
        .unwrap_or(OffsetDateTime::UNIX_EPOCH)
        .to_offset(zone)
}

/// For example `[20-Nov-2026 17:53:09] NOTICE: `.
pub(super) fn prefix(about: &About<'_>) -> String {
    let (time, level) = (time(about), level_name(about.level));
    match about.origin {
        None => format!("[{}] {level}: ", time.format(SECONDS).unwrap_or_default()),
        Some((function, line)) => format!(
            "[{}] {level}: pid {}, {function}(), line {line}: ",
            time.format(MICROSECONDS).unwrap_or_default(),
            about.pid
        ),
    }
}

pub(super) fn shown(text: &[u8]) -> String {
    let mut line = String::with_capacity(text.len());
    for chunk in text.utf8_chunks() {
        line.push_str(&line_with(chunk.valid(), &['\t']));
        for byte in chunk.invalid() {
            let _ = write!(line, "\\x{byte:02x}");
        }
    }
    line
}

/// Splits at character boundaries.
pub(super) fn pieces(mut text: &str, room: usize) -> Vec<&str> {
    let mut pieces = Vec::new();
    while text.len() > room {
        let mut end = room;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        if end == 0 {
            break;
        }
        pieces.push(&text[..end]);
        text = &text[end..];
    }
    pieces.push(text);
    pieces
}

#[derive(Debug, Serialize)]
pub(super) struct Object<'a> {
    time: String,
    level: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pool: Option<&'a str>,
    pid: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    function: Option<&'a str>,
    message: &'a str,
}

/// `said`: process and stream of the output.
pub(super) fn json(
    about: &About<'_>,
    pool: Option<&str>,
    said: Option<(i32, Option<&str>)>,
    text: &str,
) -> String {
    let object = Object {
        time: time(about).format(RFC3339).unwrap_or_default(),
        level: level_name(about.level).to_ascii_lowercase(),
        pool,
        pid: said.map_or(i64::from(about.pid), |(pid, _)| i64::from(pid)),
        stream: said.and_then(|(_, stream)| stream),
        function: about.origin.map(|(function, _)| function),
        message: text,
    };
    let mut line = serde_json::to_string(&object).unwrap_or_default();
    line.push('\n');
    line
}

pub(super) fn split_pool(text: &str) -> (Option<&str>, &str) {
    match text.strip_prefix("[pool ").and_then(|rest| rest.split_once("] ")) {
        Some((pool, rest)) => (Some(pool), rest),
        None => (None, text),
    }
}

/// As syslog(3), with php-fpm's level before the text.
pub(super) fn syslog(about: &About<'_>, facility: u8, ident: &str, names_level: bool, text: &str) -> String {
    let severity = match about.level {
        LogLevel::Debug => 7,
        LogLevel::Notice => 5,
        LogLevel::Warning => 4,
        LogLevel::Error => 3,
        LogLevel::Alert => 1,
    };
    let priority = u16::from(facility) * 8 + severity;
    let time = time(about).format(SYSLOG).unwrap_or_default();
    let mut line = format!("<{priority}>{time} {ident}[{}]: ", about.pid);
    if names_level {
        let _ = write!(line, "[{}] ", level_name(about.level));
        if let Some((function, number)) = about.origin {
            let _ = write!(line, "{function}(), line {number}: ");
        }
    }
    line.push_str(text);
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    const ABOUT: About<'_> = About {
        micros: 1_795_197_189_000_042,
        utc_offset: 3_600,
        level: LogLevel::Notice,
        pid: 7,
        origin: None,
    };

    #[test]
    fn a_line_begins_as_php_fpm_s() {
        assert_eq!(prefix(&ABOUT), "[20-Nov-2026 18:53:09] NOTICE: ");
        let about = About {
            origin: Some(("run", 3)),
            ..ABOUT
        };
        let expected = "[20-Nov-2026 18:53:09.000042] NOTICE: pid 7, run(), line 3: ";
        assert_eq!(prefix(&about), expected);
    }

    #[test]
    fn text_cannot_forge_a_line() {
        assert_eq!(shown(b"a\nb\x1b[0m\xff\tz"), "a\\x0ab\\x1b[0m\\xff\tz");
    }

    #[test]
    fn text_is_cut_between_characters() {
        assert_eq!(pieces("abcdef", 4), ["abcd", "ef"]);
        assert_eq!(pieces("abé", 3), ["ab", "é"]);
        assert_eq!(pieces("", 3), [""]);
        assert_eq!(pieces("é", 1), ["é"], "no endless loop");
    }

    #[test]
    fn a_json_line_is_one_object() {
        let (pool, text) = split_pool("[pool www] a\n\"b\"");
        let line = json(&ABOUT, pool, Some((9, Some("stderr"))), text);
        let expected = "{\"time\":\"2026-11-20T18:53:09.000042+01:00\",\"level\":\"notice\",\"pool\":\"www\",\
                        \"pid\":9,\"stream\":\"stderr\",\"message\":\"a\\n\\\"b\\\"\"}\n";
        assert_eq!(line, expected);
        assert!(json(&ABOUT, None, None, "x").contains("\"pid\":7,\"message\":\"x\""));
        let round = About {
            micros: 1_795_197_189_000_000,
            utc_offset: 0,
            ..ABOUT
        };
        assert!(json(&round, None, None, "x").contains(":\"2026-11-20T17:53:09.000000+00:00\""));
    }

    #[test]
    fn a_datagram_is_as_syslog_sends_it() {
        let expected = "<29>Nov 20 18:53:09 php-fpm[7]: [NOTICE] hello";
        assert_eq!(syslog(&ABOUT, 3, "php-fpm", true, "hello"), expected);
    }
}
