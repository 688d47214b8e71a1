//! Finds related processes in /proc (proc(5)).

use forkyard_base::tick::Tick;
use forkyard_sys::process::{self, Apart, ApartProgress, Finding};
use forkyard_sys::{clock, pidfd};
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::sync::mpsc;
use std::time::{Duration, Instant};

const MOST_PROCESSES: usize = 256;
const MOST_ENVIRONMENT: u64 = 1024 * 1024;

const MOST_LOOKS: usize = 64;
/// The timeout of reading a batch of environments. A process that exceeds it counts as unmarked.
const LIMIT: Duration = Duration::from_millis(500);

#[derive(Debug, Default)]
pub(super) struct Search {
    rest: Vec<i32>,
    reading: Option<EnvironmentRead>,
}

/// A helper process reads environments, because this can block forever: the kernel takes a lock of the target process
/// (proc(5), `environ`).
#[derive(Debug)]
struct EnvironmentRead {
    apart: Apart,
    due: Tick,
    of: Vec<(i32, OwnedFd)>,
}

impl Search {
    /// Whether all children present at its start were checked. The next part then restarts the search.
    pub(super) fn is_complete(&self) -> bool {
        self.rest.is_empty() && self.reading.is_none()
    }

    /// Returns orphans of the journey, recognized by session or by the mark in their environment. Orphans become
    /// children of this process, a subreaper (prctl(2)). Skips pids that are `known` to belong elsewhere. Never blocks
    /// and checks at most [`MOST_LOOKS`] processes per call.
    pub(super) fn orphans(
        &mut self,
        mark: &[u8],
        session: i32,
        is_known: impl Fn(i32) -> bool,
    ) -> Vec<OwnedFd> {
        if let Some(reading) = self.reading.take() {
            return self.read_on(reading);
        }
        let own = i32::try_from(std::process::id()).unwrap_or(0);
        let (mut found, mut others) = (Vec::new(), Vec::new());
        for pid in self.next_part(|| process::children(own), |pid| pid == session || is_known(pid)) {
            // Open the descriptor first. If the process is still alive afterwards, the data below is its own.
            let Ok(process) = pidfd::open(pid) else { continue };
            match process::stat(pid) {
                Some(stat) if stat.parent != own => {}
                Some(stat) if stat.session == session => found.push(process),
                Some(stat) if stat.state != 'Z' => others.push((pid, process)),
                Some(_) | None => {}
            }
        }
        if !others.is_empty() && !mark.is_empty() {
            let pids: Vec<i32> = others.iter().map(|(pid, _)| *pid).collect();
            let apart = Apart::begin(&[], || Finding::from(marked(&pids, mark)));
            self.reading = apart.ok().map(|apart| EnvironmentRead {
                apart,
                due: clock::now() + LIMIT,
                of: others,
            });
        }
        found
    }

    fn read_on(&mut self, mut reading: EnvironmentRead) -> Vec<OwnedFd> {
        match reading.apart.proceed() {
            ApartProgress::Working if clock::now() < reading.due => {
                self.reading = Some(reading);
                Vec::new()
            }
            ApartProgress::Working | ApartProgress::Lost => Vec::new(),
            ApartProgress::Done(finding) => {
                let marked: Vec<i32> = serde_json::from_slice(&finding.bytes).unwrap_or_default();
                reading.of.retain(|(pid, _)| marked.contains(pid));
                reading.of.into_iter().map(|(_, process)| process).collect()
            }
        }
    }

    fn next_part(
        &mut self,
        children: impl FnOnce() -> Vec<i32>,
        is_left_out: impl Fn(i32) -> bool,
    ) -> Vec<i32> {
        if self.rest.is_empty() {
            self.rest = children();
            self.rest.retain(|pid| !is_left_out(*pid));
        }
        self.rest.split_off(self.rest.len().saturating_sub(MOST_LOOKS))
    }
}

/// Returns the marked pids, as JSON. One thread per process, so that one blocked read doesn't delay the others.
fn marked(pids: &[i32], mark: &[u8]) -> Vec<u8> {
    let (tell, heard) = mpsc::channel();
    for pid in pids.iter().copied() {
        let (tell, mark) = (tell.clone(), mark.to_vec());
        let read = move || tell.send((pid, is_marked(pid, &mark)));
        let _ = std::thread::Builder::new().spawn(read);
    }
    drop(tell);
    let end = Instant::now() + LIMIT / 2;
    let mut found = Vec::new();
    while let Ok((pid, is_marked)) = heard.recv_timeout(end.saturating_duration_since(Instant::now())) {
        found.extend(is_marked.then_some(pid));
    }
    serde_json::to_vec(&found).unwrap_or_default()
}

