//! Derives an application's own pool in the master. Pure functions.

use super::own_settings::{at_once, has_concurrency, has_threads, is_concurrent, lower, request_time};
use super::protocol::{FoundApplication, Handshake, Kind, Settings};
use super::signs::OWN_FILE;
use forkyard_base::text::is_control;
use forkyard_config::{
    Account, AppLog, Application, Applications, Cgi, EnvFile, FastCgi, Interface, Listens, Paths, Php, Pool,
    Program, ScriptRoot, StartCommand, Wrapped, site,
};
use forkyard_core::spawn::user::{self, Database, UserEntry, Wishes};
use forkyard_protocol::runtimes::{Requests, Workers};
use std::num::NonZeroU32;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

/// The name may become that of a cgroup (NAME_MAX is 255).
const MOST_NAME_BYTES: usize = 200;
const PYTHON: &str = "/usr/bin/python3";
const RUBY: &str = "/usr/bin/ruby";
const APP_ENV: &str = "production";
/// The fallback parameter with an application's root.
const APP_ROOT: &str = "PASSENGER_APP_ROOT";
/// Characters that make a line more than one simple shell command.
const SPECIAL: &[char] = &['|', '&', ';', '<', '>', '(', ')', '`', '=', '\n'];
const ABORT_TIMEOUT: Duration = Duration::from_secs(10);
const PRELOADER_IDLE_TIMEOUT: Duration = Duration::from_secs(300);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("pool {0} has no applications; set routing = \"application\"")]
    NoApplications(String),
    /// The owner is not allowed to run applications.
    #[error("{root} belongs to {owner}, whom applications do not run as: {reason}; {remedy}")]
    Owner {
        root: String,
        owner: String,
        reason: String,
        remedy: String,
    },
    #[error("default_user = \"{0}\" is root or does not exist; name another user")]
    DefaultUser(String),
    /// The pool has no settings for the runtime.
    #[error("{root} is an application in {what}, which pool {pool} does not run; {remedy}")]
    Runtime {
        root: String,
        what: &'static str,
        pool: String,
        remedy: String,
    },
    #[error("{root}/{OWN_FILE}: {problem}; {remedy}")]
    Setting {
        root: String,
        problem: String,
        remedy: &'static str,
    },
    /// The root does not yield a valid pool name.
    #[error("{0}: the path is too long to name its processes after; shorten it")]
    Name(String),
    /// The pool's chroot excludes applications.
    #[error(
        "pool {0} has a chroot, and an application's interpreter would start as root there; leave it out"
    )]
    Chroot(String),
}

/// Combines the template with the application's user, program and settings. `privileged`: the daemon can change users.
///
/// # Errors
/// The application is not run; the error names the path and the fix.
pub fn pool_of(
    template: &Pool,
    found: &FoundApplication,
    database: &dyn Database,
    privileged: bool,
) -> Result<Pool, Refused> {
    let Some(applications) = &template.applications else {
        return Err(Refused::NoApplications(template.name.clone()));
    };
    if template.setup.chroot.is_some() {
        return Err(Refused::Chroot(template.name.clone()));
    }
    // A uid, because the name could refer to another user by the next lookup.
    let owner = if privileged {
        let user = if applications.user_switching {
            owner(applications, found, database)?
        } else {
            default_user(applications, database)?
        };
        Some((user.uid.to_string(), user.gid.to_string()))
    } else {
        None
    };
    let (user, group) = owner.unzip();
    let none = Settings::default();
    let own = found.settings.as_ref().unwrap_or(&none);
    without_effect(found, own)?;
    let mut pool = Pool {
        name: name(template, applications, &found.root)?,
        application: application(template, applications, found, own)?,
        applications: None,
        release: applications
            .releases
            .as_ref()
            .zip(found.link.clone())
            .map(|(releases, link)| {
                let mut release = releases.clone();
                release.link = link;
                release
            }),
        http_listen: None,
        account: Account { user, group },
        ..template.clone()
    };
    pool.pages.status_listen = None;
    pool.replacement.drain_timeout = None;
    pool.setup.chdir = Some(found.root.clone());
    pool.setup.origin.clone_from(&found.origin);
    pool.environment.own_env = own
        .env
        .iter()
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    pool.retirement.told_memory_limit = lower(applications.options.memory_limit, own.memory_limit);
    // Concurrent instances end an overdue request themselves. The router kills other instances: see `lasted` in
    // `crates/core/src/applications/departure.rs`.
    if is_concurrent(found.kind, own) {
        let limit = &mut pool.serving.request_terminate_timeout;
        *limit = lower(*limit, request_time(applications, own));
    }
    let own_log = own.app_log.as_ref().map(PathBuf::from);
    if let Some(path) = own_log.filter(|path| site::is_below(path)) {
        pool.logs.app_log = Some(AppLog {
            path,
            is_owners: true,
        });
    }
    if let Some(log) = &mut pool.logs.app_log {
        log.path = found.root.join(&log.path);
        pool.logs.catch_workers_output = true;
    }
    let own_file = own.env_file.as_ref().map(PathBuf::from);
    if let Some(path) = own_file.filter(|path| site::is_below(path)) {
        pool.environment.env_file = Some(EnvFile {
            path,
            is_optional: false,
            is_owners: true,
        });
    }
    if let Some(file) = &mut pool.environment.env_file {
        file.path = found.root.join(&file.path);
    }
    // The application needs access to its own files.
    if let Some(Paths { write, .. }) = &mut pool.confine.paths {
        write.push(found.root.clone());
    }
    Ok(pool)
}

