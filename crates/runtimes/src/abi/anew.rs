//! Re-executes the interpreter if the application left connections open, so that each worker loads the application
//! itself. The process, its channel to the master and unread commands stay.

use super::preloader::CPreloader;
use crate::SCRIPT;
use crate::php::protocol::SOCKET;
use crate::preloader::{Error, Preloader, Socket, left_open};
use crate::wrapped::SETTLED;
use forkyard_config::{Interface, Preload};
use forkyard_spawn::setupper;
use forkyard_sys::process::replace_plainly;
use forkyard_sys::{self as sys, fd, memfile, signal};
use forkyard_worker::Settings;
use serde::{Deserialize, Serialize};
use std::ffi::{OsString, c_char};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::sync::Arc;

pub(super) const VARIABLE: &str = "FORKYARD_ANEW";
const TITLE_ROOM_BYTES: usize = 96;
const MOST_BYTES: usize = 64 << 20;

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Inheritance {
    settings: Settings,
    descriptors: Vec<RawFd>,
    pub(super) connected_to: String,
}

impl Inheritance {
    pub(super) fn take() -> Option<Inheritance> {
        let number: RawFd = std::env::var(VARIABLE).ok()?.parse().ok()?;
        if number <= SCRIPT {
            return None;
        }
        // SAFETY: only borrowed for one call, which fails for a descriptor that is not open.
        fd::set_close_on_exec(unsafe { BorrowedFd::borrow_raw(number) }, true).ok()?;
        // SAFETY: it is open, and the previous program left it to this one alone.
        let file = unsafe { fd::adopt(number) };
        serde_json::from_slice(&memfile::read(file.as_fd(), MOST_BYTES).ok()?).ok()
    }

    pub(super) fn begin(self, socket: Socket) -> Result<Preloader, Error> {
        let descriptors: sys::Result<Vec<OwnedFd>> =
            self.descriptors.into_iter().map(fd::adopt_passed).collect();
        Preloader::begin_anew(socket, self.settings, descriptors?)
    }
}

/// Checks for connections before the first fork. If there are any, re-executes the interpreter; returns otherwise, or
/// if that fails.
///
/// # Safety
/// See `forkyard.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkyard_preloader_renew(
    preloader: *mut CPreloader,
    library: *const c_char,
    length: usize,
) {
    // SAFETY: the header's contract.
    let (preloader, library) = unsafe { (&mut *preloader, super::bytes(library.cast(), length)) };
    let Some(wrapped) = preloader.preloader.settings.pool.application.wrapped() else {
        return;
    };
    if wrapped.preload != Preload::Auto {
        return;
    }
    let servers = left_open();
    if servers.is_empty() {
        return;
    }
    let servers: Vec<String> = servers.into_iter().collect();
    let servers = servers.join(", ");
    let module = match wrapped.interface {
        Interface::Wsgi | Interface::Asgi => "forkyard",
        Interface::Rack => "Forkyard",
    };
    let found = format!(
        "the application has left connections open while it was loaded, which workers would share: {servers}"
    );
    let remedy = format!(
        "Connect in a function for {module}.after_fork, or close them in one for {module}.before_fork"
    );
    if !preloader.is_settled {
        return log::warn!("{found}. They do share them. {remedy}, or write preload = false");
    }
    log::warn!("{found}. Each worker loads it instead. {remedy}, or write preload = false");
    let library = OsString::from_vec(library.to_vec());
    let (Ok(error) | Err(error)) = try_to_become(preloader, &wrapped.interpreter_now(), library, servers);
    signal::ignore_pipe();
    log::warn!("the workers share them: {error}");
}

fn try_to_become(
    preloader: &CPreloader,
    interpreter: &Path,
    library: OsString,
    connected_to: String,
) -> sys::Result<sys::Error> {
    let mut settings = preloader.preloader.settings.clone();
    settings.refork_at = None;
    Arc::make_mut(&mut settings.pool).application.load_in_workers();
    let descriptors = preloader.preloader.descriptors();
    let left = Inheritance {
        settings,
        descriptors: descriptors.clone(),
        connected_to,
    };
    let text = serde_json::to_vec(&left).unwrap_or_default();
    let file = memfile::sealed("forkyard-anew", &text)?;
    let mut kept = descriptors;
    kept.extend([SOCKET, SCRIPT, file.as_raw_fd()]);
    fd::pass_on_only(&kept)?;
    let is_of_start =
        |name: &OsString| setupper::mark().is_some_and(|(mark, _)| mark == *name) || name == VARIABLE;
    let mut environment = preloader.environment.clone();
    environment.retain(|(name, _)| !is_of_start(name) && name != SETTLED);
    environment.push((SETTLED.into(), "1".into()));
    environment.push((VARIABLE.into(), file.as_raw_fd().to_string().into()));
    let script = format!("/proc/self/fd/{SCRIPT}");
    let arguments = [script.into(), library, " ".repeat(TITLE_ROOM_BYTES).into()];
    Ok(replace_plainly(interpreter, &arguments, &environment))
}
