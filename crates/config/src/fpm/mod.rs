//! php-fpm's own configuration: the INI files and command line options of php-fpm, with its rules and its words.
//!
//! `scan` and `ini` read PHP's INI language a line at a time, `parse` makes sections of files, `validate` and
//! `pool_rules` apply php-fpm's rules, `said` puts what the directives say under forkyard's own keys, and `resolve` has
//! the model made of that. [`directives`] is php-fpm's side of the table of all settings, which is behind all of them.
//! Whatever is to be told goes into a [`Journal`].

mod constants;
pub mod directives;
mod dump;
mod effects;
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

pub use effects::release_of;
pub use journal::{Journal, Line};
pub use machine::{Machine, OsFailure};
pub use paths::PREFIX;
pub use php_ini::{complete, entry};
pub(crate) use resolve::is_ours;
pub use survey::{Section as Surveyed, Survey, survey};

use crate::overrides::Overrides;
use crate::{Config, php};
use std::path::{Path, PathBuf};
use validate::Context;

/// What the command line says about the configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// `-y`: the file.
    pub config: Option<String>,
    /// The PHP that the pools get, as `8.2`; `None`: what the file's path says, or else the newest that there is.
    pub version: Option<String>,
    /// `-p`: the prefix.
    pub prefix: Option<String>,
    /// `-g`: the pid file, unless the configuration names one.
    pub pid: Option<String>,
    /// `-R`: workers may be root.
    pub allow_root: bool,
    /// `-D` and `-F`.
    pub daemonize: Option<bool>,
    /// In the foreground, log to standard error whatever the file says.
    pub log_to_stderr: bool,
    /// `-c`: php.ini, or the directory that it is in.
    pub php_ini: Option<PathBuf>,
    /// `-n`: without php.ini.
    pub no_php_ini: bool,
    /// `-d`: settings of PHP, as lines of php.ini.
    pub defines: Vec<(String, String)>,
    /// `PHP_INI_SCAN_DIR`: where the files are that are read after php.ini.
    pub scan_dir: Option<String>,
    /// `-e`: compile with the information that debuggers want.
    pub extended_info: bool,
    /// The program itself: php-fpm tells it scripts as `PHP_BINARY`.
    pub executable: Option<PathBuf>,
}

impl Options {
    /// The PHP that the pools get.
    pub fn version(&self) -> &str {
        self.version.as_deref().unwrap_or_else(|| {
            let named = self.config.as_deref().and_then(php::of_path);
            named.unwrap_or(php::newest())
        })
    }

    /// What some of php-fpm's lines end with, besides the end of the line: up to 8.3 a blank line follows them.
    fn line_end(&self) -> &'static str {
        if php::is_before(self.version(), "8.4") {
            "\n"
        } else {
            ""
        }
    }

    /// The configuration file.
    pub fn path(&self) -> String {
        match (&self.config, &self.prefix) {
            (Some(path), _) => path.clone(),
            (None, Some(prefix)) => format!("{prefix}/etc/php-fpm.conf"),
            (None, None) => paths::config(self.version()),
        }
    }
}

/// Reads the configuration for a start of the daemon. `None`: it can't be used; the journal says why.
pub fn load(options: &Options, machine: &dyn Machine) -> (Option<Config>, Journal) {
    let mut journal = Journal::new();
    let path = options.path();
    let config = read(options, machine, &mut journal, false).and_then(|written| {
        journal.is_in_background = written.global.flag("daemonize");
        let mut context = Context {
            options,
            machine,
            journal: &mut journal,
        };
        start::resolve_identities(&written, &mut context)?;
        Ok(resolve::resolve(&written, &path, &mut context)?.config)
    });
    if config.is_err() {
        journal.error("FPM initialization failed");
    }
    (config.ok(), journal)
}

/// Tests the configuration as `-t` does, and shows it if that is wanted. Says whether it can be used. `warnings`: what there is to
/// say of pools that have no mistake.
pub fn test(
    options: &Options,
    shows: bool,
    machine: &dyn Machine,
    warnings: &dyn Fn(&Config) -> Vec<String>,
) -> (bool, Journal) {
    let mut journal = Journal::new();
    let tested = read(options, machine, &mut journal, false).and_then(|written| {
        let mut context = Context {
            options,
            machine,
            journal: &mut journal,
        };
        start::test_pools(&written, &mut context)?;
        if shows {
            dump::dump(&written, &mut journal);
        }
        let path = options.path();
        // A start finds more than php-fpm's test does, and says it then.
        let mut unsaid = Journal::new();
        let mut context = Context {
            options,
            machine,
            journal: &mut unsaid,
        };
        match resolve::resolve(&written, &path, &mut context) {
            Ok(resolved) => warnings(&resolved.config)
                .into_iter()
                .for_each(|text| journal.warn(text)),
            // php-fpm knows no variables of this kind, so they are no part of its test.
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
    let mut context = Context {
        options,
        machine,
        journal,
    };
    validate::validate(&mut written, &mut context)
        .map_err(|_| journal.error("failed to post process the configuration"))?;
    Ok(written)
}
