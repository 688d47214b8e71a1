//! The programs that a pool needs in addition to its application.

use forkyard_config::{Pool, Workers};
use std::path::{Path, PathBuf};

pub fn programs(pool: &Pool, directory: &Path) -> Vec<PathBuf> {
    let is_native = pool.application.traits().workers == Workers::Helper;
    let has_helpers = pool.pages.status_listen.is_some() || pool.applications.is_some() || is_native;
    let helper = has_helpers.then(|| super::helper::program(directory));
    let mut programs: Vec<PathBuf> = helper.into_iter().collect();
    // Each application of an application pool states its runtime; its programs are looked up at its start.
    if pool.applications.is_none() {
        let php = pool.application.php().map(|_| directory.join("forkyard-php"));
        programs.extend(php);
        if let Some(wrapped) = pool.application.wrapped() {
            programs.push(wrapped.interpreter.clone());
            programs.push(directory.join(forkyard_runtimes::wrapped::LIBRARY));
        }
    }
    programs
}
