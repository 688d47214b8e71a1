//! Which files of the application have changed.
//!
//! No thread and no delay is between a saved file and the next answer: what is asked when a request comes has every change that was
//! made before the request.

use forkyard_sys::tree::{Change, Choice, Tree};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Directories that hold what others have written, what is generated, or what the application writes itself.
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
/// Endings of files that an application is made of. What it writes (databases, logs, uploads) has others.
const SOURCES: [&str; 36] = [
    "py", "pyi", "rb", "ru", "rake", "erb", "haml", "slim", "js", "mjs", "cjs", "ts", "mts", "cts", "jsx",
    "tsx", "json", "php", "phtml", "pl", "pm", "psgi", "cgi", "fcgi", "sh", "go", "lua", "html", "htm", "j2",
    "jinja", "jinja2", "toml", "yml", "yaml", "ini",
];
/// Files by their whole names.
const NAMED: [&str; 6] = [
    "Gemfile",
    "Gemfile.lock",
    "Rakefile",
    "Procfile",
    ".env",
    "requirements.txt",
];
/// Watches a directory and those below it.
pub(crate) struct Watch {
    root: PathBuf,
    tree: Tree<Sources>,
}

/// What an application is made of.
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
    pub(crate) fn new(root: &Path) -> Result<Watch, String> {
        let tree = Tree::new(vec![root.to_owned()], Sources).map_err(|errno| {
            format!("can't watch files: {errno}; is fs.inotify.max_user_instances reached?")
        })?;
        Ok(Watch {
            root: root.to_owned(),
            tree,
        })
    }

    /// Why some changes will not be noticed; once.
    pub(crate) fn take_trouble(&mut self) -> Option<String> {
        let (directory, errno) = self.tree.take_trouble()?;
        Some(format!(
            "changes below {} are not noticed: {errno}; raise fs.inotify.max_user_watches (sysctl), or move \
             other files out of the directory",
            directory.display()
        ))
    }

    /// A file that has changed since the last call, relative to the root.
    pub(crate) fn changed(&mut self) -> Option<PathBuf> {
        Some(match self.tree.changed()? {
            Change::File(path) => path.strip_prefix(&self.root).unwrap_or(&path).to_owned(),
            Change::Many => PathBuf::from("many files"),
        })
    }
}

/// Hidden directories hold what tools keep: .git, .venv, .idea.
fn is_ignored(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    name.starts_with('.') || IGNORED.contains(&&*name)
}

fn is_source(name: &OsStr) -> bool {
    let path = Path::new(name);
    let whole = name.to_string_lossy();
    // Editors' own files.
    if whole.starts_with(".#") || whole.ends_with('~') {
        return false;
    }
    if NAMED.contains(&&*whole) || whole.starts_with(".env.") {
        return true;
    }
    match path.extension() {
        Some(ending) => SOURCES.contains(&&*ending.to_string_lossy()),
        // A script; some editors try with a file of digits whether they can write.
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
        // A directory that is new is watched as well, and its files are a change.
        fs::create_dir_all(root.join("shop/models")).unwrap();
        assert_eq!(watch.changed(), None);
        fs::write(root.join("shop/models/a.rb"), "x").unwrap();
        assert_eq!(watch.changed(), Some(PathBuf::from("shop/models/a.rb")));
        // Most editors write another file and give it the name.
        fs::write(root.join("new~"), "x").unwrap();
        fs::rename(root.join("new~"), root.join("app.py")).unwrap();
        assert_eq!(watch.changed(), Some(PathBuf::from("app.py")));
        fs::remove_file(root.join("app.py")).unwrap();
        assert_eq!(watch.changed(), Some(PathBuf::from("app.py")));
    }
}
