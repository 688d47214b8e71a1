//! `forkyard check`: validates a configuration, and starts PHP once for each different set of start options.

use super::output::refuse;
use super::{EXIT_SOFTWARE, owners, php_start, program_directory, reach, release_link, unit};
use clap::Args;
use forkyard_config::sharing::is_start_setting;
use forkyard_config::{self as config, Diagnostic, JobsStore, Kind, LeftOut, Loaded, Pool, Severity};
use forkyard_daemon::master;
use forkyard_host::{confine, secret};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;

const EXIT_NO_POOL: u8 = 1;
/// The prefix of forkyard-php's own messages.
pub(super) const OWN: &str = "forkyard-php: ";
/// The prefix of PHP's syntax errors in php.ini.
const SYNTAX: &str = "PHP:  ";
/// Not set in a check: it runs code.
const PRELOAD: &str = "opcache.preload";
/// Variables for the location of php.ini.
const VARIABLES: [&str; 2] = ["PHPRC", "PHP_INI_SCAN_DIR"];

/// What is checked.
#[derive(Debug, Args)]
pub(super) struct Check {
    /// Configuration file (TOML)
    #[arg(short, long, value_name = "FILE", default_value = super::CONFIG)]
    config: PathBuf,
    /// Take warnings for errors
    #[arg(long)]
    strict: bool,
    /// Show the settings in force instead, and where each was set: in a file, in the environment, or nowhere
    #[arg(long, conflicts_with = "strict")]
    effective: bool,
    /// Only say whether there is a pool at all, for what starts services: exit code 1 and a line if there is none
    #[arg(long, conflicts_with_all = ["strict", "effective"])]
    has_pools: bool,
}

pub(super) fn run(check: &Check) -> ExitCode {
    if check.effective {
        return match config::effective(&check.config) {
            Ok(text) => {
                print!("{text}");
                ExitCode::SUCCESS
            }
            Err(errors) => {
                eprintln!("{errors}");
                ExitCode::from(config::EXIT_INVALID)
            }
        };
    }
    if check.has_pools {
        if config::has_pools(&check.config) {
            return ExitCode::SUCCESS;
        }
        println!(
            "{}: there is no pool, so nothing is started: forkyard init writes one",
            check.config.display()
        );
        return ExitCode::from(EXIT_NO_POOL);
    }
    let directory = program_directory();
    let further = |loaded: &Loaded| further(loaded, &directory);
    let mut text = Vec::new();
    let code = config::check(&check.config, check.strict, &further, &mut text);
    print!("{}", String::from_utf8_lossy(&text));
    match code {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            refuse(&error, "standard output");
            ExitCode::from(EXIT_SOFTWARE)
        }
    }
}

/// Checks the programs, files and directories that the pools need, and starts PHP.
fn further(loaded: &Loaded, directory: &Path) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    let mut missing = BTreeSet::new();
    for pool in &loaded.config.pools {
        for program in master::needed_programs(pool, directory) {
            if !program.exists() && missing.insert(program.clone()) {
                let remedy = "install it: it belongs to forkyard's own programs";
                let problem = format!("{} is missing", program.display());
                found.extend(diagnostic(loaded, pool, Severity::Error, problem, remedy));
            }
        }
    }
    let jobs = loaded.config.jobs.as_deref();
    let first = jobs.and_then(|jobs| Some((jobs, jobs.queues.first()?)));
    if let Some((jobs, queue)) = first {
        let keeper = directory.join(jobs.store.program());
        let pool = loaded.config.pools.iter().find(|pool| pool.name == queue.pool);
        if let Some(pool) = pool.filter(|_| !keeper.exists()) {
            let remedy = match jobs.store {
                JobsStore::File(_) => {
                    "install it: it keeps background jobs, and belongs to forkyard's own programs"
                }
                JobsStore::Postgresql(_) => {
                    "install the package forkyard-jobs-postgresql, or name a file as store"
                }
            };
            let problem = format!("{} is missing", keeper.display());
            found.extend(diagnostic(loaded, pool, Severity::Error, problem, remedy));
        }
    }
    let tcp = jobs.and_then(|jobs| jobs.tcp.as_ref());
    let unfit = tcp.and_then(|tcp| secret::unfit(&tcp.secret_file));
    if let Some((error, (_, queue))) = unfit.zip(first) {
        let pool = loaded.config.pools.iter().find(|pool| pool.name == queue.pool);
        let remedy = "the daemon does not start without it";
        let found_there =
            pool.and_then(|pool| diagnostic(loaded, pool, Severity::Error, error.to_string(), remedy));
        found.extend(found_there.map(|diagnostic| Diagnostic {
            key: Some("secret_file".to_owned()),
            pool: None,
            ..diagnostic
        }));
    }
    // Only a warning: this pool's user may have caused it, and it must not prevent the start of other pools.
    for barred in reach::barred(&loaded.config.pools) {
        let problem = barred.barrier.summary.trim_end_matches('.').to_owned();
        let remedy = as_remedy(&barred.barrier.solution);
        found.extend(diagnostic(
            loaded,
            barred.pool,
            Severity::Warning,
            problem,
            remedy,
        ));
    }
    let denied = owners::denied(&loaded.config.pools).into_iter();
    let denied = denied.map(|denied| (denied, owners::REMEDY));
    let closed = owners::closed(&loaded.config.pools).into_iter();
    let closed = closed.map(|closed| (closed, owners::CLOSED_REMEDY));
    for (denied, remedy) in denied.chain(closed) {
        found.extend(of_key(
            loaded,
            denied.pool,
            denied.key,
            Severity::Warning,
            denied.problem,
            remedy,
        ));
    }
    for pool in &loaded.config.pools {
        if let Some((problem, remedy)) = release_link::fault(pool) {
            found.extend(of_key(
                loaded,
                pool,
                "release",
                Severity::Warning,
                problem,
                remedy,
            ));
        }
        if let Err(error) = confine::supported(pool) {
            let (problem, remedy) = error
                .reason
                .rsplit_once("; ")
                .unwrap_or((&error.reason, "leave it out"));
            found.extend(of_key(
                loaded,
                pool,
                error.key,
                Severity::Error,
                problem.to_owned(),
                remedy,
            ));
        }
        // Only a warning, because the pool's user may have the file later.
        if let Some(problem) = master::env_file_fault(&release_link::in_release(pool)) {
            let remedy = "the application does not start without it";
            found.extend(of_key(
                loaded,
                pool,
                "env_file",
                Severity::Warning,
                problem,
                remedy,
            ));
        }
    }
    found.extend(unit::stops_late(loaded));
    let program = directory.join("forkyard-php");
    if !missing.contains(&program) {
        let faults = php_start::faults(&loaded.config, &program);
        let has_none = |pool: &&Arc<Pool>| faults.iter().all(|(name, _)| *name != pool.name);
        let rest: Vec<Arc<Pool>> = loaded.config.pools.iter().filter(has_none).cloned().collect();
        for (pool, left_out) in &faults {
            found.extend(left_out.iter().map(|it| of_setting(pool, it)));
        }
        for start in starts(&rest) {
            found.extend(start.try_out(loaded, &program));
        }
    }
    found
}

