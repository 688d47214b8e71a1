//! The command line of `forkyard-fpm`, compatible with php-fpm.

mod arguments;
mod failure;
mod usage;

use super::{EXIT_CONFIG, EXIT_SOFTWARE, php_start, program_directory, start, takeover};
use arguments::Met;
use forkyard_config::{Config, Host, LogLevel, LogTarget, php};
use forkyard_daemon::master::Frontend;
use forkyard_fpm_config::{Journal, Line, Options, PREFIX, complete, test};
use forkyard_host::logs::Log;
use forkyard_protocol::control::Complaint;
use forkyard_sys::file::OwnStream;
use forkyard_sys::title;
use std::ffi::{OsStr, OsString};
use std::io::{IsTerminal, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};

/// EX_USAGE of sysexits.h.
const EXIT_USAGE: u8 = 64;
/// Part of every name that selects the php-fpm command line.
const WORD: &str = "fpm";

#[derive(Debug, PartialEq, Eq)]
enum Task {
    Run,
    Test {
        shows: bool,
    },
    Help,
    Wrong,
    /// Print PHP's information from forkyard-php.
    Report(&'static str),
}

/// Whether the executable's name contains `fpm`, such as `forkyard-fpm` or `php-fpm8.2`.
///
/// The kernel keeps the first 15 bytes of the executed file's name; for a link, the link's name. The first argument may
/// be longer, but a caller can choose it: a helper's is its title.
pub(super) fn is_meant() -> bool {
    let called = std::env::args_os().next().map(PathBuf::from);
    names_fpm(&title::name(), called.as_deref())
}

fn names_fpm(executed: &str, called: Option<&Path>) -> bool {
    let called = called
        .and_then(Path::file_name)
        .map(OsStr::to_string_lossy)
        .filter(|name| name.starts_with(executed));
    called.as_deref().unwrap_or(executed).contains(WORD)
}

pub(super) fn main() -> ExitCode {
    let (arguments, rehearsal) = takeover::arguments();
    let mut arguments = arguments.into_iter();
    let program = program_name(arguments.next());
    let (task, mut options) = read(arguments::parse(arguments));
    options.version = Some(php::version_of(options.config.as_deref(), &program));
    match task {
        Task::Help | Task::Wrong => {
            print!("{}", usage::text(&program, PREFIX));
            ExitCode::from(if task == Task::Help { 0 } else { EXIT_USAGE })
        }
        Task::Report(what) => report(what, &complete(options, &Host::default())),
        Task::Test { shows } => {
            let host = Host::default();
            let options = complete(options, &host);
            if let Err(code) = try_php(&options) {
                return code;
            }
            let (is_fine, journal) = test(&options, shows, &host, &left_out);
            tell(&journal, true);
            ExitCode::from(if is_fine { 0 } else { EXIT_CONFIG })
        }
        Task::Run => match rehearsal {
            None => run(options),
            Some(document) => takeover::rehearse(document, || load_for_rehearsal(&options)),
        },
    }
}

pub(super) fn usage(program: &str) -> String {
    usage::text(program, PREFIX)
}

fn program_name(argument: Option<OsString>) -> String {
    let text = argument.unwrap_or_default().to_string_lossy().into_owned();
    match text.rsplit_once('/') {
        Some((_, name)) => name.to_owned(),
        None => "php".to_owned(),
    }
}

fn read(met: Vec<Met>) -> (Task, Options) {
    let mut options = Options {
        log_to_stderr: std::io::stderr().is_terminal(),
        // Read it now: after a package upgrade, the running executable has no path.
        executable: std::env::current_exe().ok(),
        ..Options::default()
    };
    let (mut tests, mut is_info) = (0, false);
    for option in met {
        match option {
            Met::Flag('m') => return (Task::Report("modules"), options),
            Met::Flag('v') => return (Task::Report("version"), options),
            Met::Flag('h' | '?') => return (Task::Help, options),
            Met::Wrong => return (Task::Wrong, options),
            Met::Flag('i') => is_info = true,
            Met::Flag('t') => tests += 1,
            Met::Flag('n') => options.no_php_ini = true,
            Met::Flag('e') => options.extended_info = true,
            Met::Flag('R') => options.allow_root = true,
            Met::Flag('D') => options.daemonize = Some(true),
            Met::Flag('F') => options.daemonize = Some(false),
            Met::Flag('O') => options.log_to_stderr = true,
            Met::Flag(_) => {}
            Met::With('c', value) => options.php_ini = Some(PathBuf::from(value)),
            Met::With('d', value) => options.defines.extend(define(&value.to_string_lossy())),
            Met::With('y', value) => options.config = text(value),
            Met::With('p', value) => options.prefix = text(value),
            Met::With('g', value) => options.pid = text(value),
            Met::With(_, _) => {}
        }
    }
    let task = match (is_info, tests) {
        (true, _) => Task::Report("info"),
        (false, 0) => Task::Run,
        (false, tests) => Task::Test { shows: tests > 1 },
    };
    (task, options)
}

fn text(value: OsString) -> Option<String> {
    Some(value.to_string_lossy().into_owned()).filter(|text| !text.is_empty())
}

/// Returns `name=value` as a line of php.ini, quoted where its grammar requires.
fn define(text: &str) -> Option<(String, String)> {
    let (name, value) = text.split_once('=').unwrap_or((text, "1"));
    if name.is_empty() || text.contains(['\n', '\0']) {
        return None;
    }
    let is_plain = value
        .chars()
        .next()
        .is_none_or(|first| first.is_ascii_alphanumeric() || first == '"' || first == '\'');
    let value = if is_plain {
        value.to_owned()
    } else {
        format!("\"{value}\"")
    };
    Some((name.to_owned(), value))
}

fn run(options: Options) -> ExitCode {
    let inherited = forkyard_daemon::handover::collect();
    let (config, journal) = load(&options);
    tell(&journal, true);
    let Some(config) = takeover::or_before(config, &inherited) else {
        let is_launched = journal.is_in_background;
        return ExitCode::from(if is_launched { EXIT_SOFTWARE } else { EXIT_CONFIG });
    };
    let background = config.global.daemonize;
    let frontend = Frontend {
        name: "fpm",
        title: "php-fpm",
        read_config: Box::new(move || reload(&options)),
    };
    start(config, frontend, background, inherited, failure::of)
}

#[derive(Debug, thiserror::Error)]
#[error("the configuration can't be used")]
struct Unusable;

fn load_for_rehearsal(options: &Options) -> Result<Config, Unusable> {
    let (config, journal) = load(options);
    write(&journal.lines, Log::install(), false);
    config.ok_or(Unusable)
}

fn load(options: &Options) -> (Option<Config>, Journal) {
    let host = Host::default();
    forkyard_fpm_config::load(&complete(options.clone(), &host), &host)
}

fn reload(options: &Options) -> Result<Config, Vec<Complaint>> {
    let (config, journal) = load(options);
    tell(&journal, false);
    config.ok_or_else(|| {
        let lines = journal.lines.iter().filter_map(|line| match line {
            Line::Log(level, text) if *level >= LogLevel::Error => Some(text),
            Line::Log(..) => None,
            Line::Php(text) => Some(text),
        });
        lines.map(|text| Complaint::text(text.trim_end())).collect()
    })
}

/// Writes the messages: before the start to standard error and the open error log, later to the log.
fn tell(journal: &Journal, is_start: bool) {
    let log = Log::install();
    write(&journal.lines, log, is_start);
    let Some((path, at)) = journal.opened.as_ref().filter(|_| is_start) else {
        return;
    };
    let later = &journal.lines[*at..];
    let is_written = OwnStream::of_log(path) == Some(OwnStream::Error);
    if !later.is_empty() && !is_written {
        let file = LogTarget::File(path.clone());
        if log.direct(&file, LogLevel::Debug).is_ok() {
            write(later, log, false);
        }
        // Standard error needs no open, so this can't fail.
        let _ = log.direct(&LogTarget::Stderr, LogLevel::Notice);
    }
}

fn write(lines: &[Line], log: &Log, is_stderr: bool) {
    for line in lines {
        match line {
            Line::Log(level, text) => {
                log.write(*level, text.trim_end_matches('\n'));
                if is_stderr && text.ends_with('\n') {
                    eprintln!();
                }
            }
            Line::Php(text) if is_stderr => eprintln!("{text}"),
            Line::Php(text) => log.write(LogLevel::Error, text),
        }
    }
}

/// Runs forkyard-php to print PHP's information.
fn report(what: &str, options: &Options) -> ExitCode {
    match ask_php(what, options).status() {
        Ok(status) => exit_code(status),
        Err(error) => unable(&error),
    }
}

/// Starts PHP before the files are tested, as php-fpm does, and prints PHP's messages.
fn try_php(options: &Options) -> Result<(), ExitCode> {
    let output = ask_php("start", options)
        .output()
        .map_err(|error| unable(&error))?;
    let (shown, said) = (&output.stdout, String::from_utf8_lossy(&output.stderr));
    if !output.status.success() {
        // A closed standard output doesn't change the exit code.
        let _ = std::io::stdout().write_all(shown);
        let (own, phps): (Vec<&str>, Vec<&str>) =
            said.lines().partition(|line| line.starts_with("forkyard-php: "));
        // php-fpm adds no message of its own to PHP's.
        let is_told = !phps.is_empty() || !shown.is_empty();
        let lines = if is_told { phps } else { own };
        lines.iter().for_each(|line| eprintln!("{line}"));
        return Err(exit_code(output.status));
    }
    let log = Log::install();
    for line in said.lines() {
        // php-fpm logs PHP's log messages, but errors in php.ini come before the log is open.
        match line.starts_with("PHP ") {
            true => log.write(LogLevel::Notice, &format!("PHP message: {line}")),
            false => eprintln!("{line}"),
        }
    }
    Ok(())
}

/// Starts PHP with each pool's settings and returns the rejected ones.
fn left_out(config: &Config) -> Vec<String> {
    let faults = php_start::faults(config, &program_directory().join("forkyard-php"));
    let lines = faults.iter().flat_map(|(pool, left_out)| {
        let line = move |it| format!("[pool {pool}] {it}");
        left_out.iter().map(line)
    });
    lines.collect()
}

fn ask_php(what: &str, options: &Options) -> Command {
    let mut command = Command::new(program_directory().join("forkyard-php"));
    command.arg(format!("--{what}"));
    command.args(["--php", options.version()]);
    if options.no_php_ini {
        command.arg("-n");
    }
    if let Some(path) = &options.php_ini {
        command.arg("-c").arg(Path::new(path));
    }
    for (name, value) in &options.defines {
        command.arg("-d").arg(format!("{name}={value}"));
    }
    if let Some(directories) = &options.scan_dir {
        command.arg("--scan").arg(directories);
    }
    if let Some(path) = &options.executable {
        command.arg("--binary").arg(path);
    }
    command
}

fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    ExitCode::from(code.unwrap_or(EXIT_SOFTWARE))
}

fn unable(error: &std::io::Error) -> ExitCode {
    eprintln!("can't run forkyard-php, which links PHP: {error}; install it next to forkyard-fpm");
    ExitCode::from(EXIT_SOFTWARE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_the_executed_file_decides() {
        let named = |executed: &str, called: &str| names_fpm(executed, Some(Path::new(called)));
        for name in ["forkyard-fpm", "php-fpm8.2", "fpm"] {
            assert!(named(name, &format!("/usr/sbin/{name}")), "{name}");
            assert!(named(name, "another"), "{name}");
        }
        // The kernel keeps only 15 bytes.
        assert!(named("our-own-company", "/opt/our-own-company-fpm"));
        assert!(!named("forkyard", "/srv/php-fpm/bin/forkyard"));
        assert!(!named("forkyard", "php-fpm: reporter www"));
        assert!(!named("forkyard.new", "forkyard.new"));
        assert!(!names_fpm("forkyard", None));
    }
}
