//! Resolves the release of a pool.

use super::pool::{absolute, positive};
use crate::application::Application;
use crate::draft::{PoolDraft, PoolText};
use crate::flat_keys::Written;
use crate::release::{DEFAULT_STEP_TIME, DEFAULT_STEPS, Release};
use crate::report::{Report, WorldReport};
use crate::units::Text;
use std::path::PathBuf;

/// Returns the release of a pool. `None`: its paths are used unchanged.
pub(super) fn resolve(
    text: &PoolText,
    application: &Application,
    report: &mut WorldReport<'_>,
) -> Option<Box<Release>> {
    let draft = &text.draft;
    let Some(written) = draft.release.written() else {
        if text.is_routed() && !text.applications.releases.is_absent() {
            return None;
        }
        let (without, remedy) = match text.is_routed() {
            true => (
                "it has no effect without releases in the pool's applications",
                "write releases = \"current\" there, or leave it out",
            ),
            false => (
                "it has no effect without release",
                "write release = \"/srv/shop/current\", or leave it out",
            ),
        };
        report.useless(&draft.gradual, without, remedy);
        report.useless(&draft.step_time, without, remedy);
        report.useless(&draft.release_shared, without, remedy);
        return None;
    };
    let problem = match application {
        _ if text.is_routed() => {
            let problem = "an application pool has no release of its own";
            let remedy =
                "write releases = \"current\" into its applications: a link of that name below each root";
            report.rule(written, problem, remedy);
            return None;
        }
        _ if !draft.chroot.is_absent() => Some("a pool with chroot has no release"),
        Application::Http(_) => Some("forkyard does not start the program"),
        Application::Rust => Some("the application is a part of the daemon"),
        _ => None,
    };
    if let Some(problem) = problem {
        report.rule(written, problem, "leave it out");
        return None;
    }
    let link = path_of(written, report)?;
    if link.file_name().is_none() {
        let problem = "it is no path of a link";
        report.rule(written, problem, "name a link, such as /srv/shop/current");
        return None;
    }
    with_steps(link, draft, report)
}

/// Returns the path of a link. A slash at its end would follow the link.
fn path_of(written: &Written<Text>, report: &mut Report<'_>) -> Option<PathBuf> {
    Some(absolute(written, report)?.components().collect())
}

/// Reports a link that leads nowhere. The application's files below it are missing.
pub(super) fn report_missing(text: &PoolText, report: &mut WorldReport<'_>) {
    let written = text.draft.release.written();
    let Some((written, link)) = written.and_then(|written| Some((written, path_of(written, report)?))) else {
        return;
    };
    if !text.is_routed() && !report.world.exists(&link) {
        let link = link.display();
        let remedy = format!("make it before the daemon starts: ln -s releases/1 {link}");
        report.rule(written, format!("{link} leads to no directory"), remedy);
    }
}

/// Returns the release behind a link, with the steps of its deployments.
pub(super) fn with_steps(link: PathBuf, draft: &PoolDraft, report: &mut Report<'_>) -> Option<Box<Release>> {
    let mut gradual = Vec::new();
    for percent in draft.gradual.or(DEFAULT_STEPS.map(u64::from).to_vec()) {
        let before = gradual.last().copied().unwrap_or(0);
        match u8::try_from(percent)
            .ok()
            .filter(|percent| (before + 1..100).contains(percent))
        {
            Some(percent) => gradual.push(percent),
            None => {
                let problem = match before {
                    0 => format!("{percent} is not a percentage from 1 to 99"),
                    _ => format!("{percent} is not a percentage after {before}"),
                };
                let remedy = "give whole numbers from 1 to 99, each more than the one before, or []";
                report.refuse(&draft.gradual, &problem, remedy);
                return None;
            }
        }
    }
    let shared = draft.release_shared.written();
    let shared = shared.map(|written| {
        let each = written.each();
        each.filter_map(|one| {
            let path = absolute(&one, report)?;
            if path.parent().is_none() {
                let remedy = "name a directory, such as /srv/shop/shared";
                report.rule(&one, "every script is below it", remedy);
            }
            Some(path)
        })
        .collect()
    });
    Some(Box::new(Release {
        link,
        gradual,
        shared: shared.unwrap_or_default(),
        step_time: positive(&draft.step_time, DEFAULT_STEP_TIME, report),
    }))
}
