//! Finds the program for a request and splits its path.

use crate::is_missing;
use fastcgi::Params;
use forkyard_worker::{RefusalCause, Unrun};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) script: PathBuf,
    pub(super) tail: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoTarget {
    #[error("the web server names no program: let it send SCRIPT_FILENAME, or set application.script")]
    Unnamed,
    #[error("{0} does not exist")]
    Missing(PathBuf),
    /// Not a regular file, or not executable by anyone.
    #[error("{0} is not an executable file: chmod +x it")]
    NotExecutable(PathBuf),
    /// Outside the pool's `root`, after resolving links.
    #[error("{0} lies outside application.root")]
    Outside(PathBuf),
    /// It leads out of the pool's release.
    #[error("{0} leads out of its release and release_shared")]
    LeadsOut(PathBuf),
    #[error("{0} can't be read: {1}")]
    Unreadable(PathBuf, io::ErrorKind),
}

impl NoTarget {
    pub(super) fn status(&self) -> &'static str {
        match self {
            NoTarget::Unnamed | NoTarget::Missing(_) => "404 Not Found",
            NoTarget::NotExecutable(_)
            | NoTarget::Outside(_)
            | NoTarget::LeadsOut(_)
            | NoTarget::Unreadable(..) => "403 Forbidden",
        }
    }

    pub(super) fn unrun(&self, params: &Params) -> Unrun {
        let param = |name: &str| params.get(name.as_bytes());
        let bytes = |path: &Path| path.as_os_str().as_bytes().to_vec();
        match self {
            NoTarget::Unnamed => {
                let uri = param("REQUEST_URI").or_else(|| param("SCRIPT_NAME"));
                Unrun::new(RefusalCause::Unnamed, uri.unwrap_or_default())
            }
            NoTarget::Missing(path) | NoTarget::Unreadable(path, _) => {
                Unrun::look(&bytes(path), param("DOCUMENT_ROOT"))
            }
            NoTarget::NotExecutable(path) => Unrun::new(RefusalCause::NotExecutable, &bytes(path)),
            NoTarget::Outside(path) | NoTarget::LeadsOut(path) => {
                Unrun::new(RefusalCause::Outside, &bytes(path))
            }
        }
    }
}

/// Finds the program.
///
/// `script` overrides the request. Otherwise the path is SCRIPT_FILENAME, or DOCUMENT_ROOT with SCRIPT_NAME. The
/// longest part of that path that exists is the program and the rest is its PATH_INFO. The program must be below
/// `root`.
pub(super) fn find(script: Option<&Path>, root: Option<&Path>, params: &Params) -> Result<Target, NoTarget> {
    if let Some(script) = script {
        check(script)?;
        return Ok(Target {
            script: script.to_owned(),
            tail: Vec::new(),
        });
    }
    let named = named(params).ok_or(NoTarget::Unnamed)?;
    let (script, tail) = existing_part(&named)?;
    if let Some(root) = root {
        let inside = script.canonicalize().map_err(|error| refused(&script, &error))?;
        let root = root.canonicalize().map_err(|error| refused(root, &error))?;
        if !inside.starts_with(&root) {
            return Err(NoTarget::Outside(script));
        }
    }
    check(&script)?;
    Ok(Target { script, tail })
}

fn named(params: &Params) -> Option<Vec<u8>> {
    let value = |name: &str| params.get(name.as_bytes()).filter(|value| !value.is_empty());
    if let Some(file) = value("SCRIPT_FILENAME") {
        return Some(file.to_vec());
    }
    let mut path = value("DOCUMENT_ROOT")?.to_vec();
    path.extend_from_slice(value("SCRIPT_NAME")?);
    Some(path)
}

