//! Starts PHP and forks a worker whenever the master asks.

use crate::boot::{self, BootFailure};
use crate::ffi;
use crate::ffi::{Php, SYSTEM, StartOptions, USER, WorkerFunctions};
use crate::ini_snapshot::{self, Feed};
use crate::sapi::PhpRuntime;
use crate::warm;
use crate::zygote::{self, Zygote};
use forkyard_config::{self as config};
use forkyard_runtimes::php::ini_snapshot::IniFiles;
use forkyard_runtimes::php::protocol::{Answer, BootTimes, EXIT_START_FAILED, LOADED_BYTES, SOCKET};
use forkyard_runtimes::php::{files, settings as php_settings};
use forkyard_runtimes::preloader::{self, CodeCache, Parcel, Preloader, Socket};
use forkyard_slowlog::StackSource;
use forkyard_spawn::error::Category;
use forkyard_spawn::setupper::{self, Notes, SetupComplaint};
use forkyard_spawn::step::Step;
use forkyard_sys::process::{Side, exit_now, fork_sibling};
use forkyard_sys::{self as sys, program, signal, title};
use forkyard_worker::Settings;
use std::ffi::{CString, OsStr, OsString};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Preloader(#[from] preloader::Error),
    #[error("the pool's application is not PHP")]
    NotPhp,
    #[error("read {0}: {1}")]
    Unreadable(PathBuf, std::io::Error),
    #[error("php_value {0}: the value can't be written in php.ini's syntax")]
    Setting(String),
    #[error(transparent)]
    Php(ffi::Error),
    /// Module start-up failed; PHP wrote the reason to standard error.
    #[error("PHP's module start-up failed")]
    Start,
    #[error("{0}")]
    Unfit(String),
    #[error("{}", .0.summary)]
    Boot(Box<BootFailure>),
}

impl Error {
    fn note(&self, notes: &Notes) {
        let (step, category) = match self {
            Error::Preloader(error) => error.blames(),
            Error::NotPhp => preloader::Error::Untimely.blames(),
            Error::Unreadable(..) => (Step::SubprocessAppLoadOrExec, Category::FileSystem),
            Error::Php(_) => (Step::SubprocessWrapperPreparation, Category::FileSystem),
            Error::Setting(_) | Error::Start | Error::Unfit(_) | Error::Boot(_) => {
                (Step::SubprocessAppLoadOrExec, Category::Internal)
            }
        };
        let (summary, solution) = (self.to_string(), self.solution());
        let details = match self {
            Error::Boot(failure) => failure.details.as_deref(),
            _ => None,
        };
        let complaint = SetupComplaint {
            summary: &summary,
            solution: Some(&solution),
            details,
            ..SetupComplaint::default()
        };
        notes.fail(step, category, &complaint);
    }

    pub(crate) fn solution(&self) -> String {
        let text = match self {
            Error::Preloader(error) => error.solution(),
            Error::NotPhp => preloader::Error::Untimely.solution(),
            Error::Unreadable(..) => {
                "Let the pool's user read the file, or name another one in application.php_ini."
            }
            Error::Setting(_) => "Correct the setting in the pool's configuration.",
            Error::Php(error) => return error.solution(),
            Error::Boot(failure) => failure.solution,
            Error::Unfit(_) => "Write preloader = \"own\" in the pools that need it.",
            Error::Start => {
                "PHP gave the reason: read its output. Check php.ini, the files that are read after it, the \
                 extensions that they name, and opcache.preload."
            }
        };
        text.to_owned()
    }
}

impl From<sys::Error> for Error {
    fn from(error: sys::Error) -> Error {
        Error::Preloader(error.into())
    }
}

impl From<forkyard_worker::ProcessSettingsError> for Error {
    fn from(error: forkyard_worker::ProcessSettingsError) -> Error {
        Error::Preloader(error.into())
    }
}

