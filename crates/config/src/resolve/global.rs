//! Resolves `[global]`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::addresses;
use super::listen::{MAX_SOCKET_PATH, is_short_enough};
use super::web;
use crate::draft::{GlobalDraft, PoolText};
use crate::flat_keys::{Field, Written};
use crate::main_file::{SYSTEM_CONTROL, SYSTEM_INCLUDE, is_system};
use crate::model::{
    Address, EmergencyRestart, Global, LogFormat, LogLevel, LogTarget, OnError, OnSigterm, Pool,
};
use crate::report::{Report, WorldReport};
use crate::units::{Text, Whole};
use crate::value::quoted;

const DEFAULT_IDENT: &str = "forkyard";
/// LOG_DAEMON.
const DEFAULT_FACILITY: u8 = 3;
const DEFAULT_LOG_LIMIT: usize = 1024;
/// php-fpm's minimum.
const LOG_LIMIT: (i64, i64) = (512, i32::MAX as i64);
const DEFAULT_SYSTEMD_INTERVAL: Duration = Duration::from_secs(10);
const DEFAULT_CONTROL_TIMEOUT: Duration = Duration::from_secs(60);
/// What a master with one pool needs, found by trial.
const LEAST_DESCRIPTORS: u64 = 35;
/// php-fpm's range. The kernel treats 20 as 19.
const PRIORITIES: (i64, i64) = (-19, 20);

pub(super) fn resolve(
    draft: &GlobalDraft,
    path: &Path,
    pools: &[(&PoolText, Pool)],
    report: &mut WorldReport<'_>,
) -> Global {
    let error_log = error_log(draft, report);
    let daemonize = draft.daemonize.or(false);
    if let (true, LogTarget::Stderr, Some(written)) = (daemonize, &error_log, draft.daemonize.written()) {
        report.warn(
            written,
            "in the background there is no standard error stream",
            "set error_log to a file",
        );
    }
    let is_watched = is_watched(draft, path, report);
    Global {
        pid: draft.pid.written().and_then(|written| absolute(written, report)),
        error_log,
        log_format: draft.log_format.or(LogFormat::Text),
        log_limit: (report.range(&draft.log_limit, LOG_LIMIT.0, LOG_LIMIT.1)).unwrap_or(DEFAULT_LOG_LIMIT),
        systemd_interval: Some(draft.systemd_interval.or(DEFAULT_SYSTEMD_INTERVAL))
            .filter(|interval| !interval.is_zero()),
        log_level: draft.log_level.or(LogLevel::Notice),
        process_max: process_max(draft, pools, report),
        emergency_restart: emergency_restart(draft, report),
        process_priority: priority(&draft.process_priority, report),
        process_control_timeout: draft.process_control_timeout.or(DEFAULT_CONTROL_TIMEOUT),
        daemonize,
        rlimit_files: rlimit_files(&draft.rlimit_files, LEAST_DESCRIPTORS, "the master", report),
        rlimit_core: draft.rlimit_core.get(),
        on_error: draft
            .on_error
            .or(if is_watched { OnError::Skip } else { OnError::Fail }),
        watch: if is_watched {
            let base = path.parent().unwrap_or(Path::new(""));
            patterns(draft, path).map(|pattern| base.join(pattern)).collect()
        } else {
            Vec::new()
        },
        on_sigterm: draft.on_sigterm.or(OnSigterm::Terminate),
        control: match draft.control {
            // Only root can create the default socket.
            Field::Absent if !report.world.is_root() => None,
            _ => control(&draft.control, path, pools, report),
        },
        is_control_written: draft.control.written().is_some(),
        web: web::resolve(draft, pools, report),
    }
}

/// Returns whether to watch included files. Requires a pattern and `on_error = "skip"`, so that a wrong file doesn't
/// affect others.
fn is_watched(draft: &GlobalDraft, path: &Path, report: &mut Report<'_>) -> bool {
    let Some(written) = draft.watch.written().filter(|_| draft.watch.or(false)) else {
        return false;
    };
    if patterns(draft, path).next().is_none() {
        let remedy = "write include = [\"pools/*.toml\"] as well, or leave it out";
        report.rule(written, "there are no files of `include` to watch", remedy);
    }
    if let Some(on_error) = draft
        .on_error
        .written()
        .filter(|_| draft.on_error.or(OnError::Skip) == OnError::Fail)
    {
        let remedy = "write on_error = \"skip\", or leave it out";
        report.rule(
            on_error,
            "watch = true reloads at once, so a file with errors must not stop the other pools",
            remedy,
        );
    }
    true
}

/// The patterns of `include`, relative to the main file `path`.
pub(super) fn patterns(draft: &GlobalDraft, path: &Path) -> impl Iterator<Item = String> {
    let patterns = match &draft.include {
        Field::Is(written) => written.value.0.clone(),
        Field::Absent if is_system(path) => vec![SYSTEM_INCLUDE.to_owned()],
        Field::Absent | Field::Wrong => Vec::new(),
    };
    patterns.into_iter()
}

/// Requires both keys or none.
fn emergency_restart(draft: &GlobalDraft, report: &mut Report<'_>) -> Option<EmergencyRestart> {
    let threshold = report.range(&draft.emergency_restart_threshold, 0, i64::from(i32::MAX));
    let threshold = threshold.filter(|count| *count > 0);
    let interval = draft.emergency_restart_interval.written();
    let interval = interval.filter(|written| !written.value.0.is_zero());
    match (threshold, interval) {
        (Some(threshold), Some(interval)) => Some(EmergencyRestart {
            threshold,
            interval: interval.value.0,
        }),
        (Some(_), None) => {
            let problem = "it has no effect without emergency_restart_interval";
            report.useless(&draft.emergency_restart_threshold, problem, "set both");
            None
        }
        (None, Some(interval)) => {
            let problem = "it has no effect without emergency_restart_threshold";
            report.warn(interval, problem, "set both");
            None
        }
        (None, None) => None,
    }
}

