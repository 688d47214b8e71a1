//! Detects changed files of the application.
//!
//! It has no thread and no delay: a check at the start of a request finds all earlier changes.

use forkyard_sys::tree::{Change, Choice, Tree};
use nix::errno::Errno;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Directories with dependencies, generated files, or the application's own output.
const IGNORED: [&str; 14] = [
    "node_modules",
    "bower_components",
    "venv",
    "env",
    "__pycache__",
    "tmp",
    "temp",
    "log",
    "logs",
    "cache",
    "var",
    "storage",
    "vendor",
    "coverage",
];
const SOURCES: [&str; 36] = [
    "py", "pyi", "rb", "ru", "rake", "erb", "haml", "slim", "js", "mjs", "cjs", "ts", "mts", "cts", "jsx",
    "tsx", "json", "php", "phtml", "pl", "pm", "psgi", "cgi", "fcgi", "sh", "go", "lua", "html", "htm", "j2",
    "jinja", "jinja2", "toml", "yml", "yaml", "ini",
];
const NAMED: [&str; 6] = [
    "Gemfile",
    "Gemfile.lock",
    "Rakefile",
    "Procfile",
    ".env",
    "requirements.txt",
];
pub(crate) struct Watch {
    root: PathBuf,
    tree: Tree<Sources>,
}

struct Sources;

impl Choice for Sources {
    fn enters(&self, directory: &Path) -> bool {
        directory.file_name().is_some_and(|name| !is_ignored(name))
    }

    fn counts(&self, file: &Path) -> bool {
        file.file_name().is_some_and(is_source)
    }
}

impl Watch {
    pub(crate) fn new(root: &Path) -> Result<Watch, Errno> {
        Ok(Watch {
            root: root.to_owned(),
            tree: Tree::new(vec![root.to_owned()], Sources)?,
        })
    }

    pub(crate) fn take_trouble(&mut self) -> Option<String> {
        let (directory, errno) = self.tree.take_trouble()?;
        Some(format!(
            "changes below {} are not noticed: {errno}; raise fs.inotify.max_user_watches (sysctl), or move \
             other files out of the directory",
            directory.display()
        ))
    }

    pub(crate) fn changed(&mut self) -> Option<PathBuf> {
        Some(match self.tree.changed()? {
            Change::File(path) => path.strip_prefix(&self.root).unwrap_or(&path).to_owned(),
            Change::Many => PathBuf::from("many files"),
        })
    }
}

/// Hidden directories belong to tools: .git, .venv, .idea.
fn is_ignored(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    name.starts_with('.') || IGNORED.contains(&&*name)
}

fn is_source(name: &OsStr) -> bool {
    let path = Path::new(name);
    let whole = name.to_string_lossy();
    if whole.starts_with(".#") || whole.ends_with('~') {
        return false;
    }
    if NAMED.contains(&&*whole) || whole.starts_with(".env.") {
        return true;
    }
    match path.extension() {
        Some(ending) => SOURCES.contains(&&*ending.to_string_lossy()),
        // A script; some editors test write access with a file named in digits.
        None => !whole.starts_with('.') && !whole.bytes().all(|byte| byte.is_ascii_digit()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_change_is_seen_at_once_and_what_the_application_writes_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        for directory in ["shop/views", "node_modules/x", ".git", "tmp", "log"] {
            fs::create_dir_all(root.join(directory)).unwrap();
        }
        let mut watch = Watch::new(root).unwrap();
        for (file, seen) in [
            ("app.py", true),
            ("shop/views/a.html", true),
            ("Gemfile", true),
            (".env", true),
            ("bin-serve", true),
            ("db.sqlite3", false),
            ("production.log", false),
            ("app.py~", false),
            (".app.py.swp", false),
            ("4913", false),
            ("node_modules/x/index.js", false),
            (".git/config.toml", false),
            ("tmp/a.py", false),
        ] {
            fs::write(root.join(file), "x").unwrap();
            assert_eq!(watch.changed().is_some(), seen, "{file}");
            assert_eq!(watch.changed(), None);
        }
        fs::create_dir_all(root.join("shop/models")).unwrap();
        assert_eq!(watch.changed(), None);
        fs::write(root.join("shop/models/a.rb"), "x").unwrap();
        assert_eq!(watch.changed(), Some(PathBuf::from("shop/models/a.rb")));
        fs::write(root.join("new~"), "x").unwrap();
        fs::rename(root.join("new~"), root.join("app.py")).unwrap();
        assert_eq!(watch.changed(), Some(PathBuf::from("app.py")));
        fs::remove_file(root.join("app.py")).unwrap();
        assert_eq!(watch.changed(), Some(PathBuf::from("app.py")));
    }
}
