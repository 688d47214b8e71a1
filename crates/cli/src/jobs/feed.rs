//! Pushes each line of a file, standard input or a command as a job, with a limit on waiting jobs. The store keeps the
//! progress: after a crash of the job process, or when the command is repeated with the same name, feeding continues
//! after the last added job.

use super::answers::encoded;
use super::conversation::PATIENCE;
use super::display::{Bar, sequence_bar};
use super::{Conversation, LOOK, Outcome, Push, failure, new_job};
use clap::Args;
use forkyard_protocol::jobs::{
    JobsAnswer, JobsRequest, NewJob, SequenceAdd, SequenceBegin, SequenceName, SequenceView,
};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The most jobs per request.
const MOST_TOGETHER: usize = 200;
/// The most bytes per request, and per line.
const MOST_BYTES: usize = 4 << 20;
/// The retry interval.
const RETRY: Duration = Duration::from_millis(100);

/// The source of a sequence's jobs.
#[derive(Debug, Default, Args)]
#[group(multiple = false)]
pub(super) struct Source {
    /// Push a job for each line of this file, which is its payload; `-`: of standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["payload", "key"])]
    each_line: Option<PathBuf>,
    /// Push a job for each line that this command writes; it is run by the shell
    #[arg(long, value_name = "COMMAND", conflicts_with_all = ["payload", "key"])]
    each_line_of: Option<String>,
    #[command(flatten)]
    more: SourceMore,
}

/// What else there is about a source.
#[derive(Debug, Default, Args)]
#[group(multiple = true)]
pub(super) struct SourceMore {
    /// The sequence's name: a command with the same name continues where a killed one stopped
    #[arg(long, value_name = "NAME")]
    sequence: Option<String>,
    /// How many lines there are; counted before in a file
    #[arg(long, value_name = "COUNT")]
    total: Option<u64>,
    /// The most jobs of the sequence that wait; the source is read as they run
    #[arg(long, value_name = "COUNT", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
    ahead: u32,
}

impl Source {
    pub(super) fn is_named(&self) -> bool {
        self.each_line.is_some() || self.each_line_of.is_some()
    }
}

/// A source's lines, and the command that wrote them. Its exit code shows whether they are complete.
struct Lines {
    reader: Box<dyn BufRead>,
    command: Option<Child>,
}

impl Lines {
    fn open(source: &Source) -> Outcome<Lines> {
        if let Some(command) = &source.each_line_of {
            let cannot = |error| failure(format!("sh -c {command:?}: {error}"));
            let mut shell = Command::new("sh");
            shell
                .args(["-c", command])
                .stdin(Stdio::null())
                .stdout(Stdio::piped());
            let mut child = shell.spawn().map_err(cannot)?;
            let output = child.stdout.take();
            let output = output.ok_or_else(|| cannot(std::io::Error::other("it has no output")))?;
            return Ok(Lines {
                reader: Box::new(BufReader::new(output)),
                command: Some(child),
            });
        }
        let reader: Box<dyn BufRead> = match &source.each_line {
            Some(path) if path.as_os_str() != "-" => {
                let file =
                    File::open(path).map_err(|error| failure(format!("{}: {error}", path.display())))?;
                Box::new(BufReader::new(file))
            }
            _ => Box::new(BufReader::new(std::io::stdin())),
        };
        Ok(Lines {
            reader,
            command: None,
        })
    }

    /// Returns the next line without its line end.
    fn next(&mut self) -> Outcome<Option<Vec<u8>>> {
        let mut line = Vec::new();
        let mut limited = (&mut self.reader).take(MOST_BYTES as u64);
        let read = limited.read_until(b'\n', &mut line);
        read.map_err(|error| failure(format!("a line can't be read: {error}")))?;
        if line.is_empty() {
            return Ok(None);
        }
        if line.last() == Some(&b'\n') {
            line.pop();
        } else if line.len() >= MOST_BYTES {
            let message = format!("a line has more than {MOST_BYTES} bytes");
            return Err(failure(message));
        }
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        Ok(Some(line))
    }

    /// Checks that the source was read completely.
    fn end(self) -> Outcome<()> {
        drop(self.reader);
        let Some(mut command) = self.command else {
            return Ok(());
        };
        match command.wait() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(failure(format!("the command ended with {status}"))),
            Err(error) => Err(failure(format!("the command: {error}"))),
        }
    }
}

/// Counts the lines of a regular file; `None` for anything else, which can be read only once.
fn count_lines(source: &Source) -> Option<u64> {
    let path = source.each_line.as_ref()?;
    if !path.metadata().ok()?.is_file() {
        return None;
    }
    let mut reader = BufReader::new(File::open(path).ok()?);
    let (mut count, mut last) = (0, b'\n');
    loop {
        let block = reader.fill_buf().ok()?;
        let Some(end) = block.last() else {
            return Some(count + u64::from(last != b'\n'));
        };
        last = *end;
        count += block.iter().filter(|byte| **byte == b'\n').count() as u64;
        let length = block.len();
        reader.consume(length);
    }
}

