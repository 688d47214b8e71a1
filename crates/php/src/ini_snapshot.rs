//! Starts PHP with the settings files that the master remembered. PHP reads php.ini from memory and the other files as
//! additional lines; scripts see the real paths.

use crate::ffi::IniNames;
use crate::preloader::Error;
use forkyard_runtimes::php::ini_snapshot::{IniFile, IniFiles, MOST_JSON_BYTES, OPTION};
use forkyard_runtimes::preloader;
use forkyard_sys::{fd, memfile};
use std::ffi::{CString, OsStr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::ptr;

/// Ends a section of php.ini, because each file starts outside of sections.
const OUTSIDE_SECTIONS: &[u8] = b"\n[PHP]\n";

pub(crate) fn inherited() -> Result<Option<IniFiles>, Error> {
    if std::env::args().nth(1).as_deref() != Some(OPTION) {
        return Ok(None);
    }
    // SAFETY: the option promises this descriptor, and nothing else has taken it.
    let file = unsafe { fd::adopt(forkyard_runtimes::SCRIPT) };
    let json = memfile::read(file.as_fd(), MOST_JSON_BYTES)?;
    let files = serde_json::from_slice(&json).map(Some);
    files.map_err(|error| Error::Preloader(preloader::Error::Line(error)))
}

pub(crate) struct Feed {
    file: OwnedFd,
    pub(crate) lines: Vec<u8>,
    php_ini: Option<CString>,
    scanned: Option<CString>,
    directories: Option<CString>,
}

impl Feed {
    pub(crate) fn new(files: &IniFiles, directories: Option<&OsStr>) -> Result<Feed, Error> {
        let text = files.php_ini.as_ref().map_or(&[][..], |file| &file.text);
        let mut lines = Vec::new();
        for file in &files.scanned {
            lines.extend_from_slice(OUTSIDE_SECTIONS);
            lines.extend(file.text.iter().take_while(|byte| **byte != 0));
        }
        if !lines.is_empty() {
            lines.extend_from_slice(OUTSIDE_SECTIONS);
        }
        let path = |file: &IniFile| file.path.as_os_str().as_bytes().to_vec();
        let scanned = files
            .scanned
            .iter()
            .map(path)
            .collect::<Vec<_>>()
            .join(&b",\n"[..]);
        let name = |bytes: Vec<u8>| CString::new(bytes).map_err(|_| Error::Setting("php_ini".to_owned()));
        Ok(Feed {
            file: memfile::sealed("php.ini", text)?,
            lines,
            php_ini: files.php_ini.as_ref().map(|file| name(path(file))).transpose()?,
            scanned: (!files.scanned.is_empty())
                .then(|| name([scanned, b"\n".to_vec()].concat()))
                .transpose()?,
            directories: directories
                .map(|list| name(list.as_bytes().to_vec()))
                .transpose()?,
        })
    }

    pub(crate) fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.file.as_raw_fd())
    }

    pub(crate) fn names(&self) -> IniNames {
        let pointer = |name: &Option<CString>| name.as_ref().map_or(ptr::null(), |name| name.as_ptr());
        IniNames {
            php_ini: pointer(&self.php_ini),
            directories: pointer(&self.directories),
            scanned: pointer(&self.scanned),
        }
    }
}
