//! Looks at processes, with the rights of this program's user.

mod evidence;
pub(crate) mod observer;

use crate::readings::Schedule;
use crate::why::kernel_text;
use std::fs;

/// The most threads of a process whose times are read.
const MOST_THREADS: usize = 64;

/// Reads how long a process's threads ran and stood in the run queue; `None` if it is gone or hidden.
pub(super) fn schedule(pid: i32) -> Option<Schedule> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let mut sum: Option<Schedule> = None;
    for thread in threads.flatten().take(MOST_THREADS) {
        let text = fs::read_to_string(thread.path().join("schedstat"));
        // A thread may end meanwhile.
        if let Some((run, queue)) = text.ok().and_then(|text| kernel_text::schedstat(&text)) {
            let sum = sum.get_or_insert_default();
            sum.run_ns = sum.run_ns.saturating_add(run);
            sum.queue_ns = sum.queue_ns.saturating_add(queue);
        }
    }
    sum
}