pub(crate) fn run() -> ExitCode {
    let notes = Notes::inherited();
    // Before the title overwrites the arguments.
    let held = ini_snapshot::inherited();
    // SAFETY: the program is started with this descriptor, and nothing else has taken it.
    let socket = match Socket::new(unsafe { sys::fd::adopt(SOCKET) }) {
        Ok(socket) => socket,
        Err(error) => {
            return lost(&format!(
                "it is started by forkyard, with a socket as descriptor {SOCKET}: {error}"
            ));
        }
    };
    let mut preloader = match Preloader::begin(socket, notes.as_ref()) {
        Ok(Some(preloader)) => preloader,
        Ok(None) => return ExitCode::SUCCESS,
        Err(error) => return lost(&error),
    };
    title::take_name(&preloader.settings.process_name);
    if preloader.is_zygote() {
        return zygote::run(preloader, held, notes);
    }
    let started = held.and_then(|held| start(&preloader.settings, held.as_ref(), notes.as_ref()));
    let (php, config) = match started {
        Ok(started) => started,
        Err(error) => return failed(&preloader, notes.as_ref(), &error),
    };
    let mut boot = None;
    if let Some(script) = &config.worker {
        hold_values(&php, &config);
        let (after, boots_again) = match boot::after_requests(script, &php) {
            Ok(after) => after,
            Err(error) => return failed(&preloader, notes.as_ref(), &error),
        };
        if after != boot::After::BootsAgain {
            return boot::run(preloader, &php, script, after, notes);
        }
        if let Some(why) = &boots_again {
            php.boots_again(why);
        }
        boot = Some(BootTimes {
            boots_again,
            ..BootTimes::default()
        });
    }
    let mut cache = OpCache {
        php: &php,
        config: &config,
    };
    if let Err(error) = preloader.warm_up(&mut cache) {
        return lost(&error);
    }
    if let Some(notes) = notes {
        notes.finish(Step::SubprocessAppLoadOrExec);
    }
    preloader.ready(&ready(&php, false, boot));
    serve(preloader, &php, &mut cache, None)
}

/// Describes PHP after its start. `has_memory`: a zygote's answer carries memory. `boot`: times of an application that
/// boots once.
pub(crate) fn ready(php: &Php, has_memory: bool, boot: Option<BootTimes>) -> Answer {
    Answer::Ready {
        version: php.version.clone(),
        extensions: php.ini(c"extension_dir").map(PathBuf::from),
        loaded: loaded(php),
        powered_by: powered_by(php),
        is_code_cached: boot.as_ref().is_some_and(|boot| boot.boots_again.is_none())
            || warm::is_code_cached(php),
        stack: Some(StackSource::Php(php.stack())),
        has_memory,
        boot: boot.map(Box::new),
        connected_to: None,
    }
}

pub(crate) fn serve(
    preloader: Preloader,
    php: &Php,
    cache: &mut dyn CodeCache,
    zygote: Option<&Zygote>,
) -> ExitCode {
    let mut made = 0;
    let after_each = || {
        made += 1;
        if let Some(zygote) = zygote {
            zygote.has_made(made);
        }
    };
    match fork_until_worker(preloader, cache, after_each) {
        Ok((preloader, wanted)) => work(preloader, wanted, php, zygote),
        Err(error) => lost(&error),
    }
}

/// Forks workers until the master closes the socket, which ends the process. Returns in each worker.
pub(crate) fn fork_until_worker(
    mut preloader: Preloader,
    cache: &mut dyn CodeCache,
    mut after_each: impl FnMut(),
) -> Result<(Preloader, preloader::WorkerOrder), preloader::Error> {
    loop {
        let Some(wanted) = preloader.wait(cache)? else {
            exit_now(0)
        };
        // SAFETY: the process has one thread. The child becomes a worker: it takes over all descriptors and closes the
        // socket it shares with the preloader.
        match unsafe { fork_sibling() } {
            Ok(Side::Parent(pid)) => {
                preloader.made(&wanted, pid);
                drop(wanted);
                after_each();
            }
            Ok(Side::Child) => return Ok((preloader, wanted)),
            Err(error) => preloader.not_made(&wanted, &error.to_string()),
        }
    }
}

pub(crate) fn failed(preloader: &Preloader, notes: Option<&Notes>, error: &Error) -> ExitCode {
    if let Some(notes) = notes {
        error.note(notes);
    }
    preloader.failed(&error.to_string());
    ExitCode::from(EXIT_START_FAILED as u8)
}

pub(crate) fn lost(why: &dyn std::fmt::Display) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "forkyard-php: {why}");
    ExitCode::from(EXIT_START_FAILED as u8)
}

struct OpCache<'p> {
    php: &'p Php,
    config: &'p config::Php,
}

impl CodeCache for OpCache<'_> {
    fn name_scripts(&mut self, most: u32, to: OwnedFd, _parcel: Option<Parcel>) {
        warm::have_scripts_named(self.php, most, &to);
    }

    fn write_state(&mut self, to: OwnedFd, _parcel: Option<Parcel>) {
        warm::have_state_written(self.php, &to, false);
    }

    fn compile(&mut self, descriptors: Vec<OwnedFd>, _parcel: Option<Parcel>) {
        if let Some(from) = descriptors.last() {
            warm::compile(self.php, from, self.config);
        }
    }
}

