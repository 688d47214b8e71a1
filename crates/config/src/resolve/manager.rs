//! Resolves a pool's number of workers.

use std::time::Duration;

use super::pool::positive;
use crate::draft::{PoolDraft, PoolText};
use crate::flat_keys::{Field, Written};
use crate::memory;
use crate::model::ProcessManager;
use crate::report::Report;
use crate::units::{Manager, Whole};

/// More than any machine can run. The scoreboard has one page per worker.
const MAX_CHILDREN: i64 = 1_000_000;
const DEFAULT_SPAWN_RATE: u32 = 32;
const DEFAULT_IDLE_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) fn resolve(
    text: &PoolText,
    memory: Option<u64>,
    report: &mut Report<'_>,
) -> Option<ProcessManager> {
    let draft = &text.draft;
    let write = "pm = \"dynamic\", \"static\" or \"ondemand\"";
    let manager = report.require(&draft.pm, &text.location, "pm", write);
    let write = "max_children = \"auto\", or a number of workers";
    report.require(&draft.max_children, &text.location, "max_children", write);
    let max_children = children(draft, memory, report);
    match manager?.value {
        Manager::Static => {
            spare_without_effect(draft, "static", report);
            let problem = "it has no effect with pm = \"static\"";
            let remedy = "it is for \"dynamic\" and \"ondemand\"";
            report.useless(&draft.process_idle_timeout, problem, remedy);
            Some(ProcessManager::Static {
                max_children: max_children?,
            })
        }
        Manager::Ondemand => {
            spare_without_effect(draft, "ondemand", report);
            let process_idle_timeout = positive(&draft.process_idle_timeout, DEFAULT_IDLE_TIMEOUT, report);
            Some(ProcessManager::Ondemand {
                max_children: max_children?,
                process_idle_timeout,
            })
        }
        Manager::Dynamic => dynamic(text, max_children, report),
    }
}

fn children(draft: &PoolDraft, memory: Option<u64>, report: &mut Report<'_>) -> Option<u32> {
    let written = draft.max_children.written()?;
    if written.value.0.is_some() {
        let problem = "it has no effect with a number in max_children";
        report.useless(
            &draft.max_children_most,
            problem,
            "it is for max_children = \"auto\"",
        );
    }
    match (written.value.0, memory) {
        (Some(number), _) => {
            let field = Field::Is(Written {
                value: Whole(number),
                location: written.location.clone(),
                key: written.key,
            });
            count(&field, 1, report)
        }
        (None, Some(memory)) => {
            let most = count(&draft.max_children_most, 1, report).unwrap_or(u32::MAX);
            Some(memory::most_workers(memory).min(most))
        }
        (None, None) => {
            report.rule(
                written,
                "it is not known how much memory there is",
                "give a number",
            );
            None
        }
    }
}

fn count(field: &Field<Whole>, least: i64, report: &mut Report<'_>) -> Option<u32> {
    report.range(field, least, MAX_CHILDREN)
}

fn dynamic(text: &PoolText, max_children: Option<u32>, report: &mut Report<'_>) -> Option<ProcessManager> {
    let draft = &text.draft;
    let (least, most) = (&draft.min_spare_servers, &draft.max_spare_servers);
    let write = "min_spare_servers = 1, the fewest idle workers";
    report.require(least, &text.location, "min_spare_servers", write);
    let write = "max_spare_servers = 3, the most idle workers";
    report.require(most, &text.location, "max_spare_servers", write);
    let (min, max) = (count(least, 1, report), count(most, 1, report));
    let start = count(&draft.start_servers, 0, report);
    let max_spawn_rate = count(&draft.max_spawn_rate, 1, report).unwrap_or(DEFAULT_SPAWN_RATE);
    let process_idle_timeout = if report.is_php_fpm() {
        DEFAULT_IDLE_TIMEOUT
    } else {
        positive(&draft.process_idle_timeout, DEFAULT_IDLE_TIMEOUT, report)
    };
    let mut valid = true;
    for (field, spare) in [(least, min), (most, max)] {
        if let (Some(written), Some(spare), Some(children)) = (field.written(), spare, max_children) {
            if spare > children {
                valid = false;
                let problem = format!("{spare} is more than max_children, which is {children}");
                report.rule(written, problem, format!("give at most {children}"));
            }
        }
    }
    let (min, max) = (min?, max?);
    if let (Some(written), true) = (most.written(), max < min) {
        let problem = format!("{max} is less than min_spare_servers, which is {min}");
        report.rule(written, problem, format!("give at least {min}"));
        return None;
    }
    let start_servers = match start.filter(|start| *start > 0) {
        Some(start) => {
            if let (Some(written), false) = (draft.start_servers.written(), (min..=max).contains(&start)) {
                let problem = format!("{start} is not between min_spare_servers and max_spare_servers");
                report.rule(
                    written,
                    problem,
                    format!("give a whole number from {min} to {max}"),
                );
                return None;
            }
            start
        }
        None => min + (max - min) / 2,
    };
    let max_children = max_children.filter(|_| valid)?;
    Some(ProcessManager::Dynamic {
        max_children,
        start_servers,
        min_spare_servers: min,
        max_spare_servers: max,
        max_spawn_rate,
        process_idle_timeout,
    })
}

fn spare_without_effect(draft: &PoolDraft, manager: &str, report: &mut Report<'_>) {
    for field in [
        &draft.start_servers,
        &draft.min_spare_servers,
        &draft.max_spare_servers,
        &draft.max_spawn_rate,
    ] {
        let problem = format!("it has no effect with pm = \"{manager}\"");
        report.useless(field, &problem, "it is for \"dynamic\"");
    }
}