/// Returns whether the process or a descendant listens on the port. May block.
pub(super) fn listens(pid: i32, mark: &[u8], port: u16, uid: u32) -> bool {
    let listeners: Vec<Listener> = all_listeners().filter(|listener| listener.port == port).collect();
    members(pid, mark)
        .into_iter()
        .any(|member| match sockets(member) {
            Some(inodes) => listeners.iter().any(|listener| inodes.contains(&listener.inode)),
            // Its descriptors are unreadable, so compare the socket's owner instead.
            None => member == pid && listeners.iter().any(|listener| listener.uid == uid),
        })
}

/// Returns the TCP ports on which the process and its descendants listen, where readable. May block.
pub(super) fn ports(pid: i32, mark: &[u8]) -> BTreeSet<u16> {
    let inodes: BTreeSet<u64> = members(pid, mark)
        .into_iter()
        .filter_map(sockets)
        .flatten()
        .collect();
    let own = all_listeners().filter(|listener| inodes.contains(&listener.inode));
    own.map(|listener| listener.port).collect()
}

fn members(pid: i32, mark: &[u8]) -> Vec<i32> {
    let mut family = process::family(pid, MOST_PROCESSES);
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    let orphans = process::children(own).into_iter().filter(|child| *child != pid);
    family.extend(orphans.filter(|child| is_marked(*child, mark)));
    family
}

/// May block forever.
fn is_marked(pid: i32, mark: &[u8]) -> bool {
    let Ok(file) = fs::File::open(format!("/proc/{pid}/environ")) else {
        return false;
    };
    let mut bytes = Vec::new();
    let read = file.take(MOST_ENVIRONMENT).read_to_end(&mut bytes);
    !mark.is_empty() && read.is_ok() && bytes.split(|byte| *byte == 0).any(|variable| variable == mark)
}

struct Listener {
    port: u16,
    inode: u64,
    uid: u32,
}

fn all_listeners() -> impl Iterator<Item = Listener> {
    ["/proc/net/tcp", "/proc/net/tcp6"]
        .into_iter()
        .flat_map(listeners)
}

fn listeners(table: &str) -> Vec<Listener> {
    const LISTENS: &str = "0A";
    let Ok(file) = fs::File::open(table) else {
        return Vec::new();
    };
    let lines = BufReader::new(file).lines().skip(1).map_while(Result::ok);
    let mut found = Vec::new();
    for line in lines {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (Some(local), Some(state), Some(uid), Some(inode)) =
            (fields.get(1), fields.get(3), fields.get(7), fields.get(9))
        else {
            continue;
        };
        if *state != LISTENS {
            break;
        }
        let here = local
            .rsplit_once(':')
            .map(|(_, port)| u16::from_str_radix(port, 16));
        if let (Some(Ok(port)), Ok(uid), Ok(inode)) = (here, uid.parse(), inode.parse()) {
            found.push(Listener { port, inode, uid });
        }
    }
    found
}

fn sockets(pid: i32) -> Option<BTreeSet<u64>> {
    const MOST: usize = 65_536;
    let directory = fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    let links = directory.take(MOST).map_while(Result::ok);
    let links = links.filter_map(|entry| fs::read_link(entry.path()).ok());
    let inodes = links.filter_map(|link| {
        let text = link.to_str()?;
        text.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    });
    Some(inodes.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_of_children_are_looked_at_in_parts_and_each_once() {
        let mut search = Search::default();
        let mut seen = Vec::new();
        let mut parts = 0;
        loop {
            let part = search.next_part(|| (1..=3000).collect(), |pid| pid == 7);
            assert!(part.len() <= MOST_LOOKS, "{}", part.len());
            seen.extend(part);
            parts += 1;
            if search.is_complete() {
                break;
            }
        }
        seen.sort_unstable();
        assert_eq!(seen, (1..=3000).filter(|pid| *pid != 7).collect::<Vec<i32>>());
        assert_eq!(parts, 2999_usize.div_ceil(MOST_LOOKS));
        assert_eq!(search.next_part(|| vec![3001], |_| false), [3001]);
        assert!(search.is_complete());
    }

    #[test]
    fn a_listening_socket_has_an_owner() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let own = std::process::id() as i32;
        let uid = nix::unistd::geteuid().as_raw();
        assert!(listens(own, b"x=y", port, uid));
        assert!(ports(own, b"x=y").contains(&port));
        let mut other = std::process::Command::new("/bin/cat");
        let mut child = other.stdin(std::process::Stdio::piped()).spawn().unwrap();
        assert!(!listens(child.id() as i32, b"x=y", port, uid));
        drop(child.stdin.take());
        child.wait().unwrap();
    }
}
