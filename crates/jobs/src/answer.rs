//! Interprets a job's answer.

use crate::core::{Answer, TaskStatus};
use crate::store::Output;

mod cause;
pub(crate) use cause::explained;

const LATE: &str = "Forkyard-Job-Late:";

/// The delay of a job that asks for a later try without a time.
const SNOOZE_MS: u64 = 60_000;

pub(crate) fn read(stdout: &[u8], exit: u32) -> (Answer, Output) {
    let (head, body) = split(stdout);
    let mut status = 200;
    let (mut word, mut retry_ms) = (None, None);
    for line in head.split(|byte| *byte == b'\n') {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else {
            continue;
        };
        // Bytes that are not text can only be part of a reason.
        let value = String::from_utf8_lossy(&line[colon + 1..]);
        let value = value.trim();
        match &line[..colon] {
            name if name.eq_ignore_ascii_case(b"Status") => {
                let code = value.split(' ').next().and_then(|code| code.parse().ok());
                status = code.unwrap_or(500);
            }
            name if name.eq_ignore_ascii_case(b"Forkyard-Job") => word = Some(value.to_owned()),
            name if name.eq_ignore_ascii_case(b"Retry-After") => {
                let seconds = value.parse::<u64>().ok();
                retry_ms = seconds.map(|seconds| seconds.saturating_mul(1_000));
            }
            _ => {}
        }
    }
    let output = |error| Output {
        result: body.to_vec(),
        error,
        ..Output::default()
    };
    let ok = |status| (Answer::Ok(status), output(None));
    let failed = |why: String| (Answer::Failed, output(Some(why)));
    let reason = |why: &str| match why.is_empty() {
        true => "it says so".to_owned(),
        false => why.to_owned(),
    };
    let is_success = (200..300).contains(&status) && exit == 0;
    let word = word.as_deref();
    match word.map(|word| word.split_once('=').unwrap_or((word, ""))) {
        Some(("discard", _)) => return (Answer::Discard, output(None)),
        Some(("snooze", time)) => return (Answer::Snooze(later_ms(time)), output(None)),
        Some(("again", time)) => {
            let again = Output {
                payload: (!body.is_empty()).then(|| body.to_vec()),
                ..Output::default()
            };
            return (Answer::Snooze(later_ms(time)), again);
        }
        Some(("fail", why)) => return failed(reason(why)),
        Some(("dead", why)) => return (Answer::Dead, output(Some(reason(why)))),
        Some((word, _)) if is_success => match task_status(word) {
            Some(status) => return ok(status),
            None => {
                return failed(format!(
                    "it answers \"Forkyard-Job: {word}\", which means nothing"
                ));
            }
        },
        _ => {}
    }
    match status {
        _ if is_success => ok(TaskStatus::Ok),
        200..300 => failed(format!("exit code {exit}")),
        409 => (Answer::Discard, output(None)),
        429 | 503 if retry_ms.is_some() => (Answer::Snooze(retry_ms.unwrap_or(SNOOZE_MS)), output(None)),
        status => failed(format!("status {status}")),
    }
}

fn later_ms(time: &str) -> u64 {
    let time = forkyard_config::units::duration(time.trim());
    time.map_or(SNOOZE_MS, |time| {
        u64::try_from(time.as_millis()).unwrap_or(SNOOZE_MS)
    })
}

/// Finds a verdict on the error stream. A worker writes it there if the answer's head was already sent, so it could not
/// take effect.
fn late(text: &[u8]) -> Option<String> {
    let at = text
        .windows(LATE.len())
        .position(|window| window == LATE.as_bytes())?;
    let said = text[at + LATE.len()..].split(|byte| *byte == b'\n').next()?;
    let said = String::from_utf8_lossy(said);
    Some(format!(
        "{} came after a part of the answer was sent",
        said.trim()
    ))
}

fn task_status(word: &str) -> Option<TaskStatus> {
    Some(match word {
        "ok" => TaskStatus::Ok,
        "warning" => TaskStatus::Warning,
        "error" => TaskStatus::Error,
        "not_applicable" => TaskStatus::NotApplicable,
        _ => return None,
    })
}

