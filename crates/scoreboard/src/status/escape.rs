//! Escapes text for each format, and formats times.

use forkyard_base::text::{is_control, line};
use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};
use std::io::{self, Write};

use time::macros::format_description;
use time::{OffsetDateTime, UtcOffset};

/// Characters that XML forbids or that invisibly change the display become U+FFFD.
pub(super) fn markup(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\t' | '\n' => escaped.push(c),
            '\r' => escaped.push_str("&#13;"),
            '\u{FFFE}' | '\u{FFFF}' => escaped.push('\u{FFFD}'),
            _ if is_control(c) => escaped.push('\u{FFFD}'),
            _ => escaped.push(c),
        }
    }
    escaped
}

/// No value can imitate another line.
pub(super) fn plain(text: &str) -> String {
    line(text).into_owned()
}

/// As PHP does: escaped slashes, ASCII only.
pub(super) fn json(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len() + 2);
    let written = text.serialize(&mut Serializer::with_formatter(&mut bytes, AsPhp));
    // Writing to memory can't fail, and everything below is ASCII.
    debug_assert!(written.is_ok());
    String::from_utf8(bytes).unwrap_or_default()
}

struct AsPhp;

impl Formatter for AsPhp {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        for c in fragment.chars() {
            match c {
                '/' => writer.write_all(b"\\/")?,
                c if c.is_ascii() && !c.is_ascii_control() => writer.write_all(&[c as u8])?,
                c => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        write!(writer, "\\u{unit:04x}")?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// `20/Nov/2026:20:01:14 +0000`, or a number if out of range.
pub(super) fn timestamp(epoch: i64, utc_offset_s: i32) -> String {
    let format = format_description!(
        "[day]/[month repr:short]/[year]:[hour]:[minute]:[second] [offset_hour sign:mandatory][offset_minute]"
    );
    let offset = UtcOffset::from_whole_seconds(utc_offset_s).unwrap_or(UtcOffset::UTC);
    OffsetDateTime::from_unix_timestamp(epoch)
        .ok()
        .and_then(|time| time.checked_to_offset(offset))
        .and_then(|time| time.format(format).ok())
        .unwrap_or_else(|| epoch.to_string())
}