/// Never root.
fn default_user(applications: &Applications, database: &dyn Database) -> Result<UserEntry, Refused> {
    let name = applications.default_user.as_deref().unwrap_or_default();
    let user = database.user(name).filter(|user| user.uid != 0 && user.gid != 0);
    user.ok_or_else(|| Refused::DefaultUser(name.to_owned()))
}

/// Never root.
fn owner(
    applications: &Applications,
    found: &FoundApplication,
    database: &dyn Database,
) -> Result<UserEntry, Refused> {
    let (uid, _) = found.owner;
    let entry = database.user_of(uid);
    let reason = match &entry {
        _ if uid == 0 => Some("nothing is run as root".to_owned()),
        None => Some("there is no such user".to_owned()),
        Some(entry) if entry.uid < applications.min_uid => {
            Some(format!("min_uid is {}", applications.min_uid))
        }
        Some(_) => None,
    };
    let refused = |reason: String, remedy: &str| Refused::Owner {
        root: found.root.display().to_string(),
        owner: entry.as_ref().map_or_else(
            || format!("user {uid}"),
            |entry| format!("{} (user {uid})", entry.name),
        ),
        reason,
        remedy: remedy.to_owned(),
    };
    let fallback_user = match (&reason, &applications.default_user) {
        (Some(reason), None) => {
            let remedy = "give it to the site's user (chown), or set applications.default_user";
            return Err(refused(reason.clone(), remedy));
        }
        (Some(_), Some(user)) => Some(user.as_str()),
        (None, _) => None,
    };
    let default_user = applications.default_user.as_deref().unwrap_or_default();
    let wishes = Wishes {
        user: fallback_user,
        group: None,
        switching: true,
        default_user,
        default_group: None,
        file_owner: found.owner,
    };
    let wrong = || Refused::DefaultUser(default_user.to_owned());
    let user = user::decide(&wishes, database).map_err(|_| wrong())?.user;
    if user.uid == 0 || user.gid == 0 {
        return Err(match fallback_user {
            Some(_) => wrong(),
            None => refused(
                "its group is root's".to_owned(),
                "give the user another primary group (usermod -g)",
            ),
        });
    }
    Ok(user)
}

/// Pool name and path (the whole path if the pool has several directories). Unique per application and valid as a file
/// name.
pub(crate) fn name(template: &Pool, applications: &Applications, root: &Path) -> Result<String, Refused> {
    let path = match applications.directories.as_slice() {
        [only] => root.strip_prefix(only).unwrap_or(root),
        _ => root,
    };
    let mut name = template.name.clone();
    for component in path.components() {
        if let Component::Normal(part) = component {
            name.push(':');
            for character in part.to_string_lossy().chars() {
                if is_control(character) || matches!(character, ':' | '%' | '/') {
                    let mut bytes = [0; 4];
                    for byte in character.encode_utf8(&mut bytes).bytes() {
                        name.push_str(&format!("%{byte:02X}"));
                    }
                } else {
                    name.push(character);
                }
            }
        }
    }
    if name.len() > MOST_NAME_BYTES {
        return Err(Refused::Name(root.display().to_string()));
    }
    Ok(name)
}