fn existing_part(named: &[u8]) -> Result<(PathBuf, Vec<u8>), NoTarget> {
    let whole = || PathBuf::from(OsStr::from_bytes(named));
    if named.first() != Some(&b'/') || named.contains(&0) {
        return Err(NoTarget::Missing(whole()));
    }
    let mut end = named.len();
    loop {
        let path = Path::new(OsStr::from_bytes(&named[..end]));
        match path.symlink_metadata() {
            Ok(about) if about.is_dir() && end < named.len() => return Err(NoTarget::Missing(whole())),
            Ok(_) => return Ok((path.to_owned(), named[end..].to_vec())),
            Err(error) if is_missing(&error) => match named[..end].iter().rposition(|byte| *byte == b'/') {
                Some(slash) if slash > 0 => end = slash,
                _ => return Err(NoTarget::Missing(whole())),
            },
            Err(error) => return Err(refused(path, &error)),
        }
    }
}

fn check(script: &Path) -> Result<(), NoTarget> {
    let about = script.metadata().map_err(|error| refused(script, &error))?;
    if !about.is_file() || about.permissions().mode() & 0o111 == 0 {
        return Err(NoTarget::NotExecutable(script.to_owned()));
    }
    Ok(())
}

fn refused(path: &Path, error: &io::Error) -> NoTarget {
    match is_missing(error) {
        true => NoTarget::Missing(path.to_owned()),
        false => NoTarget::Unreadable(path.to_owned(), error.kind()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    struct Site(PathBuf);

    impl Site {
        fn new(name: &str) -> Site {
            let path = std::env::temp_dir().join(format!("forkyard-cgi-{}-{name}", std::process::id()));
            fs::create_dir_all(path.join("bin")).unwrap();
            let site = Site(path);
            site.put("bin/run.cgi", 0o755);
            site.put("bin/plain.txt", 0o644);
            site
        }

        fn put(&self, name: &str, mode: u32) {
            let path = self.0.join(name);
            fs::write(&path, "#!/bin/sh\n").unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }

        fn find(&self, file: &str) -> Result<Target, NoTarget> {
            let mut params = Params::new();
            let path = self.0.join(file);
            params.set(b"SCRIPT_FILENAME", path.as_os_str().as_bytes());
            find(None, Some(&self.0.join("bin")), &params)
        }
    }

    impl Drop for Site {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn the_longest_part_that_exists_is_the_program() {
        let site = Site::new("tail");
        let found = site.find("bin/run.cgi/a/b").unwrap();
        assert_eq!(found.script, site.0.join("bin/run.cgi"));
        assert_eq!(found.tail, b"/a/b");
        assert_eq!(site.find("bin/run.cgi").unwrap().tail, b"");
    }

    #[test]
    fn what_is_not_there_or_not_executable_is_refused() {
        let site = Site::new("refused");
        assert!(matches!(site.find("bin/other.cgi"), Err(NoTarget::Missing(_))));
        assert!(matches!(site.find("bin/run.cgi\0x"), Err(NoTarget::Missing(_))));
        assert!(matches!(
            site.find("bin/plain.txt"),
            Err(NoTarget::NotExecutable(_))
        ));
        assert!(matches!(site.find("bin"), Err(NoTarget::NotExecutable(_))));
    }

    #[test]
    fn a_link_does_not_lead_out_of_the_root() {
        let site = Site::new("link");
        site.put("outside.cgi", 0o755);
        std::os::unix::fs::symlink(site.0.join("outside.cgi"), site.0.join("bin/link.cgi")).unwrap();
        assert!(matches!(site.find("bin/link.cgi"), Err(NoTarget::Outside(_))));
        assert!(matches!(
            site.find("bin/../outside.cgi"),
            Err(NoTarget::Outside(_))
        ));
    }

    #[test]
    fn without_a_file_name_the_document_root_counts() {
        let site = Site::new("root");
        let mut params = Params::new();
        params.set(b"DOCUMENT_ROOT", site.0.as_os_str().as_bytes());
        params.set(b"SCRIPT_NAME", b"/bin/run.cgi/x");
        assert_eq!(find(None, Some(&site.0), &params).unwrap().tail, b"/x");
        assert_eq!(find(None, Some(&site.0), &Params::new()), Err(NoTarget::Unnamed));
    }
}
