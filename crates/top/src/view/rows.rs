//! The tables of a frame.

use super::table::Kind::{self, Number, Text, Word};
use super::table::{Cell, Column, Key, Row, Table};
use super::theme::{Hue, Theme};
use super::units::{bytes, count, count_or_none, percent, printable, rate, time};
use super::{Process, Target, View};
use crate::model::{ApplicationRow, FailureRow, Frame, PoolRow, QueueRow, RouteRow, WorkerRow};
use crate::readings::Part;
use std::cmp::Reverse;

/// What cells are made for.
#[derive(Clone, Copy)]
struct Shown<'f> {
    frame: &'f Frame,
    theme: Theme,
}

/// A column's head, kind and rank, and a row's cell in it.
type Columns<T> = [(&'static str, Kind, u8, fn(&T, Shown<'_>) -> Cell)];

/// Returns the table of a view, in the order of its own.
pub(crate) fn table(view: View, frame: &Frame, theme: Theme) -> Table {
    let shown = Shown { frame, theme };
    match view {
        View::Pools => {
            let target = |row: &PoolRow| Target::Pool(row.name.clone());
            of(POOLS, &frame.pools, target, shown, "no pools")
        }
        View::Workers => of(WORKERS, &frame.workers, process, shown, "no workers"),
        View::Requests => {
            let mut busy: Vec<&WorkerRow> = frame.workers.iter().filter(|it| it.is_busy).collect();
            let age = |row: &WorkerRow| row.age.unwrap_or(0.0);
            busy.sort_by(|one, other| age(other).total_cmp(&age(one)));
            of(REQUESTS, busy, process, shown, "no requests in flight")
        }
        View::Routes => {
            let mut routes: Vec<&RouteRow> = frame.routes.iter().collect();
            let busy = |row: &RouteRow| row.busy.unwrap_or(0.0);
            routes.sort_by(|one, other| busy(other).total_cmp(&busy(one)));
            let empty = match frame.unknown.contains(&Part::Routes) {
                true => "this daemon does not count by route",
                false => "no requests yet",
            };
            let target = |row: &RouteRow| Target::Route {
                pool: row.pool.clone(),
                route: row.route.clone(),
            };
            of(ROUTES, routes, target, shown, empty)
        }
        View::Failures => {
            let mut failures: Vec<&FailureRow> = frame.failures.iter().collect();
            failures.sort_by_key(|row| Reverse(row.time));
            let at = |row: &FailureRow| frame.failures.iter().position(|it| std::ptr::eq(it, row));
            let target = |row: &FailureRow| Target::Failure {
                pool: row.pool.clone(),
                at: at(row).unwrap_or(usize::MAX),
                id: row.id.clone(),
            };
            let empty = "nothing was slow, and nothing failed";
            of(FAILURES, failures, target, shown, empty)
        }
        View::Applications => {
            let target = |row: &ApplicationRow| Target::Application {
                pool: row.pool.clone(),
                name: row.name.clone(),
            };
            let empty = "no application has been started";
            of(APPLICATIONS, &frame.applications, target, shown, empty)
        }
        View::Jobs => {
            let empty = match frame.has_jobs {
                true => "no queues, or the process for jobs does not answer",
                false => "background jobs are not configured",
            };
            let target = |row: &QueueRow| Target::Queue(row.name.clone());
            of(JOBS, &frame.jobs, target, shown, empty)
        }
    }
}

fn of<'r, T: 'r>(
    columns: &Columns<T>,
    rows: impl IntoIterator<Item = &'r T>,
    target: impl Fn(&T) -> Target,
    shown: Shown<'_>,
    empty: &str,
) -> Table {
    let rows = rows.into_iter().map(|row| Row {
        cells: columns.iter().map(|(.., cell)| cell(row, shown)).collect(),
        target: target(row),
    });
    let columns = columns.iter().map(|(head, kind, rank, _)| Column {
        head,
        kind: *kind,
        rank: *rank,
    });
    Table {
        columns: columns.collect(),
        rows: rows.collect(),
        sorted: None,
        empty: empty.to_owned(),
    }
}