/// Returns the diagnostic for a setting that PHP rejects.
fn of_setting(pool: &str, left_out: &LeftOut) -> Diagnostic {
    let setting = &left_out.setting;
    Diagnostic {
        severity: Severity::Error,
        location: setting.location(),
        pool: Some(pool.to_owned()),
        key: Some(format!("application.{}.{}", setting.table, setting.name)),
        kind: Kind::Rule {
            problem: format!("PHP does not start with {:?}: {}", setting.value, left_out.reason),
            remedy: "correct the value, or leave the key out: php.ini's value holds then".to_owned(),
        },
    }
}

fn diagnostic(
    loaded: &Loaded,
    pool: &Pool,
    severity: Severity,
    problem: String,
    remedy: impl Into<String>,
) -> Option<Diagnostic> {
    of_key(loaded, pool, "application", severity, problem, remedy)
}

fn of_key(
    loaded: &Loaded,
    pool: &Pool,
    key: &str,
    severity: Severity,
    problem: String,
    remedy: impl Into<String>,
) -> Option<Diagnostic> {
    Some(Diagnostic {
        severity,
        location: loaded.place(&pool.name, key)?.clone(),
        pool: Some(pool.name.clone()),
        key: Some(key.to_owned()),
        kind: Kind::Rule {
            problem,
            remedy: remedy.into(),
        },
    })
}

/// One set of start options, and its pools.
struct Start<'c> {
    arguments: Vec<OsString>,
    variables: Vec<(&'static str, &'c str)>,
    pools: Vec<&'c Pool>,
    /// Settings applied after the start, of all these pools.
    later: BTreeSet<(&'static str, String)>,
}

/// Returns the different starts. Application pools are skipped.
fn starts(pools: &[Arc<Pool>]) -> Vec<Start<'_>> {
    let mut starts: Vec<Start<'_>> = Vec::new();
    for pool in pools.iter().filter(|pool| pool.applications.is_none()) {
        let Some(php) = pool.application.php() else {
            continue;
        };
        let arguments = php_start::arguments(php, |name| name != PRELOAD);
        let named = |name| pool.environment.env.iter().find(move |(known, _)| known == name);
        let variables = VARIABLES
            .iter()
            .filter_map(|name| Some((*name, named(name)?.1.as_str())));
        let variables: Vec<_> = variables.collect();
        let known = starts
            .iter()
            .position(|start| start.arguments == arguments && start.variables == variables);
        let at = known.unwrap_or(starts.len());
        if known.is_none() {
            starts.push(Start {
                arguments,
                variables,
                pools: Vec::new(),
                later: BTreeSet::new(),
            });
        }
        starts[at].pools.push(pool);
        starts[at]
            .later
            .extend(php_start::values(php, |name| !is_start_setting(name)));
    }
    starts
}

