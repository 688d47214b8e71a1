//! What is to be spawned, and how: everything is decided before anything is forked.

use super::step::Route;
use crate::origin::Origin;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::IpAddr;
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::time::Duration;

/// How an application says that it is up, and who is to blame for what it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// It knows nothing of us: it is up when its port can be connected to.
    Generic,
    /// It speaks FastCGI: it is up when it takes what is sent to the socket that it was given.
    FastCgi,
    /// It speaks the handshake itself.
    Native,
    /// A wrapper of ours loads it and speaks the handshake.
    Wrapper,
    /// A wrapper that is not forkyard's.
    ForeignWrapper,
}

impl Kind {
    /// Whether a wrapper loads the application.
    pub const fn has_wrapper(self) -> bool {
        matches!(self, Kind::Wrapper | Kind::ForeignWrapper)
    }

    /// The program that writes into the work directory, as reports call it.
    pub const fn writer(self) -> &'static str {
        match self {
            Kind::Generic | Kind::FastCgi | Kind::Native => "the application",
            Kind::Wrapper => "forkyard's wrapper around the application",
            Kind::ForeignWrapper => "the wrapper around the application, which is not part of forkyard",
        }
    }
}

/// Whom the application runs as.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// Name of the user, or its number where it has none.
    pub user: String,
    /// Name of the group, or its number.
    pub group: String,
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// Home directory, where the user has one.
    pub home: Option<PathBuf>,
    /// Login shell, where the user has one.
    pub shell: Option<PathBuf>,
}

/// A resource limit (setrlimit(2)).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// Which one, as in setrlimit(2) without its prefix, in lower case: `nofile`, `cpu`, `as`.
    pub name: String,
    /// Soft limit in the resource's unit; `None`: unlimited.
    pub soft: Option<u64>,
    /// Hard limit; `None`: unlimited.
    pub hard: Option<u64>,
}

/// A program of forkyard's own that is started as it is, without the env setupper. It is given the work directory as a
/// descriptor, [`WORK_DIRECTORY`], and no standard input, and does the env setupper's part itself (`setupper::Notes`), since it knows better when. It needs no socket, as the
/// master speaks with it over a descriptor that it was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Internal {
    /// The executable.
    pub program: PathBuf,
    /// Its arguments, name first.
    pub arguments: Vec<String>,
}

/// The descriptor on which an internal program finds its work directory.
pub const WORK_DIRECTORY: RawFd = 5;

/// A unix socket in a directory that the kit makes, which only the application's user can enter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnSocket {
    /// The application is told its path, in `$SOCKET`.
    Told,
    /// This script, which every Node.js process of the application loads first, has the first server listen there. The
    /// application is given a port as well, on which no process listens in the end: the application's own process holds it.
    Preloaded(&'static str),
}

/// One application, and how it is to be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Which of an operator's applications.
    pub group: String,
    /// Directory of the application; absolute. It is the working directory.
    pub app_root: PathBuf,
    /// How it says that it is up.
    pub kind: Kind,
    /// Look for a free port although it is not generic.
    pub find_free_port: bool,
    /// It listens on a socket that the kit has a place for; it is up when that can be connected to.
    pub own_socket: Option<OwnSocket>,
    /// Run by `/bin/sh -c "exec …"`.
    pub start_command: String,
    /// Executed instead: forkyard's own preloader. The route is then `START_PRELOADER`.
    pub internal: Option<Internal>,
    /// The control group that it enters by itself (the directory, cgroup v2). Not in reports.
    pub cgroup: Option<PathBuf>,
    /// What it inherits; `None`: the environment of forkyard itself. Not in reports.
    pub inherited: Option<Vec<(OsString, OsString)>>,
    /// What a wrapper loads; absolute.
    pub startup_file: Option<PathBuf>,
    /// Process title, for wrappers.
    pub process_title: Option<String>,
    /// Language of the application; may be empty for generic ones.
    pub app_type: String,
    /// `production`, `development`.
    pub app_env: String,
    /// Where it is to listen.
    pub bind_address: IpAddr,
    /// Address of the application on its site.
    pub base_uri: String,
    /// Whom it runs as.
    pub account: Account,
    /// Whether that is to be changed to from root.
    pub switch_user: bool,
    /// Environment variables of the operator.
    pub environment: BTreeMap<String, String>,
    /// Run the user's login shell, so that its start-up files set the environment.
    pub load_shell_envvars: bool,
    /// Resource limits.
    pub limits: Vec<Limit>,
    /// File mode creation mask.
    pub umask: Option<u32>,
    /// Give up every way to gain privileges by exec.
    pub no_new_privileges: bool,
    /// What its directory has to be when it is entered; `None`: anything.
    pub origin: Option<Origin>,
    /// The application's log, for wrappers that want to know.
    pub log_file: Option<PathBuf>,
    /// What requests to the application carry to prove whence they come; may be empty.
    pub connect_password: String,
    /// Unix sockets have to be directly in here, where it is given.
    pub socket_dir: Option<PathBuf>,
    /// Of the whole journey.
    pub start_timeout: Duration,
    /// Keep the work directory.
    pub debug_work_dir: bool,
    /// The kernel sends it SIGTERM when the process that started it ends.
    pub dies_with_parent: bool,
    /// Variables whose values no report shows.
    pub secrets: BTreeMap<String, String>,
    /// Why it can't be started, found while the plan was made.
    pub problems: Vec<String>,
}

/// How processes are made, in Passenger's words: each by itself.
pub const SPAWN_METHOD: &str = "direct";

