//! Formats an entry as php-fpm does.

use super::job::{Finding, Stack, TracedProgram};
use forkyard_base::text::line;
use std::fmt::Write;
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;
use time::{OffsetDateTime, UtcOffset};

const TIME: &[BorrowedFormatItem<'static>] =
    format_description!("[day]-[month repr:short]-[year] [hour]:[minute]:[second]");
const FRACTION: &[BorrowedFormatItem<'static>] = format_description!(".[subsecond digits:6]");

/// The first lines of an entry: time, pool, worker and script. `epoch_micros` counts from 1970 and the zone is in
/// seconds east of UTC. `is_exact` adds microseconds; `request` (method, path and query) is set if the script's name
/// explains little.
pub fn heading(
    epoch_micros: u64,
    utc_offset_seconds: i32,
    is_exact: bool,
    pool: &str,
    pid: i32,
    script: &[u8],
    request: Option<[&[u8]; 3]>,
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
    let mut text = format!(
        "\n[{whole}{fraction}]  [pool {pool}] pid {pid}\nscript_filename = {}\n",
        shown(script)
    );
    if let Some([method, path, query]) = request {
        let mark = if query.is_empty() { "" } else { "?" };
        let _ = writeln!(
            text,
            "request = {} {}{mark}{}",
            shown(method),
            shown(path),
            shown(query)
        );
    }
    text
}

pub(super) fn entry(heading: &str, finding: &Finding) -> String {
    let mut text = heading.to_owned();
    match finding {
        Finding::Calls(stack) => add_stack(&mut text, stack),
        Finding::Tasks(tasks) => {
            for (name, stack) in tasks {
                let _ = writeln!(text, "task = {}", shown(name));
                add_stack(&mut text, stack);
            }
        }
        Finding::Programs(programs) => programs
            .iter()
            .for_each(|program| add_program(&mut text, program)),
    }
    text
}

fn add_stack(text: &mut String, stack: &Stack) {
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
}

fn add_program(text: &mut String, program: &TracedProgram) {
    let command = program.command.iter().map(|argument| shown(argument));
    let _ = writeln!(
        text,
        "program = pid {}, state {}{}{}: {}",
        program.pid,
        program.state,
        if program.waits_in.is_empty() { "" } else { ", in " },
        shown(&program.waits_in),
        command.collect::<Vec<_>>().join(" ")
    );
}

fn shown(text: &[u8]) -> String {
    line(&String::from_utf8_lossy(text)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Call;

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
        let heading = heading(
            1_795_197_189_000_007,
            0,
            false,
            "www",
            4119,
            b"/tmp/slow.php",
            None,
        );
        assert_eq!(
            entry(&heading, &Finding::Calls(stack)),
            "\n[20-Nov-2026 17:53:09]  [pool www] pid 4119\n\
             script_filename = /tmp/slow.php\n\
             [0x00007f5c9f213110] usleep() /tmp/slow.php:1\n\
             [0x00007f5c9f2130c0] f() unknown:0\n"
        );
    }

    #[test]
    fn what_could_not_be_read_is_said() {
        let text = entry("x\n", &Finding::Calls(Stack::default()));
        assert_eq!(text, "x\n+++ dump failed\n");
    }

    #[test]
    fn a_debug_log_has_microseconds_and_no_text_makes_lines() {
        let heading = heading(1_795_197_189_000_007, 3_600, true, "www", 1, b"/a\n[evil]", None);
        assert_eq!(
            heading,
            "\n[20-Nov-2026 18:53:09.000007]  [pool www] pid 1\nscript_filename = /a\\x0a[evil]\n"
        );
    }

    #[test]
    fn a_request_without_a_script_is_named() {
        let heading = heading(0, 0, false, "app", 7, b"", Some([b"GET", b"/a\x1b", b"b=c"]));
        assert_eq!(
            heading,
            "\n[01-Jan-1970 00:00:00]  [pool app] pid 7\nscript_filename = \nrequest = GET /a\\x1b?b=c\n"
        );
    }

    #[test]
    fn tasks_and_programs_have_lines_of_their_own() {
        let stack = Stack {
            calls: vec![Call {
                address: 0,
                function: b"f".to_vec(),
                file: b"/a.py".to_vec(),
                line: 3,
            }],
            is_whole: true,
        };
        let tasks = Finding::Tasks(vec![(b"Task-1\n".to_vec(), stack)]);
        assert_eq!(
            entry("", &tasks),
            "task = Task-1\\x0a\n[0x0000000000000000] f() /a.py:3\n"
        );
        let program = |waits_in: &[u8]| TracedProgram {
            pid: 9,
            state: 'S',
            waits_in: waits_in.to_vec(),
            command: vec![b"sleep".to_vec(), b"1\n".to_vec()],
        };
        let programs = Finding::Programs(vec![program(b"do_wait"), program(b"")]);
        assert_eq!(
            entry("", &programs),
            "program = pid 9, state S, in do_wait: sleep 1\\x0a\nprogram = pid 9, state S: sleep 1\\x0a\n"
        );
    }
}
