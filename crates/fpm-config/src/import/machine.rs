//! The machine for an import, where the daemon will run as root and no file is created.

use crate::{Machine, OsFailure};
use forkyard_config::{UserIds, World, WorldError};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Pretends to be root and that every log is writable.
pub(super) struct Elsewhere<'m>(pub(super) &'m dyn Machine);

impl World for Elsewhere<'_> {
    fn is_root(&self) -> bool {
        true
    }

    fn is_dir(&self, path: &Path) -> bool {
        self.0.is_dir(path)
    }

    fn exists(&self, path: &Path) -> bool {
        self.0.exists(path)
    }

    fn user(&self, name: &str) -> Option<UserIds> {
        self.0.user(name)
    }

    fn user_by_id(&self, uid: u32) -> Option<UserIds> {
        self.0.user_by_id(uid)
    }

    fn group(&self, name: &str) -> Option<u32> {
        self.0.group(name)
    }

    fn env(&self, name: &str) -> Option<String> {
        self.0.env(name)
    }

    fn resolve(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, WorldError> {
        self.0.resolve(host, port)
    }

    fn files(&self, pattern: &Path) -> Result<Vec<PathBuf>, WorldError> {
        self.0.files(pattern)
    }

    fn read(&self, path: &Path) -> Result<Vec<u8>, WorldError> {
        self.0.read(path)
    }

    fn read_of_application(&self, path: &Path) -> Result<Vec<u8>, WorldError> {
        self.0.read_of_application(path)
    }
}

impl Machine for Elsewhere<'_> {
    fn read_file(&self, path: &Path) -> Result<Vec<u8>, OsFailure> {
        self.0.read_file(path)
    }

    fn php_version(&self, version: &str) -> Option<String> {
        self.0.php_version(version)
    }

    fn touch(&self, _: &Path) -> Result<(), OsFailure> {
        Ok(())
    }

    fn glob(&self, pattern: &str) -> Result<Vec<PathBuf>, i32> {
        self.0.glob(pattern)
    }
}
