//! `forkyard events`: what happened to the daemon and its pools.

use super::control::{CommandResult, Daemon, answer, ask_status, missing, printable, tell, unexpected};
use super::health::time;
use super::table::{self, aligned, formatted, local};
use clap::Args;
use forkyard_protocol::control::{Answer, Request};
use forkyard_protocol::past_event::PastEvent;
use forkyard_sys::clock::epoch_millis;
use std::process::ExitCode;
use std::time::Duration;

/// The arguments.
#[derive(Debug, Args)]
pub(super) struct Events {
    #[command(flatten)]
    daemon: Daemon,
    /// Only events of this pool and its applications
    #[arg(value_name = "POOL")]
    pool: Option<String>,
    /// Only events of the last minutes, hours or days, such as 90s, 30m, 1h or 2d
    #[arg(long, value_name = "TIME", value_parser = time)]
    since: Option<Duration>,
    /// As JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &Events) -> ExitCode {
    tell(shown(arguments))
}

fn shown(arguments: &Events) -> CommandResult {
    let mut events = match answer(&arguments.daemon, &Request::Events {})? {
        Answer::Events { events } => events,
        other => return Err(unexpected(other)),
    };
    let pool = arguments.pool.as_deref();
    events.retain(|event| is_wanted(event, pool, None, 0));
    // A pool that was removed still has its events.
    if let Some(pool) = arguments.pool.as_ref().filter(|_| events.is_empty()) {
        let status = ask_status(&arguments.daemon)?;
        if let Some(missing) = missing(&status, std::slice::from_ref(pool)) {
            return Err(missing);
        }
    }
    events.retain(|event| is_wanted(event, pool, arguments.since, epoch_millis()));
    Ok(table::shown(&events[..], arguments.json, table))
}

/// Whether the event, or the last of several, is recent enough and of that pool. An application's pool is named after
/// its application pool.
fn is_wanted(event: &PastEvent, pool: Option<&str>, since: Option<Duration>, now_ms: u64) -> bool {
    let last = event.last_ms.unwrap_or(event.time_ms);
    let is_recent = since.is_none_or(|since| u128::from(now_ms.saturating_sub(last)) <= since.as_millis());
    let name = event.what.pool.as_deref().unwrap_or_default();
    let is_of = |pool: &str| {
        let rest = name.strip_prefix(pool);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
    };
    is_recent && pool.is_none_or(is_of)
}

fn table(events: &[PastEvent]) -> String {
    let lines = events.iter().map(|event| {
        let what = &event.what;
        let mut remarks: Vec<String> = what.detail.iter().map(|detail| printable(detail)).collect();
        if let Some(took) = what.took_ms {
            remarks.push(format!("took {}.{:03} s", took / 1000, took % 1000));
        }
        if event.count > 1 {
            let last = event.last_ms.unwrap_or(event.time_ms);
            let last = formatted(last / 1000, "%H:%M:%S");
            remarks.push(format!("{} times until {last}", event.count));
        }
        let remarks = match remarks.is_empty() {
            true => String::new(),
            false => format!(" ({})", remarks.join("; ")),
        };
        vec![
            local(event.time_ms / 1000),
            what.pool.as_deref().map_or_else(|| "-".to_owned(), printable),
            what.kind.name().to_owned(),
            printable(&what.text) + &remarks,
        ]
    });
    aligned(lines, 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use forkyard_protocol::past_event::{EventKind, Happening};

    fn event(time_ms: u64, pool: Option<&str>) -> PastEvent {
        let what = Happening::of_daemon(EventKind::WorkerDied, "a worker\u{1b} exited");
        PastEvent {
            number: 1,
            time_ms,
            last_ms: None,
            count: 1,
            what: Happening {
                pool: pool.map(str::to_owned),
                ..what
            },
        }
    }

    #[test]
    fn a_pool_has_the_events_of_its_applications() {
        let is_wanted = |of: Option<&str>, pool| is_wanted(&event(0, of), pool, None, 0);
        assert!(is_wanted(Some("www"), Some("www")) && is_wanted(Some("www:/a"), Some("www")));
        assert!(!is_wanted(Some("www2"), Some("www")) && !is_wanted(None, Some("www")));
        assert!(is_wanted(None, None) && is_wanted(Some("www"), None));
    }

    #[test]
    fn the_last_of_several_events_decides_whether_they_are_recent() {
        let minute = Some(Duration::from_secs(60));
        let mut one = event(100_000, None);
        assert!(is_wanted(&one, None, minute, 160_000) && !is_wanted(&one, None, minute, 160_001));
        one.last_ms = Some(150_000);
        assert!(is_wanted(&one, None, minute, 160_001));
        // The clock was set back.
        assert!(is_wanted(&one, None, minute, 5));
    }

    #[test]
    fn an_event_is_a_line() {
        let mut one = event(0, Some("www"));
        one.count = 3;
        one.last_ms = Some(2000);
        one.what = one.what.with_detail("child\n7").lasting(1250);
        let text = table(&[one, event(0, None)]);
        let lines: Vec<&str> = text.lines().collect();
        let end = "  www  worker-died  a worker? exited (child?7; took 1.250 s; 3 times until ";
        assert!(lines[0].contains(end), "{text}");
        assert!(
            lines[1].ends_with("  -    worker-died  a worker? exited"),
            "{text}"
        );
        assert_eq!(lines.len(), 2);
    }
}