impl Start<'_> {
    /// Starts PHP as the first pool's user and returns the problems.
    fn try_out(&self, loaded: &Loaded, program: &Path) -> Vec<Diagnostic> {
        let Some(first) = self.pools.first() else {
            return Vec::new();
        };
        let mut command = Command::new(program);
        command.args(&self.arguments).env_clear();
        command.envs(self.variables.iter().copied());
        for (option, pair) in &self.later {
            command.arg(option).arg(pair);
        }
        if let Some(user) = php_start::user(first) {
            command.uid(user.uid).gid(user.gid).current_dir("/");
        }
        log::debug!(target: "forkyard::check", "trying out PHP: {command:?}");
        let said = match command.output() {
            Ok(output) => said(&String::from_utf8_lossy(&output.stderr), output.status.success()),
            Err(error) => vec![(
                Severity::Error,
                format!("can't run {}: {error}", program.display()),
                "let the pool's user execute it, or reinstall it".to_owned(),
            )],
        };
        let others = match self.pools.len() {
            1 => String::new(),
            2 => " (so it is for another pool)".to_owned(),
            count => format!(" (so it is for {} other pools)", count - 1),
        };
        said.into_iter()
            .filter_map(|(severity, problem, remedy)| {
                let pool = self.concerned(&problem).unwrap_or(first);
                let others = if problem.starts_with("Unable to set") {
                    ""
                } else {
                    &others
                };
                diagnostic(loaded, pool, severity, format!("{problem}{others}"), remedy)
            })
            .collect()
    }

    /// Returns the pool with the rejected setting.
    fn concerned(&self, problem: &str) -> Option<&Pool> {
        let name = problem.strip_prefix("Unable to set")?.split('\'').nth(1)?;
        let has = |pool: &&&Pool| {
            let php = pool.application.php().into_iter();
            let mut settings = php.flat_map(|php| php.php_value.iter().chain(&php.php_admin_value));
            settings.any(|it| it.0 == name)
        };
        self.pools.iter().find(has).copied()
    }
}

/// Parses PHP's output into severity, problem and remedy.
fn said(text: &str, is_started: bool) -> Vec<(Severity, String, String)> {
    let mut own = text.lines().filter_map(|line| line.strip_prefix(OWN));
    let (problem, solution) = (own.next(), own.next());
    let mut found = Vec::new();
    for line in text.lines() {
        if let Some(problem) = line.strip_prefix(SYNTAX) {
            let remedy = "correct it: PHP does without what follows";
            found.push((Severity::Error, problem.to_owned(), remedy.to_owned()));
        } else if let Some((_, setting)) = line.split_once("Unable to set ") {
            let remedy = "correct the name or the value, or install the extension that it belongs to";
            let problem = format!("Unable to set {setting}");
            found.push((Severity::Warning, problem, remedy.to_owned()));
        } else if line.starts_with("PHP ") {
            let remedy = "correct php.ini, a file that is read after it, or the pool's settings";
            found.push((Severity::Warning, line.to_owned(), remedy.to_owned()));
        }
    }
    if !is_started {
        let problem = problem.map_or_else(
            || format!("PHP ends at its start: {}", text.trim()),
            str::to_owned,
        );
        let solution = solution.unwrap_or("look into php.ini and the extensions that it names");
        found.push((Severity::Error, problem, as_remedy(solution)));
    }
    found
}

/// Turns a sentence into the end of another.
fn as_remedy(sentence: &str) -> String {
    let mut letters = sentence.trim_end_matches('.').chars();
    let first = letters.next().map(|first| first.to_ascii_lowercase());
    first.into_iter().chain(letters).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_at_the_start_is_understood() {
        let text = "PHP:  syntax error, unexpected end of file in /x/php.ini on line 5\n\
                    [22-Nov-2026 11:00:00] ERROR: Unable to set php_value 'x'\n\
                    PHP Warning:  PHP Startup: Unable to load dynamic library 'nope' in Unknown on line 0\nnoise\n";
        let found: Vec<_> = said(text, true)
            .into_iter()
            .map(|(how, what, _)| (how, what))
            .collect();
        let warning = |text: &str| (Severity::Warning, text.to_owned());
        assert_eq!(
            found,
            [
                (
                    Severity::Error,
                    "syntax error, unexpected end of file in /x/php.ini on line 5".to_owned()
                ),
                warning("Unable to set php_value 'x'"),
                warning(
                    "PHP Warning:  PHP Startup: Unable to load dynamic library 'nope' in Unknown on line 0"
                ),
            ]
        );
        assert_eq!(
            said(
                "forkyard-php: no libphp8.4.so found\nforkyard-php: Install it.\n",
                false
            ),
            [(
                Severity::Error,
                "no libphp8.4.so found".to_owned(),
                "install it".to_owned()
            )]
        );
        assert_eq!(said("boom\n", false)[0].1, "PHP ends at its start: boom");
        assert_eq!(said("", true), []);
    }
}
