//! Children that an application forks from a worker.

use forkyard_sys::fd::{self, File};
use forkyard_sys::process;
use forkyard_worker::{GenerationContext, WorkerContext};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// The worker's descriptors with their files, because a closed descriptor's number may be reused.
static DESCRIPTORS: Mutex<Vec<(RawFd, File)>> = Mutex::new(Vec::new());
static IS_CHILD: AtomicBool = AtomicBool::new(false);

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

/// Exits if this is a worker's child: it must not serve requests.
pub(super) fn end_child() {
    if IS_CHILD.load(Ordering::Relaxed) {
        process::exit_now(0);
    }
}

/// Replaces the worker's descriptors with /dev/null in an application's child.
#[unsafe(no_mangle)]
pub extern "C" fn forkyard_worker_leave() {
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
    // SAFETY: functions that use them exit in this process: end_child.
    let _ = unsafe { fd::replace_with_null(&kept) };
}
