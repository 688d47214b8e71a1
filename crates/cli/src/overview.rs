//! The overview of all pools: one line each, and a total.

use super::colour::{self, Hue};
use super::control::printable;
use super::life;
use super::skipped::problem;
use super::status::{mebibytes, or_none, remarks, seconds};
use clap::ValueEnum;
use forkyard_protocol::control::{PoolStatus, Status};
use std::cmp::Reverse;
use std::fmt::Write as _;

/// Column headings. The first three columns are text.
const HEADS: [&str; 11] = [
    "POOL", "PM", "STATE", "BUSY", "IDLE", "MAX", "QUEUE", "REQUESTS", "SLOW", "MEMORY", "CPU",
];
const TEXTS: usize = 3;
const STATE: usize = 2;
/// The shortest form of a pool's name in a narrow terminal.
const SHORTEST_NAME: usize = 8;
/// The end of a shortened text.
const MARK: &str = "...";

/// What pools are put in order by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(super) enum Sort {
    /// Their names
    #[default]
    Name,
    /// Busy workers, the most first
    Busy,
    /// What waits
    Queue,
    /// Requests
    Requests,
    /// Slow requests
    Slow,
    /// Memory
    Memory,
    /// Processor time
    Cpu,
}

/// Start, end and colour of a part of a line, in characters.
type Stretch = (usize, usize, Hue);

/// Returns the table. `columns` is the terminal's width, if there is a terminal. `in_colour` highlights states and
/// problems.
pub(super) fn table(status: &Status, sort: Sort, columns: Option<usize>, in_colour: bool) -> String {
    let mut lines: Vec<(String, Option<Stretch>)> = vec![(life::head(status), None)];
    let told = life::lines(status).into_iter();
    lines.extend(told.map(|(line, is_bad)| (line, is_bad.then_some((0, usize::MAX, Hue::Bad)))));
    lines.push((String::new(), None));
    let mut pools: Vec<&PoolStatus> = status.pools.iter().collect();
    pools.sort_by_key(|pool| Reverse(key(pool, sort)));
    let mut rows = vec![HEADS.map(str::to_owned)];
    rows.extend(pools.iter().map(|pool| row(pool)));
    rows.push(sum(&pools));
    lines.extend(draw(&mut rows, columns));
    let remarks = pools.iter().flat_map(|pool| {
        let own = remarks(pool).into_iter();
        own.map(|remark| format!("{}: {remark}", printable(&pool.name)))
    });
    // Other skipped entries are rows of the table.
    let files = status.skipped.iter().filter(|one| one.pool.is_none());
    let files = files.map(|one| printable(&format!("{}: {}", one.name(), problem(one))));
    for (index, remark) in remarks.chain(files).enumerate() {
        if index == 0 {
            lines.push((String::new(), None));
        }
        lines.push((remark, Some((0, usize::MAX, Hue::Bad))));
    }
    let lines = lines.into_iter().map(|(line, stretch)| {
        // Cut before colouring: escape sequences have no width.
        let line = bounded(&line, columns);
        match stretch.filter(|_| in_colour) {
            Some((from, to, hue)) => colour::painted(line.trim_end_matches('\n'), from, to, hue) + "\n",
            None => line.trim_end_matches('\n').to_owned() + "\n",
        }
    });
    lines.collect()
}

/// Cuts lines at the terminal's width.
pub(super) fn bounded(text: &str, columns: Option<usize>) -> String {
    let Some(columns) = columns else {
        return text.to_owned();
    };
    let line = |line: &str| line.chars().take(columns).chain(['\n']).collect::<String>();
    text.lines().map(line).collect()
}

fn key(pool: &PoolStatus, sort: Sort) -> u64 {
    match sort {
        // The daemon sorts pools by name.
        Sort::Name => 0,
        Sort::Busy => pool.busy.into(),
        Sort::Queue => pool.waiting().unwrap_or(0),
        Sort::Requests => pool.counts.requests,
        Sort::Slow => pool.counts.slow,
        Sort::Memory => pool.memory.unwrap_or(0),
        Sort::Cpu => pool.cpu_ms,
    }
}

fn row(pool: &PoolStatus) -> [String; HEADS.len()] {
    [
        printable(&pool.name),
        printable(pool.manager()),
        pool.state().to_owned(),
        pool.busy.to_string(),
        pool.idle.to_string(),
        pool.limits.max_children.to_string(),
        or_none(pool.waiting().map(|count| count.to_string())),
        pool.counts.requests.to_string(),
        pool.counts.slow.to_string(),
        mebibytes(pool.memory),
        seconds(Some(pool.cpu_ms)),
    ]
}