fn start(
    settings: &Settings,
    held: Option<&IniFiles>,
    notes: Option<&Notes>,
) -> Result<(Php, config::Php), Error> {
    let Some(config) = settings.pool.application.php() else {
        return Err(Error::NotPhp);
    };
    // Before PHP code such as opcache.preload runs, so that none runs as root. A chroot waits until everything is
    // loaded.
    let is_jailed = settings.pool.setup.chroot.is_some();
    if !is_jailed {
        forkyard_worker::apply_process_settings(settings)?;
    }
    if let (Some(notes), false) = (notes, is_jailed) {
        notes.settled(Step::SubprocessAppLoadOrExec);
    }
    let paths = settings.pool.confine.paths.as_ref().filter(|_| !is_jailed);
    let lock_place = paths.and_then(|paths| paths.write.iter().find(|path| path.is_dir()));
    let pushes_jobs = settings.pool.pushes_jobs();
    let php = match lock_place {
        Some(place) => start_php(
            &php_settings::with_lock_in(config, place),
            held,
            Role::Own,
            pushes_jobs,
        )?,
        None => start_php(config, held, Role::Own, pushes_jobs)?,
    };
    if is_jailed {
        forkyard_worker::apply_process_settings(settings)?;
        if let Some(notes) = notes {
            notes.settled(Step::SubprocessAppLoadOrExec);
        }
    }
    forkyard_worker::apply_environment(settings);
    setupper::forget_mark();
    program::let_go_of_code();
    Ok((php, config.clone()))
}

/// A worker's life. Unknown descriptors stay open, because OPcache needs its lock.
fn work(preloader: Preloader, mut wanted: preloader::WorkerOrder, php: &Php, zygote: Option<&Zygote>) -> ! {
    // Also SIGSEGV: a stack overflow in a script must end the process in the usual way.
    signal::reset_in_child();
    // Before PHP is used, because its memory is still shared with other pools.
    if let Some(Err(error)) = zygote.map(|zygote| zygote.part_from_others(wanted.take_memory())) {
        lost(&error);
        exit_now(EXIT_START_FAILED)
    }
    let Some((context, own)) = preloader.into_contexts(wanted) else {
        exit_now(EXIT_START_FAILED)
    };
    forkyard_worker::install_handlers(&context, own.slot);
    if let Some(Err(error)) = zygote.map(|zygote| zygote.become_worker(php, &context.settings)) {
        log::error!("worker failed to initialize: {error}");
        exit_now(EXIT_START_FAILED);
    }
    if let Some(config) = context.settings.pool.application.php() {
        hold_values(php, config);
    }
    let mut runtime = PhpRuntime::begin(php, &context.settings, own.output.is_some());
    let code = forkyard_worker::run(context, own, &mut runtime);
    php.end_worker();
    exit_now(code)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Own,
    Zygote,
}

