//! Collects the kernel's information about a process at one moment.

use crate::why::kernel_text::{self, Call, Task};
use crate::why::{Descriptor, Evidence};
use forkyard_sys::diag;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;

/// The most descriptors to resolve for a process.
const MOST_DESCRIPTORS: usize = 8;
/// The size of `struct pollfd`.
const POLLED: usize = 8;

/// Returns the evidence.
///
/// # Errors
/// The process is gone, or this user may not look at it: proc(5) asks for the rights of ptrace(2).
pub(super) fn of(pid: i32) -> io::Result<Evidence> {
    let call = fs::read_to_string(format!("/proc/{pid}/syscall"))?;
    let task = kernel_text::task(&call).ok_or(io::ErrorKind::InvalidData)?;
    let function = fs::read_to_string(format!("/proc/{pid}/wchan")).unwrap_or_default();
    let mut descriptors = match task {
        Task::Waits { call, arguments } => descriptors(pid, call, arguments),
        Task::Running | Task::Elsewhere => Vec::new(),
    };
    descriptors.truncate(MOST_DESCRIPTORS);
    let found = descriptors.into_iter().map(|number| descriptor(pid, number));
    Ok(Evidence {
        task,
        function: function.trim().to_owned(),
        descriptors: found.collect(),
    })
}

/// Returns the numbers of the descriptors that a call waits on.
fn descriptors(pid: i32, call: Call, arguments: [u64; 6]) -> Vec<i32> {
    let first = i32::try_from(arguments[0]);
    match call {
        Call::Descriptor | Call::Lock | Call::Sync => first.into_iter().collect(),
        Call::Several => {
            let count = usize::try_from(arguments[1]).unwrap_or(usize::MAX);
            let mut list = vec![0; count.min(MOST_DESCRIPTORS) * POLLED];
            let memory = File::open(format!("/proc/{pid}/mem"));
            match memory.and_then(|memory| memory.read_exact_at(&mut list, arguments[0])) {
                Ok(()) => kernel_text::polled(&list).collect(),
                Err(_) => Vec::new(),
            }
        }
        Call::Events => {
            let info = first.map(|number| fs::read_to_string(format!("/proc/{pid}/fdinfo/{number}")));
            let info = info.ok().and_then(Result::ok).unwrap_or_default();
            kernel_text::watched(&info).collect()
        }
        Call::Futex | Call::Sleep | Call::Child | Call::Open | Call::Other => Vec::new(),
    }
}

fn descriptor(pid: i32, number: i32) -> Descriptor {
    let Ok(link) = fs::read_link(format!("/proc/{pid}/fd/{number}")) else {
        return Descriptor::Unknown;
    };
    let link = link.to_string_lossy().into_owned();
    let inode = |kind: &str| link.strip_prefix(kind)?.strip_suffix(']')?.parse::<u32>().ok();
    if let Some(inode) = inode("socket:[") {
        socket(pid, inode).unwrap_or(Descriptor::Unknown)
    } else if inode("pipe:[").is_some() {
        Descriptor::Pipe
    } else if link.starts_with("/dev/") || !link.starts_with('/') {
        Descriptor::Unknown
    } else {
        Descriptor::File(link)
    }
}

fn socket(pid: i32, inode: u32) -> Option<Descriptor> {
    for table in ["tcp", "tcp6"] {
        // The tables of the process's own network namespace.
        let table = fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default();
        if let Some((peer, port, own_port)) = kernel_text::connection(&table, inode) {
            return Some(Descriptor::Tcp { peer, port, own_port });
        }
    }
    let paths = diag::unix_paths(inode)?;
    let text = |path: std::path::PathBuf| path.to_string_lossy().into_owned();
    Some(Descriptor::Unix {
        peer: paths.peer.map(text),
        own: paths.own.map(text),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::why::{self, Cause};
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::process::{Child, Command, Stdio};

    /// A shell that reads from a connection, as its standard input.
    fn reader(input: impl Into<Stdio>) -> Child {
        let mut command = Command::new("sh");
        let command = command.args(["-c", "echo ready; read line"]).stdin(input);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut ready = [0; 6];
        child.stdout.take().unwrap().read_exact(&mut ready).unwrap();
        child
    }

    /// Looks until the process waits.
    fn cause(child: &mut Child) -> why::Finding {
        let pid = i32::try_from(child.id()).unwrap();
        let limit = std::time::Instant::now() + std::time::Duration::from_secs(20);
        loop {
            let found = of(pid).map(|evidence| why::find(&evidence, "")).unwrap();
            if found.cause != Cause::Computing || std::time::Instant::now() > limit {
                child.kill().unwrap();
                child.wait().unwrap();
                return found;
            }
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_process_that_reads_shows_whom_it_waits_for() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("mysqld.sock");
        let server = UnixListener::bind(&path).unwrap();
        let client = UnixStream::connect(&path).unwrap();
        // Before that, the other end has no inode.
        let accepted = server.accept().unwrap();
        let finding = cause(&mut reader(std::os::fd::OwnedFd::from(client)));
        assert_eq!(
            (finding.cause, finding.detail),
            (Cause::Database, path.display().to_string())
        );
        drop(accepted);
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap();
        let client = TcpStream::connect(address).unwrap();
        let finding = cause(&mut reader(std::os::fd::OwnedFd::from(client)));
        assert_eq!(
            (finding.cause, finding.detail),
            (Cause::Network, address.to_string())
        );
        let finding = cause(&mut reader(Stdio::piped()));
        assert_eq!(finding.cause, Cause::Process, "{}", finding.detail);
    }

    #[test]
    fn a_process_that_is_gone_shows_nothing() {
        let mut child = reader(Stdio::null());
        child.wait().unwrap();
        assert!(of(i32::try_from(child.id()).unwrap()).is_err());
    }
}
