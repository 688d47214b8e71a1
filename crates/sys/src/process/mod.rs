//! Processes: fork, exec, reap, kill.

mod apart;
mod background;
mod environment;
mod fork;
mod program;
mod reap;
mod writer;

use super::error::{Error, Named, Result};
use super::{pidfd, shared_mappings};
pub use apart::{
    Apart, Finding, Progress as ApartProgress, leave_apart, within_a_moment, within_a_moment_with,
};
pub use background::{Launcher, daemonize};
pub use environment::{change_environment, forget_variables, replace_environment};
pub use fork::{Side, fork, fork_child, fork_sibling, fork_sibling_with_handlers};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::WaitPidFlag;
use nix::unistd::Pid;
pub use program::{Program, replace, replace_plainly, start, start_blocked};
pub use reap::{
    Ended, Usage, ended_child, ends_within, reap, reap_any, reap_pid, reap_soon, reap_used, reap_within,
    wait_for_end, was_stopped,
};
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
pub use writer::{Appender, MOST_BYTES as MOST_APPENDED, appended_by_others, finish_appending, is_writer};

/// Leaves the process at once: no destructors, no buffers flushed, no exit handlers.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: ends the process.
    unsafe { libc::_exit(code) }
}

/// Whether this process has no other thread. Where there is no /proc, such as in a chroot, the kernel is asked for what it grants
/// only then (unshare(2), CLONE_THREAD, which changes nothing); one that forbids the question is taken to say yes.
pub fn has_one_thread() -> bool {
    match std::fs::read_dir("/proc/self/task") {
        Ok(tasks) => tasks.count() == 1,
        Err(_) => is_alone(),
    }
}

fn is_alone() -> bool {
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_THREAD) != Err(Errno::EINVAL)
}

/// Makes this process inherit orphaned descendants (prctl(2), PR_SET_CHILD_SUBREAPER).
///
/// # Errors
/// prctl(2).
pub fn become_subreaper() -> Result<()> {
    nix::sys::prctl::set_child_subreaper(true).named("prctl", "PR_SET_CHILD_SUBREAPER")
}

/// Lets this process be killed when its parent ends (prctl(2), PR_SET_PDEATHSIG).
pub fn kill_if_orphaned() {
    // Fails only for a signal that does not exist.
    let _ = nix::sys::prctl::set_pdeathsig(Signal::SIGKILL);
}

/// Sends a signal to a process; one that is gone already is no error.
///
/// # Errors
/// kill(2).
pub fn send_signal(pid: i32, signal: Signal) -> Result<()> {
    match kill(Pid::from_raw(pid), signal) {
        Ok(()) | Err(Errno::ESRCH) => Ok(()),
        Err(errno) => Err(Error::new("kill", pid.to_string(), errno)),
    }
}

/// Bytes of /proc/PID/statm.
const STATM_BYTES: usize = 128;
/// Processes of a family that are looked at.
const MOST_OF_A_FAMILY: usize = 64;

/// The most memory that this process has had, in bytes (getrusage(2)).
pub fn peak_memory_bytes() -> u64 {
    let usage = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_SELF);
    // The kernel counts in units of 1024 bytes.
    usage.map_or(0, |usage| u64::try_from(usage.max_rss()).unwrap_or(0) * 1024)
}

