//! Starts PHP like the pools' preloaders, and finds the settings that prevent the start, for `forkyard-fpm -t` and
//! `forkyard check`.

use super::check::OWN;
use forkyard_config::sharing::is_start_setting;
use forkyard_config::{Config, LeftOut, Php, Pool, StartSetting, Trial};
use forkyard_spawn::error::Ended;
use forkyard_sys::identity::{self, Identity};
use forkyard_sys::{clock, memfile, pidfd};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

/// The most output to read, in bytes.
const MOST_BYTES: usize = 1 << 20;
/// Settings that send PHP's messages to standard error and prevent code from running.
const QUIET: [&str; 4] = [
    "display_errors=0",
    "log_errors=1",
    "error_log=",
    "opcache.preload=",
];

/// Returns the settings that prevent PHP's start, by pool. `program` is the path of forkyard-php.
pub(super) fn faults(config: &Config, program: &Path) -> Vec<(String, Vec<LeftOut>)> {
    // Most pools start PHP the same way, so one try covers them.
    let mut known: Vec<(Start, Vec<LeftOut>)> = Vec::new();
    let mut found = Vec::new();
    for pool in config.pools.iter().filter(|pool| pool.applications.is_none()) {
        let settings = config.start_settings.get(&pool.name);
        let (Some(settings), Some(php)) = (settings, pool.application.php()) else {
            continue;
        };
        let start = Start::of(pool, php);
        let at = known.iter().position(|(other, _)| start.is_like(other, settings));
        let at = at.unwrap_or_else(|| {
            let left_out = start.find_faults(php, settings, program);
            known.push((start, left_out));
            known.len() - 1
        });
        let left_out = own(settings, &known[at].1);
        if !left_out.is_empty() {
            found.push((pool.name.clone(), left_out));
        }
    }
    found
}

/// Returns those of a pool's settings that failed in another pool with an equivalent start.
fn own(settings: &[StartSetting], left_out: &[LeftOut]) -> Vec<LeftOut> {
    let own = settings.iter().filter_map(|setting| {
        let is_same = |it: &&LeftOut| it.setting.name == setting.name && it.setting.value == setting.value;
        let reason = left_out.iter().find(is_same)?.reason.clone();
        let setting = setting.clone();
        Some(LeftOut { setting, reason })
    });
    own.collect()
}

/// All inputs of a PHP start.
#[derive(Debug, PartialEq, Eq)]
struct Start {
    arguments: Vec<OsString>,
    inherits: bool,
    variables: HashMap<String, String>,
    user: Option<(u32, u32)>,
    directory: OsString,
    timeout: Duration,
}

/// Output and cause of a failed start; `None` if PHP started.
type Failed = Option<(String, String)>;

impl Start {
    fn of(pool: &Pool, php: &Php) -> Start {
        let user = user(pool);
        // The first definition of a variable wins.
        let mut variables: HashMap<String, String> = pool.environment.env.iter().rev().cloned().collect();
        if let Some(user) = &user {
            let own = [
                ("USER", user.name.clone()),
                ("HOME", user.home.as_ref().map(|it| it.display().to_string())),
            ];
            for (name, value) in own {
                if let Some(value) = value {
                    variables.entry(name.to_owned()).or_insert(value);
                }
            }
        }
        let directory = pool
            .setup
            .chdir
            .as_deref()
            .filter(|path| pool.setup.chroot.is_none() && path.is_dir());
        Start {
            arguments: arguments(php, |_| true),
            inherits: !pool.environment.clear_env,
            variables,
            user: user.map(|user| (user.uid, user.gid)),
            directory: directory.unwrap_or(Path::new("/")).into(),
            timeout: php.start_timeout,
        }
    }

    /// Whether both starts have the same result. User and environment affect only files and code, and many pools differ
    /// only in these.
    fn is_like(&self, other: &Start, settings: &[StartSetting]) -> bool {
        let is_file = |setting: &StartSetting| {
            setting.value.contains('/')
                || setting.name == "opcache.preload"
                || setting.name.ends_with("extension")
        };
        if settings.iter().any(is_file) {
            return self == other;
        }
        self.arguments == other.arguments && self.timeout == other.timeout
    }

