//! Checks the rules for abandoned requests and overload.

use crate::draft::PoolDraft;
use crate::overload::{Abandoned, Overload, QueueTime};
use crate::report::Report;
use crate::value::quoted;

const DEFAULT_KEPT: [&str; 2] = ["/wp-cron.php", "/cron.php"];
const REMEDY: &str = "write the end of a path, for example \"/wp-cron.php\"";

pub(super) fn overload(draft: &PoolDraft, report: &mut Report<'_>) -> Overload {
    let abandoned = draft.abandoned.or(Abandoned::Skip);
    if let Some(written) = draft.abandoned_keep.written() {
        let kept = &written.value.0;
        match kept.iter().find_map(|end| Some((end, mistake(end)?))) {
            Some((end, mistake)) => report.rule(written, format!("{} {mistake}", quoted(end)), REMEDY),
            None if abandoned == Abandoned::Run && !kept.is_empty() => {
                report.warn(written, "it has no effect with abandoned = \"run\"", "remove it");
            }
            None => {}
        }
    }
    let kept = draft.abandoned_keep.get();
    Overload {
        abandoned,
        abandoned_keep: kept.unwrap_or_else(|| DEFAULT_KEPT.map(str::to_owned).to_vec()),
        queue_time: draft.max_request_queue_time.or(QueueTime::Endless),
    }
}

/// Returns what is wrong with the end of a path.
fn mistake(end: &str) -> Option<&'static str> {
    match end {
        "" => Some("is no path"),
        slashes if slashes.bytes().all(|byte| byte == b'/') => Some("would keep the path of every directory"),
        path if !path.starts_with('/') => Some("does not start with /"),
        path if path.contains(['?', '#']) => Some("can't match: a path ends before the query"),
        path if path.contains('*') => Some("can't match: * is no pattern"),
        path if path.contains(char::is_control) => Some("can't match: a path has no control characters"),
        _ => None,
    }
}
