//! `forkyard jobs backup`: has the program that keeps jobs copy them. This one has no database.

use super::failed;
use crate::{EXIT_CONFIG, EXIT_SOFTWARE, control, program_directory};
use forkyard_config::{self as config, JobsStore};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

/// Becomes the program that copies.
pub(super) fn run(configuration: &Path, file: &Path) -> ExitCode {
    let refuse = |code, message: &str| control::tell(Err(failed(code, message)));
    let loaded = match config::load(configuration) {
        Ok(loaded) => loaded,
        Err(errors) => return refuse(EXIT_CONFIG, &errors.to_string()),
    };
    let Some(jobs) = loaded.config.jobs else {
        return refuse(EXIT_CONFIG, &format!("{} has no [jobs]", configuration.display()));
    };
    let JobsStore::File(store) = &jobs.store else {
        let message = "the jobs are in PostgreSQL, which copies them: pg_dump --schema=forkyard";
        return refuse(EXIT_CONFIG, message);
    };
    let program = program_directory().join(jobs.store.program());
    let error = Command::new(&program).arg("backup").arg(store).arg(file).exec();
    refuse(EXIT_SOFTWARE, &format!("{}: {error}", program.display()))
}
