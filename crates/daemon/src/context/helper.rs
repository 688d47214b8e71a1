//! Starts helpers: a fresh execution of `forkyard` without this process's memory.

use super::services::Services;
use crate::context::InForce;
use crate::roles::{COMMAND, DOCUMENT, FIRST, HelperStart, Role};
use forkyard_config::OWN_USER;
use forkyard_sys::identity::{self, Identity};
use forkyard_sys::process::{self, Program};
use forkyard_sys::{Error, memfile};
use nix::errno::Errno;
use serde::Serialize;
use std::ffi::OsString;
use std::os::fd::{OwnedFd, RawFd};
use std::path::{Path, PathBuf};

const PROGRAM: &str = "forkyard";
const TITLE_ROOM_BYTES: usize = 96;

pub(crate) fn program(directory: &Path) -> PathBuf {
    directory.join(PROGRAM)
}

impl Services {
    pub(crate) fn start_helper(
        &self,
        in_force: &InForce,
        title: String,
        role: Role,
        descriptors: Vec<OwnedFd>,
        environment: Vec<(OsString, OsString)>,
    ) -> Result<i32, Error> {
        let start = HelperStart {
            title: title.clone(),
            descriptors: descriptors.len(),
            log_level: in_force.config.global.log_level,
            role,
        };
        self.start_program(PROGRAM, &title, &start, descriptors, environment)
    }

    pub(crate) fn start_program(
        &self,
        name: &str,
        title: &str,
        start: &impl Serialize,
        descriptors: Vec<OwnedFd>,
        environment: Vec<(OsString, OsString)>,
    ) -> Result<i32, Error> {
        let document = serde_json::to_vec(start)
            .map_err(|error| Error::new("start", error.to_string(), Errno::EINVAL))?;
        let mut passed = vec![(memfile::sealed("forkyard-helper", &document)?, DOCUMENT)];
        passed.extend(descriptors.into_iter().zip(FIRST as RawFd..));
        let arguments = [title, COMMAND, &" ".repeat(TITLE_ROOM_BYTES)];
        let path = self.libexec.join(name);
        process::start(&Program::new(&path, arguments, environment, passed))
    }
}

/// The helpers' own user, if it exists and this process can switch to it: no application can stop them.
pub(crate) fn own_user() -> Option<Identity> {
    match identity::is_root() {
        true => Identity::look_up(OWN_USER, None).ok(),
        false => None,
    }
}

pub(crate) fn zone() -> Vec<(OsString, OsString)> {
    let zone = std::env::var_os("TZ");
    zone.map(|zone| ("TZ".into(), zone)).into_iter().collect()
}