fn split(stdout: &[u8]) -> (&[u8], &[u8]) {
    let ends = [&b"\r\n\r\n"[..], b"\n\n"];
    let found = ends.iter().filter_map(|end| {
        let at = stdout.windows(end.len()).position(|window| window == *end)?;
        Some((at, end.len()))
    });
    match found.min() {
        Some((at, length)) => (&stdout[..at], &stdout[at + length..]),
        None => (&[], stdout),
    }
}

/// Finds the last progress in a job's output: `Forkyard-Progress: 42 sending`, at any place in a line.
pub(crate) fn progress(text: &[u8]) -> Option<(u32, String)> {
    const MARK: &str = "Forkyard-Progress:";
    let text = String::from_utf8_lossy(text);
    let said = text.rsplit_once(MARK)?.1.lines().next()?.trim();
    let (number, rest) = said.split_once(' ').unwrap_or((said, ""));
    let percent: u32 = number.trim_end_matches('%').parse().ok()?;
    Some((percent.min(100), rest.trim().chars().take(200).collect()))
}

#[derive(Debug, Default)]
pub(crate) struct Notices {
    /// The unfinished line, at most [`LONGEST_LINE`] bytes.
    line: Vec<u8>,
    pub(crate) progress: Option<(u32, String)>,
    pub(crate) late: Option<String>,
}

/// The most bytes of an unfinished line that are read.
const LONGEST_LINE: usize = 4_096;

impl Notices {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.line.extend_from_slice(bytes);
        if let Some(end) = self.line.iter().rposition(|byte| *byte == b'\n') {
            let rest = self.line.split_off(end + 1);
            self.end();
            self.line = rest;
        }
        self.line.truncate(LONGEST_LINE);
    }

    pub(crate) fn end(&mut self) {
        let line = std::mem::take(&mut self.line);
        self.progress = progress(&line).or(self.progress.take());
        self.late = self.late.take().or_else(|| late(&line));
    }
}

#[derive(Debug, Default)]
pub(crate) struct Bounded {
    most: usize,
    head: Vec<u8>,
    tail: std::collections::VecDeque<u8>,
    dropped: usize,
}

impl Bounded {
    pub(crate) fn new(most: usize) -> Bounded {
        Bounded {
            most,
            ..Bounded::default()
        }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let room = (self.most / 2).saturating_sub(self.head.len()).min(bytes.len());
        self.head.extend_from_slice(&bytes[..room]);
        self.tail.extend(&bytes[room..]);
        let excess = self.tail.len().saturating_sub(self.most - self.most / 2);
        self.tail.drain(..excess);
        self.dropped += excess;
    }

