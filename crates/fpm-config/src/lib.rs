//! php-fpm's own configuration: INI files and command line, with php-fpm's rules and messages.
//!
//! `scan` and `ini` read PHP's INI language line by line, `parse` builds sections, `validate` and `pool_rules` check
//! php-fpm's rules, `settings` maps directives to forkyard's keys, and `resolve` has these resolved. Messages go to a
//! [`Journal`]. [`import`] converts a configuration to TOML.
#![forbid(unsafe_code)]

mod constants;
mod dump;
#[cfg(any(test, fuzzing))]
#[path = "../fuzz/targets.rs"]
pub mod fuzz;
mod host;
pub mod import;
mod ini;
mod journal;
mod machine;
mod parse;
mod paths;
mod php_ini;
mod pool_rules;
mod remarks;
mod resolve;
mod scan;
mod settings;
mod start;
mod survey;
mod validate;
mod values;
mod variables;

pub use host::release_of;
pub use journal::{Journal, Line};
pub use machine::{Machine, OsFailure};
pub use paths::PREFIX;
pub use php_ini::{complete, entry};

use forkyard_config::overrides::Overrides;
use forkyard_config::{Config, php};
use std::path::{Path, PathBuf};
use validate::Context;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// `-y`: the configuration file.
    pub config: Option<String>,
    /// The pools' PHP, such as `8.2`. `None`: derived from the file's path, or the newest.
    pub version: Option<String>,
    /// `-p`: the prefix.
    pub prefix: Option<String>,
    /// `-g`: the pid file if the configuration sets none.
    pub pid: Option<String>,
    /// `-R`: allow workers as root.
    pub allow_root: bool,
    /// `-D` and `-F`.
    pub daemonize: Option<bool>,
    /// Log to standard error in the foreground, overriding the file.
    pub log_to_stderr: bool,
    /// `-c`: php.ini or its directory.
    pub php_ini: Option<PathBuf>,
    /// `-n`: ignore php.ini.
    pub no_php_ini: bool,
    /// `-d`: php.ini settings.
    pub defines: Vec<(String, String)>,
    /// `PHP_INI_SCAN_DIR`: directories of further ini files.
    pub scan_dir: Option<String>,
    /// `-e`: compile with information for debuggers.
    pub extended_info: bool,
    /// The running program, php-fpm's `PHP_BINARY`.
    pub executable: Option<PathBuf>,
}

impl Options {
    pub fn version(&self) -> &str {
        self.version.as_deref().unwrap_or_else(|| {
            let named = self.config.as_deref().and_then(php::of_path);
            named.unwrap_or(php::newest())
        })
    }

    /// The ending of some messages: before 8.4, php-fpm adds a blank line.
    fn line_end(&self) -> &'static str {
        if php::is_before(self.version(), "8.4") {
            "\n"
        } else {
            ""
        }
    }

    pub fn path(&self) -> String {
        match (&self.config, &self.prefix) {
            (Some(path), _) => path.clone(),
            (None, Some(prefix)) => format!("{prefix}/etc/php-fpm.conf"),
            (None, None) => paths::config(self.version()),
        }
    }
}

/// Reads the configuration for the daemon. Returns `None` after an error; see the journal.
pub fn load(options: &Options, machine: &dyn Machine) -> (Option<Config>, Journal) {
    let mut journal = Journal::new();
    let path = options.path();
    let config = read(options, machine, &mut journal, false).and_then(|written| {
        journal.is_in_background = written.global.flag("daemonize");
        let mut context = Context::new(options, machine, &mut journal);
        start::resolve_identities(&written, &mut context)?;
        Ok(resolve::resolve(&written, &path, &mut context)?.config)
    });
    if config.is_err() {
        journal.error("FPM initialization failed");
    }
    (config.ok(), journal)
}

/// Implements `-t` and `-tt`. Returns whether the configuration is usable. `warnings`: further messages about valid
/// pools.
pub fn test(
    options: &Options,
    shows: bool,
    machine: &dyn Machine,
    warnings: &dyn Fn(&Config) -> Vec<String>,
) -> (bool, Journal) {
    let mut journal = Journal::new();
    let tested = read(options, machine, &mut journal, false).and_then(|written| {
        let mut context = Context::new(options, machine, &mut journal);
        start::test_pools(&written, &mut context)?;
        if shows {
            dump::dump(&written, &mut journal);
        }
        let path = options.path();
        // php-fpm's test reports less than a start.
        let mut unsaid = Journal::new();
        let mut context = Context::new(options, machine, &mut unsaid);
        match resolve::resolve(&written, &path, &mut context) {
            Ok(resolved) => warnings(&resolved.config)
                .into_iter()
                .for_each(|text| journal.warn(text)),
            // php-fpm doesn't know these variables, so its test ignores them.
            Err(failed) if !Overrides::of(machine).is_empty() => {
                journal.lines.extend(unsaid.lines);
                return Err(failed);
            }
            Err(_) => {}
        }
        let end = options.line_end();
        journal.notice(format!("configuration file {path} test is successful{end}"));
        Ok(())
    });
    if tested.is_err() {
        journal.error("FPM initialization failed");
    }
    (tested.is_ok(), journal)
}

fn read(
    options: &Options,
    machine: &dyn Machine,
    journal: &mut Journal,
    remembers: bool,
) -> Result<parse::Written, journal::Failed> {
    if let Some(prefix) = options
        .prefix
        .as_deref()
        .filter(|prefix| !machine.is_dir(Path::new(prefix)))
    {
        let text = format!("the global prefix '{prefix}' does not exist or is not a directory");
        return Err(journal.error(text));
    }
    let path = options.path();
    let mut written = parse::read(options, machine, journal, remembers)
        .map_err(|_| journal.error(format!("failed to load configuration file '{path}'")))?;
    if !remembers {
        variables::write_over(&mut written, &Overrides::of(machine), journal)
            .map_err(|_| journal.error("failed to apply the environment"))?;
    }
    let mut context = Context::new(options, machine, journal);
    validate::validate(&mut written, &mut context)
        .map_err(|_| journal.error("failed to post process the configuration"))?;
    Ok(written)
}