fn error_log(draft: &GlobalDraft, report: &mut WorldReport<'_>) -> LogTarget {
    match draft.error_log.written() {
        None => LogTarget::Stderr,
        Some(written) if written.value.0 == "stderr" => LogTarget::Stderr,
        Some(written) if written.value.0.eq_ignore_ascii_case("syslog") => LogTarget::Syslog {
            ident: draft.syslog_ident.or(DEFAULT_IDENT.to_owned()),
            facility: draft.syslog_facility.or(DEFAULT_FACILITY),
        },
        Some(written) => absolute(written, report).map_or(LogTarget::Stderr, LogTarget::File),
    }
}

/// The control socket: configured, or the system's default. Checks its path's length. `main`: the main file.
pub(super) fn control(
    draft: &Field<Text>,
    main: &Path,
    pools: &[(&PoolText, Pool)],
    report: &mut WorldReport<'_>,
) -> Option<PathBuf> {
    let Some(written) = draft.written() else {
        return (draft.is_absent() && is_system(main)).then(|| SYSTEM_CONTROL.into());
    };
    let path = absolute(written, report)?;
    if !is_short_enough(&written.value.0) {
        let problem = format!("the path has more than {MAX_SOCKET_PATH} bytes");
        report.rule(written, problem, "give a shorter one");
        return None;
    }
    let address = Address::Unix(path);
    if let Some(pool) = addresses::user_of(pools, &address, report.world) {
        let problem = format!("pool {} listens on it", pool.name);
        report.rule(written, problem, "give the control socket its own path");
        return None;
    }
    match address {
        Address::Unix(path) => Some(path),
        Address::Tcp(_) | Address::TcpAny(_) => None,
    }
}

/// An absolute path for a new file. Rejects `$pool`, which has no meaning in `[global]`.
fn absolute(written: &Written<Text>, report: &mut WorldReport<'_>) -> Option<PathBuf> {
    if written.value.0.contains("$pool") && !report.is_php_fpm() {
        report.rule(
            written,
            "$pool means nothing outside a pool",
            "write the path in full",
        );
        return None;
    }
    absolute_file(written, report)
}

/// An absolute path for a new file.
pub(super) fn absolute_file(written: &Written<Text>, report: &mut WorldReport<'_>) -> Option<PathBuf> {
    let text = &written.value.0;
    let path = Path::new(text);
    if report.is_php_fpm() {
        return Some(path.to_owned());
    }
    if !path.is_absolute() || path.file_name().is_none() {
        report.rule(
            written,
            format!("{} is not the absolute path of a file", quoted(text)),
            "start it with /",
        );
        return None;
    }
    new_file(written, path, report);
    Some(path.to_owned())
}

/// Checks a path for a new or existing file. A missing directory is only a warning, because it may be created later.
pub(super) fn new_file<T>(written: &Written<T>, path: &Path, report: &mut WorldReport<'_>) {
    if !report.world.answers(path) {
        return;
    }
    if report.world.is_dir(path) {
        let problem = format!("{} is a directory", quoted(&path.to_string_lossy()));
        report.rule(written, problem, "give the path of a file in it");
    } else if let Some(parent) = path.parent().filter(|parent| !report.world.is_dir(parent)) {
        let problem = format!(
            "{} is not an existing directory",
            quoted(&parent.to_string_lossy())
        );
        report.warn(written, problem, "make it before the start");
    }
}

fn process_max(draft: &GlobalDraft, pools: &[(&PoolText, Pool)], report: &mut Report<'_>) -> Option<u32> {
    let max = report
        .range(&draft.process_max, 0, i64::from(i32::MAX))
        .filter(|max| *max > 0)?;
    if let (Some(written), Some((_, pool))) = (
        draft.process_max.written(),
        pools
            .iter()
            .find(|(_, pool)| !pool.load.has_autopilot && pool.pm.max_children() > max),
    ) {
        let children = pool.pm.max_children();
        let problem = format!("pool {} may never have its {children} workers", pool.name);
        report.warn(written, problem, format!("raise it to {children} or more"));
    }
    Some(max)
}

/// A nice value. Has no effect without root.
pub(super) fn priority(field: &Field<Whole>, report: &mut WorldReport<'_>) -> Option<i32> {
    let value = report.range(field, PRIORITIES.0, PRIORITIES.1)?;
    if !report.world.is_root() {
        report.ignored_without_root(field);
        return None;
    }
    Some(value)
}

/// A limit of open files; 0 means inherited. `whose`: the process that needs at least `least`.
pub(super) fn rlimit_files(
    field: &Field<Whole>,
    least: u64,
    whose: &str,
    report: &mut Report<'_>,
) -> Option<u64> {
    let limit = report.range(field, 0, i64::from(i32::MAX));
    let limit = limit.filter(|limit: &u64| *limit > 0)?;
    if limit < least {
        let problem = format!("{limit} open files are too few for {whose}");
        report.refuse(
            field,
            &problem,
            &format!("give at least {least}, or leave it out"),
        );
    }
    Some(limit)
}