    pub(crate) fn take(&mut self) -> Vec<u8> {
        let mut text = std::mem::take(&mut self.head);
        if self.dropped > 0 {
            text.extend_from_slice(format!("\n[{} bytes left out]\n", self.dropped).as_bytes());
        }
        text.extend(self.tail.drain(..));
        self.dropped = 0;
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(text: &str) -> (Answer, Option<String>) {
        let (answer, output) = read(text.as_bytes(), 0);
        (answer, output.error)
    }

    #[test]
    fn notices_are_read_however_they_are_split() {
        let text = b"a\nForkyard-Progress: 40 half\nForkyard-Job-Late: fail=x\nForkyard-Progress: 50% more";
        for size in 1..text.len() {
            let mut notices = Notices::default();
            text.chunks(size).for_each(|part| notices.push(part));
            notices.end();
            assert_eq!(notices.progress, Some((50, "more".to_owned())), "{size}");
            let late = "fail=x came after a part of the answer was sent";
            assert_eq!(notices.late.as_deref(), Some(late), "{size}");
        }
        let mut notices = Notices::default();
        (0..100).for_each(|_| notices.push(&[b'x'; 1_000]));
        assert_eq!(notices.line.len(), LONGEST_LINE);
    }

    #[test]
    fn statuses_and_words_say_how_a_job_ended() {
        let ok = |status| (Answer::Ok(status), None);
        for (text, expected) in [
            ("Content-type: text/html\r\n\r\ndone", ok(TaskStatus::Ok)),
            ("", ok(TaskStatus::Ok)),
            ("Forkyard-Job: warning\n\n", ok(TaskStatus::Warning)),
            (
                "forkyard-job: not_applicable\r\n\r\n",
                ok(TaskStatus::NotApplicable),
            ),
            ("Status: 409 Conflict\r\n\r\n", (Answer::Discard, None)),
            (
                "Status: 500\r\nForkyard-Job: discard\r\n\r\n",
                (Answer::Discard, None),
            ),
            ("Forkyard-Job: snooze=90s\r\n\r\n", (Answer::Snooze(90_000), None)),
            (
                "Status: 503\r\nRetry-After: 7\r\n\r\n",
                (Answer::Snooze(7_000), None),
            ),
            ("Status: 503\r\n\r\n", (Answer::Failed, Some("status 503".into()))),
            (
                "Status: 500 Oops\r\nForkyard-Job: ok\r\n\r\n",
                (Answer::Failed, Some("status 500".into())),
            ),
            (
                "Forkyard-Job: fail=no route\r\n\r\n",
                (Answer::Failed, Some("no route".into())),
            ),
        ] {
            assert_eq!(answer(text), expected, "{text}");
        }
        assert_eq!(read(b"\n\nx", 3).0, Answer::Failed);
        let failed = |why: &str| (Answer::Failed, Some(why.to_owned()));
        let dead = |why: &str| (Answer::Dead, Some(why.to_owned()));
        for (bytes, expected) in [
            (&b"Forkyard-Job: fail=caf\xe9\r\n\r\n"[..], failed("caf\u{fffd}")),
            (b"Status: 500 d\xe9faut\r\n\r\n", failed("status 500")),
            (b"Status: \xff\r\n\r\n", failed("status 500")),
            (b"X-\xff: \xfe\nforkyard-job: dead=\xff\n\n", dead("\u{fffd}")),
            (b"Forkyard-Job: dead=no such user\r\n\r\n", dead("no such user")),
            (
                b"Status: 200 OK\r\nForkyard-Job: dead\r\n\r\n",
                dead("it says so"),
            ),
        ] {
            let (answer, output) = read(bytes, 0);
            assert_eq!((answer, output.error), expected, "{bytes:?}");
        }
        assert_eq!(read(b"A: b\r\n\r\nbody\n\nmore", 0).1.result, b"body\n\nmore");
    }

    #[test]
    fn a_job_that_wants_another_try_gives_its_next_payload() {
        let again = |text: &str| {
            let (answer, output) = read(text.as_bytes(), 0);
            (
                answer,
                output
                    .payload
                    .map(|payload| String::from_utf8_lossy(&payload).into_owned()),
            )
        };
        assert_eq!(
            again("Forkyard-Job: again=5s\r\n\r\n{\"try\":2}"),
            (Answer::Snooze(5_000), Some("{\"try\":2}".into()))
        );
        assert_eq!(
            again("Forkyard-Job: again=1m\n\n"),
            (Answer::Snooze(60_000), None)
        );
        assert_eq!(
            again("Forkyard-Job: snooze=1m\n\nx"),
            (Answer::Snooze(60_000), None)
        );
    }

    #[test]
    fn what_comes_too_late_is_found_in_the_error_stream() {
        let text = b"PHP message: x; Forkyard-Job-Late: \"Forkyard-Job: snooze=2s\"\nmore";
        assert_eq!(
            late(text).as_deref(),
            Some("\"Forkyard-Job: snooze=2s\" came after a part of the answer was sent")
        );
        assert_eq!(late(b"nothing of the kind"), None);
    }

    #[test]
    fn the_last_progress_counts() {
        let text = b"PHP message: Forkyard-Progress: 10 begun\nnoise\nForkyard-Progress: 45% half of it\nend";
        assert_eq!(progress(text), Some((45, "half of it".into())));
        assert_eq!(progress(b"Forkyard-Progress: 900"), Some((100, String::new())));
        assert_eq!(progress(b"Forkyard-Progress: soon"), None);
    }

    #[test]
    fn beginning_and_end_are_kept() {
        let mut text = Bounded::new(10);
        for piece in ["abcd", "efgh", "ijkl", "mnop"] {
            text.push(piece.as_bytes());
        }
        assert_eq!(text.take(), b"abcde\n[6 bytes left out]\nlmnop");
        let mut short = Bounded::new(10);
        short.push(b"abcdefgh");
        assert_eq!(short.take(), b"abcdefgh");
    }
}