fn word(text: &str) -> Cell {
    let text = printable(text);
    Cell {
        key: if text.is_empty() {
            Key::Missing
        } else {
            Key::Word(text.clone())
        },
        text,
        hue: Hue::Plain,
    }
}

fn word_or_none(text: Option<&str>) -> Cell {
    word(text.unwrap_or("-"))
}

fn number(value: Option<f64>, text: String) -> Cell {
    Cell {
        text,
        key: value.map_or(Key::Missing, Key::Number),
        hue: Hue::Plain,
    }
}

fn counted(value: u64) -> Cell {
    number(Some(value as f64), count(value))
}

fn maybe(value: Option<u64>) -> Cell {
    number(value.map(|value| value as f64), count_or_none(value))
}

fn lasting(seconds: Option<f64>) -> Cell {
    number(seconds, time(seconds))
}

fn part(part: Option<f64>) -> Cell {
    number(part, percent(part))
}

fn per_second(value: Option<f64>) -> Cell {
    number(value, rate(value))
}

fn size(value: Option<u64>) -> Cell {
    number(value.map(|value| value as f64), bytes(value))
}

impl Cell {
    fn hued(self, hue: Hue) -> Cell {
        Cell { hue, ..self }
    }

    /// Marks a value that is over a limit.
    fn bad_if(self, is_bad: bool) -> Cell {
        if is_bad { self.hued(Hue::Bad) } else { self }
    }
}

const POOLS: &Columns<PoolRow> = &[
    ("POOL", Text(8), 0, |row, _| word(&row.name)),
    ("STATE", Word, 2, |row, _| {
        let hue = match row.state.as_str() {
            "serving" => Hue::Good,
            "down" | "failing" | "unreachable" => Hue::Bad,
            _ => Hue::Changing,
        };
        word(&row.state).hued(hue)
    }),
    ("BUSY", Number, 0, |row, _| {
        let is_full = row.busy >= row.max && row.max > 0;
        let text = format!("{}/{}", row.busy, row.max);
        number(Some(f64::from(row.busy)), text).bad_if(is_full)
    }),
    ("TREND", Word, 7, |row, shown| Cell {
        text: shown.theme.bars(&row.history),
        key: row.history.last().map_or(Key::Missing, |last| Key::Number(*last)),
        hue: Hue::Plain,
    }),
    ("QUEUE", Number, 1, |row, _| {
        maybe(row.waiting).bad_if(row.waiting > Some(0))
    }),
    ("SAT", Number, 6, |row, _| part(row.saturated)),
    ("REQ/S", Number, 0, |row, _| per_second(row.requests_per_second)),
    ("P50", Number, 4, |row, _| lasting(row.p50)),
    ("P95", Number, 11, |row, _| lasting(row.p95)),
    ("P99", Number, 3, |row, _| lasting(row.p99)),
    ("WAIT95", Number, 10, |row, _| lasting(row.wait_p95)),
    ("ERR", Number, 5, |row, _| {
        part(row.errors).bad_if(row.errors.is_some_and(|part| part >= 0.01))
    }),
    ("SLOW", Number, 9, |row, _| {
        maybe(row.slow).bad_if(row.slow > Some(0))
    }),
    ("CPU", Number, 3, |row, _| part(row.cpu)),
    ("MEM", Number, 4, |row, _| size(row.memory)),
    ("WHY", Text(22), 1, |row, _| {
        word_or_none(row.why.words().as_deref())
    }),
    ("LAST ERROR", Text(20), 8, last_error),
];

fn last_error(row: &PoolRow, shown: Shown<'_>) -> Cell {
    let error = row.error.as_ref().map(|error| {
        let age = time(Some(shown.frame.time.saturating_sub(error.time) as f64));
        let over = if error.is_over { "over, " } else { "" };
        format!("{over}{age} ago: {}", error.summary)
    });
    let is_over = row.problem.is_none() && row.error.as_ref().is_some_and(|error| error.is_over);
    let text = row.problem.clone().or(error).unwrap_or_default();
    word(&text).hued(if is_over { Hue::Dim } else { Hue::Bad })
}

