//! One line: `[20-Nov-2026 17:53:09] NOTICE: text`.

use crate::config::LogLevel;
use std::fmt::Write;
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;
use time::{OffsetDateTime, UtcOffset};

const TIME: &[BorrowedFormatItem<'static>] =
    format_description!("[day]-[month repr:short]-[year] [hour]:[minute]:[second]");

/// The level's name in a line.
fn level_name(level: LogLevel) -> &'static str {
    match level {
        LogLevel::Debug => "DEBUG",
        LogLevel::Notice => "NOTICE",
        LogLevel::Warning => "WARNING",
        LogLevel::Error => "ERROR",
        LogLevel::Alert => "ALERT",
    }
}

/// A whole line. Control characters in the text, which may come from outside, are shown and not passed on.
pub(super) fn format(epoch_seconds: u64, utc_offset_seconds: i32, level: LogLevel, text: &str) -> String {
    let zone = UtcOffset::from_whole_seconds(utc_offset_seconds).unwrap_or(UtcOffset::UTC);
    let time = i64::try_from(epoch_seconds)
        .ok()
        .and_then(|s| OffsetDateTime::from_unix_timestamp(s).ok());
    let time = time.unwrap_or(OffsetDateTime::UNIX_EPOCH).to_offset(zone);
    let mut line = format!(
        "[{}] {}: ",
        time.format(TIME).unwrap_or_default(),
        level_name(level)
    );
    for c in text.chars() {
        if c.is_control() && c != '\t' {
            let _ = write!(line, "\\x{:02x}", u32::from(c));
        } else {
            line.push(c);
        }
    }
    line.push('\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_as_php_fpm_writes_it() {
        let line = format(1_795_197_189, 3_600, LogLevel::Notice, "fpm is running, pid 1");
        assert_eq!(line, "[20-Nov-2026 18:53:09] NOTICE: fpm is running, pid 1\n");
    }

    #[test]
    fn text_cannot_forge_a_line() {
        let line = format(0, 0, LogLevel::Error, "a\nb\x1b[0m");
        assert_eq!(line, "[01-Jan-1970 00:00:00] ERROR: a\\x0ab\\x1b[0m\n");
    }
}
