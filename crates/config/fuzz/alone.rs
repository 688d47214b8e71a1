//! The machine of fuzz targets. `crates/fpm-config` has this file, too.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::{UserIds, World, WorldError};

pub(crate) const FILE: &str = "/etc/forkyard/f";

/// A machine with one file.
pub(crate) struct Alone<'f> {
    file: &'f [u8],
}

impl<'f> Alone<'f> {
    pub(crate) fn with(file: &'f [u8]) -> Alone<'f> {
        Alone { file }
    }
}

impl World for Alone<'_> {
    fn is_root(&self) -> bool {
        true
    }

    fn is_dir(&self, path: &Path) -> bool {
        ["/", "/run", "/srv/www", "/var/log", "/usr"]
            .iter()
            .any(|known| path == *known)
    }

    fn exists(&self, path: &Path) -> bool {
        self.is_dir(path) || path == Path::new("/usr/lib/libphp8.2.so") || path == Path::new(FILE)
    }

    fn user(&self, name: &str) -> Option<UserIds> {
        let known = [("root", 0), ("www-data", 33)]
            .iter()
            .find(|(known, _)| *known == name);
        known.map(|(_, id)| UserIds { uid: *id, gid: *id })
    }

    fn user_by_id(&self, uid: u32) -> Option<UserIds> {
        [0, 33].contains(&uid).then_some(UserIds { uid, gid: uid })
    }

    fn group(&self, name: &str) -> Option<u32> {
        self.user(name).map(|ids| ids.gid)
    }

    fn env(&self, name: &str) -> Option<String> {
        (name == "HOME").then(|| "/root".to_owned())
    }

    fn resolve(&self, _: &str, port: u16) -> Result<Vec<SocketAddr>, WorldError> {
        Ok(vec![SocketAddr::from(([127, 0, 0, 1], port))])
    }

    fn files(&self, pattern: &Path) -> Result<Vec<PathBuf>, WorldError> {
        let pattern = pattern.to_string_lossy();
        let is_it = match pattern.split_once('*') {
            Some((start, end)) => FILE.starts_with(start) && FILE.ends_with(end),
            None => pattern == FILE,
        };
        Ok(is_it.then(|| FILE.into()).into_iter().collect())
    }

    fn read(&self, path: &Path) -> Result<Vec<u8>, WorldError> {
        match path == Path::new(FILE) {
            true => Ok(self.file.to_vec()),
            false => Err(io::Error::from_raw_os_error(2).into()),
        }
    }
}
