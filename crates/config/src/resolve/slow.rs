//! Resolves a pool's slow log, application log and environment file.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::global::absolute_file;
use crate::draft::{PoolDraft, PoolText};
use crate::flat_keys::Written;
use crate::model::{AppLog, EnvFile, SlowLog};
use crate::report::{Report, WorldReport};
use crate::site::is_below;
use crate::units::Text;

const DEFAULT_TRACE_DEPTH: u32 = 20;

/// php-fpm's rules: a timeout needs a file and may not exceed the request timeout; a depth needs a file.
pub(super) fn resolve(draft: &PoolDraft, report: &mut WorldReport<'_>) -> Option<SlowLog> {
    let path = draft
        .slowlog
        .written()
        .and_then(|written| absolute_file(written, report));
    let depth = report.range(&draft.request_slowlog_trace_depth, 1, i64::from(i32::MAX));
    if draft.slowlog.is_absent() {
        report.useless(
            &draft.request_slowlog_trace_depth,
            "it has no effect without slowlog",
            "set slowlog as well",
        );
    }
    let timeout = draft.request_slowlog_timeout.written()?;
    let is_longer = |longest: Duration| !longest.is_zero() && timeout.value.0 > longest;
    if timeout.value.0.is_zero() {
        return None;
    }
    if draft.slowlog.is_absent() {
        report.rule(
            timeout,
            "there is no file to write slow requests to",
            "set slowlog as well",
        );
    }
    let terminate = draft.request_terminate_timeout.written();
    if terminate.is_some_and(|terminate| is_longer(terminate.value.0)) {
        let problem = "no request lives that long: request_terminate_timeout is shorter";
        report.rule(timeout, problem, "make it shorter than request_terminate_timeout");
    }
    Some(SlowLog {
        path: path?,
        timeout: timeout.value.0,
        trace_depth: depth.unwrap_or(DEFAULT_TRACE_DEPTH),
    })
}

/// An absolute path, or in an application pool a path below each root.
pub(super) fn app_log(text: &PoolText, report: &mut WorldReport<'_>) -> Option<AppLog> {
    let written = text.draft.app_log.written()?;
    if !text.is_routed() {
        return Some(AppLog {
            path: absolute_file(written, report)?,
            is_owners: false,
        });
    }
    let problem = "every application of the pool has its own log";
    let path = below_a_root(written, problem, "\"log/app.log\"", report)?;
    Some(AppLog {
        path,
        is_owners: true,
    })
}

pub(super) fn env_file(text: &PoolText, report: &mut WorldReport<'_>) -> Option<EnvFile> {
    let written = text.draft.env_file.written()?;
    let is_optional = text.is_routed();
    let problem = "every application of the pool has its own file";
    let path = match is_optional {
        false => absolute_file(written, report),
        true => below_a_root(written, problem, "\".env\"", report),
    };
    Some(EnvFile {
        path: path?,
        is_optional,
        is_owners: false,
    })
}

fn below_a_root(
    written: &Written<Text>,
    problem: &str,
    example: &str,
    report: &mut Report<'_>,
) -> Option<PathBuf> {
    let path = Path::new(&written.value.0);
    if !is_below(path) {
        let remedy = format!("give its path below an application's root, for example {example}");
        report.rule(written, problem, remedy);
        return None;
    }
    Some(path.to_owned())
}
