//! Checks that scripts are inside their root.

use forkyard_sys::file::existing_file;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The root that a pool's scripts must be below.
#[derive(Debug, Clone)]
pub struct Within {
    root: PathBuf,
    /// Parameters that name the root, which may be a link that now points elsewhere. The first one in a request counts,
    /// as for the router.
    names: Vec<String>,
}

impl Within {
    /// Allows scripts below `root`, or below the directory in the first of these parameters that a request has.
    pub fn new(root: &Path, names: &[String]) -> Within {
        Within {
            root: root.canonicalize().unwrap_or_else(|_| root.to_owned()),
            names: names.to_vec(),
        }
    }

    /// Whether a path, after resolving links, is a file outside the root. If it is not a file, its longest existing
    /// part is checked.
    pub fn excludes<'p>(&self, path: &[u8], param: impl Fn(&str) -> Option<&'p [u8]>) -> bool {
        let Some(real) = existing_file(Path::new(OsStr::from_bytes(path))) else {
            return false;
        };
        let said = |name: &String| param(name).filter(|value| !value.is_empty());
        let named = self.names.iter().find_map(said);
        let named = named.filter(|value| value.first() == Some(&b'/'));
        let named = named.and_then(|value| Path::new(OsStr::from_bytes(value)).canonicalize().ok());
        let is_named = named.is_some_and(|named| named.parent().is_some() && real.starts_with(named));
        !real.starts_with(&self.root) && !is_named
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_and_dots_lead_nowhere_else() {
        let directory = tempfile::tempdir().unwrap();
        let base = directory.path().canonicalize().unwrap();
        for name in ["one/public", "two"] {
            fs::create_dir_all(base.join(name)).unwrap();
            fs::write(base.join(name).join("index.php"), "").unwrap();
        }
        symlink(base.join("two/index.php"), base.join("one/link.php")).unwrap();
        symlink("one", base.join("current")).unwrap();
        let within = Within::new(&base.join("current"), &["ROOT".to_owned()]);
        let excludes = |path: &str, root: Option<&str>| {
            let root = root.map(|root| base.join(root).into_os_string());
            within.excludes(base.join(path).as_os_str().as_bytes(), |_| {
                root.as_ref().map(|root| root.as_bytes())
            })
        };
        for right in [
            "one/public/index.php",
            "current/public/index.php",
            "one/public/index.php/rest",
        ] {
            assert!(!excludes(right, None), "{right}");
        }
        for wrong in [
            "two/index.php",
            "one/link.php",
            "one/../two/index.php",
            "two/index.php/rest",
        ] {
            assert!(excludes(wrong, None) && excludes(wrong, Some("one")), "{wrong}");
        }
        for nothing in ["one/none.php", "two/none.php", "two"] {
            assert!(!excludes(nothing, None), "{nothing}");
        }
        fs::remove_file(base.join("current")).unwrap();
        symlink("two", base.join("current")).unwrap();
        assert!(!excludes("current/index.php", Some("current")) && excludes("current/index.php", None));
        assert!(within.excludes(b"/bin/sh", |_| Some(b"/")));
    }

    #[test]
    fn a_second_name_of_the_root_does_not_count() {
        let directory = tempfile::tempdir().unwrap();
        let base = directory.path().canonicalize().unwrap();
        for name in ["one", "two"] {
            fs::create_dir(base.join(name)).unwrap();
            fs::write(base.join(name).join("index.php"), "").unwrap();
        }
        let within = Within::new(&base.join("one"), &["ROOT".to_owned(), "APP_ROOT".to_owned()]);
        let [one, two] = ["one", "two"].map(|name| base.join(name).into_os_string());
        let excludes = |first: &[u8]| {
            within.excludes(base.join("two/index.php").as_os_str().as_bytes(), |name| {
                Some(if name == "ROOT" {
                    first.to_vec().leak()
                } else {
                    two.as_bytes()
                })
            })
        };
        assert!(excludes(one.as_bytes()), "the router went by the first");
        assert!(!excludes(b""), "an empty one is none, as for the router");
    }
}
