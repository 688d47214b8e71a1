//! Finds shims: files from packages, one per PHP version, and those built into this executable.

use forkyard_php_shim::SHIMS;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

const DIRECTORY: &str = "php";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shim {
    pub(crate) version: String,
    pub(crate) api: u32,
    pub(crate) object: Object,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Object {
    File(PathBuf),
    BuiltIn(&'static [u8]),
}

/// All shims, oldest version first. A file overrides the built-in shim of its version.
pub(crate) fn all() -> Vec<Shim> {
    let own = std::env::current_exe().ok();
    let directory = own
        .as_deref()
        .and_then(Path::parent)
        .map(|own| own.join(DIRECTORY));
    let mut shims = directory.map_or_else(Vec::new, |directory| files(&directory));
    for shim in SHIMS {
        if shims.iter().all(|file| file.version != shim.version) {
            shims.push(Shim {
                version: shim.version.to_owned(),
                api: shim.api,
                object: Object::BuiltIn(shim.object),
            });
        }
    }
    shims.sort_by_key(|shim| shim.api);
    shims
}

fn files(directory: &Path) -> Vec<Shim> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| named(entry.path())).collect()
}

/// Parses `8.2-20220829.so`, the name that build.rs gives it.
fn named(path: PathBuf) -> Option<Shim> {
    let name = path.file_name().and_then(OsStr::to_str)?;
    let (version, api) = name.strip_suffix(".so")?.split_once('-')?;
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let (major, minor) = version.split_once('.')?;
    Some(Shim {
        version: (is_number(major) && is_number(minor)).then(|| version.to_owned())?,
        api: api.parse().ok()?,
        object: Object::File(path),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_known_by_their_names() {
        let directory = tempfile::tempdir().expect("directory");
        for name in [
            "8.4-20240924.so",
            "8.2-20220829.so.dpkg-new",
            "8-20220829.so",
            "notes",
        ] {
            fs::write(directory.path().join(name), "").expect("file");
        }
        let path = directory.path().join("8.4-20240924.so");
        let shim = Shim {
            version: "8.4".to_owned(),
            api: 20_240_924,
            object: Object::File(path),
        };
        assert_eq!(files(directory.path()), [shim]);
        assert_eq!(files(Path::new("/nowhere")), []);
    }
}
