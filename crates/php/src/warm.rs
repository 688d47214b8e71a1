//! Warm-up: compiles the scripts in the old generation's OPcache for the new one before it serves.
//!
//! PHP does both in separate processes, which share OPcache's memory, so that a script that crashes PHP or takes too
//! long harms no worker.

use crate::ffi::Php;
use forkyard_config as config;
use forkyard_runtimes::php::protocol::{SCRIPTS_BYTES, WARM_TIMEOUT};
use forkyard_runtimes::php::settings::is_on;
use forkyard_sys::fd::pipe;
use forkyard_sys::process::{Side, exit_now, fork, fork_sibling, kill_if_orphaned, reap_soon, send_signal};
use forkyard_sys::socket::{Readiness, wait};
use forkyard_sys::{clock, signal};
use nix::sys::signal::Signal;
use std::ffi::{CString, OsStr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

/// The most time for naming scripts; a pool's own preloader does nothing else meanwhile.
pub(crate) const NAMING: Duration = Duration::from_secs(1);
/// The time limit of a process that writes the state of the caches, in seconds. The kernel then kills it.
pub(crate) const STATE_SECONDS: u32 = 2;
const END: Duration = Duration::from_millis(200);
const LONGEST_SCRIPT: u64 = 8 << 20;
const CRASHES: usize = 5;

pub(crate) fn is_code_cached(php: &Php) -> bool {
    let is_on = |name| php.ini(name).is_some_and(|value| is_on(&value));
    let preloads = php.ini(c"opcache.preload").is_some_and(|path| !path.is_empty());
    is_on(c"opcache.enable") && (preloads || !is_on(c"opcache.validate_timestamps"))
}

/// Writes the paths of the most-used scripts to a pipe, most used first, each followed by NUL.
pub(crate) fn name_scripts(php: &Php, most: u32, to: &OwnedFd) {
    if !php.begin_quiet() {
        return;
    }
    let mut scripts = php.scripts();
    scripts.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let mut names = Vec::new();
    for (mut path, _) in scripts.into_iter().take(most as usize) {
        path.push(0);
        if names.len() + path.len() > SCRIPTS_BYTES {
            break;
        }
        names.append(&mut path);
    }
    write_all(to, &names);
}

pub(crate) fn have_scripts_named(php: &Php, most: u32, to: &OwnedFd) {
    in_own_process(NAMING, |_| name_scripts(php, most, to));
}

/// Has another process write the state of the caches to a pipe, and does not wait for it; the master reaps it.
/// `is_in_request`: PHP serves a request, as in the preloader of an application that boots once.
pub(crate) fn have_state_written(php: &Php, to: &OwnedFd, is_in_request: bool) {
    // SAFETY: the process has one thread. The child uses PHP, which is ready as for a worker, and exits by _exit.
    match unsafe { fork_sibling() } {
        Ok(Side::Parent(_)) => {}
        Ok(Side::Child) => {
            signal::reset_in_child();
            kill_if_orphaned();
            nix::unistd::alarm::set(STATE_SECONDS);
            write_state(php, to, is_in_request);
            exit_now(0)
        }
        Err(error) => log::warn!("state of the caches: {error}"),
    }
}

pub(crate) fn write_state(php: &Php, to: &OwnedFd, is_in_request: bool) {
    write_all(to, &php.cache_state(is_in_request));
}

pub(crate) fn compile(php: &Php, from: &OwnedFd, config: &config::Php) {
    let mut names = Vec::new();
    if !read_to_end(from, WARM_TIMEOUT, SCRIPTS_BYTES, &mut names) {
        log::warn!("warm-up: the old workers' scripts were not named in time");
        return;
    }
    let may_run = |path: &[u8]| {
        let endings = &config.limit_extensions;
        endings.is_empty() || endings.iter().any(|ending| path.ends_with(ending.as_bytes()))
    };
    let is_script = |path: &[u8]| {
        let file = std::fs::metadata(OsStr::from_bytes(path));
        file.is_ok_and(|file| file.is_file() && file.len() <= LONGEST_SCRIPT)
    };
    let paths: Vec<CString> = names
        .split(|byte| *byte == 0)
        .filter(|path| path.starts_with(b"/") && may_run(path) && is_script(path))
        .take(config.warm_up as usize)
        .filter_map(|path| CString::new(path).ok())
        .collect();
    let begun = clock::now();
    let end = begun + config.warm_up_time;
    let (mut done, mut compiled) = (0, 0);
    for _ in 0..CRASHES {
        let left = end.since(clock::now());
        if done >= paths.len() || left.is_zero() {
            break;
        }
        let rest = &paths[done..];
        // The process writes one byte before each script and one with the result after it.
        let told = in_own_process(left, |writer| {
            if php.begin_quiet() {
                for path in rest {
                    write_all(writer, b"?");
                    let is_compiled = php.compile(path);
                    write_all(writer, if is_compiled { b"+" } else { b"-" });
                }
            }
        });
        compiled += told.bytes.iter().filter(|byte| **byte == b'+').count();
        let started = told.bytes.iter().filter(|byte| **byte == b'?').count();
        if started == 0 {
            break;
        }
        if told.bytes.last() == Some(&b'?') {
            let what = if told.is_late {
                "took too long"
            } else {
                "crashed PHP"
            };
            log::warn!("warm-up: compiling {:?} {what}", rest[started - 1]);
        }
        done += started;
    }
    log::debug!(
        "warm-up: {compiled} of {} scripts compiled in {} ms",
        paths.len(),
        clock::now().since(begun).as_millis()
    );
}

struct WarmUpOutput {
    bytes: Vec<u8>,
    is_late: bool,
}

fn in_own_process(limit: Duration, act: impl FnOnce(&OwnedFd)) -> WarmUpOutput {
    let mut told = WarmUpOutput {
        bytes: Vec::new(),
        is_late: false,
    };
    let (reader, writer) = match pipe(false) {
        Ok(ends) => ends,
        Err(error) => {
            log::warn!("warm-up: {error}");
            return told;
        }
    };
    // SAFETY: the process has one thread. The child uses PHP, which is ready as for a worker, and exits by _exit.
    let pid = match unsafe { fork() } {
        Ok(Side::Child) => {
            signal::reset_in_child();
            kill_if_orphaned();
            drop(reader);
            act(&writer);
            exit_now(0)
        }
        Ok(Side::Parent(pid)) => pid,
        Err(error) => {
            log::warn!("warm-up: {error}");
            return told;
        }
    };
    drop(writer);
    told.is_late = !read_to_end(&reader, limit, usize::MAX, &mut told.bytes);
    if told.is_late {
        let _ = send_signal(pid, Signal::SIGKILL);
    }
    reap_soon(pid, END);
    told
}

fn read_to_end(reader: &OwnedFd, limit: Duration, most: usize, bytes: &mut Vec<u8>) -> bool {
    let end = clock::now() + limit;
    let mut buffer = [0; 4096];
    loop {
        let left = end.since(clock::now());
        if left.is_zero() || !wait(reader.as_fd(), Readiness::Readable, left).unwrap_or(false) {
            return false;
        }
        if bytes.len() > most {
            return true;
        }
        match nix::unistd::read(reader, &mut buffer) {
            Ok(0) => return true,
            Ok(count) => bytes.extend_from_slice(&buffer[..count]),
            Err(nix::errno::Errno::EINTR) => {}
            Err(_) => return true,
        }
    }
}

fn write_all(writer: &OwnedFd, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        match nix::unistd::write(writer, bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(nix::errno::Errno::EINTR) => {}
            Err(_) => return,
        }
    }
}