    /// Starts PHP with fewer and fewer settings until it succeeds. Returns nothing if no setting is the cause.
    fn find_faults(&self, php: &Php, settings: &[StartSetting], program: &Path) -> Vec<LeftOut> {
        let mut trial = Trial::new(settings.to_vec());
        loop {
            let mut php = php.clone();
            trial.apply(&mut php);
            match self.run(program, &arguments(&php, |_| true)) {
                Ok(None) => return trial.left_out().collect(),
                Ok(Some((output, summary))) if trial.failed(&output, &summary) => {}
                Ok(Some(_)) => return Vec::new(),
                Err(error) => {
                    log::debug!("can't run {}: {error}", program.display());
                    return Vec::new();
                }
            }
        }
    }

    fn run(&self, program: &Path, arguments: &[OsString]) -> std::io::Result<Failed> {
        let output = File::from(memfile::create("output").map_err(|error| error.errno)?);
        let mut command = Command::new(program);
        command.args(arguments).current_dir(&self.directory);
        if !self.inherits {
            command.env_clear();
        }
        command.envs(&self.variables);
        if let Some((uid, gid)) = self.user {
            command.uid(uid).gid(gid);
        }
        command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output.try_clone()?);
        log::debug!(target: "forkyard::check", "trying out PHP: {command:?}");
        let ended = wait(command.spawn()?, self.timeout)?;
        if ended.is_some_and(|status| status.success()) {
            return Ok(None);
        }
        let text = memfile::read(output.as_fd(), MOST_BYTES).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let (own, phps): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| line.starts_with(OWN));
        let own = own.first().and_then(|line| line.strip_prefix(OWN));
        let summary = match (ended, own) {
            (None, _) => format!("it has not started after {} s", self.timeout.as_secs()),
            (Some(_), Some(own)) => own.to_owned(),
            (Some(status), None) => format!("it {}", describe(status)),
        };
        Ok(Some((phps.join("\n"), summary)))
    }
}

/// Waits for a child. After `most`, kills it and returns `None`.
fn wait(mut child: Child, most: Duration) -> std::io::Result<Option<ExitStatus>> {
    let process = pidfd::open(child.id() as i32).map_err(|error| error.errno)?;
    let end = clock::now() + most;
    loop {
        let left = end.since(clock::now());
        if left.is_zero() {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        let left = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(process.as_fd(), PollFlags::POLLIN)], left) {
            Ok(0) | Err(nix::errno::Errno::EINTR) => {}
            Ok(_) => return child.wait().map(Some),
            Err(errno) => return Err(errno.into()),
        }
    }
}

fn describe(status: ExitStatus) -> String {
    let ended = match (status.code(), status.signal()) {
        (Some(code), _) => Ended::Code(code),
        (None, Some(number)) => Ended::Signal {
            number,
            core: status.core_dumped(),
        },
        (None, None) => Ended::Unknown,
    };
    ended.describe()
}

/// Returns the user that PHP starts as. The daemon starts PHP before it changes the root directory.
pub(super) fn user(pool: &Pool) -> Option<Identity> {
    let user = pool.account.user.as_deref();
    let user = user.filter(|_| pool.setup.chroot.is_none() && identity::is_root())?;
    Identity::look_up(user, pool.account.group.as_deref()).ok()
}

/// Returns PHP's start options, with the start settings that are wanted.
pub(super) fn arguments(php: &Php, is_wanted: impl Fn(&str) -> bool) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = vec!["--start".into(), "--php".into(), (&php.version).into()];
    if php.no_php_ini {
        arguments.push("-n".into());
    }
    let paths = [
        ("--library", &php.library),
        ("-c", &php.php_ini),
        ("--binary", &php.binary),
    ];
    for (option, path) in paths {
        if let Some(path) = path {
            arguments.extend([option.into(), path.into()]);
        }
    }
    if let Some(directories) = &php.scan_dir {
        arguments.extend(["--scan".into(), directories.into()]);
    }
    let defines = php.defines.iter().map(|(name, value)| format!("{name}={value}"));
    for define in QUIET.into_iter().map(str::to_owned).chain(defines) {
        arguments.extend(["-d".into(), define.into()]);
    }
    for (option, pair) in values(php, |name| is_start_setting(name) && is_wanted(name)) {
        arguments.extend([option.into(), pair.into()]);
    }
    arguments
}

/// Returns a pool's settings as options.
pub(super) fn values(
    php: &Php,
    is_wanted: impl Fn(&str) -> bool,
) -> impl Iterator<Item = (&'static str, String)> {
    let values = php.php_value.iter().map(|pair| ("--value", pair));
    let all = values.chain(php.php_admin_value.iter().map(|pair| ("--admin", pair)));
    let wanted = all.filter(move |(_, (name, _))| is_wanted(name));
    wanted.map(|(option, (name, value))| (option, format!("{name}={value}")))
}
