//! Finds a Node.js application's start command, as npm would.

use crate::{World, WorldError};
use forkyard_protocol::inspector::Kind;
use forkyard_protocol::startup::files_of;
use serde_json::Value;
use std::path::{Path, PathBuf};

const PACKAGE: &str = "package.json";
const TOOLS: &str = "node_modules/.bin";
const SPECIAL: &[char] = &[
    '|', '&', ';', '<', '>', '(', ')', '$', '`', '\\', '"', '\'', '*', '?', '[', '#', '~', '%', '!', '{',
    '\n',
];

/// The files of an application.
pub(crate) trait Files {
    fn exists(&self, path: &Path) -> bool;

    /// # Errors
    /// The file can't be read.
    fn read(&self, path: &Path) -> Result<Vec<u8>, WorldError>;
}

impl Files for &dyn World {
    fn exists(&self, path: &Path) -> bool {
        World::exists(*self, path)
    }

    fn read(&self, path: &Path) -> Result<Vec<u8>, WorldError> {
        self.read_of_application(path)
    }
}

/// Why nothing starts a Node.js application.
#[derive(Debug, thiserror::Error)]
pub enum NoCommand {
    #[error("{}: {error}", file.display())]
    Unreadable { file: PathBuf, error: WorldError },
    #[error("{}: {error}", file.display())]
    Json { file: PathBuf, error: serde_json::Error },
    #[error("it has no package.json with a script \"start\", and none of {0}")]
    NotThere(String),
}

/// The command that starts the application in `root`.
///
/// # Errors
/// package.json is invalid, or nothing can be started.
pub(crate) fn start_command(root: &Path, files: &impl Files) -> Result<String, NoCommand> {
    let package = root.join(PACKAGE);
    if files.exists(&package) {
        let file = || package.clone();
        let unreadable = |error| NoCommand::Unreadable { file: file(), error };
        let bytes = files.read(&package).map_err(unreadable)?;
        let not_json = |error| NoCommand::Json { file: file(), error };
        let value: Value = serde_json::from_slice(&bytes).map_err(not_json)?;
        let script = value.pointer("/scripts/start").and_then(Value::as_str);
        if let Some(script) = script.map(str::trim).filter(|script| !script.is_empty()) {
            return Ok(of_script(script, root, files));
        }
    }
    let usual: Vec<&str> = files_of(Kind::Node).filter(|file| *file != PACKAGE).collect();
    let found = usual.iter().find(|file| files.exists(&root.join(file)));
    let command = found.map(|file| format!("node {file}"));
    command.ok_or_else(|| NoCommand::NotThere(usual.join(", ")))
}

/// The command of a package.json script. It runs after `exec`, so that there is one process; complex scripts get a
/// shell.
fn of_script(script: &str, root: &Path, files: &impl Files) -> String {
    let (first, rest) = script.split_once(char::is_whitespace).unwrap_or((script, ""));
    if script.contains(SPECIAL) || first.contains('=') {
        let tools = root.join(TOOLS);
        let script = format!(
            "PATH={}:$PATH; export PATH; {script}",
            quoted(&tools.to_string_lossy())
        );
        return format!("/bin/sh -c {}", quoted(&script));
    }
    if !first.contains('/') && files.exists(&root.join(TOOLS).join(first)) {
        return format!("{TOOLS}/{first} {rest}").trim_end().to_owned();
    }
    script.to_owned()
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}
