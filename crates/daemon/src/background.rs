//! Starts the daemon, in the background if configured.

use crate::handover::InheritedState;
use crate::master::{self, Frontend, Handlers, RunError};
use forkyard_config::Config;
use forkyard_config::php::set_installed;
use forkyard_host::logs::streams_of;
use forkyard_sys::{fd, process};
use std::path::{Path, PathBuf};

/// EX_SOFTWARE of sysexits.h: the daemon exited before it was ready.
pub const EXIT_SOFTWARE: u8 = 70;
/// The fallback directory of forkyard's programs.
const PROGRAMS: &str = "/usr/libexec/forkyard";

/// Runs the daemon until it receives a request to stop. `programs` is the directory of forkyard's programs.
///
/// # Errors
/// The daemon did not start.
pub fn run(
    config: Config,
    handlers: Handlers,
    frontend: Frontend,
    background: bool,
    programs: &Path,
    inherited: InheritedState,
) -> Result<(), RunError> {
    // After an upgrade, this process is in the background already.
    let launcher = (background && inherited.document.is_none() && inherited.problem.is_none())
        .then(|| process::daemonize(i32::from(EXIT_SOFTWARE)))
        .transpose()
        .map_err(RunError::Background)?;
    let kept = streams_of(&config);
    let in_background = launcher.is_some() || inherited.in_background;
    let ready = move || {
        if !in_background {
            return;
        }
        // The launcher may wait until these streams are closed.
        if let Err(error) = fd::let_go_of_standard_streams(&kept) {
            log::warn!("the standard streams stay open: {error}");
        }
        if let Some(launcher) = launcher {
            launcher.report(0);
        }
    };
    master::run(config, handlers, frontend, programs, inherited, ready)
}

/// Returns the directory of forkyard's programs: `lib/forkyard` of the installation prefix, or the directory of this
/// executable.
pub fn program_directory() -> PathBuf {
    let own = std::env::current_exe().ok();
    own.as_deref()
        .and_then(Path::parent)
        .map_or_else(|| PathBuf::from(PROGRAMS), programs_of)
}

/// Registers the installed PHP versions, so that the newest is the default.
pub fn look_for_php() {
    let files = std::fs::read_dir(program_directory().join("php"));
    let files = files.into_iter().flatten().flatten();
    set_installed(files.filter_map(|file| file.file_name().into_string().ok()));
}

pub fn programs_of(directory: &Path) -> PathBuf {
    installed_programs(directory)
        .filter(|programs| programs.join("forkyard").exists())
        .unwrap_or_else(|| directory.to_owned())
}

/// Returns `PREFIX/lib/forkyard` for `PREFIX/bin` and `PREFIX/sbin`.
fn installed_programs(directory: &Path) -> Option<PathBuf> {
    let is_of_a_prefix = directory.ends_with("bin") || directory.ends_with("sbin");
    let prefix = directory.parent().filter(|_| is_of_a_prefix)?;
    Some(prefix.join("lib/forkyard"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_below_the_prefix_or_beside() {
        let prefix = tempfile::tempdir().expect("directory");
        let directory = |name: &str| {
            let path = prefix.path().join(name);
            std::fs::create_dir_all(&path).expect("mkdir");
            path
        };
        let (sbin, debug) = (directory("sbin"), directory("debug"));
        let installed = directory("lib/forkyard");
        assert_eq!(programs_of(&sbin), sbin, "there is no program in lib/forkyard");
        std::fs::write(installed.join("forkyard"), "").expect("program");
        assert_eq!(programs_of(&sbin), installed);
        assert_eq!(programs_of(&directory("bin")), installed);
        assert_eq!(
            programs_of(&debug),
            debug,
            "what cargo builds has its own beside it"
        );
    }
}
