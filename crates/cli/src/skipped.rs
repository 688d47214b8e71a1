//! Shows unusable pools in answers.

use super::control::printable;
use forkyard_config::Skipped;
use forkyard_protocol::control::{PoolStatus, Status};
use std::fmt::Write as _;

pub(super) fn take_up(status: &mut Status) {
    for one in &status.skipped {
        let Some(name) = &one.pool else { continue };
        let problem = problem(one);
        match status.pools.iter_mut().find(|pool| pool.name == *name) {
            Some(pool) => {
                let others = pool.problem.take().map(|other| format!("; {other}"));
                pool.problem = Some(problem + &others.unwrap_or_default());
            }
            None => status.pools.push(PoolStatus {
                name: name.clone(),
                problem: Some(problem),
                ..PoolStatus::default()
            }),
        }
    }
    status.pools.sort_by(|a, b| a.name.cmp(&b.name));
}

pub(super) fn problem(of: &Skipped) -> String {
    let outcome = if of.goes_on {
        "goes on with the settings that it had"
    } else {
        "skipped"
    };
    format!("{outcome}: {}", of.reasons.join("; "))
}

pub(super) fn lines(skipped: &[Skipped], text: &mut String) {
    for one in skipped {
        let _ = writeln!(text, "{}", printable(&one.to_string()));
        for reason in &one.reasons {
            let _ = writeln!(text, "  {}", printable(reason));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skipped(pool: Option<&str>, goes_on: bool) -> Skipped {
        Skipped {
            pool: pool.map(str::to_owned),
            file: "/etc/a.toml".into(),
            reasons: vec!["/etc/a.toml:2:1: \u{1b}x".to_owned(), "y".to_owned()],
            goes_on,
        }
    }

    #[test]
    fn it_is_said_what_becomes_of_each() {
        let mut text = String::new();
        lines(&[skipped(Some("a"), false), skipped(None, true)], &mut text);
        assert_eq!(
            text,
            "[pool a] is skipped, the others serve without it; correct it, then reload\n  /etc/a.toml:2:1: ?x\n  y\n\
             /etc/a.toml goes on with the settings that it had; correct it, then reload\n  /etc/a.toml:2:1: ?x\n  y\n"
        );
    }

    #[test]
    fn they_are_pools_with_a_problem() {
        let pool = |name: &str, problem: Option<&str>| PoolStatus {
            name: name.to_owned(),
            problem: problem.map(str::to_owned),
            ..PoolStatus::default()
        };
        let mut status = Status {
            pid: 1,
            version: String::new(),
            config: String::new(),
            pools: vec![pool("b", Some("gone")), pool("c", None)],
            skipped: vec![
                skipped(Some("b"), true),
                skipped(Some("a"), false),
                skipped(None, false),
            ],
            ..Status::default()
        };
        take_up(&mut status);
        let reasons = "/etc/a.toml:2:1: \u{1b}x; y";
        assert_eq!(
            status.pools,
            [
                pool("a", Some(&format!("skipped: {reasons}"))),
                pool(
                    "b",
                    Some(&format!("goes on with the settings that it had: {reasons}; gone"))
                ),
                pool("c", None),
            ]
        );
    }
}