fn sum(pools: &[&PoolStatus]) -> [String; HEADS.len()] {
    let all = |of: fn(&PoolStatus) -> u64| {
        let numbers = pools.iter().map(|pool| of(pool));
        numbers.fold(0, u64::saturating_add)
    };
    let known = pools.iter().filter_map(|pool| pool.memory);
    let memory = known.reduce(u64::saturating_add);
    [
        match pools.len() {
            1 => "1 pool".to_owned(),
            count => format!("{count} pools"),
        },
        String::new(),
        String::new(),
        all(|pool| pool.busy.into()).to_string(),
        all(|pool| pool.idle.into()).to_string(),
        all(|pool| pool.limits.max_children.into()).to_string(),
        all(|pool| pool.waiting().unwrap_or(0)).to_string(),
        all(|pool| pool.counts.requests).to_string(),
        all(|pool| pool.counts.slow).to_string(),
        mebibytes(memory),
        seconds(Some(all(|pool| pool.cpu_ms))),
    ]
}

/// Returns the aligned rows. In a narrow terminal, it reduces the space between columns, then shortens names.
fn draw(rows: &mut [[String; HEADS.len()]], columns: Option<usize>) -> Vec<(String, Option<Stretch>)> {
    let mut widths = [0; HEADS.len()];
    for (column, width) in widths.iter_mut().enumerate() {
        let lengths = rows.iter().map(|row| row[column].chars().count());
        *width = lengths.max().unwrap_or(0);
    }
    let all: usize = widths.iter().sum();
    let gaps = widths.len() - 1;
    let gap = match columns {
        Some(columns) if all + 2 * gaps > columns => 1,
        _ => 2,
    };
    if let Some(columns) = columns {
        let others = all - widths[0] + gap * gaps;
        let room = columns.saturating_sub(others).max(SHORTEST_NAME);
        widths[0] = widths[0].min(room);
        for row in rows.iter_mut() {
            row[0] = shortened(&row[0], room);
        }
    }
    let state = widths[..STATE].iter().sum::<usize>() + STATE * gap;
    let draw = |(index, row): (usize, &mut [String; HEADS.len()])| {
        let mut line = String::new();
        for (column, (word, width)) in row.iter().zip(widths).enumerate() {
            let _ = match column {
                0 => write!(line, "{word:<width$}"),
                _ if column < TEXTS => write!(line, "{:gap$}{word:<width$}", ""),
                _ => write!(line, "{:gap$}{word:>width$}", ""),
            };
        }
        let stretch = match (index, row[STATE].as_str()) {
            (0, _) => Some((0, usize::MAX, Hue::Head)),
            (_, "") => None,
            (_, word) => Some((state, state + word.len(), hue(word))),
        };
        (line.trim_end().to_owned(), stretch)
    };
    rows.iter_mut().enumerate().map(draw).collect()
}

fn hue(state: &str) -> Hue {
    match state {
        "serving" => Hue::Good,
        "down" | "failing" | "unreachable" => Hue::Bad,
        _ => Hue::Changing,
    }
}

fn shortened(name: &str, room: usize) -> String {
    if name.chars().count() <= room {
        return name.to_owned();
    }
    let kept = name.chars().take(room - MARK.len());
    kept.collect::<String>() + MARK
}

#[cfg(test)]
mod tests {
    use super::*;
    use forkyard_config::Skipped;
    use forkyard_protocol::control::{GenerationStatus, LastError, WorkerLimits};
    use forkyard_protocol::counters::PoolCounters;

    fn status() -> Status {
        let pool = |name: &str, busy, requests| PoolStatus {
            name: name.to_owned(),
            queue: Some(2),
            limits: WorkerLimits {
                max_children: 4,
                ..WorkerLimits::default()
            },
            busy,
            idle: 1,
            counts: PoolCounters {
                requests,
                ..PoolCounters::default()
            },
            memory: Some(5 << 20),
            cpu_ms: 1500,
            generations: vec![GenerationStatus {
                state: "serving".to_owned(),
                pm: "static".to_owned(),
                ..GenerationStatus::default()
            }],
            ..PoolStatus::default()
        };
        let mut pools = vec![
            pool("a", 1, 5),
            pool("b-with-a-name-that-is-long", 3, 1234),
            PoolStatus {
                name: "c".to_owned(),
                problem: Some("line 3 is wrong".to_owned()),
                ..PoolStatus::default()
            },
        ];
        pools[0].last_error = Some(LastError {
            id: "abc".to_owned(),
            time: hours_ago(5),
            summary: "it\nfails".to_owned(),
            refusing: true,
            is_over: false,
        });
        Status {
            pid: 1,
            version: "1".to_owned(),
            config: "f".to_owned(),
            pools,
            skipped: vec![Skipped {
                pool: None,
                file: "/x.toml".into(),
                reasons: vec!["no TOML".to_owned()],
                goes_on: false,
            }],
            last_reload: None,
            log: None,
            replaced: false,
            daemon: None,
            jobs: None,
        }
    }

