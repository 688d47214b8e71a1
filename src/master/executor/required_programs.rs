//! The programs that a pool needs in addition to its application.

use crate::config::{Application, Pool};
use crate::runtime;
use std::path::{Path, PathBuf};

pub(crate) fn programs(pool: &Pool, directory: &Path) -> Vec<PathBuf> {
    let is_native = !matches!(
        pool.application,
        Application::Php(_) | Application::Wrapped(_) | Application::Rust
    );
    let has_helpers = pool.pages.status_listen.is_some() || pool.applications.is_some() || is_native;
    let helper = has_helpers.then(|| super::helper::program(directory));
    let mut programs: Vec<PathBuf> = helper.into_iter().collect();
    match &pool.application {
        // Each application states its runtime; its programs are looked up at its start.
        _ if pool.applications.is_some() => {}
        Application::Php(_) => programs.push(directory.join("forkyard-php")),
        Application::Wrapped(wrapped) => {
            programs.push(wrapped.interpreter.clone());
            programs.push(directory.join(runtime::wrapped::LIBRARY));
        }
        // Looked up at the request.
        Application::Cgi(_)
        | Application::FastCgi(_)
        | Application::Http(_)
        | Application::Program(_)
        | Application::Rust => {}
    }
    programs
}
