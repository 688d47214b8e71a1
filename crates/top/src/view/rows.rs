//! The tables of a frame.

use super::table::{Cell, Column, Key, Kind, Row, Table};
use super::theme::{Hue, Theme};
use super::units::{bytes, count, count_or_none, percent, printable, rate, time};
use super::{Process, Target, View};
use crate::model::{ApplicationRow, FailureRow, Frame, PoolRow, QueueRow, RouteRow, WorkerRow};
use crate::readings::Part;

/// Returns the table of a view, in the order of its own.
pub(crate) fn table(view: View, frame: &Frame, theme: Theme) -> Table {
    match view {
        View::Pools => of(&POOLS, &frame.pools, |row| pool(row, frame, theme), "no pools"),
        View::Workers => of(&WORKERS, &frame.workers, worker, "no workers"),
        View::Requests => {
            let mut busy: Vec<&WorkerRow> = frame.workers.iter().filter(|it| it.is_busy).collect();
            let age = |row: &WorkerRow| row.age.unwrap_or(0.0);
            busy.sort_by(|one, other| age(other).total_cmp(&age(one)));
            of(&REQUESTS, busy, request, "no requests in flight")
        }
        View::Routes => {
            let mut routes: Vec<&RouteRow> = frame.routes.iter().collect();
            let busy = |row: &RouteRow| row.busy.unwrap_or(0.0);
            routes.sort_by(|one, other| busy(other).total_cmp(&busy(one)));
            let empty = match frame.unknown.contains(&Part::Routes) {
                true => "this daemon does not count by route",
                false => "no requests yet",
            };
            of(&ROUTES, routes, route, empty)
        }
        View::Failures => {
            let mut failures: Vec<(usize, &FailureRow)> = frame.failures.iter().enumerate().collect();
            failures.sort_by_key(|(_, row)| std::cmp::Reverse(row.time));
            let row = |(at, row)| failure(at, row, frame);
            of(&FAILURES, failures, row, "nothing was slow, and nothing failed")
        }
        View::Applications => of(
            &APPLICATIONS,
            &frame.applications,
            application,
            "no application has been started",
        ),
        View::Jobs => {
            let empty = match frame.has_jobs {
                true => "no queues, or the process for jobs does not answer",
                false => "background jobs are not configured",
            };
            of(&JOBS, &frame.jobs, queue, empty)
        }
    }
}

