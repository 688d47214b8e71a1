//! Prints releases and deployments as text.

use super::super::control::printable;
use super::super::jobs::age;
use super::progress;
use forkyard_protocol::release::{Deployment, Outcome, PoolReleases};
use forkyard_sys::clock::epoch_seconds;
use std::fmt::Write as _;
use std::path::Path;

/// Returns the result of a deployment as a line, and its remarks.
pub(super) fn result(result: &Deployment) -> String {
    let mut text = format!("{}: {}\n", name(&result.pool), outcome(result));
    for remark in &result.remarks {
        let _ = writeln!(text, "  {}", printable(remark));
    }
    text
}

/// Names a pool, or an application by its directory.
pub(super) fn name(name: &str) -> String {
    match name.starts_with('/') {
        true => name.to_owned(),
        false => format!("pool {name}"),
    }
}

fn outcome(result: &Deployment) -> String {
    let mut text = shown(&result.release);
    text += match result.outcome {
        Outcome::Deployed => " is in service",
        Outcome::Failed => " did not start",
        Outcome::RolledBack => " was taken back",
        Outcome::Replaced => " was replaced by a newer deployment",
    };
    if let Some(why) = &result.why {
        let _ = write!(text, ": {}", printable(why));
    }
    let before = result.before.as_ref();
    if let Some(before) = before.filter(|_| result.outcome != Outcome::Deployed) {
        let _ = write!(text, "; {} goes on", shown(before));
    }
    text
}

/// Returns the release in service and its link.
pub(super) fn in_service(pool: &PoolReleases) -> String {
    let release = pool.release.as_deref().map_or("none yet".to_owned(), shown);
    format!("{release} ({})", shown(&pool.link))
}

/// Returns the deployment under way as lines.
pub(super) fn under_way(pool: &PoolReleases) -> String {
    let mut text = String::new();
    if let Some(under_way) = &pool.under_way {
        let _ = writeln!(text, "  {}", progress::in_words(under_way));
        if let Some(waiting) = &under_way.waiting {
            let _ = writeln!(text, "  {} waits", shown(waiting));
        }
    }
    text
}

/// Returns the last deployment as lines.
pub(super) fn last(pool: &PoolReleases) -> String {
    let mut text = String::new();
    if let Some(last) = &pool.last {
        let _ = writeln!(
            text,
            "  last deployment, {} ago: {}",
            since(last.time),
            outcome(last)
        );
        for remark in &last.remarks {
            let _ = writeln!(text, "    {}", printable(remark));
        }
    }
    text
}

/// Returns the lines about releases in a pool's status.
pub(crate) fn of_status(pool: &PoolReleases) -> String {
    format!(
        "  release {}\n{}{}",
        in_service(pool),
        under_way(pool),
        last(pool)
    )
}

/// Returns the age of a time, given in seconds since 1970.
pub(super) fn since(time: u64) -> String {
    let seconds = epoch_seconds().saturating_sub(time);
    age(i64::try_from(seconds).unwrap_or(i64::MAX).saturating_mul(1_000))
}

pub(super) fn shown(path: &Path) -> String {
    printable(&path.to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::*;
    use forkyard_protocol::release::{Answered, UnderWay};

    #[test]
    fn a_status_has_the_release_its_deployment_and_the_last_result() {
        let now = epoch_seconds();
        let releases = PoolReleases {
            pool: "shop".to_owned(),
            link: "/srv/current".into(),
            release: Some("/srv/1\u{1b}".into()),
            uid: 33,
            under_way: Some(UnderWay {
                release: "/srv/3".into(),
                percent: 10,
                compared: 7,
                waiting: Some("/srv/4".into()),
                since: now,
                old: Answered {
                    requests: 90,
                    failures: 1,
                },
                new: Answered {
                    requests: 9,
                    failures: 2,
                },
            }),
            last: Some(Deployment {
                pool: "shop".to_owned(),
                release: "/srv/2".into(),
                before: Some("/srv/1".into()),
                outcome: Outcome::RolledBack,
                why: Some("GET / failed in 5 of 31\u{1b}".to_owned()),
                remarks: vec!["not enough".to_owned()],
                took_ms: 3,
                time: now - 7_200,
            }),
            outside: 0,
            workers: Vec::new(),
        };
        let text = of_status(&releases);
        let (begin, rest) = text.split_once(" since ").expect("a time");
        let (_, rest) = rest.split_once(": ").expect("figures");
        assert_eq!(
            begin,
            "  release /srv/1? (/srv/current)\n  /srv/3 gets 10 % of the requests,"
        );
        assert_eq!(
            rest,
            "2 of 9 failed, 1 of 90 of the release before; 7 compared in this step\n  /srv/4 waits\n  \
             last deployment, 2h ago: /srv/2 was taken back: GET / failed in 5 of 31?; /srv/1 goes on\n    not enough\n"
        );
    }
}