/// Memory that a process uses now, in bytes; what it shares is divided by the number of its users (PSS). `pid`: of
/// which process; `None`: of this one. Returns `None` where the kernel does not tell.
pub fn proportional_memory_bytes(pid: Option<i32>) -> Option<u64> {
    let whose = pid.map_or_else(|| "self".to_owned(), |pid| pid.to_string());
    let text = std::fs::read_to_string(format!("/proc/{whose}/smaps_rollup")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

/// The file that tells how much memory a process has; of this one for `None`. `None`: there is no /proc, or no such process.
pub fn open_statm(pid: Option<i32>) -> Option<File> {
    let whose = pid.map_or_else(|| "self".to_owned(), |pid| pid.to_string());
    File::open(format!("/proc/{whose}/statm")).ok()
}

/// Memory that the process of this file has now, in bytes, with all that it shares (RSS): never less than its proportional part,
/// and told within a microsecond or so.
pub fn resident_bytes(statm: &File) -> Option<u64> {
    let mut text = [0; STATM_BYTES];
    let read = statm.read_at(&mut text, 0).ok()?;
    let text = std::str::from_utf8(&text[..read]).ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    Some(pages * shared_mappings::page_bytes() as u64)
}

/// The same as [`proportional_memory_bytes`] of a process and of all that it has started, as far as it is still their ancestor;
/// what the kernel does not tell counts as nothing.
pub fn family_memory_bytes(pid: i32) -> u64 {
    family(pid, |member| proportional_memory_bytes(Some(member)))
}

/// The same with all that they share, which is told sooner.
pub fn family_resident_bytes(pid: i32) -> u64 {
    family(pid, |member| resident_bytes(&open_statm(Some(member))?))
}

fn family(pid: i32, bytes_of: impl Fn(i32) -> Option<u64>) -> u64 {
    let mut family = vec![pid];
    let mut at = 0;
    let mut bytes = 0u64;
    while let Some(member) = family.get(at).copied() {
        at += 1;
        bytes = bytes.saturating_add(bytes_of(member).unwrap_or(0));
        let room = MOST_OF_A_FAMILY.saturating_sub(family.len());
        family.extend(children(member).into_iter().take(room));
    }
    bytes
}

/// The children of all threads of a process.
fn children(pid: i32) -> Vec<i32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    let pids = |list: String| {
        list.split_whitespace()
            .filter_map(|pid| pid.parse().ok())
            .collect::<Vec<i32>>()
    };
    lists.flat_map(pids).collect()
}

/// Whether a process with this pid exists (kill(2) with signal 0).
pub fn exists(pid: i32) -> bool {
    !matches!(kill(Pid::from_raw(pid), None), Err(Errno::ESRCH))
}

/// Whether `pid` is a child of this process that has not been reaped (waitid(2) without reaping).
pub fn is_child(pid: i32) -> bool {
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    pid > 0 && nix::sys::wait::waitid(nix::sys::wait::Id::Pid(Pid::from_raw(pid)), flags).is_ok()
}

/// A process, by proc(5), `stat`. Nothing that the process does can hold up who reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// What it is at: `R`, `S`, `D`, `Z`, ….
    pub state: char,
    /// Its parent.
    pub parent: i32,
    /// Its process group.
    pub group: i32,
    /// Its session.
    pub session: i32,
    /// When it started, in clock ticks since boot. With its number it names a process for as long as the machine runs.
    pub start_time: u64,
}

/// A process as it is now; `None`: there is no such process.
pub fn stat(pid: i32) -> Option<Stat> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command is in parentheses, and may have any in it. Field 3 follows it.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    Some(Stat {
        state: fields.first()?.chars().next()?,
        parent: fields.get(1)?.parse().ok()?,
        group: fields.get(2)?.parse().ok()?,
        session: fields.get(3)?.parse().ok()?,
        start_time: fields.get(19)?.parse().ok()?,
    })
}

/// [`Stat::state`] of a process.
pub fn state(pid: i32) -> Option<char> {
    stat(pid).map(|stat| stat.state)
}

/// [`Stat::parent`] of a process.
pub fn parent(pid: i32) -> Option<i32> {
    stat(pid).map(|stat| stat.parent)
}

/// [`Stat::start_time`] of a process.
pub fn start_time(pid: i32) -> Option<u64> {
    stat(pid).map(|stat| stat.start_time)
}

/// What the kernel calls a process (proc(5), `comm`); `None`: it is gone. Nothing that the process does can hold up who reads it.
pub fn name(pid: i32) -> Option<String> {
    let name = std::fs::read(format!("/proc/{pid}/comm")).ok()?;
    Some(String::from_utf8_lossy(name.trim_ascii_end()).into_owned())
}

/// The real user of a process; `None`: it is gone.
pub fn real_user(pid: i32) -> Option<u32> {
    let process = pidfd::open(pid).ok()?;
    pidfd::real_user(process.as_fd()).or_else(|| user_in_proc(pid))
}

/// The same by proc(5), `status`.
fn user_in_proc(pid: i32) -> Option<u32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_threads_is_not_alone_and_its_child_is() {
        // Of the tests.
        assert!(!has_one_thread() && !is_alone());
        // SAFETY: the child makes system calls, and leaves.
        match unsafe { nix::unistd::fork() }.unwrap() {
            nix::unistd::ForkResult::Child => exit_now(i32::from(!(has_one_thread() && is_alone()))),
            nix::unistd::ForkResult::Parent { child } => {
                let ended = nix::sys::wait::waitpid(child, None);
                assert_eq!(ended, Ok(nix::sys::wait::WaitStatus::Exited(child, 0)));
            }
        }
    }

    #[test]
    fn the_user_of_a_process_is_the_same_by_descriptor_and_in_proc() {
        // Process 1 is mostly another's, and may be out of sight.
        for pid in [std::process::id() as i32, 1] {
            assert_eq!(real_user(pid), user_in_proc(pid));
        }
        assert_eq!(
            real_user(std::process::id() as i32),
            Some(nix::unistd::getuid().as_raw())
        );
        assert_eq!(real_user(i32::MAX), None);
    }
}