fn application(
    template: &Pool,
    applications: &Applications,
    found: &FoundApplication,
    own: &Settings,
) -> Result<Application, Refused> {
    match found.kind {
        Kind::Php => match template.application.php() {
            Some(php) => Ok(Application::Php(Php {
                script_root: Some(script_root(applications, found)),
                ..php.clone()
            })),
            None => Err(not_run(
                template,
                found,
                "write [pool.NAME.application] with runtime = \"php\" and version = \"8.2\"",
            )),
        },
        Kind::Wsgi => Ok(wrapped(Interface::Wsgi, template, applications, found, own)),
        Kind::Asgi => Ok(wrapped(Interface::Asgi, template, applications, found, own)),
        Kind::Rack => Ok(wrapped(Interface::Rack, template, applications, found, own)),
        Kind::Cgi => cgi(template, found, own),
        Kind::Fastcgi => fastcgi(template, applications, found, own),
        Kind::Node | Kind::Http => program(applications, found, own),
        Kind::Rust => Err(not_run(template, found, "give it a pool of its own")),
    }
}

fn not_run(template: &Pool, found: &FoundApplication, remedy: &str) -> Refused {
    Refused::Runtime {
        root: found.root.display().to_string(),
        what: found.kind.traits().name,
        pool: template.name.clone(),
        remedy: remedy.replace("NAME", &template.name),
    }
}

fn wrapped(
    interface: Interface,
    template: &Pool,
    applications: &Applications,
    found: &FoundApplication,
    own: &Settings,
) -> Application {
    let same_language = |one: Interface| (one == Interface::Rack) == (interface == Interface::Rack);
    let wrapped = template.application.wrapped();
    let interpreter = wrapped
        .filter(|wrapped| same_language(wrapped.interface))
        .map(|wrapped| &wrapped.interpreter);
    let environment = found.python.as_ref().filter(|_| interface != Interface::Rack);
    let usual = match interface {
        Interface::Wsgi | Interface::Asgi => PYTHON,
        Interface::Rack => RUBY,
    };
    let startup = || {
        let name = found.startup_file.as_ref()?.strip_prefix(&found.root).ok()?;
        name.to_str().map(str::to_owned)
    };
    Application::Wrapped(Wrapped {
        interface,
        root: found.root.clone(),
        entry: own.entry.clone().or_else(startup),
        interpreter: environment
            .or(interpreter)
            .cloned()
            .unwrap_or_else(|| PathBuf::from(usual)),
        looks_for_interpreter: false,
        start_timeout: start_timeout(applications, own),
        preloader_idle_timeout: idle_timeout(template),
        refork_after: Vec::new(),
        huge_code_pages: false,
        preload: own.preload.unwrap_or_default(),
        concurrency: concurrency(found.kind, applications, own),
    })
}

fn concurrency(kind: Kind, applications: &Applications, own: &Settings) -> u32 {
    at_once(kind, applications.concurrency, own).map_or(u32::MAX, NonZeroU32::get)
}

fn instances(applications: &Applications, own: &Settings) -> u32 {
    let open = applications.max.get().saturating_sub(applications.reserve).max(1);
    let most = applications
        .options
        .max_per_app
        .map_or(open, |most| most.get().min(open));
    own.instances.unwrap_or(1).clamp(1, most)
}

fn start_timeout(applications: &Applications, own: &Settings) -> Duration {
    let pool = applications.options.start_timeout;
    own.start_timeout.map_or(pool, |own| own.min(pool))
}

fn without_effect(found: &FoundApplication, own: &Settings) -> Result<(), Refused> {
    let speaks_http = found.kind.traits().requests == Requests::Forwarded;
    let is_wrapped = found.kind.traits().workers == Workers::Forked && found.kind != Kind::Php;
    let problem = if own.concurrency.is_some() && has_threads(found.kind) {
        "concurrency: an instance of it has a request in each thread; set threads instead"
    } else if own.concurrency.is_some() && !has_concurrency(found.kind) {
        "concurrency: an instance of it works on one request at a time"
    } else if own.threads.is_some() && has_concurrency(found.kind) {
        "threads: an instance of it works on many requests in one thread; set concurrency instead"
    } else if own.threads.is_some() && !has_threads(found.kind) {
        "threads: an instance of it works on one request at a time"
    } else if own.handshake.is_some() && !speaks_http {
        "handshake: it is for programs that speak HTTP"
    } else if own.preload.is_some() && !is_wrapped {
        "preload: it is for WSGI, ASGI and Rack"
    } else {
        return Ok(());
    };
    Err(setting(found, problem.to_owned(), "leave it out"))
}