const WORKERS: &Columns<WorkerRow> = &[
    ("PID", Number, 0, pid),
    ("POOL", Text(8), 0, |row, _| word(&row.pool)),
    ("KIND", Word, 5, |row, _| {
        word(match row.kind {
            crate::model::processes::Kind::Worker => "worker",
            crate::model::processes::Kind::Program => "program",
            crate::model::processes::Kind::Instance => "instance",
        })
    }),
    ("STATE", Word, 0, |row, _| {
        word(&row.state).hued(if row.is_busy { Hue::Changing } else { Hue::Plain })
    }),
    ("FOR", Number, 1, |row, _| lasting(row.age)),
    ("REQUESTS", Number, 3, |row, _| counted(row.requests)),
    ("REQ/S", Number, 6, |row, _| per_second(row.requests_per_second)),
    ("SESSIONS", Number, 7, |row, _| counted(row.sessions)),
    ("CPU", Number, 2, |row, _| part(row.cpu)),
    ("MEM", Number, 2, |row, _| size(row.memory)),
    ("WHY", Text(22), 1, |row, _| word(&why(row))),
    ("REQUEST", Text(16), 0, |row, _| {
        word(&asked(row)).hued(if row.is_busy { Hue::Plain } else { Hue::Dim })
    }),
];

fn pid(row: &WorkerRow, _: Shown<'_>) -> Cell {
    let text = row.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string());
    // The lowest first.
    number(row.pid.map(|pid| -f64::from(pid)), text)
}

fn process(row: &WorkerRow) -> Target {
    Target::Process(Process {
        pool: row.pool.clone(),
        application: row.application.clone(),
        pid: row.pid.unwrap_or(0),
        requests: row.requests,
        is_busy: row.is_busy,
    })
}

/// Returns what a process does now, or how its time was divided.
fn why(row: &WorkerRow) -> String {
    let seen = row.last_seen.as_ref().map(|seen| match seen.detail.as_str() {
        "" => seen.cause.name().to_owned(),
        detail => format!("{}: {detail}", seen.cause.name()),
    });
    match (row.why.words(), seen) {
        (Some(parts), Some(seen)) => format!("{parts} ({seen})"),
        (parts, seen) => parts.or(seen).unwrap_or_else(|| "-".to_owned()),
    }
}

fn asked(row: &WorkerRow) -> String {
    match (row.request.as_str(), &row.application) {
        ("", Some(application)) => application.clone(),
        ("", None) => row.script.clone(),
        (request, _) => request.to_owned(),
    }
}

const REQUESTS: &Columns<WorkerRow> = &[
    ("PID", Number, 0, pid),
    ("POOL", Text(8), 0, |row, _| word(&row.pool)),
    ("FOR", Number, 0, |row, _| lasting(row.age)),
    ("CPU", Number, 2, |row, _| part(row.cpu)),
    ("STATE", Word, 3, |row, _| word(&row.state)),
    ("REQUEST", Text(16), 0, |row, _| word(&asked(row))),
    ("WHY", Text(22), 1, |row, _| word(&why(row))),
    ("SCRIPT", Text(12), 4, |row, _| word(&row.script)),
];

const ROUTES: &Columns<RouteRow> = &[
    ("POOL", Text(8), 1, |row, _| word(&row.pool)),
    ("ROUTE", Text(16), 0, |row, _| word(&row.route)),
    ("BUSY", Number, 0, |row, _| per_second(row.busy)),
    ("REQ/S", Number, 0, |row, _| per_second(row.requests_per_second)),
    ("REQUESTS", Number, 4, |row, _| counted(row.requests)),
    ("P50", Number, 2, |row, _| lasting(row.p50)),
    ("P95", Number, 1, |row, _| lasting(row.p95)),
    ("ERRORS", Number, 3, |row, _| {
        maybe(row.errors).bad_if(row.errors > Some(0))
    }),
    ("GROWTH", Number, 5, |row, _| size(Some(row.memory_growth))),
    ("WHY", Text(22), 1, |row, _| {
        word_or_none(row.why.words().as_deref())
    }),
];

