//! The application's environment variables.

use crate::handshake::arguments::Arguments;
use std::path::Path;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Change {
    Set(String, String),
    Unset(String),
}

fn set(name: &str, value: &str) -> Change {
    Change::Set(name.to_owned(), value.to_owned())
}

/// Variables that identify the spawning kit and the work directory.
pub(super) fn marks(work_directory: &Path) -> Vec<Change> {
    let path = work_directory.to_string_lossy();
    vec![
        set("FORKYARD_SPAWN_WORK_DIR", &path),
        set("PASSENGER_SPAWN_WORK_DIR", &path),
        set("IN_PASSENGER", "1"),
    ]
}

pub(super) fn defaults(arguments: &Arguments) -> Vec<Change> {
    let mut changes = vec![set("PYTHONUNBUFFERED", "1")];
    for name in [
        "RAILS_ENV",
        "RACK_ENV",
        "WSGI_ENV",
        "NODE_ENV",
        "PASSENGER_APP_ENV",
    ] {
        changes.push(set(name, &arguments.app_env));
    }
    if let Some(port) = arguments.expected_start_port {
        changes.push(set("PORT", &port.to_string()));
    }
    for name in ["RAILS_RELATIVE_URL_ROOT", "RACK_BASE_URI", "PASSENGER_BASE_URI"] {
        changes.push(match arguments.base_uri.as_str() {
            "/" => Change::Unset(name.to_owned()),
            uri => set(name, uri),
        });
    }
    if let Some(socket) = &arguments.own_socket {
        let name = match &arguments.node_preload {
            Some(_) => "FORKYARD_NODE_SOCKET",
            None => "SOCKET",
        };
        changes.push(set(name, &socket.to_string_lossy()));
    }
    let root = arguments.app_root.to_string_lossy();
    changes.push(set("PWD", &root));
    changes
}

/// Makes Node.js preload forkyard's script. `said`: the previous NODE_OPTIONS.
pub(super) fn of_node(arguments: &Arguments, said: Option<&str>) -> Option<Change> {
    let script = arguments.node_preload.as_ref()?.to_string_lossy();
    let quoted = script.replace('\\', "\\\\").replace('"', "\\\"");
    let more = said.map(|said| format!(" {said}")).unwrap_or_default();
    Some(set("NODE_OPTIONS", &format!("--require \"{quoted}\"{more}")))
}

pub(super) fn of_user(arguments: &Arguments) -> Vec<Change> {
    let account = &arguments.account;
    let mut changes = vec![set("USER", &account.user), set("LOGNAME", &account.user)];
    if let Some(home) = &account.home {
        changes.push(set("HOME", &home.to_string_lossy()));
    }
    if let Some(shell) = &account.shell {
        changes.push(set("SHELL", &shell.to_string_lossy()));
    }
    changes
}

/// The operator's variables. They override all others.
pub(super) fn of_operator(arguments: &Arguments) -> Vec<Change> {
    let variables = arguments.environment_variables.iter();
    // The application's user may have changed the file since its check.
    let sound =
        |name: &str, value: &str| !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0');
    variables
        .filter(|(name, value)| sound(name, value))
        .map(|(name, value)| set(name, value))
        .collect()
}

/// The login shell, if it can run a command after its start-up files.
pub(super) fn usable_shell(arguments: &Arguments) -> Option<&Path> {
    let shell = arguments.account.shell.as_deref()?;
    let name = shell.file_name()?.to_str()?;
    let known = ["bash", "zsh", "ksh", "sh", "dash"];
    (arguments.load_shell_envvars && known.contains(&name)).then_some(shell)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Account, Plan};
    use crate::step::Route;
    use std::path::PathBuf;

    fn sample() -> Plan {
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

    #[test]
    fn a_site_at_the_root_has_no_base_uri() {
        let mut plan = sample();
        let arguments = |plan: &_| Arguments::new(plan, Route::SpawnDirectly, Some(5000), "x");
        let changes = defaults(&arguments(&plan));
        assert!(changes.contains(&Change::Unset("RACK_BASE_URI".to_owned())));
        assert!(changes.contains(&set("PORT", "5000")));
        assert!(changes.contains(&set("NODE_ENV", "production")));
        plan.base_uri = "/shop".to_owned();
        let changes = defaults(&arguments(&plan));
        assert!(changes.contains(&set("RAILS_RELATIVE_URL_ROOT", "/shop")));
    }

    #[test]
    fn only_known_shells_are_used_and_only_if_asked_for() {
        let mut plan = sample();
        let mut shell = |shell: &str, load: bool| {
            plan.account.shell = Some(PathBuf::from(shell));
            plan.load_shell_envvars = load;
            let arguments = Arguments::new(&plan, Route::SpawnDirectly, None, "x");
            usable_shell(&arguments).is_some()
        };
        assert!(shell("/bin/bash", true));
        assert!(!shell("/bin/bash", false));
        assert!(!shell("/usr/sbin/nologin", true));
        assert!(!shell("/usr/bin/fish", true));
    }
}
