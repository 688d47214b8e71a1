//! `forkyard-jobs backup STORE FILE`: copies the jobs, while a process uses the store or not.

use crate::store::{Copied, Sqlite};
use forkyard_sys::identity;
use std::path::Path;
use std::process::ExitCode;

const EXIT_DAMAGED: u8 = 65;
const EXIT_NO_COPY: u8 = 73;
const NICE: i32 = 10;

#[expect(clippy::print_stdout, clippy::print_stderr, reason = "its own command")]
pub fn back_up(store: &Path, file: &Path) -> ExitCode {
    identity::set_umask(0o077);
    // The daemon comes first; a lower priority can't be refused.
    let _ = identity::set_priority(NICE);
    match Sqlite::copy(store, file) {
        Ok(Copied::Whole { jobs }) => {
            println!("{}: {jobs} jobs", file.display());
            ExitCode::SUCCESS
        }
        Ok(Copied::Part { jobs, lost, why }) => {
            eprintln!(
                "forkyard: {} is damaged ({why}); {} has what could be read of it: {jobs} jobs. {lost} numbers of jobs could not \
                 be looked at",
                store.display(),
                file.display()
            );
            ExitCode::from(EXIT_DAMAGED)
        }
        Err(error) => {
            eprintln!("forkyard: there is no copy: {error}");
            ExitCode::from(EXIT_NO_COPY)
        }
    }
}