fn of<T, const N: usize>(
    columns: &[(&'static str, Kind, u8); N],
    rows: impl IntoIterator<Item = T>,
    row: impl Fn(T) -> (Target, [Cell; N]),
    empty: &str,
) -> Table {
    let columns = columns.iter().map(|(head, kind, rank)| Column {
        head,
        kind: *kind,
        rank: *rank,
    });
    let rows = rows.into_iter().map(row).map(|(target, cells)| Row {
        cells: cells.into(),
        target,
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

impl Cell {
    fn hued(self, hue: Hue) -> Cell {
        Cell { hue, ..self }
    }

    /// Marks a value that is over a limit.
    fn bad_if(self, is_bad: bool) -> Cell {
        if is_bad { self.hued(Hue::Bad) } else { self }
    }
}

/// Head, kind and rank of each column.
type Columns<const N: usize> = [(&'static str, Kind, u8); N];

const POOLS: Columns<17> = [
    ("POOL", Kind::Text(8), 0),
    ("STATE", Kind::Word, 2),
    ("BUSY", Kind::Number, 0),
    ("TREND", Kind::Word, 7),
    ("QUEUE", Kind::Number, 1),
    ("SAT", Kind::Number, 6),
    ("REQ/S", Kind::Number, 0),
    ("P50", Kind::Number, 4),
    ("P95", Kind::Number, 11),
    ("P99", Kind::Number, 3),
    ("WAIT95", Kind::Number, 10),
    ("ERR", Kind::Number, 5),
    ("SLOW", Kind::Number, 9),
    ("CPU", Kind::Number, 3),
    ("MEM", Kind::Number, 4),
    ("WHY", Kind::Text(22), 1),
    ("LAST ERROR", Kind::Text(20), 8),
];

fn pool(row: &PoolRow, frame: &Frame, theme: Theme) -> (Target, [Cell; 17]) {
    let hue = match row.state.as_str() {
        "serving" => Hue::Good,
        "down" | "failing" | "unreachable" => Hue::Bad,
        _ => Hue::Changing,
    };
    let error = row.error.as_ref().map(|error| {
        let age = time(Some(frame.time.saturating_sub(error.time) as f64));
        let over = if error.is_over { "over, " } else { "" };
        format!("{over}{age} ago: {}", error.summary)
    });
    let error = row.problem.clone().or(error).unwrap_or_default();
    let is_over = row.problem.is_none() && row.error.as_ref().is_some_and(|error| error.is_over);
    let is_full = row.busy >= row.max && row.max > 0;
    let cells = [
        word(&row.name),
        word(&row.state).hued(hue),
        number(Some(f64::from(row.busy)), format!("{}/{}", row.busy, row.max)).bad_if(is_full),
        Cell {
            text: theme.bars(&row.history),
            key: row.history.last().map_or(Key::Missing, |last| Key::Number(*last)),
            hue: Hue::Plain,
        },
        maybe(row.waiting).bad_if(row.waiting.is_some_and(|waiting| waiting > 0)),
        number(row.saturated, percent(row.saturated)),
        number(row.requests_per_second, rate(row.requests_per_second)),
        number(row.p50, time(row.p50)),
        number(row.p95, time(row.p95)),
        number(row.p99, time(row.p99)),
        number(row.wait_p95, time(row.wait_p95)),
        number(row.errors, percent(row.errors)).bad_if(row.errors.is_some_and(|part| part >= 0.01)),
        maybe(row.slow).bad_if(row.slow.is_some_and(|slow| slow > 0)),
        number(row.cpu, percent(row.cpu)),
        number(row.memory.map(|bytes| bytes as f64), bytes(row.memory)),
        word(&row.why.words().unwrap_or_else(|| "-".to_owned())),
        word(&error).hued(if is_over { Hue::Dim } else { Hue::Bad }),
    ];
    (Target::Pool(row.name.clone()), cells)
}

const WORKERS: Columns<12> = [
    ("PID", Kind::Number, 0),
    ("POOL", Kind::Text(8), 0),
    ("KIND", Kind::Word, 5),
    ("STATE", Kind::Word, 0),
    ("FOR", Kind::Number, 1),
    ("REQUESTS", Kind::Number, 3),
    ("REQ/S", Kind::Number, 6),
    ("SESSIONS", Kind::Number, 7),
    ("CPU", Kind::Number, 2),
    ("MEM", Kind::Number, 2),
    ("WHY", Kind::Text(22), 1),
    ("REQUEST", Kind::Text(16), 0),
];

fn worker(row: &WorkerRow) -> (Target, [Cell; 12]) {
    let kind = match row.kind {
        crate::model::processes::Kind::Worker => "worker",
        crate::model::processes::Kind::Program => "program",
        crate::model::processes::Kind::Instance => "instance",
    };
    let cells = [
        pid(row),
        word(&row.pool),
        word(kind),
        word(&row.state).hued(if row.is_busy { Hue::Changing } else { Hue::Plain }),
        number(row.age, time(row.age)),
        counted(row.requests),
        number(row.requests_per_second, rate(row.requests_per_second)),
        counted(row.sessions),
        number(row.cpu, percent(row.cpu)),
        number(row.memory.map(|bytes| bytes as f64), bytes(row.memory)),
        word(&why(row)),
        word(&asked(row)).hued(if row.is_busy { Hue::Plain } else { Hue::Dim }),
    ];
    (process(row), cells)
}

fn pid(row: &WorkerRow) -> Cell {
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

const REQUESTS: Columns<8> = [
    ("PID", Kind::Number, 0),
    ("POOL", Kind::Text(8), 0),
    ("FOR", Kind::Number, 0),
    ("CPU", Kind::Number, 2),
    ("STATE", Kind::Word, 3),
    ("REQUEST", Kind::Text(16), 0),
    ("WHY", Kind::Text(22), 1),
    ("SCRIPT", Kind::Text(12), 4),
];

fn request(row: &WorkerRow) -> (Target, [Cell; 8]) {
    let cells = [
        pid(row),
        word(&row.pool),
        number(row.age, time(row.age)),
        number(row.cpu, percent(row.cpu)),
        word(&row.state),
        word(&asked(row)),
        word(&why(row)),
        word(&row.script),
    ];
    (process(row), cells)
}

const ROUTES: Columns<10> = [
    ("POOL", Kind::Text(8), 1),
    ("ROUTE", Kind::Text(16), 0),
    ("BUSY", Kind::Number, 0),
    ("REQ/S", Kind::Number, 0),
    ("REQUESTS", Kind::Number, 4),
    ("P50", Kind::Number, 2),
    ("P95", Kind::Number, 1),
    ("ERRORS", Kind::Number, 3),
    ("GROWTH", Kind::Number, 5),
    ("WHY", Kind::Text(22), 1),
];

fn route(row: &RouteRow) -> (Target, [Cell; 10]) {
    let cells = [
        word(&row.pool),
        word(&row.route),
        number(row.busy, rate(row.busy)),
        number(row.requests_per_second, rate(row.requests_per_second)),
        counted(row.requests),
        number(row.p50, time(row.p50)),
        number(row.p95, time(row.p95)),
        maybe(row.errors).bad_if(row.errors.is_some_and(|errors| errors > 0)),
        number(Some(row.memory_growth as f64), bytes(Some(row.memory_growth))),
        word(&row.why.words().unwrap_or_else(|| "-".to_owned())),
    ];
    let (pool, route) = (row.pool.clone(), row.route.clone());
    (Target::Route { pool, route }, cells)
}

const FAILURES: Columns<7> = [
    ("AGO", Kind::Number, 0),
    ("POOL", Kind::Text(8), 0),
    ("KIND", Kind::Word, 0),
    ("COUNT", Kind::Number, 1),
    ("NEW", Kind::Number, 2),
    ("ID", Kind::Word, 1),
    ("WHAT", Kind::Text(20), 0),
];

fn failure(at: usize, row: &FailureRow, frame: &Frame) -> (Target, [Cell; 7]) {
    let age = row.time.map(|time| frame.time.saturating_sub(time) as f64);
    let is_new = row.new.is_some_and(|new| new > 0);
    let cells = [
        // The latest first.
        number(age.map(|age| -age), time(age)),
        word(&row.pool),
        word(row.kind.name()),
        maybe(row.count),
        maybe(row.new).bad_if(is_new),
        word(row.id.as_deref().unwrap_or("")),
        word(&row.text),
    ];
    let (pool, id) = (row.pool.clone(), row.id.clone());
    (Target::Failure { pool, at, id }, cells)
}

const APPLICATIONS: Columns<12> = [
    ("APPLICATION", Kind::Text(16), 0),
    ("POOL", Kind::Text(8), 2),
    ("BUSY", Kind::Number, 0),
    ("SESSIONS", Kind::Number, 5),
    ("WAITING", Kind::Number, 1),
    ("OLDEST", Kind::Number, 2),
    ("REQ/S", Kind::Number, 0),
    ("REQUESTS", Kind::Number, 4),
    ("RESTARTS", Kind::Number, 6),
    ("MEM", Kind::Number, 3),
    ("GROUP", Kind::Word, 7),
    ("STATE", Kind::Text(12), 0),
];

fn application(row: &ApplicationRow) -> (Target, [Cell; 12]) {
    let state = match &row.starting {
        Some(step) => {
            let (age, whole) = (time(Some(step.age)), time(Some(step.whole)));
            format!("starting: {} for {age}, in all {whole}", step.name)
        }
        None => row.remarks.join(", "),
    };
    let hue = if row.starting.is_some() {
        Hue::Changing
    } else {
        Hue::Bad
    };
    let busy = match row.starting {
        Some(_) => word("-"),
        None => number(Some(row.busy as f64), format!("{}/{}", row.busy, row.instances)),
    };
    let cells = [
        word(&row.name),
        word(&row.pool),
        busy,
        counted(row.sessions),
        counted(row.waiting).bad_if(row.waiting > 0),
        number(row.oldest_wait, time(row.oldest_wait)),
        number(row.requests_per_second, rate(row.requests_per_second)),
        counted(row.requests),
        counted(row.restarts),
        number(row.memory.map(|bytes| bytes as f64), bytes(row.memory)),
        word(row.group.as_deref().unwrap_or("-")),
        word(&state).hued(hue),
    ];
    let (pool, name) = (row.pool.clone(), row.name.clone());
    (Target::Application { pool, name }, cells)
}

const JOBS: Columns<11> = [
    ("QUEUE", Kind::Text(10), 0),
    ("POOL", Kind::Text(8), 3),
    ("RUNNING", Kind::Number, 0),
    ("WAITING", Kind::Number, 0),
    ("OLDEST", Kind::Number, 1),
    ("ENDED/S", Kind::Number, 1),
    ("SCHEDULED", Kind::Number, 2),
    ("BLOCKED", Kind::Number, 4),
    ("FAILED", Kind::Number, 0),
    ("QUARANTINED", Kind::Number, 5),
    ("STATE", Kind::Word, 0),
];

fn queue(row: &QueueRow) -> (Target, [Cell; 11]) {
    let running = match row.limit {
        Some(limit) => format!("{}/{limit}", row.running),
        None => row.running.to_string(),
    };
    let state = match row.is_paused {
        true => word("paused").hued(Hue::Changing),
        false => word("open").hued(Hue::Good),
    };
    let cells = [
        word(&row.name),
        word(row.pool.as_deref().unwrap_or("-")),
        number(Some(row.running as f64), running),
        counted(row.waiting),
        number(row.oldest, time(row.oldest)),
        number(row.ended_per_second, rate(row.ended_per_second)),
        counted(row.scheduled),
        counted(row.blocked),
        counted(row.failed).bad_if(row.failed > 0),
        counted(row.quarantined).bad_if(row.quarantined > 0),
        state,
    ];
    (Target::Queue(row.name.clone()), cells)
}
