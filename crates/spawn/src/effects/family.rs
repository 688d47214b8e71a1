//! Which processes belong together, as /proc tells (proc(5)).

use crate::sys::pidfd;
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::OwnedFd;

/// Most processes of a family that are looked at.
const MOST_PROCESSES: usize = 256;
/// Most of an environment that is looked at, in bytes.
const MOST_ENVIRONMENT: u64 = 1024 * 1024;

/// Our own children that belong to a journey, known by the mark in their environment, or, if they have ended, by their
/// session: processes whose parent died are ours, because we are a subreaper (prctl(2)). Those that are `known` to be
/// another part's are not looked at. In parts: there may be thousands, and no more than [`MOST_LOOKS`] are looked at
/// between two events.
pub(super) fn orphans(
    search: &mut Search,
    mark: &[u8],
    session: i32,
    is_known: impl Fn(i32) -> bool,
) -> Vec<OwnedFd> {
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    let of_session = |pid: i32| stat(pid).is_some_and(|stat| stat.session == session && stat.state == 'Z');
    let mut found = Vec::new();
    for pid in search.next_part(|| children(own), |pid| pid == session || is_known(pid)) {
        // The descriptor first: what is read after it is of this process, if it still lives then.
        let Ok(process) = pidfd::open(pid) else { continue };
        let is_child = stat(pid).is_some_and(|stat| stat.parent == own);
        if is_child && (is_marked(pid, mark) || of_session(pid)) {
            found.push(process);
        }
    }
    found
}

/// Most of our children that are looked at in one turn of the loop.
const MOST_LOOKS: usize = 64;

/// A look through our children, as far as it has come.
#[derive(Debug, Default)]
pub(super) struct Search {
    rest: Vec<i32>,
}

impl Search {
    /// Whether all that were there when it began have been looked at; the next part begins anew then.
    pub(super) fn is_complete(&self) -> bool {
        self.rest.is_empty()
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

/// Whether the listening socket on this port is a process' or one of its descendants'.
pub(super) fn listens(pid: i32, mark: &[u8], port: u16, uid: u32) -> bool {
    let listeners: Vec<Listener> = all_listeners().filter(|listener| listener.port == port).collect();
    members(pid, mark)
        .into_iter()
        .any(|member| match sockets(member) {
            Some(inodes) => listeners.iter().any(|listener| inodes.contains(&listener.inode)),
            // It can't be looked into: then the socket's owner has to do.
            None => member == pid && listeners.iter().any(|listener| listener.uid == uid),
        })
}

/// The TCP ports that a process and its descendants listen on, as far as they can be looked into.
pub(super) fn ports(pid: i32, mark: &[u8]) -> BTreeSet<u16> {
    let inodes: BTreeSet<u64> = members(pid, mark)
        .into_iter()
        .filter_map(sockets)
        .flatten()
        .collect();
    let own = all_listeners().filter(|listener| inodes.contains(&listener.inode));
    own.map(|listener| listener.port).collect()
}

/// A process and its descendants.
fn members(pid: i32, mark: &[u8]) -> Vec<i32> {
    let mut family = vec![pid];
    let mut index = 0;
    while let Some(member) = family.get(index).copied() {
        index += 1;
        if family.len() < MOST_PROCESSES {
            family.extend(children(member));
        }
    }
    // A program that goes to the background during its start: its descendants are children of ours.
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    let orphans = children(own).into_iter().filter(|child| *child != pid);
    family.extend(orphans.filter(|child| is_marked(*child, mark)));
    family
}

struct Stat {
    state: char,
    parent: i32,
    session: i32,
}

fn stat(pid: i32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may have anything in it.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    // The process group is between them.
    let session = fields.nth(1)?.parse().ok()?;
    Some(Stat {
        state,
        parent,
        session,
    })
}

fn children(pid: i32) -> Vec<i32> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    let files = tasks
        .map_while(Result::ok)
        .map(|task| task.path().join("children"));
    let texts = files.filter_map(|file| fs::read_to_string(file).ok());
    let texts: Vec<String> = texts.collect();
    let pids = texts.iter().flat_map(|text| text.split_whitespace());
    pids.filter_map(|pid| pid.parse().ok()).collect()
}

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

/// The listening sockets. The kernel lists them before all others, so no more is read than needed.
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

/// The inodes of a process' sockets; `None`: that can't be seen.
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
        // What came meanwhile is found by the next.
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