/// Finds libphp and starts it with a pool's settings. `held`: remembered settings files. `pushes_jobs`: scripts have
/// `forkyard_push()`.
pub(crate) fn start_php(
    config: &config::Php,
    held: Option<&IniFiles>,
    role: Role,
    pushes_jobs: bool,
) -> Result<Php, Error> {
    let own_lines = php_settings::start_lines(config).map_err(|unfit| Error::Setting(unfit.0))?;
    let before = std::env::var_os("PHP_INI_SCAN_DIR");
    let scanned = scanned_directories(config, before.as_deref());
    let feed = held
        .map(|files| Feed::new(files, scanned.as_deref()))
        .transpose()?;
    let (php_ini, scanned, mut lines) = match &feed {
        Some(feed) => (
            Some(PathBuf::from(feed.path())),
            Some(OsString::new()),
            feed.lines.clone(),
        ),
        None => (files::php_ini(config), scanned, Vec::new()),
    };
    if let Some(path) = &php_ini {
        readable(path)?;
    }
    let php = Php::open(&config.version, config.library.as_deref()).map_err(Error::Php)?;
    if role == Role::Zygote && !php.is_known {
        return Err(Error::Unfit(boot::not_tested(&php)));
    }

    lines.extend(own_lines.unwrap_or_default().into_bytes());
    let lines = (!lines.is_empty())
        .then(|| c_string("php_value", OsStr::from_bytes(&lines)))
        .transpose()?;
    if let Some(list) = &scanned {
        // SAFETY: the process has one thread.
        unsafe { std::env::set_var("PHP_INI_SCAN_DIR", list) };
    }
    let php_ini = php_ini
        .map(|path| c_string("php_ini", path.as_os_str()))
        .transpose()?;
    let executable = config
        .binary
        .clone()
        .or_else(|| files::command_line(&config.version));
    let executable = executable
        .map(|path| c_string("executable", path.as_os_str()))
        .transpose()?;
    let disabled = php_settings::disabled_functions(config);
    let disabled = disabled
        .map(|names| c_string("disable_functions", &names))
        .transpose()?;
    let names = feed.as_ref().map(Feed::names);
    let started = php.start(&StartOptions {
        php_ini: php_ini.as_deref(),
        ini_entries: lines.as_deref(),
        executable: executable.as_deref(),
        disabled_functions: disabled.as_deref(),
        ini_names: names.as_ref(),
        no_php_ini: config.no_php_ini,
        extended_info: config.extended_info,
        is_zygote: role == Role::Zygote,
        worker_functions: match &config.worker {
            None => WorkerFunctions::None,
            Some(script) if script.mode == config::WorkerMode::Snapshot => WorkerFunctions::PutBack,
            Some(_) => WorkerFunctions::There,
        },
        pushes_jobs,
    });
    // SAFETY: the process has one thread.
    unsafe {
        match &before {
            Some(list) => std::env::set_var("PHP_INI_SCAN_DIR", list),
            None => std::env::remove_var("PHP_INI_SCAN_DIR"),
        }
    }
    match started {
        ffi::StartResult::Done => {}
        ffi::StartResult::Failed => return Err(Error::Start),
        ffi::StartResult::Preloads => return Err(Error::Unfit("php.ini has opcache.preload".to_owned())),
    }
    set_values(&php, php_settings::later_settings(config))?;
    Ok(php)
}

pub(crate) fn set_values<'v>(
    php: &Php,
    values: impl Iterator<Item = (&'v str, &'v str, bool)>,
) -> Result<(), Error> {
    for (name, value, is_admin) in values {
        let mode = if is_admin { SYSTEM } else { USER };
        if !php.set_ini(&c_string(name, name)?, &c_string(name, value)?, mode) {
            let kind = if is_admin { "php_admin_value" } else { "php_value" };
            log::error!("Unable to set {kind} '{name}'");
        }
    }
    Ok(())
}

/// Makes start settings read-only if the pool says so. Done in the worker, because a zygote's pools may differ.
pub(crate) fn hold_values(php: &Php, config: &config::Php) {
    for name in php_settings::held_start_settings(config) {
        if let Ok(name) = CString::new(name) {
            php.hold_ini(&name);
        }
    }
}

/// Rejects an unreadable php.ini, which PHP would silently ignore.
fn readable(path: &Path) -> Result<(), Error> {
    let file = files::in_directory(path);
    match std::fs::File::open(&file) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && path.is_dir() => Ok(()),
        Err(error) => Err(Error::Unreadable(file, error)),
    }
}

/// The directories read after php.ini: the operator's, where an empty part is the default, or the default.
fn scanned_directories(config: &config::Php, variable: Option<&OsStr>) -> Option<OsString> {
    let usual = files::conf_d(config).map(PathBuf::into_os_string);
    let wanted = config.scan_dir.as_deref().map(OsStr::new).or(variable);
    let Some(list) = wanted else { return usual };
    let (Some(usual), false) = (usual, list.is_empty()) else {
        return Some(list.to_owned());
    };
    let parts = list
        .as_bytes()
        .split(|byte| *byte == b':')
        .map(|part| if part.is_empty() { usual.as_bytes() } else { part });
    Some(OsString::from_vec(parts.collect::<Vec<_>>().join(&b':')))
}

fn c_string(name: &str, value: impl AsRef<OsStr>) -> Result<CString, Error> {
    CString::new(value.as_ref().as_bytes()).map_err(|_| Error::Setting(name.to_owned()))
}

fn loaded(php: &Php) -> Vec<PathBuf> {
    let mut room = LOADED_BYTES;
    let files = php.loaded().into_iter();
    files
        .filter(|path| path.to_str().is_some())
        .take_while(|path| {
            let left = room.checked_sub(path.as_os_str().len());
            room = left.unwrap_or(0);
            left.is_some()
        })
        .collect()
}

fn powered_by(php: &Php) -> Option<String> {
    let value = php.ini(c"expose_php");
    value
        .is_some_and(|value| php_settings::is_on(&value))
        .then(|| format!("PHP/{}", php.version))
}