/// Pushes all lines of a source.
pub(super) fn feed(conversation: &mut Conversation, mut push: Push) -> Outcome {
    let (source, waits) = (std::mem::take(&mut push.source), push.wait);
    let mut template = new_job(push)?;
    template
        .content_type
        .get_or_insert_with(|| "text/plain".to_owned());
    let more = &source.more;
    let bar = Bar::new(conversation.json);
    let begin = JobsRequest::SequenceBegin(SequenceBegin {
        queue: template.queue.clone(),
        name: more.sequence.clone(),
        total: more.total.or_else(|| count_lines(&source)),
    });
    let mut lines = Lines::open(&source)?;
    let mut view = ask(conversation, &begin)?;
    // Skip the lines that an earlier command added.
    for _ in 0..view.given {
        if lines.next()?.is_none() {
            break;
        }
    }
    let mut is_more = true;
    while is_more && view.state == "open" {
        let (mut jobs, mut bytes) = (Vec::new(), 0);
        while jobs.len() < MOST_TOGETHER.min(more.ahead as usize) && bytes < MOST_BYTES {
            let Some(line) = lines.next()? else {
                is_more = false;
                break;
            };
            bytes += line.len();
            jobs.push(job_of(&template, line)?);
        }
        if !jobs.is_empty() {
            view = add(conversation, &view, jobs)?;
        }
        while view.waiting >= u64::from(more.ahead) && view.state == "open" {
            bar.show(&sequence_bar(&view));
            std::thread::sleep(LOOK);
            view = ask(conversation, &show(view.id))?;
        }
        bar.show(&sequence_bar(&view));
    }
    if view.state == "open" {
        lines.end().inspect_err(|_| bar.clear())?;
        view = ask(
            conversation,
            &JobsRequest::SequenceEnd(SequenceName { id: view.id }),
        )?;
    }
    if waits {
        return wait_with(conversation, view, bar);
    }
    bar.clear();
    let is_well = view.state != "cancelled";
    told(conversation, view, is_well)
}

fn job_of(template: &NewJob, line: Vec<u8>) -> Outcome<NewJob> {
    let shown = String::from_utf8_lossy(&line).into_owned();
    let encoded = encoded(line, template.content_type.as_deref());
    let (payload, payload_base64) =
        encoded.ok_or_else(|| failure(format!("the line {shown:?} is no JSON")))?;
    Ok(NewJob {
        payload,
        payload_base64,
        ..template.clone()
    })
}

/// Adds jobs exactly once, even if the job process crashes.
fn add(conversation: &mut Conversation, before: &SequenceView, jobs: Vec<NewJob>) -> Outcome<SequenceView> {
    let wanted = before.given + jobs.len() as u64;
    let request = JobsRequest::SequenceAdd(SequenceAdd {
        id: before.id,
        from: before.given,
        jobs,
    });
    let view = ask(conversation, &request)?;
    if view.state == "open" && view.given != wanted {
        let message = format!(
            "another command feeds sequence {}: it has {} jobs, and {wanted} were expected",
            view.id, view.given
        );
        return Err(failure(message));
    }
    Ok(view)
}

fn show(id: i64) -> JobsRequest {
    JobsRequest::SequenceShow(SequenceName { id })
}

/// Sends an idempotent request. Retries if the job process is down.
fn ask(conversation: &mut Conversation, request: &impl serde::Serialize) -> Outcome<SequenceView> {
    let until = Instant::now() + PATIENCE;
    loop {
        let error = match conversation.try_ask(request, Some(conversation.push_timeout)) {
            Ok(JobsAnswer::Sequence { sequence }) => return Ok(*sequence),
            Ok(JobsAnswer::Error {
                message,
                is_temporary: true,
                ..
            }) => failure(message),
            Ok(JobsAnswer::Error { message, .. }) => return Err(failure(message)),
            Ok(_) => return Err(failure("the answer is about something else")),
            Err(error) => {
                conversation.begin_again();
                error
            }
        };
        if Instant::now() >= until {
            return Err(error);
        }
        std::thread::sleep(RETRY);
    }
}

fn told(conversation: &Conversation, view: SequenceView, is_well: bool) -> Outcome {
    let sequence = Box::new(view);
    conversation.shown_as(JobsAnswer::Sequence { sequence }, is_well)
}

/// Waits until the sequence's last job has ended.
pub(super) fn wait(conversation: &mut Conversation, id: i64) -> Outcome {
    let view = ask(conversation, &show(id))?;
    let bar = Bar::new(conversation.json);
    wait_with(conversation, view, bar)
}

fn wait_with(conversation: &mut Conversation, mut view: SequenceView, bar: Bar) -> Outcome {
    while !view.is_over() {
        bar.show(&sequence_bar(&view));
        std::thread::sleep(LOOK);
        view = ask(conversation, &show(view.id))?;
    }
    bar.clear();
    let is_well = view.state == "complete" && view.failed + view.cancelled == 0;
    told(conversation, view, is_well)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &'static [u8]) -> Lines {
        Lines {
            reader: Box::new(text),
            command: None,
        }
    }

    #[test]
    fn lines_come_without_their_ends_and_an_empty_one_is_a_line() {
        let mut lines = lines(b"a\r\n\nlast");
        let mut found = Vec::new();
        while let Ok(Some(line)) = lines.next() {
            found.push(String::from_utf8(line).expect("text"));
        }
        assert_eq!(found, ["a", "", "last"]);
    }

    #[test]
    fn a_line_is_text_unless_json_is_asked_for() {
        let job = |kind: &str, line: &[u8]| {
            let content_type = Some(kind.to_owned());
            job_of(
                &NewJob {
                    content_type,
                    ..NewJob::default()
                },
                line.to_vec(),
            )
        };
        let payload = |kind: &str, line: &[u8]| job(kind, line).ok().map(|job| job.payload);
        let text = job("text/plain", b"a \xff")
            .ok()
            .and_then(|job| job.payload_base64);
        assert_eq!(text.as_deref(), Some("YSD/"));
        assert_eq!(payload("application/json", b"[1]"), Some(b"[1]".to_vec()));
        assert_eq!(payload("application/json", b"[1"), None);
    }
}
