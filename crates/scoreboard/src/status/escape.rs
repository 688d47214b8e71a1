//! Making text harmless for the format it is shown in, and moments readable.

use forkyard_base::text::{is_control, line};
use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};
use std::io::{self, Write};

use time::macros::format_description;
use time::{OffsetDateTime, UtcOffset};

/// For XML and HTML, as the content of an element. Characters that XML doesn't allow, and those that no reader sees but that change how
/// the rest is shown, become U+FFFD.
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

/// For plain text: control characters as `\x0a`, so that no value can pretend to be a line of its own.
pub(super) fn plain(text: &str) -> String {
    line(text).into_owned()
}

/// For the HELP line of a metric.
pub(super) fn metric(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('\n', "\\n")
        .replace('"', "\\\"")
}

/// A JSON string with its quotes, escaped as PHP does: slashes too, and nothing but ASCII.
pub(super) fn json(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len() + 2);
    let written = text.serialize(&mut Serializer::with_formatter(&mut bytes, AsPhp));
    // Writing to memory doesn't fail, and every fragment below is ASCII.
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

/// A moment as `20/Nov/2026:20:01:14 +0000`; its number, if no calendar has it.
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