const FAILURES: &Columns<FailureRow> = &[
    ("AGO", Number, 0, |row, shown| {
        let age = row.time.map(|time| shown.frame.time.saturating_sub(time) as f64);
        // The latest first.
        number(age.map(|age| -age), time(age))
    }),
    ("POOL", Text(8), 0, |row, _| word(&row.pool)),
    ("KIND", Word, 0, |row, _| word(row.kind.name())),
    ("COUNT", Number, 1, |row, _| maybe(row.count)),
    ("NEW", Number, 2, |row, _| {
        maybe(row.new).bad_if(row.new > Some(0))
    }),
    ("ID", Word, 1, |row, _| word(row.id.as_deref().unwrap_or(""))),
    ("WHAT", Text(20), 0, |row, _| word(&row.text)),
];

const APPLICATIONS: &Columns<ApplicationRow> = &[
    ("APPLICATION", Text(16), 0, |row, _| word(&row.name)),
    ("POOL", Text(8), 2, |row, _| word(&row.pool)),
    ("BUSY", Number, 0, |row, _| match row.starting {
        Some(_) => word("-"),
        None => number(Some(row.busy as f64), format!("{}/{}", row.busy, row.instances)),
    }),
    ("SESSIONS", Number, 5, |row, _| counted(row.sessions)),
    ("WAITING", Number, 1, |row, _| {
        counted(row.waiting).bad_if(row.waiting > 0)
    }),
    ("OLDEST", Number, 2, |row, _| lasting(row.oldest_wait)),
    ("REQ/S", Number, 0, |row, _| per_second(row.requests_per_second)),
    ("REQUESTS", Number, 4, |row, _| counted(row.requests)),
    ("RESTARTS", Number, 6, |row, _| counted(row.restarts)),
    ("MEM", Number, 3, |row, _| size(row.memory)),
    ("GROUP", Word, 7, |row, _| word_or_none(row.group.as_deref())),
    ("STATE", Text(12), 0, |row, _| match &row.starting {
        Some(step) => {
            let (age, whole) = (time(Some(step.age)), time(Some(step.whole)));
            let text = format!("starting: {} for {age}, in all {whole}", step.name);
            word(&text).hued(Hue::Changing)
        }
        None => word(&row.remarks.join(", ")).hued(Hue::Bad),
    }),
];

const JOBS: &Columns<QueueRow> = &[
    ("QUEUE", Text(10), 0, |row, _| word(&row.name)),
    ("POOL", Text(8), 3, |row, _| word_or_none(row.pool.as_deref())),
    ("RUNNING", Number, 0, |row, _| {
        let limit = row.limit.map(|limit| format!("/{limit}"));
        let text = format!("{}{}", row.running, limit.unwrap_or_default());
        number(Some(row.running as f64), text)
    }),
    ("WAITING", Number, 0, |row, _| counted(row.waiting)),
    ("OLDEST", Number, 1, |row, _| lasting(row.oldest)),
    ("ENDED/S", Number, 1, |row, _| per_second(row.ended_per_second)),
    ("SCHEDULED", Number, 2, |row, _| counted(row.scheduled)),
    ("BLOCKED", Number, 4, |row, _| counted(row.blocked)),
    ("FAILED", Number, 0, |row, _| {
        counted(row.failed).bad_if(row.failed > 0)
    }),
    ("QUARANTINED", Number, 5, |row, _| {
        counted(row.quarantined).bad_if(row.quarantined > 0)
    }),
    ("STATE", Word, 0, |row, _| match row.is_paused {
        true => word("paused").hued(Hue::Changing),
        false => word("open").hued(Hue::Good),
    }),
];
