//! Writes the daemon's configuration.

use crate::subject::{Subject, What};
use std::path::{Path, PathBuf};

#[derive(Debug, Clone)]
pub(crate) struct Paths {
    pub(crate) configuration: PathBuf,
    pub(crate) socket: PathBuf,
    pub(crate) control: PathBuf,
}

impl Paths {
    pub(crate) fn new(directory: &Path) -> Paths {
        Paths {
            configuration: directory.join("forkyard.toml"),
            socket: directory.join("dev.sock"),
            control: directory.join("control.sock"),
        }
    }
}

/// PHP for development. Without OPcache, changes take effect with the next request.
const PHP: &str = r#"php_value = { display_errors = "1", error_reporting = "32767" }
php_admin_value = { log_errors = "1", "opcache.enable" = "0", "user_ini.cache_ttl" = "0" }
"#;

/// Variables that put frameworks into development mode, unless the developer sets them: browsers see exceptions, and
/// templates are reloaded.
pub(crate) const DEVELOPMENT: [(&str, &str); 6] = [
    ("APP_ENV", "development"),
    ("FLASK_DEBUG", "1"),
    ("NODE_ENV", "development"),
    ("RACK_ENV", "development"),
    ("RAILS_ENV", "development"),
    ("WSGI_ENV", "development"),
];

pub(crate) fn write(subject: &Subject, paths: &Paths, php: Option<&str>, env: &[(&str, String)]) -> String {
    let version = php.map_or_else(String::new, |version| format!("version = {}\n", quoted(version)));
    let env: Vec<String> = env
        .iter()
        .map(|(name, value)| format!("{name} = {}", quoted(value)))
        .collect();
    let mut text = format!(
        "[global]\nerror_log = \"stderr\"\nlog_format = \"json\"\ncontrol = {}\n\n[pool.dev]\nlisten = {}\nclear_env = false\n\
         catch_workers_output = true\nfriendly_error_pages = true\nenv = {{ {} }}\n",
        shown(&paths.control),
        shown(&paths.socket),
        env.join(", "),
    );
    let php_table = format!("\n[pool.dev.application]\nruntime = \"php\"\n{version}{PHP}");
    match &subject.what {
        What::Documents => {
            text.push_str("pm = \"ondemand\"\nmax_children = 16\n");
            text.push_str(&php_table);
            text.push_str(&format!("script_root = {}\n", shown(&subject.root)));
        }
        What::Application { .. } => {
            let parent = subject.root.parent().unwrap_or(&subject.root);
            text.push_str(&format!(
                "routing = \"application\"\n\n[pool.dev.applications]\ndirectories = [{}]\nmax = 16\nreserve = 0\n\
                 min_instances = 1\nmax_idle_time = 0\nrolling_restarts = false\nstat_throttle_rate = 0\n\
                 drain_timeout = \"1s\"\nstop_timeout = \"5s\"\n",
                shown(parent)
            ));
            if subject.is_php() {
                text.push_str(&php_table);
            }
        }
    }
    text
}

fn shown(path: &Path) -> String {
    quoted(&path.to_string_lossy())
}

/// A JSON string is a valid TOML string.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
