//! Where the daemon and the pools log, for the status.

use forkyard_config::{LogTarget, Pool};
use forkyard_protocol::logs::{DaemonLog, PoolLog, PoolLogKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const ERROR_LOG: &str = "error_log";

pub(crate) fn of_daemon(target: &LogTarget) -> DaemonLog {
    match target {
        LogTarget::Stderr => DaemonLog::Stderr,
        LogTarget::File(path) => DaemonLog::File(path.clone()),
        LogTarget::Syslog { ident, .. } => DaemonLog::Syslog(ident.clone()),
    }
}

pub(crate) fn of_all<'p>(settings: impl Iterator<Item = &'p Arc<Pool>>) -> Vec<PoolLog> {
    let mut logs: Vec<PoolLog> = Vec::new();
    for log in settings.flat_map(|pool| of_pool(pool)) {
        if !logs.contains(&log) {
            logs.push(log);
        }
    }
    logs
}

fn of_pool(pool: &Pool) -> Vec<PoolLog> {
    let of_php = pool.application.php().and_then(|php| {
        let mut all = php.php_admin_value.iter().chain(&php.php_value);
        let (_, path) = all.find(|(name, _)| name == ERROR_LOG)?;
        Some(Path::new(path)).filter(|path| path.is_absolute())
    });
    let output = pool.logs.app_log.as_ref().map(|log| match pool.applications {
        // Relative to each application's root.
        Some(_) => log.path.strip_prefix("/").unwrap_or(&log.path).to_owned(),
        None => log.path.clone(),
    });
    let slow = pool.logs.slow_log.as_ref().map(|log| log.path.clone());
    let access = pool.logs.access.as_ref().map(|log| log.path.clone());
    let logs: [(PoolLogKind, Option<PathBuf>); 4] = [
        (PoolLogKind::Output, output),
        (PoolLogKind::Php, of_php.map(Path::to_owned)),
        (PoolLogKind::Slow, slow),
        (PoolLogKind::Access, access),
    ];
    let log = |(kind, path): (PoolLogKind, Option<PathBuf>)| Some(PoolLog { kind, path: path? });
    logs.into_iter().filter_map(log).collect()
}
