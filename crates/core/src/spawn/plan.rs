//! The plan of a spawn, complete before the fork.

use super::step::Route;
use forkyard_base::origin::Origin;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::IpAddr;
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::time::Duration;

/// How an application reports that it is up, and who answers for the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Unaware of forkyard: up when its port accepts connections.
    Generic,
    /// FastCGI: up when its socket takes a record.
    FastCgi,
    /// Performs the handshake itself.
    Native,
    /// Loaded by a wrapper of forkyard's.
    Wrapper,
    /// Loaded by a foreign wrapper.
    ForeignWrapper,
}

impl Kind {
    /// Whether a wrapper loads it.
    pub const fn has_wrapper(self) -> bool {
        matches!(self, Kind::Wrapper | Kind::ForeignWrapper)
    }

    /// The author of the work directory's files, for reports.
    pub const fn writer(self) -> &'static str {
        match self {
            Kind::Generic | Kind::FastCgi | Kind::Native => "the application",
            Kind::Wrapper => "forkyard's wrapper around the application",
            Kind::ForeignWrapper => "the wrapper around the application, which is not part of forkyard",
        }
    }
}

/// The account that the application runs as.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// User name or number.
    pub user: String,
    /// Group name or number.
    pub group: String,
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
    /// Home directory, if any.
    pub home: Option<PathBuf>,
    /// Login shell, if any.
    pub shell: Option<PathBuf>,
}

/// A resource limit (setrlimit(2)).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// The resource in lower case without prefix: `nofile`, `cpu`, `as`.
    pub name: String,
    /// Soft limit; `None`: unlimited.
    pub soft: Option<u64>,
    /// Hard limit; `None`: unlimited.
    pub hard: Option<u64>,
}

/// A program of forkyard's, executed without the env setupper. It gets [`WORK_DIRECTORY`], no standard input, and a
/// channel to the master.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Internal {
    pub program: PathBuf,
    /// Its arguments with its name.
    pub arguments: Vec<String>,
}

/// An internal program's descriptor of the work directory.
pub const WORK_DIRECTORY: RawFd = 5;

/// A unix socket in a private directory that the kit creates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnSocket {
    /// The application gets its path in `$SOCKET`.
    Told,
    /// A script that Node.js loads first makes the first server listen there. The application's port is unused.
    Preloaded(&'static str),
}

/// An application and how to start it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The name of the application.
    pub group: String,
    /// The application's absolute directory, which is its working directory.
    pub app_root: PathBuf,
    /// How it reports that it is up.
    pub kind: Kind,
    /// Find a free port although it is not generic.
    pub find_free_port: bool,
    /// It listens on a prepared socket and is up when that accepts connections.
    pub own_socket: Option<OwnSocket>,
    /// Executed by `/bin/sh -c "exec …"`.
    pub start_command: String,
    /// forkyard's own preloader, executed instead. The route is `START_PRELOADER`.
    pub internal: Option<Internal>,
    /// The cgroup v2 directory that it enters. Not in reports.
    pub cgroup: Option<PathBuf>,
    /// Its inherited environment; `None`: forkyard's. Not in reports.
    pub inherited: Option<Vec<(OsString, OsString)>>,
    /// The absolute path of the file that a wrapper loads.
    pub startup_file: Option<PathBuf>,
    /// Process title, for wrappers.
    pub process_title: Option<String>,
    /// The language; may be empty for generic applications.
    pub app_type: String,
    /// `production` or `development`.
    pub app_env: String,
    /// The address to listen on.
    pub bind_address: IpAddr,
    /// The application's path on its site.
    pub base_uri: String,
    pub account: Account,
    /// Whether to change from root to the account.
    pub switch_user: bool,
    /// The operator's environment variables.
    pub environment: BTreeMap<String, String>,
    /// Run the login shell for its environment.
    pub load_shell_envvars: bool,
    pub limits: Vec<Limit>,
    /// File mode creation mask.
    pub umask: Option<u32>,
    /// Set no_new_privs (prctl(2)).
    pub no_new_privileges: bool,
    /// The required identity of the directory; `None`: any.
    pub origin: Option<Origin>,
    /// The application's log, for wrappers.
    pub log_file: Option<PathBuf>,
    /// The password that requests to the application carry; may be empty.
    pub connect_password: String,
    /// The required directory of unix sockets, if set.
    pub socket_dir: Option<PathBuf>,
    /// The timeout of the whole journey.
    pub start_timeout: Duration,
    /// Keep the work directory.
    pub debug_work_dir: bool,
    /// The kernel sends it SIGTERM when its parent exits.
    pub dies_with_parent: bool,
    /// Variables whose values reports hide.
    pub secrets: BTreeMap<String, String>,
    /// Errors found while making the plan.
    pub problems: Vec<String>,
}

/// Passenger's name for separate processes.
pub const SPAWN_METHOD: &str = "direct";

/// The default start timeout.
pub const START_TIMEOUT: Duration = Duration::from_secs(90);

impl Plan {
    /// Returns a plan with Passenger's defaults.
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

    /// Returns the plan's errors.
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

    /// Whether the kit finds a port.
    pub fn wants_port(&self, route: Route) -> bool {
        let worker = route != Route::StartPreloader;
        let is_told = self.own_socket == Some(OwnSocket::Told);
        worker && !is_told && (self.kind == Kind::Generic || self.find_free_port)
    }

    /// Whether the kit waits until the port or socket accepts connections.
    pub fn wants_ping(&self, route: Route) -> bool {
        self.wants_port(route) || self.own_socket.is_some()
    }

    /// Returns JSON without secrets.
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
