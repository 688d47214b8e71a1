//! Implements [`Machine`] for the real machine.

use super::machine::{Machine, OsFailure};
use forkyard_config::{Host, World, WorldError, open_at_once};
use forkyard_sys::file::open_log;
use nix::errno::Errno;
use std::fs;
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

const MARK: &[u8] = b"X-Powered-By: PHP/";
/// glob(3)'s GLOB_ABORTED: an unreadable directory.
const ABORTED: i32 = 2;

impl Machine for Host {
    fn read_file(&self, path: &Path) -> Result<Vec<u8>, OsFailure> {
        let mut bytes = Vec::new();
        let read = open_at_once(path).and_then(|mut file| Ok(file.read_to_end(&mut bytes)?));
        match read {
            Ok(_) => Ok(bytes),
            // php-fpm reads a directory as an empty file.
            Err(WorldError::System(error)) if error.kind() == io::ErrorKind::IsADirectory => Ok(Vec::new()),
            Err(WorldError::System(error)) => Err(failure(&error)),
            Err(error) => Err(OsFailure {
                text: error.to_string(),
                code: None,
            }),
        }
    }

    fn php_version(&self, version: &str) -> Option<String> {
        let arch = format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
        let library = format!("libphp{version}.so");
        let directories = ["/usr/lib", arch.as_str(), "/usr/lib64", "/usr/local/lib"];
        let path = directories
            .iter()
            .map(|directory| Path::new(directory).join(&library))
            .find(|path| path.exists())?;
        release_of(&path)
    }

    fn touch(&self, path: &Path) -> Result<(), OsFailure> {
        open_log(path).map(drop).map_err(|error| failure(&error))
    }

    fn glob(&self, pattern: &str) -> Result<Vec<PathBuf>, i32> {
        let directory = literal_part(Path::new(pattern));
        if directory.as_os_str() != pattern && fs::read_dir(&directory).is_err() {
            return Err(ABORTED);
        }
        let mut found = self.files(Path::new(pattern)).map_err(|_| ABORTED)?;
        // Directories match too and are skipped later.
        if Path::new(pattern).is_dir() {
            found.push(PathBuf::from(pattern));
        }
        Ok(found)
    }
}

/// The release in a libphp's constants, such as `8.2.35`. Reads the whole file.
pub fn release_of(library: &Path) -> Option<String> {
    let bytes = fs::read(library).ok()?;
    let at = bytes.windows(MARK.len()).position(|part| part == MARK)? + MARK.len();
    let version = bytes[at..].iter().take_while(|byte| **byte != 0).copied();
    String::from_utf8(version.collect()).ok()
}

fn failure(error: &io::Error) -> OsFailure {
    let code = error.raw_os_error();
    OsFailure {
        text: match code {
            Some(code) => Errno::from_raw(code).desc().to_owned(),
            None => error.to_string(),
        },
        code,
    }
}

fn literal_part(pattern: &Path) -> PathBuf {
    let is_literal = |component: &Component<'_>| {
        let part = component.as_os_str().to_string_lossy();
        !part.contains(['*', '?', '['])
    };
    pattern.components().take_while(is_literal).collect()
}
