//! The log line.

use super::Report;
use forkyard_base::text::is_control;

const MOST: usize = 512;

pub(super) fn render(report: &Report) -> String {
    format!("[spawn {}] {}", single(&report.plan.group), sentence(report))
}

pub(super) fn sentence(report: &Report) -> String {
    format!(
        "could not start {}: {} (category {}, step {}, after {:.3} s; error {})",
        single(&report.plan.app_root.to_string_lossy()),
        single(&report.failure.summary),
        report.failure.category.name(),
        report.failure.step.name(),
        report.ended.since(report.started).as_secs_f64(),
        report.id,
    )
}

fn single(text: &str) -> String {
    let clean = text.chars().map(|c| if is_control(c) { ' ' } else { c });
    let words: String = clean.take(MOST).collect();
    words.trim_end_matches(['.', ' ']).to_owned()
}