/// The start timeout where nothing else is said.
pub const START_TIMEOUT: Duration = Duration::from_secs(90);

impl Plan {
    /// A plan with Passenger's defaults.
    pub fn new(group: &str, app_root: PathBuf, start_command: &str, account: Account) -> Plan {
        Plan {
            group: group.to_owned(),
            app_root,
            kind: Kind::Generic,
            find_free_port: false,
            own_socket: None,
            start_command: start_command.to_owned(),
            internal: None,
            cgroup: None,
            inherited: None,
            startup_file: None,
            process_title: None,
            app_type: String::new(),
            app_env: "production".to_owned(),
            bind_address: IpAddr::from([127, 0, 0, 1]),
            base_uri: "/".to_owned(),
            account,
            switch_user: false,
            environment: BTreeMap::new(),
            load_shell_envvars: false,
            limits: Vec::new(),
            umask: None,
            no_new_privileges: false,
            origin: None,
            log_file: None,
            connect_password: String::new(),
            socket_dir: None,
            start_timeout: START_TIMEOUT,
            debug_work_dir: false,
            dies_with_parent: false,
            secrets: BTreeMap::new(),
            problems: Vec::new(),
        }
    }

    /// What is wrong with the plan, if anything.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = self.problems.clone();
        let mut need = |fine: bool, text: &str| {
            if !fine {
                faults.push(text.to_owned());
            }
        };
        need(!self.group.is_empty(), "the application's name is empty");
        need(self.app_root.is_absolute(), "app_root is not an absolute path");
        need(!self.start_command.trim().is_empty(), "start_command is empty");
        need(!self.app_env.is_empty(), "app_env is empty");
        need(!self.base_uri.is_empty(), "base_uri is empty");
        need(!self.start_timeout.is_zero(), "start_timeout is zero");
        let file = self.startup_file.as_deref();
        let has_file = !self.kind.has_wrapper()
            || self.internal.is_some()
            || file.is_some_and(std::path::Path::is_absolute);
        need(has_file, "a wrapper needs a startup_file with an absolute path");
        let typed = matches!(self.kind, Kind::Generic | Kind::FastCgi) || !self.app_type.is_empty();
        need(typed, "app_type is empty and the application is not generic");
        let names = self.environment.keys();
        let named = names
            .clone()
            .all(|name| !name.is_empty() && !name.contains(['=', '\0']));
        need(
            named,
            "the name of an environment variable is empty or has a '=' or a NUL",
        );
        let free = |text: &str| !text.contains('\0');
        let values_fine = self.environment.values().all(|value| free(value)) && free(&self.start_command);
        need(values_fine, "a value has a NUL");
        faults
    }

    /// Whether the kit looks for a port.
    pub fn wants_port(&self, route: Route) -> bool {
        let worker = route != Route::StartPreloader;
        let is_told = self.own_socket == Some(OwnSocket::Told);
        worker && !is_told && (self.kind == Kind::Generic || self.find_free_port)
    }

    /// Whether the kit waits until something can be connected to: the port, or the socket.
    pub fn wants_ping(&self, route: Route) -> bool {
        self.wants_port(route) || self.own_socket.is_some()
    }

    /// For reports: what is secret is left out.
    pub fn to_json(&self) -> Value {
        let secret: BTreeMap<&str, &str> = self
            .environment
            .keys()
            .map(|name| (name.as_str(), "<SECRET>"))
            .collect();
        json!({
            "app_group_name": self.group,
            "app_root": self.app_root,
            "kind": self.kind,
            "spawn_method": SPAWN_METHOD,
            "find_free_port": self.find_free_port,
            "own_socket": self.own_socket.is_some(),
            "start_command": self.start_command,
            "startup_file": self.startup_file,
            "process_title": self.process_title,
            "app_type": self.app_type,
            "app_env": self.app_env,
            "bind_address": self.bind_address,
            "base_uri": self.base_uri,
            "user": self.account.user,
            "group": self.account.group,
            "environment_variables": secret,
            "load_shell_envvars": self.load_shell_envvars,
            "limits": self.limits,
            "umask": self.umask.map(|mask| format!("{mask:04o}")),
            "no_new_privs": self.no_new_privileges,
            "log_file": self.log_file,
            "connect_password": if self.connect_password.is_empty() { "" } else { "<SECRET>" },
            "socket_dir": self.socket_dir,
            "start_timeout": self.start_timeout.as_secs_f64(),
        })
    }
}

#[cfg(test)]
pub(super) fn sample() -> Plan {
    let account = Account {
        user: "app".to_owned(),
        group: "app".to_owned(),
        uid: 1000,
        gid: 1000,
        groups: vec![1000],
        home: None,
        shell: None,
    };
    Plan::new("shop", PathBuf::from("/srv/shop"), "./server", account)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_lacks_nothing_it_needs() {
        assert!(sample().faults().is_empty());
        let mut plan = sample();
        plan.kind = Kind::Wrapper;
        plan.start_command = " ".to_owned();
        plan.start_timeout = Duration::ZERO;
        plan.environment.insert("A=B".to_owned(), String::new());
        assert_eq!(plan.faults().len(), 5);
    }

    #[test]
    fn what_is_secret_stays_secret() {
        let mut plan = sample();
        plan.environment.insert("TOKEN".to_owned(), "hidden-1".to_owned());
        plan.connect_password = "hidden-2".to_owned();
        let text = plan.to_json().to_string();
        assert!(text.contains("TOKEN") && !text.contains("hidden"));
    }
}
