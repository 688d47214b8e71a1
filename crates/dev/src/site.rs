//! Maps a request's path to a file, a script or the application.

use crate::subject::{Subject, What};
use forkyard_base::text::percent_decoded;
use forkyard_protocol::runtimes::Paths;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const INDEXES: [&str; 3] = ["index.php", "index.html", "index.htm"];

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Target {
    File(PathBuf),
    Directory,
    Script {
        file: PathBuf,
        name: String,
        info: String,
    },
    Application,
    Missing,
    /// A link to a file outside the application's directory.
    Outside(PathBuf),
}

/// Decodes a URL's path and resolves `.` and `..`; `None`: invalid.
pub(crate) fn decoded(path: &str) -> Option<String> {
    let text = String::from_utf8(percent_decoded(path.as_bytes())?).ok()?;
    if !text.starts_with('/') || text.contains('\0') {
        return None;
    }
    let mut parts = Vec::new();
    for part in text.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    let mut whole = format!("/{}", parts.join("/"));
    if whole != "/" && text.ends_with(['/', '.']) && (text.ends_with('/') || text.ends_with("/.")) {
        whole.push('/');
    }
    Some(whole)
}

pub(crate) fn target(subject: &Subject, path: &str, is_reading: bool) -> Target {
    let found = named(subject, path, is_reading);
    let (Target::File(file) | Target::Script { file, .. }) = &found else {
        return found;
    };
    match file.canonicalize() {
        Ok(real) => match real.strip_prefix(&subject.root) {
            Ok(below) if is_hidden(&below.to_string_lossy()) => Target::Missing,
            Ok(_) => found,
            Err(_) => Target::Outside(real),
        },
        Err(_) => Target::Missing,
    }
}

fn named(subject: &Subject, path: &str, is_reading: bool) -> Target {
    let What::Application {
        kind, is_one_program, ..
    } = &subject.what
    else {
        return scripts(&subject.root, path, true);
    };
    match (kind.traits().paths, &subject.documents) {
        (Paths::Scripts, Some(documents)) => scripts(documents, path, true),
        (Paths::Programs, _) if !is_one_program => scripts(&subject.root, path, false),
        (_, Some(documents)) if is_reading && !is_hidden(path) => {
            let file = documents.join(path.trim_start_matches('/'));
            match file.is_file() {
                true => Target::File(file),
                false => Target::Application,
            }
        }
        _ => Target::Application,
    }
}

/// Files whose names start with a dot are not served.
fn is_hidden(path: &str) -> bool {
    let mut parts = path.split('/');
    parts.any(|part| part.starts_with('.') && part != ".well-known")
}

/// The script or file that a path names. For PHP, as in `php -S`, it falls back to the nearest parent's index.php.
fn scripts(documents: &Path, path: &str, is_php: bool) -> Target {
    if is_hidden(path) {
        return Target::Missing;
    }
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let mut at = documents.to_owned();
    for (index, part) in parts.iter().enumerate() {
        at.push(part);
        if at.is_file() {
            let name = format!("/{}", parts[..=index].join("/"));
            let info = path[name.len().min(path.len())..].to_owned();
            let is_script = match is_php {
                true => at.extension().is_some_and(|ending| ending == "php"),
                false => at.metadata().is_ok_and(|it| it.permissions().mode() & 0o111 != 0),
            };
            return match (is_script, info.is_empty()) {
                (true, _) => Target::Script { file: at, name, info },
                // Never show the source of a program that is not executable.
                (false, true) if is_php => Target::File(at),
                _ => Target::Missing,
            };
        }
        if !at.is_dir() {
            at.pop();
            return match is_php {
                true => nearest(documents, &at, path),
                false => Target::Missing,
            };
        }
    }
    if !is_php {
        return Target::Missing;
    }
    let index = INDEXES
        .iter()
        .map(|name| at.join(name))
        .find(|file| file.is_file());
    match index {
        Some(_) if !path.ends_with('/') => Target::Directory,
        Some(file) if file.extension().is_some_and(|ending| ending == "php") => {
            let name = format!("{path}index.php");
            let info = String::new();
            Target::Script { file, name, info }
        }
        Some(file) => Target::File(file),
        None => nearest(documents, &at, path),
    }
}

