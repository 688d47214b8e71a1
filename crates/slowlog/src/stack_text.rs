//! Parses a worker's answer: lines in the format of Python's faulthandler, innermost call first.
//!
//! ```text
//!   File "/srv/app/shop.py", line 12 in basket
//! ```
//!
//! A NUL ends an answer. A line `Task NAME` precedes each task's calls. The worker may send anything; other lines are
//! skipped.

use super::job::{Call, Stack};
use super::memory::TEXT_BYTES;

pub(super) const END: u8 = 0;
pub(super) const MOST_BYTES: usize = 512 * 1024;
const MOST_TASKS: usize = 50;
/// Files of the wrappers: Python's modules, and the script of both languages.
const WRAPPERS: [&[u8]; 2] = [b"forkyard/", b"/proc/self/fd/"];
/// Functions in them that call the application. Their callers are omitted.
const CALLERS: [&[u8]; 5] = [b"_serve", b"serve", b"answer", b"Forkyard.answer", b"_run"];

pub(super) fn stack(answer: &[u8], is_whole: bool, depth: u32) -> Stack {
    let mut calls: Vec<Call> = answer.split(|byte| *byte == b'\n').filter_map(call).collect();
    let caller = calls.iter().position(is_caller);
    calls.truncate(caller.unwrap_or(calls.len()).max(1));
    let is_whole = is_whole && !calls.is_empty();
    calls.truncate(usize::try_from(depth).unwrap_or(usize::MAX));
    Stack { calls, is_whole }
}

fn is_caller(call: &Call) -> bool {
    CALLERS.contains(&call.function.as_slice()) && WRAPPERS.iter().any(|name| call.file.starts_with(name))
}

pub(super) fn tasks(answer: &[u8], depth: u32) -> Vec<(Vec<u8>, Stack)> {
    let mut tasks: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    for line in answer.split(|byte| *byte == b'\n') {
        if let Some(name) = line.strip_prefix(b"Task ") {
            if tasks.len() == MOST_TASKS {
                break;
            }
            tasks.push((name[..name.len().min(TEXT_BYTES)].to_vec(), Vec::new()));
        } else if let Some((_, lines)) = tasks.last_mut() {
            lines.extend_from_slice(line);
            lines.push(b'\n');
        }
    }
    let whole = |(name, lines): (Vec<u8>, Vec<u8>)| (name, stack(&lines, true, depth));
    tasks.into_iter().map(whole).collect()
}

fn call(line: &[u8]) -> Option<Call> {
    const PLACE: &[u8] = b"\", line ";
    let rest = line.strip_prefix(b"  File \"")?;
    // A file name may contain this text; a function name can't, unless the worker lies.
    let at = rest.windows(PLACE.len()).rposition(|part| part == PLACE)?;
    let (file, rest) = (&rest[..at], &rest[at + PLACE.len()..]);
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let number = std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()?;
    let function = rest[digits..].strip_prefix(b" in ")?;
    let short = |text: &[u8]| text[..text.len().min(TEXT_BYTES)].to_vec();
    Some(Call {
        address: 0,
        function: short(function),
        file: short(file),
        line: number,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(stack: &Stack) -> Vec<String> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let call = |call: &Call| format!("{} {}:{}", text(&call.function), text(&call.file), call.line);
        stack.calls.iter().map(call).collect()
    }

    const ANSWER: &[u8] = b"Stack (most recent call first):
  File \"/srv/a \", line 1.py\", line 12 in inner
  File \"/srv/b.py\", line 3 in block in outer
  File \"forkyard/wsgi.py\", line 200 in answer
  File \"/proc/self/fd/4\", line 9 in <module>
";

    #[test]
    fn calls_are_read_and_the_wrappers_left_out() {
        let stack = stack(ANSWER, true, 20);
        assert!(stack.is_whole);
        assert_eq!(
            shown(&stack),
            ["inner /srv/a \", line 1.py:12", "block in outer /srv/b.py:3"]
        );
    }

    #[test]
    fn what_calls_the_wrapper_is_left_out_too() {
        let answer = [
            "  File \"/usr/lib/asyncio.py\", line 1 in wait",
            "  File \"forkyard/asgi.py\", line 2 in receive",
            "  File \"/srv/a.py\", line 3 in answer",
            "  File \"forkyard/asgi.py\", line 3 in serve",
            "  File \"/usr/lib/asyncio.py\", line 4 in run",
            "  File \"forkyard/asgi.py\", line 5 in answer",
        ];
        let stack = stack(answer.join("\n").as_bytes(), true, 20);
        assert_eq!(
            shown(&stack),
            [
                "wait /usr/lib/asyncio.py:1",
                "receive forkyard/asgi.py:2",
                "answer /srv/a.py:3"
            ]
        );
    }

    #[test]
    fn there_are_no_more_than_are_wanted() {
        assert_eq!(shown(&stack(ANSWER, true, 1)).len(), 1);
        assert!(stack(ANSWER, true, 0).calls.is_empty());
    }

    #[test]
    fn a_wrapper_that_waits_itself_is_shown() {
        let stack = stack(b"  File \"forkyard/body.py\", line 7 in read\n", true, 20);
        assert_eq!(shown(&stack), ["read forkyard/body.py:7"]);
        let stack = super::stack(b"  File \"forkyard/wsgi.py\", line 7 in _serve\n", true, 20);
        assert_eq!(
            shown(&stack),
            ["_serve forkyard/wsgi.py:7"],
            "between two parts of a body"
        );
    }

    #[test]
    fn what_breaks_off_or_is_no_answer_is_not_whole() {
        assert!(!stack(ANSWER, false, 20).is_whole);
        assert!(!stack(b"", true, 20).is_whole);
        for nonsense in [
            &b"  File \"a\", line x in f"[..],
            b"  File \"a\", line 99999999999 in f",
            b"  File \"a\", line 1",
            b"  File \"a",
            b"\xff\xfe\n\n\n",
        ] {
            assert_eq!(stack(nonsense, true, 20), Stack::default());
        }
    }

    #[test]
    fn texts_are_short() {
        let long = format!("  File \"{0}\", line 1 in {0}", "x".repeat(5000));
        let stack = stack(long.as_bytes(), true, 20);
        assert_eq!(
            (stack.calls[0].file.len(), stack.calls[0].function.len()),
            (TEXT_BYTES, TEXT_BYTES)
        );
    }

    #[test]
    fn tasks_have_their_own_calls_and_are_bounded() {
        let answer = b"  File \"lost\", line 1 in f\nTask a\n  File \"/x.py\", line 1 in f\nTask b\n";
        let found = tasks(answer, 20);
        assert_eq!(found.len(), 2);
        assert_eq!(
            (found[0].0.as_slice(), found[1].0.as_slice()),
            (&b"a"[..], &b"b"[..])
        );
        assert_eq!(shown(&found[0].1), ["f /x.py:1"]);
        assert!(!found[1].1.is_whole);
        assert_eq!(tasks(&b"Task x\n".repeat(1000), 20).len(), MOST_TASKS);
    }
}