    fn hours_ago(hours: u64) -> u64 {
        let now = std::time::UNIX_EPOCH.elapsed().expect("a time after 1970");
        now.as_secs() - hours * 3_600
    }

    #[test]
    fn the_readme_shows_the_table_as_it_is() {
        let pool = |name: &str, pm: &str, state: &str, numbers: [u32; 4], mebibytes: Option<u64>| {
            let [busy, idle, max_children, requests] = numbers;
            PoolStatus {
                name: name.to_owned(),
                queue: Some(0),
                limits: WorkerLimits {
                    max_children,
                    ..WorkerLimits::default()
                },
                busy,
                idle,
                counts: PoolCounters {
                    requests: requests.into(),
                    ..PoolCounters::default()
                },
                memory: mebibytes.map(|count| count << 20),
                cpu_ms: 30,
                generations: vec![GenerationStatus {
                    state: state.to_owned(),
                    pm: pm.to_owned(),
                    ..GenerationStatus::default()
                }],
                ..PoolStatus::default()
            }
        };
        let mut pools = vec![
            pool("shop", "ondemand", "serving", [0, 0, 10, 0], None),
            pool("wiki", "ondemand", "serving", [0, 1, 10, 40], Some(20)),
            pool("www", "static", "serving", [3, 1, 4, 43], Some(24)),
        ];
        pools[0].last_error = Some(LastError {
            id: "21cf3eb8".to_owned(),
            time: hours_ago(3),
            summary: "can't load the application with /usr/bin/python3 3.11.2: ModuleNotFoundError: No"
                .to_owned(),
            refusing: true,
            is_over: false,
        });
        let status = Status {
            pid: 16921,
            version: "0.1.0".to_owned(),
            config: "/etc/forkyard/forkyard.toml".to_owned(),
            pools,
            ..Status::default()
        };
        let shown = table(&status, Sort::Name, None, false);
        let readme = include_str!("../../../README.md");
        assert!(readme.contains(&format!("$ forkyard status\n{shown}")), "{shown}");
    }

    #[test]
    fn colours_are_beside_the_text() {
        for columns in [None, Some(10), Some(34), Some(120)] {
            let coloured = table(&status(), Sort::Name, columns, true);
            for (word, code) in [("serving", 32), ("failing", 31), ("down", 31)] {
                let mark = format!("\x1b[{code}m{word}\x1b[0m");
                assert!(
                    columns < Some(40) && columns.is_some() || coloured.contains(&mark),
                    "{coloured:?}"
                );
            }
            let mut plain = coloured.replace("\x1b[0m", "");
            for code in ["\x1b[1m", "\x1b[31m", "\x1b[32m", "\x1b[33m"] {
                plain = plain.replace(code, "");
            }
            assert_eq!(plain, table(&status(), Sort::Name, columns, false));
        }
    }

    #[test]
    fn pools_have_a_line_each_and_a_sum() {
        assert_eq!(
            table(&status(), Sort::Busy, None, false),
            "forkyard 1, pid 1, f\n\n\
             POOL                        PM      STATE    BUSY  IDLE  MAX  QUEUE  REQUESTS  SLOW  MEMORY    CPU\n\
             b-with-a-name-that-is-long  static  serving     3     1    4      2      1234     0   5 MiB  1.5 s\n\
             a                           static  failing     1     1    4      2         5     0   5 MiB  1.5 s\n\
             c                           -       down        0     0    0      -         0     0       -  0.0 s\n\
             3 pools                                         4     2    8      4      1239     0  10 MiB  3.0 s\n\n\
             a: last error abc, 5h ago, requests are refused: it?fails\n\
             c: line 3 is wrong\n\
             /x.toml: skipped: no TOML\n"
        );
    }

    #[test]
    fn pools_are_put_in_order() {
        let first = |sort| {
            let text = table(&status(), sort, None, false);
            text.lines().nth(3).map(|line| line[..1].to_owned())
        };
        assert_eq!(first(Sort::Name).as_deref(), Some("a"));
        for sort in [Sort::Busy, Sort::Requests] {
            assert_eq!(first(sort).as_deref(), Some("b"));
        }
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        for columns in 10..120 {
            let text = table(&status(), Sort::Name, Some(columns), false);
            let widest = text.lines().map(|line| line.chars().count()).max();
            assert!(widest <= Some(columns), "{columns}: {text}");
        }
        let text = table(&status(), Sort::Name, Some(80), false);
        assert!(
            text.contains("b-with-a-name-t... static serving ") && text.contains("1.5 s\n"),
            "{text}"
        );
    }
}
