//! Resolves the lanes of a pool.

use crate::application::Application;
use crate::draft::PoolText;
use crate::flat_keys::Field;
use crate::lanes::Lanes;
use crate::report::WorldReport;

const WITHOUT: &str = "it has no effect without lanes";

/// Returns the lanes of a pool; `None`: it has none. `max_children`: without the workers on top.
pub(super) fn resolve(
    text: &PoolText,
    application: &Application,
    max_children: u32,
    report: &mut WorldReport<'_>,
) -> Option<Box<Lanes>> {
    let draft = &text.draft;
    let written = draft.lanes.written();
    let rules = written.map(|written| written.value.0.clone()).unwrap_or_default();
    let Some(written) = written.filter(|_| !rules.is_empty()) else {
        let remedy = "write lanes = \"wordpress\" or rules, or leave it out";
        if !matches!(draft.lanes, Field::Wrong) {
            report.useless(&draft.lane_reserve, WITHOUT, remedy);
            report.useless(&draft.lane_extra, WITHOUT, remedy);
        }
        return None;
    };
    if text.is_routed() || draft.http_listen.written().is_some() || application.is_concurrent() {
        let problem = match () {
            () if text.is_routed() => "an application pool has no lanes",
            () if application.is_concurrent() => "workers with several requests at a time have no lanes",
            () => "a pool with http_listen has no lanes",
        };
        let remedy = "lanes are for a pool of one application whose workers serve one FastCGI request at a time; leave it out";
        report.rule(written, problem, remedy);
        return None;
    }
    let reserve = match draft.lane_reserve.written() {
        Some(at) => match at.value.0 {
            Some(number) if !(1..=i64::from(max_children)).contains(&number) => {
                let problem = format!("{number} is not a number of the workers that may stay idle");
                let remedy = format!(
                    "give a whole number from 1 to {max_children}, which is max_children, or \"auto\""
                );
                report.rule(at, problem, remedy);
                return None;
            }
            Some(number) => u32::try_from(number).ok(),
            None => None,
        },
        None => None,
    };
    let most = reserve.unwrap_or_else(|| (max_children / 2).max(1));
    let extra = if draft.lane_extra.or(true) { most } else { 0 };
    Some(Box::new(Lanes {
        rules,
        reserve,
        extra,
    }))
}