fn setting(found: &FoundApplication, problem: String, remedy: &'static str) -> Refused {
    let root = found.root.display().to_string();
    Refused::Setting {
        root,
        problem,
        remedy,
    }
}

fn cgi(template: &Pool, found: &FoundApplication, own: &Settings) -> Result<Application, Refused> {
    let is_plain = |component| matches!(component, Component::Normal(_));
    let script = match &own.entry {
        Some(entry) if !Path::new(entry).components().all(is_plain) => {
            let problem = format!("entry: {entry:?} is not below the application's root");
            return Err(setting(found, problem, "name a program by its path from there"));
        }
        Some(entry) => Some(found.root.join(entry)),
        None => None,
    };
    let (search_arguments, parameters) = match &template.application {
        Application::Cgi(cgi) => (cgi.search_arguments, cgi.parameters.clone()),
        _ => (false, Vec::new()),
    };
    Ok(Application::Cgi(Cgi {
        script,
        root: Some(found.root.clone()),
        search_arguments,
        parameters,
    }))
}

fn fastcgi(
    template: &Pool,
    applications: &Applications,
    found: &FoundApplication,
    own: &Settings,
) -> Result<Application, Refused> {
    let (abort_timeout, parameters) = match template.application.fastcgi() {
        Some(fastcgi) => (fastcgi.abort_timeout, fastcgi.parameters.clone()),
        None => (ABORT_TIMEOUT, Vec::new()),
    };
    Ok(Application::FastCgi(FastCgi {
        command: StartCommand::Shell(start_command(found, own)?),
        root: Some(found.root.clone()),
        start_timeout: start_timeout(applications, own),
        abort_timeout,
        parameters,
        script_root: Some(script_root(applications, found)),
    }))
}

/// The scripts belong to the application. A link in the request may already point to the next version.
fn script_root(applications: &Applications, found: &FoundApplication) -> ScriptRoot {
    ScriptRoot {
        path: found.root.clone(),
        names: vec![applications.root_parameter.clone(), APP_ROOT.to_owned()],
    }
}

fn program(
    applications: &Applications,
    found: &FoundApplication,
    own: &Settings,
) -> Result<Application, Refused> {
    let start_command = match found.kind {
        Kind::Node => as_npm_does(&found.root, &start_command(found, own)?),
        _ => start_command(found, own)?,
    };
    Ok(Application::Program(Program {
        root: found.root.clone(),
        start_command,
        listens: match (own.handshake, found.kind) {
            (Some(Handshake::Spoken), _) => Listens::Handshake,
            (_, Kind::Node) => Listens::Node,
            (Some(Handshake::Socket), _) => Listens::Socket,
            _ => Listens::Port,
        },
        instances: instances(applications, own),
        app_env: APP_ENV.to_owned(),
        load_shell_envvars: false,
        rlimits: Vec::new(),
        umask: None,
        start_timeout: start_timeout(applications, own),
        preloader_idle_timeout: Duration::ZERO,
    }))
}

/// Optional for a Node.js file.
fn start_command(found: &FoundApplication, own: &Settings) -> Result<String, Refused> {
    if let Some(command) = &own.start_command {
        return Ok(command.clone());
    }
    let file = found.startup_file.as_ref().filter(|_| found.kind == Kind::Node);
    let name = file.and_then(|file| file.strip_prefix(&found.root).ok());
    match name {
        Some(name) => Ok(format!("node {}", shell_quoted(&name.to_string_lossy()))),
        None => {
            let remedy = "write the command that starts the program";
            Err(setting(found, "start_command is missing".to_owned(), remedy))
        }
    }
}

fn as_npm_does(root: &Path, script: &str) -> String {
    let tools = root.join("node_modules/.bin");
    let exec = if script.contains(SPECIAL) { "" } else { "exec " };
    let line = format!(
        "PATH={}:$PATH; export PATH; {exec}{script}",
        shell_quoted(&tools.to_string_lossy())
    );
    format!("/bin/sh -c {}", shell_quoted(&line))
}

fn shell_quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

fn idle_timeout(template: &Pool) -> Duration {
    let times = template.application.start_times();
    times.map_or(PRELOADER_IDLE_TIMEOUT, |times| times.idle_timeout)
}

#[cfg(test)]
#[path = "pool_tests.rs"]
mod tests;