fn nearest(documents: &Path, from: &Path, path: &str) -> Target {
    // As in `php -S`, a name with an extension is a missing file.
    let last = path.rsplit('/').next().unwrap_or_default();
    let has_ending = last.contains('.') && !last.ends_with(".php");
    let above = from.ancestors().take_while(|it| it.starts_with(documents));
    let mut found = above.map(|it| it.join("index.php")).filter(|file| file.is_file());
    match found.next() {
        Some(file) if !has_ending => {
            let below = file.strip_prefix(documents).unwrap_or(&file);
            let name = format!("/{}", below.display());
            let info = path.to_owned();
            Target::Script { file, name, info }
        }
        _ => Target::Missing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn paths_are_decoded_and_lead_nowhere_else() {
        for (path, meant) in [
            ("/", Some("/")),
            ("/a%20b/c", Some("/a b/c")),
            ("//a///b/", Some("/a/b/")),
            ("/a/./b/.", Some("/a/b/")),
            ("/a/../b", Some("/b")),
            ("/..", None),
            ("/%2e%2e/etc/passwd", None),
            ("/a%00", None),
            ("/%zz", None),
            ("/%4", None),
            ("*", None),
            ("/%ff", None),
        ] {
            assert_eq!(decoded(path).as_deref(), meant, "{path}");
        }
    }

    fn script(file: &Path, name: &str, info: &str) -> Target {
        Target::Script {
            file: file.to_owned(),
            name: name.to_owned(),
            info: info.to_owned(),
        }
    }

    #[test]
    fn a_directory_of_php_has_scripts_files_and_a_front() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("blog")).unwrap();
        fs::create_dir_all(root.join("empty")).unwrap();
        for file in [
            "index.php",
            "about.html",
            "blog/index.php",
            "blog/post.php",
            ".htpasswd",
        ] {
            fs::write(root.join(file), "").unwrap();
        }
        let subject = Subject {
            root: root.clone(),
            documents: Some(root.clone()),
            what: What::Documents,
        };
        let index = root.join("index.php");
        let blog = root.join("blog/index.php");
        for (path, meant) in [
            ("/", script(&index, "/index.php", "")),
            ("/about.html", Target::File(root.join("about.html"))),
            ("/about.html/x", Target::Missing),
            ("/blog", Target::Directory),
            ("/blog/", script(&blog, "/blog/index.php", "")),
            (
                "/blog/post.php/7",
                script(&root.join("blog/post.php"), "/blog/post.php", "/7"),
            ),
            ("/blog/2026/", script(&blog, "/blog/index.php", "/blog/2026/")),
            ("/empty/", script(&index, "/index.php", "/empty/")),
            ("/cart", script(&index, "/index.php", "/cart")),
            ("/missing.css", Target::Missing),
            ("/.htpasswd", Target::Missing),
            ("/.git/config", Target::Missing),
        ] {
            assert_eq!(target(&subject, path, true), meant, "{path}");
        }
    }

    #[test]
    fn links_stay_in_the_application_s_directory() {
        use std::os::unix::fs::symlink;
        let directory = tempfile::tempdir().unwrap();
        let top = directory.path().canonicalize().unwrap();
        let root = top.join("shop");
        fs::create_dir_all(root.join("public")).unwrap();
        fs::create_dir_all(root.join("storage")).unwrap();
        fs::create_dir_all(top.join("secrets")).unwrap();
        for file in [
            "shop/storage/a.png",
            "shop/.env",
            "secrets/b.png",
            "secrets/c.php",
        ] {
            fs::write(top.join(file), "").unwrap();
        }
        for (to, name) in [
            ("storage", "storage"),
            (".env", "env.txt"),
            ("../secrets", "secrets"),
            ("../secrets/b.png", "b.png"),
        ] {
            symlink(root.join(to), root.join("public").join(name)).unwrap();
        }
        for (file, kind) in [("public/index.php", "php"), ("wsgi.py", "python")] {
            fs::write(root.join(file), "").unwrap();
            let subject = crate::subject::inspect(&root).unwrap();
            let own = Target::File(root.join("public/storage/a.png"));
            assert_eq!(target(&subject, "/storage/a.png", true), own, "{kind}");
            assert_eq!(target(&subject, "/env.txt", true), Target::Missing, "{kind}");
            for path in ["/b.png", "/secrets/b.png"] {
                let there = Target::Outside(top.join("secrets/b.png"));
                assert_eq!(target(&subject, path, true), there, "{kind} {path}");
            }
            if kind == "php" {
                let there = Target::Outside(top.join("secrets/c.php"));
                assert_eq!(target(&subject, "/secrets/c.php", true), there);
            }
        }
    }

    #[test]
    fn an_application_has_its_public_files_and_all_else() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("public/css")).unwrap();
        fs::write(root.join("public/css/a.css"), "").unwrap();
        fs::write(root.join("wsgi.py"), "").unwrap();
        let subject = crate::subject::inspect(&root).unwrap();
        let css = Target::File(root.join("public/css/a.css"));
        assert_eq!(target(&subject, "/css/a.css", true), css);
        assert_eq!(target(&subject, "/css/a.css", false), Target::Application);
        for path in ["/", "/css/", "/wsgi.py", "/css/b.css"] {
            assert_eq!(target(&subject, path, true), Target::Application, "{path}");
        }
    }
}
