//! Reports PHP's version, modules and settings for forkyard-fpm, and installed versions and start errors for `forkyard
//! check`.

use crate::preloader::{Error, Role, start_php};
use crate::shims;
use forkyard_config::php::newest;
use forkyard_config::{Php, RequestSettings};
use forkyard_host::logs::Log;
use forkyard_runtimes::php::files;
use forkyard_sys::process::exit_now;
use forkyard_sys::signal;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const EXIT_SOFTWARE: u8 = 70;

/// The numbers are those of shim.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Question {
    Version = 0,
    Modules = 1,
    Info = 2,
}

pub(crate) fn asked() -> Option<Question> {
    match std::env::args().nth(1)?.as_str() {
        "--version" => Some(Question::Version),
        "--modules" => Some(Question::Modules),
        "--info" => Some(Question::Info),
        _ => None,
    }
}

pub(crate) fn answer(question: Question) -> ExitCode {
    match try_answer(question) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(EXIT_SOFTWARE),
        Err(error) => {
            eprintln!("forkyard-php: {error}");
            ExitCode::from(EXIT_SOFTWARE)
        }
    }
}

pub(crate) fn versions() -> ExitCode {
    let mut text = String::new();
    for shim in shims::all() {
        let library = files::library(&shim.version);
        let path = library.as_deref().unwrap_or(Path::new("-"));
        text += &format!("{} {}\n", shim.version, path.display());
    }
    let mut output = io::stdout().lock();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.kind() == ErrorKind::BrokenPipe => signal::end_by_pipe(),
        Err(error) => {
            eprintln!("forkyard-php: write standard output: {error}");
            ExitCode::from(EXIT_SOFTWARE)
        }
    }
}

/// Starts PHP as for a pool, and exits. PHP's messages go to standard error. After a failure, two more lines follow:
/// the reason and the remedy.
pub(crate) fn start() -> ExitCode {
    Log::install();
    match start_php(&settings(std::env::args().skip(2)), None, Role::Own, false) {
        Ok(_) => exit_now(0),
        Err(error) => {
            eprintln!("forkyard-php: {error}\nforkyard-php: {}", error.solution());
            ExitCode::from(EXIT_SOFTWARE)
        }
    }
}

fn try_answer(question: Question) -> Result<bool, Error> {
    let php = start_php(&settings(std::env::args().skip(2)), None, Role::Own, false)?;
    Ok(php.report(question as i32))
}

/// Parses `-n`, `-c PATH` and `-d NAME=VALUE`, as in php-fpm, and `--php VERSION`, `--library PATH` (libphp), `--binary
/// PATH` (`PHP_BINARY`), `--value NAME=VALUE` and `--admin NAME=VALUE` (`php_value` and `php_admin_value`).
fn settings(mut arguments: impl Iterator<Item = String>) -> Php {
    let mut php = Php {
        version: newest().to_owned(),
        request_settings: RequestSettings::All,
        ..Php::default()
    };
    while let Some(option) = arguments.next() {
        match option.as_str() {
            "-n" => php.no_php_ini = true,
            "-c" => php.php_ini = arguments.next().map(PathBuf::from),
            "--php" => php.version = arguments.next().unwrap_or(php.version),
            "--library" => php.library = arguments.next().map(PathBuf::from),
            "--value" => php.php_value.extend(pair(arguments.next())),
            "--admin" => php.php_admin_value.extend(pair(arguments.next())),
            "--binary" => php.binary = arguments.next().map(PathBuf::from),
            "--scan" => php.scan_dir = arguments.next(),
            "-d" => php.defines.extend(pair(arguments.next())),
            _ => {}
        }
    }
    php
}

fn pair(define: Option<String>) -> Option<(String, String)> {
    let define = define?;
    let (name, value) = define.split_once('=')?;
    Some((name.to_owned(), value.to_owned()))
}
