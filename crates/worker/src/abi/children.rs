//! Children that an application forks from a worker by itself.

use crate::sys::fd::{self, File};
use crate::sys::process;
use crate::worker::{GenerationContext, WorkerContext};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// The descriptors of the worker that this process is, each with its file: the worker closes some, and their numbers
/// become other files.
static DESCRIPTORS: Mutex<Vec<(RawFd, File)>> = Mutex::new(Vec::new());
/// Whether this process is a worker's child.
static IS_CHILD: AtomicBool = AtomicBool::new(false);

/// Sets the descriptors of the worker that this process becomes.
pub(super) fn set_descriptors(context: &GenerationContext, own: &WorkerContext) {
    let mut descriptors = context.descriptors();
    descriptors.push(own.stop_pipe.as_raw_fd());
    descriptors.extend(own.channel.as_ref().map(AsRawFd::as_raw_fd));
    let files = descriptors
        .into_iter()
        .filter_map(|one| Some((one, File::of(one)?)));
    if let Ok(mut all) = DESCRIPTORS.lock() {
        *all = files.collect();
    }
}

/// Ends the process if it is a worker's child: a child serves no requests.
pub(super) fn end_child() {
    if IS_CHILD.load(Ordering::Relaxed) {
        process::exit_now(0);
    }
}

/// Gives up the worker's descriptors in a child that the application has forked.
#[unsafe(no_mangle)]
pub extern "C" fn forkyard_worker_leave() {
    // Another thread may have held the lock at the fork.
    let Ok(mut descriptors) = DESCRIPTORS.try_lock() else {
        return;
    };
    if descriptors.is_empty() {
        return;
    }
    IS_CHILD.store(true, Ordering::Relaxed);
    let kept = std::mem::take(&mut *descriptors).into_iter();
    let kept: Vec<RawFd> = kept
        .filter(|(one, file)| File::of(*one).as_ref() == Some(file))
        .map(|(one, _)| one)
        .collect();
    // SAFETY: the functions that use them end this process instead: end_child.
    let _ = unsafe { fd::replace_with_null(&kept) };
}
