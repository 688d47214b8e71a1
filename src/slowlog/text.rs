//! An entry, as php-fpm writes it.

use super::job::Stack;
use std::fmt::Write;
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;
use time::{OffsetDateTime, UtcOffset};

const TIME: &[BorrowedFormatItem<'static>] =
    format_description!("[day]-[month repr:short]-[year] [hour]:[minute]:[second]");
const FRACTION: &[BorrowedFormatItem<'static>] = format_description!(".[subsecond digits:6]");

/// The first lines of an entry: when, which worker of which pool, and its script, all at `epoch_micros` since 1970 in a
/// zone so many seconds east of UTC. `is_exact`: with microseconds.
pub fn heading(
    epoch_micros: u64,
    utc_offset_seconds: i32,
    is_exact: bool,
    pool: &str,
    pid: i32,
    script: &[u8],
) -> String {
    let zone = UtcOffset::from_whole_seconds(utc_offset_seconds).unwrap_or(UtcOffset::UTC);
    let time = OffsetDateTime::from_unix_timestamp_nanos(i128::from(epoch_micros) * 1_000)
        .unwrap_or(OffsetDateTime::UNIX_EPOCH)
        .to_offset(zone);
    let whole = time.format(TIME).unwrap_or_default();
    let fraction = if is_exact {
        time.format(FRACTION).unwrap_or_default()
    } else {
        String::new()
    };
    format!(
        "\n[{whole}{fraction}]  [pool {pool}] pid {pid}\nscript_filename = {}\n",
        shown(script)
    )
}

/// A whole entry. `None`: the runtime does not say where its calls are.
pub fn entry(heading: &str, stack: Option<&Stack>) -> String {
    let mut text = heading.to_owned();
    let Some(stack) = stack else { return text };
    for call in &stack.calls {
        let file = if call.file.is_empty() {
            "unknown".to_owned()
        } else {
            shown(&call.file)
        };
        let _ = writeln!(
            text,
            "[0x{:016x}] {}() {file}:{}",
            call.address,
            shown(&call.function),
            call.line
        );
    }
    if !stack.is_whole {
        text.push_str("+++ dump failed\n");
    }
    text
}

/// Text from outside: control characters are shown and can't make lines.
fn shown(text: &[u8]) -> String {
    let mut shown = String::new();
    for c in String::from_utf8_lossy(text).chars() {
        if c.is_control() {
            let _ = write!(shown, "\\x{:02x}", u32::from(c));
        } else {
            shown.push(c);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slowlog::job::Call;

    #[test]
    fn an_entry_is_as_php_fpm_writes_it() {
        let call = |address, function: &str, file: &str, line| Call {
            address,
            function: function.into(),
            file: file.into(),
            line,
        };
        let stack = Stack {
            calls: vec![
                call(0x7f5c_9f21_3110, "usleep", "/tmp/slow.php", 1),
                call(0x7f5c_9f21_30c0, "f", "", 0),
            ],
            is_whole: true,
        };
        let heading = heading(1_795_197_189_000_007, 0, false, "www", 4119, b"/tmp/slow.php");
        assert_eq!(
            entry(&heading, Some(&stack)),
            "\n[20-Nov-2026 17:53:09]  [pool www] pid 4119\n\
             script_filename = /tmp/slow.php\n\
             [0x00007f5c9f213110] usleep() /tmp/slow.php:1\n\
             [0x00007f5c9f2130c0] f() unknown:0\n"
        );
    }

    #[test]
    fn what_could_not_be_read_is_said() {
        let text = entry("x\n", Some(&Stack::default()));
        assert_eq!(text, "x\n+++ dump failed\n");
    }

    #[test]
    fn a_debug_log_has_microseconds_and_no_text_makes_lines() {
        let heading = heading(1_795_197_189_000_007, 3_600, true, "www", 1, b"/a\n[evil]");
        assert_eq!(
            heading,
            "\n[20-Nov-2026 18:53:09.000007]  [pool www] pid 1\nscript_filename = /a\\x0a[evil]\n"
        );
    }
}
