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
pub use forkyard_base::ended::Ended;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::WaitPidFlag;
use nix::unistd::Pid;
pub(super) use program::start_with;
pub use program::{Program, replace, replace_plainly, start, start_blocked};
pub use reap::{
    Usage, ended_child, ends_within, kill_and_reap, reap, reap_any, reap_pid, reap_soon, reap_used,
    reap_within, wait_for_end, was_stopped,
};
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
pub use writer::{Appender, MOST_BYTES as MOST_APPENDED, appended_by_others, finish_appending, is_writer};

/// Exits immediately, without destructors, flushing or exit handlers.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: ends the process.
    unsafe { libc::_exit(code) }
}

/// Whether this process has one thread. Without /proc it tries unshare(2) with CLONE_THREAD, which has no effect; EPERM
/// counts as success.
pub fn has_one_thread() -> bool {
    match std::fs::read_dir("/proc/self/task") {
        Ok(tasks) => tasks.count() == 1,
        Err(_) => is_alone(),
    }
}

fn is_alone() -> bool {
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_THREAD) != Err(Errno::EINVAL)
}

/// Adopts orphaned descendants (prctl(2), PR_SET_CHILD_SUBREAPER).
///
/// # Errors
/// prctl(2).
pub fn become_subreaper() -> Result<()> {
    nix::sys::prctl::set_child_subreaper(true).named("prctl", "PR_SET_CHILD_SUBREAPER")
}

/// Dies with the parent (prctl(2), PR_SET_PDEATHSIG).
pub fn kill_if_orphaned() {
    let _ = nix::sys::prctl::set_pdeathsig(Signal::SIGKILL);
}

/// Sends a signal, if the process exists.
///
/// # Errors
/// kill(2).
pub fn send_signal(pid: i32, signal: Signal) -> Result<()> {
    match kill(Pid::from_raw(pid), signal) {
        Ok(()) | Err(Errno::ESRCH) => Ok(()),
        Err(errno) => Err(Error::new("kill", pid.to_string(), errno)),
    }
}

const STATM_BYTES: usize = 128;
const MOST_OF_A_FAMILY: usize = 64;

/// Peak memory of this process, in bytes (getrusage(2)).
pub fn peak_memory_bytes() -> u64 {
    let usage = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_SELF);
    usage.map_or(0, |usage| u64::try_from(usage.max_rss()).unwrap_or(0) * 1024)
}

/// Memory that only this process has, in bytes. `None` if unknown.
pub fn private_memory_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").ok()?;
    let lines = text.lines().filter(|line| line.starts_with("Private_"));
    let kibibytes = lines.filter_map(|line| line.split_ascii_whitespace().nth(1)?.parse::<u64>().ok());
    Some(kibibytes.fold(0, u64::saturating_add).saturating_mul(1024))
}

/// PSS of a process (`None`: this one) in bytes: shared pages divided among their users. `None` if unknown.
pub fn proportional_memory_bytes(pid: Option<i32>) -> Option<u64> {
    let whose = pid.map_or_else(|| "self".to_owned(), |pid| pid.to_string());
    let text = std::fs::read_to_string(format!("/proc/{whose}/smaps_rollup")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

/// Opens /proc/PID/statm (`None`: of this process), if it exists.
pub fn open_statm(pid: Option<i32>) -> Option<File> {
    let whose = pid.map_or_else(|| "self".to_owned(), |pid| pid.to_string());
    File::open(format!("/proc/{whose}/statm")).ok()
}

/// RSS in bytes, at least the PSS; reading takes about 1 µs.
pub fn resident_bytes(statm: &File) -> Option<u64> {
    pages_of(statm, 1)
}

/// The part of the RSS in files and shared memory, in bytes.
pub fn shared_resident_bytes(statm: &File) -> Option<u64> {
    pages_of(statm, 2)
}

fn pages_of(statm: &File, field: usize) -> Option<u64> {
    let mut text = [0; STATM_BYTES];
    let read = statm.read_at(&mut text, 0).ok()?;
    let text = std::str::from_utf8(&text[..read]).ok()?;
    let pages: u64 = text.split(' ').nth(field)?.parse().ok()?;
    Some(pages * shared_mappings::page_bytes() as u64)
}

/// PSS of a process and its descendants, as far as known.
pub fn family_memory_bytes(pid: i32) -> u64 {
    bytes_of_family(pid, |member| proportional_memory_bytes(Some(member)))
}

/// RSS of a process and its descendants; faster than [`family_memory_bytes`].
pub fn family_resident_bytes(pid: i32) -> u64 {
    bytes_of_family(pid, |member| resident_bytes(&open_statm(Some(member))?))
}

fn bytes_of_family(pid: i32, bytes_of: impl Fn(i32) -> Option<u64>) -> u64 {
    let family = family(pid, MOST_OF_A_FAMILY).into_iter();
    family.filter_map(bytes_of).fold(0, u64::saturating_add)
}

/// Returns a process and its descendants, at most `most`.
pub fn family(pid: i32, most: usize) -> Vec<i32> {
    let mut family = vec![pid];
    let mut at = 0;
    while let Some(member) = family.get(at).copied() {
        at += 1;
        let room = most.saturating_sub(family.len());
        family.extend(children(member).into_iter().take(room));
    }
    family
}

/// Returns a process's children.
pub fn children(pid: i32) -> Vec<i32> {
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

/// Whether a process with this pid exists (kill(2), signal 0).
pub fn exists(pid: i32) -> bool {
    !matches!(kill(Pid::from_raw(pid), None), Err(Errno::ESRCH))
}

/// Whether `pid` is an unreaped child of this process.
pub fn is_child(pid: i32) -> bool {
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    pid > 0 && nix::sys::wait::waitid(nix::sys::wait::Id::Pid(Pid::from_raw(pid)), flags).is_ok()
}

/// Fields of /proc/PID/stat (proc(5)). The process can't block the reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// State: `R`, `S`, `D`, `Z`, ….
    pub state: char,
    /// Parent's pid.
    pub parent: i32,
    /// Process group.
    pub group: i32,
    /// Session.
    pub session: i32,
    /// Start in clock ticks since boot; with the pid, unique.
    pub start_time: u64,
}

/// Reads a process's status, `None` if it does not exist.
pub fn stat(pid: i32) -> Option<Stat> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command may contain parentheses. Field 3 follows.
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

/// Returns a process's command name (proc(5), `comm`), `None` if it is gone.
pub fn name(pid: i32) -> Option<String> {
    let name = std::fs::read(format!("/proc/{pid}/comm")).ok()?;
    Some(String::from_utf8_lossy(name.trim_ascii_end()).into_owned())
}

/// Returns a process's real user, `None` if it is gone.
pub fn real_user(pid: i32) -> Option<u32> {
    let process = pidfd::open(pid).ok()?;
    pidfd::real_user(process.as_fd()).or_else(|| user_in_proc(pid))
}

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
        assert!(!has_one_thread() && !is_alone());
        // SAFETY: the child makes only system calls.
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
