//! `forkyard routes`: which paths of a pool keep its workers busy.

use super::control::{Daemon, answer, printable, tell, unexpected};
use super::names::directory;
use super::numbers::duration;
use super::table::{aligned, shown};
use clap::Args;
use forkyard_protocol::control::{Answer, Request};
use forkyard_protocol::routes::RouteStatus;
use std::path::Path;
use std::process::ExitCode;

/// Arguments of `forkyard routes`.
#[derive(Debug, Args)]
pub(super) struct Routes {
    #[command(flatten)]
    daemon: Daemon,
    /// The pool's name, or its application's directory
    #[arg(value_name = "POOL")]
    pool: String,
    /// As JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(wanted: &Routes) -> ExitCode {
    let Routes { daemon, pool, .. } = wanted;
    let ask = |pool: String| answer(daemon, &Request::Routes { pool });
    let answered = match ask(pool.clone()) {
        // The configuration may name the directory by another path.
        Ok(Answer::Error { .. }) if pool.contains('/') => {
            ask(directory(daemon, Path::new(pool)).display().to_string())
        }
        other => other,
    };
    tell(answered.and_then(|answer| match answer {
        Answer::Routes { routes } => Ok(shown(&routes[..], wanted.json, table)),
        other => Err(unexpected(other)),
    }))
}

const COLUMNS: [&str; 9] = [
    "REQUESTS", "ERRORS", "P50", "P95", "BUSY", "CPU", "BLOCKED", "MEMORY", "ROUTE",
];

fn table(routes: &[RouteStatus]) -> String {
    let part = |of: f64, all: f64| match all > 0.0 {
        true => format!("{:.1} %", of / all * 100.0),
        false => "-".to_owned(),
    };
    let busy: f64 = routes.iter().map(|route| route.busy_seconds).sum();
    let cpu: f64 = routes.iter().map(|route| route.cpu_seconds).sum();
    let time = |seconds: Option<f64>| seconds.map_or_else(|| "-".to_owned(), |it| duration(it * 1e6));
    let rows = routes.iter().map(|route| {
        [
            route.requests.to_string(),
            route.errors.to_string(),
            time(route.p50),
            time(route.p95),
            part(route.busy_seconds, busy),
            part(route.cpu_seconds, cpu),
            part(route.blocked_seconds, route.busy_seconds),
            format!("{} KiB", route.memory_growth / 1024),
            printable(&route.route),
        ]
        .into()
    });
    let heads = COLUMNS.map(str::to_owned).into();
    aligned(std::iter::once(heads).chain(rows), COLUMNS.len() - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_are_a_table() {
        let routes = [
            RouteStatus {
                route: "GET /a\u{1b}".into(),
                requests: 12,
                errors: 1,
                busy_seconds: 3.0,
                cpu_seconds: 1.0,
                blocked_seconds: 1.5,
                memory_growth: 4096,
                p50: Some(0.25),
                p95: Some(0.0004),
                ..RouteStatus::default()
            },
            RouteStatus {
                route: "other".into(),
                requests: 3,
                busy_seconds: 1.0,
                ..RouteStatus::default()
            },
        ];
        assert_eq!(
            table(&routes),
            "REQUESTS  ERRORS       P50     P95    BUSY      CPU  BLOCKED  MEMORY  ROUTE\n      \
             12       1  250.0 ms  400 µs  75.0 %  100.0 %   50.0 %   4 KiB  GET /a?\n       \
             3       0         -       -  25.0 %    0.0 %    0.0 %   0 KiB  other\n"
        );
    }
}
