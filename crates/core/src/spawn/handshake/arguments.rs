//! The new process's input: `args.json`, and a file below `args` for each key.

use crate::spawn::plan::{Account, Kind, Limit, Plan, SPAWN_METHOD};
use crate::spawn::step::Route;
use forkyard_base::origin::Origin;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The content of `args.json`, which the env setupper reads, too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arguments {
    /// `SPAWN_DIRECTLY` or `START_PRELOADER`.
    pub journey: Route,
    pub app_group_name: String,
    pub app_root: PathBuf,
    /// It does not know the work directory.
    pub generic_app: bool,
    /// A wrapper loads it.
    pub starts_using_wrapper: bool,
    /// The wrapper is foreign.
    pub wrapper_supplied_by_third_party: bool,
    /// `direct`.
    pub spawn_method: String,
    pub start_command: String,
    /// The file that a wrapper loads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub startup_file: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process_title: Option<String>,
    pub app_type: String,
    /// `production` or `development`.
    pub app_env: String,
    /// The address to listen on.
    pub bind_address: String,
    /// The port, if one was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_start_port: Option<u16>,
    /// The prepared unix socket, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_socket: Option<PathBuf>,
    /// The script that Node.js loads first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_preload: Option<PathBuf>,
    /// The application's path on its site.
    pub base_uri: String,
    pub user: String,
    pub group: String,
    /// The account with numbers.
    pub account: Account,
    /// Whether the env setupper changes to the user.
    pub switch_user: bool,
    /// The operator's environment variables.
    pub environment_variables: BTreeMap<String, String>,
    /// Run the login shell.
    pub load_shell_envvars: bool,
    pub limits: Vec<Limit>,
    /// File mode creation mask.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub umask: Option<u32>,
    pub no_new_privs: bool,
    /// The required identity of the directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// The kernel sends it SIGTERM when forkyard exits.
    pub dies_with_parent: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_file: Option<PathBuf>,
    /// The password of requests.
    pub connect_password: String,
    /// The directory of unix sockets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket_dir: Option<PathBuf>,
    /// The unique name of the future process.
    pub gupid: String,
    /// The longest unix socket path (unix(7), sun_path without NUL).
    #[serde(rename = "UNIX_PATH_MAX")]
    pub unix_path_max: usize,
    pub forkyard_version: String,
}

/// The longest unix socket path on Linux.
pub const UNIX_PATH_MAX: usize = 107;

impl Arguments {
    /// Returns the arguments of a plan.
    pub fn new(plan: &Plan, route: Route, port: Option<u16>, gupid: &str) -> Arguments {
        Arguments {
            journey: route,
            app_group_name: plan.group.clone(),
            app_root: plan.app_root.clone(),
            generic_app: plan.kind == Kind::Generic,
            starts_using_wrapper: plan.kind.has_wrapper(),
            wrapper_supplied_by_third_party: plan.kind == Kind::ForeignWrapper,
            spawn_method: SPAWN_METHOD.to_owned(),
            start_command: plan.start_command.clone(),
            startup_file: plan.startup_file.clone(),
            process_title: plan.process_title.clone(),
            app_type: plan.app_type.clone(),
            app_env: plan.app_env.clone(),
            bind_address: plan.bind_address.to_string(),
            expected_start_port: port,
            own_socket: None,
            node_preload: None,
            base_uri: plan.base_uri.clone(),
            user: plan.account.user.clone(),
            group: plan.account.group.clone(),
            account: plan.account.clone(),
            switch_user: plan.switch_user,
            environment_variables: plan.environment.clone(),
            load_shell_envvars: plan.load_shell_envvars,
            limits: plan.limits.clone(),
            umask: plan.umask,
            no_new_privs: plan.no_new_privileges,
            origin: plan.origin.clone(),
            dies_with_parent: plan.dies_with_parent,
            log_file: plan.log_file.clone(),
            connect_password: plan.connect_password.clone(),
            socket_dir: plan.socket_dir.clone(),
            gupid: gupid.to_owned(),
            unix_path_max: UNIX_PATH_MAX,
            forkyard_version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    /// Returns the files: path below the work directory, and content.
    ///
    /// # Errors
    /// serde_json's, for a path that is not UTF-8.
    pub fn files(&self) -> serde_json::Result<Vec<(String, String)>> {
        let whole = serde_json::to_value(self)?;
        let mut files = vec![("args.json".to_owned(), serde_json::to_string_pretty(&whole)?)];
        if let Value::Object(map) = whole {
            for (key, value) in map {
                let file = match value {
                    Value::String(text) => (format!("args/{key}"), text),
                    Value::Bool(_) | Value::Number(_) => (format!("args/{key}"), value.to_string()),
                    Value::Array(_) | Value::Object(_) => (format!("args/{key}.json"), value.to_string()),
                    Value::Null => continue,
                };
                files.push(file);
            }
        }
        Ok(files)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spawn::plan::sample;

    #[test]
    fn there_is_a_file_for_each_key() {
        let mut plan = sample();
        plan.environment.insert("A".to_owned(), "b".to_owned());
        let arguments = Arguments::new(&plan, Route::SpawnDirectly, Some(5001), "1-x");
        let files: BTreeMap<String, String> = arguments.files().expect("UTF-8").into_iter().collect();
        assert_eq!(files["args/app_root"], "/srv/shop");
        assert_eq!(files["args/generic_app"], "true");
        assert_eq!(files["args/expected_start_port"], "5001");
        assert_eq!(files["args/environment_variables.json"], r#"{"A":"b"}"#);
        assert!(!files.contains_key("args/startup_file"));
        let read: Arguments = serde_json::from_str(&files["args.json"]).expect("the same again");
        assert_eq!(read, arguments);
    }
}
