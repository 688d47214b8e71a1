//! Binds listening sockets.

use super::inherited::Inherited;
use super::tenants;
use forkyard_base::remedy;
use forkyard_config::{Address, Listen};
use forkyard_sys::entry::HeldEntry;
use forkyard_sys::file::{Held, is_missing_support};
use forkyard_sys::guarded::Guarded;
use forkyard_sys::identity::{find_group, find_owner, own_group, own_user};
use forkyard_sys::{self as sys, acl, process, socket};
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, UnixAddr, bind as bind_socket, connect, socket as make_socket,
};
use nix::sys::stat::{Mode, SFlag, umask};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long to watch a full backlog before the address counts as taken.
const BUSY_TIMEOUT: Duration = Duration::from_secs(2);

/// connect(2) needs write permission (unix(7)).
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// An open listening socket.
#[derive(Debug)]
pub struct Listener {
    /// The non-blocking socket.
    pub socket: Guarded,
    /// Its configured address.
    pub address: Address,
    /// Device and inode, so that only our own file is removed.
    file: Option<(u64, u64)>,
}

/// Whether clients can reach a listening socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListenerState {
    /// Reachable, or not known to be unreachable.
    Open,
    /// The socket file is missing.
    FileGone,
    /// Another file is at the socket's path.
    FileTaken,
    /// A holder has shut it down (shutdown(2)): connections are refused.
    ShutDown,
}

/// Why a socket can't be opened.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// A live process listens there.
    #[error("{}", taken(address, *pid))]
    Taken {
        address: String,
        /// The process, if known.
        pid: Option<i32>,
    },
    /// The path is not a socket.
    #[error("{0} exists and is no socket; remove it or listen elsewhere")]
    NotASocket(PathBuf),
    /// Another file has replaced the socket.
    #[error("{0} is not the socket that was made there: it has been replaced")]
    Replaced(PathBuf),
    /// A link on the way, which another user may have planted.
    #[error("listen on {0}: {1}")]
    Link(PathBuf, std::io::Error),
    /// The file system has no access control lists.
    #[error(
        "listen.acl_users and listen.acl_groups: the file system of {0} keeps no access control lists; \
         listen elsewhere, or use owner, group and mode"
    )]
    NoLists(PathBuf),
    /// A system call failed.
    #[error("{0}{remedy}", remedy = remedy::of_socket(.0.call, &.0.subject, std::io::Error::from(.0.errno).kind()))]
    System(#[from] sys::Error),
}

fn taken(address: &str, pid: Option<i32>) -> String {
    if pid == Some(std::process::id() as i32) {
        return format!(
            "this daemon itself listens on {address}, for another pool; give each pool its own address, or \
             give this one the address in a later reload"
        );
    }
    let who = pid.map_or_else(String::new, |pid| format!(" (pid {pid})"));
    format!("another process{who} already listens on {address}; end it, or listen elsewhere")
}

impl ListenError {
    fn about(self, port: u16) -> ListenError {
        match self {
            ListenError::Taken { pid, .. } => ListenError::Taken {
                address: port.to_string(),
                pid,
            },
            ListenError::System(error) => {
                ListenError::System(sys::Error::new(error.call, port.to_string(), error.errno))
            }
            other => other,
        }
    }
}

/// Opens a listening socket, or takes an inherited one.
///
/// # Errors
/// The address is taken or unusable.
pub fn bind(listen: &Listen, inherited: &mut Inherited) -> Result<Listener, ListenError> {
    let listener = |socket, file| Listener {
        socket: Guarded::new(socket),
        address: listen.address.clone(),
        file,
    };
    if let Some((socket, is_ours)) = inherited.take(&listen.address) {
        // The creator removes the file, unless it is gone.
        let file = match &listen.address {
            Address::Unix(path) if is_ours => identity_of(path),
            _ => None,
        };
        return Ok(listener(socket, file));
    }
    match &listen.address {
        Address::Unix(path) => {
            let (socket, file) = bind_unix(path, listen)?;
            Ok(listener(socket, Some(file)))
        }
        Address::Tcp(address) => Ok(listener(bind_tcp(*address, listen.backlog, false)?, None)),
        Address::TcpAny(port) => {
            let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, *port));
            let socket = match bind_tcp(any, listen.backlog, true) {
                Err(_) => {
                    log::info!("Failed implicitly binding to ::, retrying with 0.0.0.0");
                    let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, *port));
                    bind_tcp(any, listen.backlog, false).map_err(|error| error.about(*port))?
                }
                bound => bound?,
            };
            Ok(listener(socket, None))
        }
    }
}

impl Listener {
    /// Takes the previous master's socket and calls listen(2), so that SO_PEERCRED (unix(7)) names this process.
    ///
    /// # Errors
    /// The socket does not listen.
    pub fn adopt(
        socket: OwnedFd,
        address: Address,
        file: Option<(u64, u64)>,
        backlog: i32,
    ) -> Result<Listener, ListenError> {
        match tenants::listen_again(&socket, &address, backlog) {
            Err(error) if error.errno == Errno::ETIMEDOUT => {
                log::warn!("the backlog of {address} is unchanged: {error}");
            }
            listens => listens?,
        }
        Ok(Listener {
            socket: Guarded::new(socket),
            address,
            file,
        })
    }

    /// Whether the daemon, not a service manager, created the socket file.
    pub fn is_ours(&self) -> bool {
        self.file.is_some()
    }

    /// Whether clients can reach the socket. An open unix socket's inode is not reused.
    pub fn state(&self) -> ListenerState {
        if sys::socket::is_shut_down(self.socket.as_fd()) {
            return ListenerState::ShutDown;
        }
        let Address::Unix(path) = &self.address else {
            return ListenerState::Open;
        };
        match std::fs::symlink_metadata(path) {
            Ok(data) if self.file.is_some_and(|file| file != (data.dev(), data.ino())) => {
                ListenerState::FileTaken
            }
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                ListenerState::FileGone
            }
            Ok(_) | Err(_) => ListenerState::Open,
        }
    }

    /// Whether the socket file's permissions admit only root.
    pub fn is_for_root_alone(&self) -> bool {
        let (Address::Unix(path), Some(file)) = (&self.address, self.file) else {
            return false;
        };
        // With an access control list, the group bits are its mask (acl(5)).
        std::fs::symlink_metadata(path).is_ok_and(|data| {
            (data.dev(), data.ino()) == file && data.uid() == 0 && data.mode() & WRITABLE_BY_OTHERS == 0
        })
    }

    /// Device and inode of a socket file that the daemon created.
    pub fn file(&self) -> Option<(u64, u64)> {
        self.file
    }

    /// Applies a new configuration: backlog, and a unix socket's mode, owner and access list. Resets an owner or group
    /// of the configuration `before`.
    ///
    /// # Errors
    /// The socket file was replaced or can't be changed.
    pub fn adjust(&self, listen: &Listen, before: Option<&Listen>) -> Result<(), ListenError> {
        if let (Address::Unix(path), Some(file)) = (&self.address, self.file) {
            let held = Held::open(path)?;
            if held.socket_identity() != Some(file) {
                return Err(ListenError::Replaced(path.clone()));
            }
            // Grants before it revokes, so that no permitted client is rejected.
            if has_list(listen) {
                set_list(&held, listen)?;
            } else {
                set_owner(&held, listen)?;
                acl::remove(held.as_fd(), held.subject())?;
                held.change_mode(listen.mode)?;
            }
            take_back_owner(&held, listen, before)?;
        }
        if before.is_some_and(|before| before.backlog == listen.backlog) {
            return Ok(());
        }
        // On a listening socket, listen(2) changes only the backlog.
        Ok(tenants::listen_again(
            &self.socket,
            &self.address,
            listen.backlog,
        )?)
    }

    /// Removes the socket file, unless another file is there.
    pub fn remove_file(&self) {
        if let Address::Unix(path) = &self.address {
            let Ok(entry) = HeldEntry::locate(path) else {
                return;
            };
            let now = entry.stat().ok().map(|stat| (stat.st_dev, stat.st_ino));
            if now.is_some() && now == self.file {
                let _ = entry.remove();
            }
        }
    }
}

fn identity_of(path: &Path) -> Option<(u64, u64)> {
    std::fs::symlink_metadata(path)
        .ok()
        .map(|data| (data.dev(), data.ino()))
}

fn bind_tcp(address: SocketAddr, backlog: i32, is_for_both: bool) -> Result<OwnedFd, ListenError> {
    socket::listen_tcp(address, backlog, is_for_both).map_err(|error| match error.errno {
        Errno::EADDRINUSE => ListenError::Taken {
            address: address.to_string(),
            pid: None,
        },
        _ => ListenError::System(error),
    })
}

fn bind_unix(path: &Path, listen: &Listen) -> Result<(OwnedFd, (u64, u64)), ListenError> {
    let subject = path.display().to_string();
    let failed = |call, errno| ListenError::System(sys::Error::new(call, subject.clone(), errno));
    // An open directory, so that a planted link causes an error.
    let entry = HeldEntry::locate(path).map_err(|error| match error.raw_os_error() {
        None => ListenError::Link(path.to_owned(), error),
        Some(_) => sys::Error::from_io("bind", &subject, &error).into(),
    })?;
    make_way(path, &entry)?;
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let fd =
        make_socket(AddressFamily::Unix, SockType::Stream, flags, None).map_err(|e| failed("socket", e))?;
    let address = UnixAddr::new(path).map_err(|e| failed("bind", e))?;
    // Unreachable before listen(2), so owner and list are set in time.
    let before = umask(Mode::from_bits_truncate(!listen.mode & 0o777));
    let bound = bind_socket(fd.as_raw_fd(), &address);
    umask(before);
    bound.map_err(|e| failed("bind", e))?;
    let held = Held::of(&entry, path)?;
    let Some(file) = held.socket_identity() else {
        return Err(ListenError::Replaced(path.to_owned()));
    };
    let _ = socket::refuse_descriptors(fd.as_fd());
    set_owner(&held, listen)?;
    set_list(&held, listen)?;
    socket::listen(&fd, listen.backlog, &subject)?;
    Ok((fd, file))
}

fn has_list(listen: &Listen) -> bool {
    !listen.acl_users.is_empty() || !listen.acl_groups.is_empty()
}

fn set_list(held: &Held, listen: &Listen) -> Result<(), ListenError> {
    if !has_list(listen) {
        return Ok(());
    }
    let users: Result<Vec<u32>, sys::Error> = listen.acl_users.iter().map(|u| Ok(find_owner(u)?.0)).collect();
    let groups: Result<Vec<u32>, sys::Error> = listen.acl_groups.iter().map(|g| find_group(g)).collect();
    let list = acl::encode(listen.mode, &users?, &groups?);
    acl::set(held.as_fd(), &list, held.subject()).map_err(|error| {
        if is_missing_support(error.errno) {
            ListenError::NoLists(held.subject().into())
        } else {
            ListenError::System(error)
        }
    })
}

/// A list of users or groups replaces owner and group, as in php-fpm.
fn set_owner(held: &Held, listen: &Listen) -> Result<(), ListenError> {
    match wanted_owner(listen)? {
        (None, None) => Ok(()),
        (uid, gid) => Ok(held.change_owner(uid, gid)?),
    }
}

fn wanted_owner(listen: &Listen) -> Result<(Option<u32>, Option<u32>), ListenError> {
    if has_list(listen) {
        return Ok((None, None));
    }
    let owner = listen.owner.as_deref().map(find_owner).transpose()?;
    let group = listen.group.as_deref().map(find_group).transpose()?;
    let uid = owner.map(|(uid, _)| uid);
    Ok((uid, group.or(owner.and_then(|(_, primary)| primary))))
}

/// Resets attributes that only the old configuration set to the values of a new socket.
fn take_back_owner(held: &Held, listen: &Listen, before: Option<&Listen>) -> Result<(), ListenError> {
    let Some(before) = before.filter(|before| !has_list(before)) else {
        return Ok(());
    };
    let (uid, gid) = wanted_owner(listen)?;
    let had_owner = before.owner.is_some();
    let had_group = had_owner || before.group.is_some();
    let own_user = (had_owner && uid.is_none()).then(own_user);
    let own_group = (had_group && gid.is_none()).then(own_group);
    match (own_user, own_group) {
        (None, None) => Ok(()),
        (uid, gid) => Ok(held.change_owner(uid, gid)?),
    }
}

/// A socket is live if the process that called listen(2) is alive. Workers may hold it after the master was killed, but
/// nothing serves its queue.
fn make_way(path: &Path, entry: &HeldEntry) -> Result<(), ListenError> {
    match entry.stat() {
        Err(_) => return Ok(()),
        Ok(stat) if stat.st_mode & SFlag::S_IFMT.bits() != SFlag::S_IFSOCK.bits() => {
            return Err(ListenError::NotASocket(path.to_owned()));
        }
        Ok(_) => {}
    }
    let taken = |pid| ListenError::Taken {
        address: path.display().to_string(),
        pid,
    };
    match owner(path)? {
        Owner::None | Owner::Dead => {}
        Owner::Alive(pid) => return Err(taken(Some(pid))),
        Owner::Unknown => return Err(taken(None)),
    }
    match entry.remove() {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(ListenError::System(sys::Error::from_io(
            "unlink",
            path.display().to_string(),
            &error,
        ))),
        _ => Ok(()),
    }
}

enum Owner {
    None,
    Dead,
    Alive(i32),
    Unknown,
}

fn owner(path: &Path) -> Result<Owner, ListenError> {
    let subject = path.display().to_string();
    let failed = |call, errno| ListenError::System(sys::Error::new(call, subject.clone(), errno));
    let address = UnixAddr::new(path).map_err(|e| failed("connect", e))?;
    let until = Instant::now() + BUSY_TIMEOUT;
    loop {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let probe = make_socket(AddressFamily::Unix, SockType::Stream, flags, None);
        let probe = probe.map_err(|e| failed("socket", e))?;
        match connect(probe.as_raw_fd(), &address) {
            Ok(()) => {
                let pid = socket::listener_pid(probe.as_fd())?;
                return Ok(match pid {
                    0 => Owner::Unknown,
                    pid if pid == std::process::id() as i32 => Owner::Alive(pid),
                    pid if is_alive(pid) => Owner::Alive(pid),
                    _ => Owner::Dead,
                });
            }
            Err(Errno::ECONNREFUSED | Errno::ENOENT) => return Ok(Owner::None),
            // The backlog is full.
            Err(Errno::EAGAIN) if Instant::now() < until => {
                let mut nothing = [];
                let _ = nix::poll::poll(&mut nothing, 50_u8);
            }
            Err(Errno::EAGAIN) => return Ok(Owner::Unknown),
            Err(errno) => return Err(failed("connect", errno)),
        }
    }
}

fn is_alive(pid: i32) -> bool {
    if !process::exists(pid) {
        return false;
    }
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !stat
        .rsplit(')')
        .next()
        .is_some_and(|rest| rest.trim_start().starts_with(['Z', 'X']))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listener(path: &Path) -> Listener {
        let listen = Listen {
            address: Address::Unix(path.to_owned()),
            backlog: 1,
            owner: None,
            group: None,
            mode: 0o600,
            acl_users: Vec::new(),
            acl_groups: Vec::new(),
            allowed_clients: Vec::new(),
            wrong_clients: Vec::new(),
        };
        bind(&listen, &mut Inherited::default()).unwrap()
    }

    #[test]
    fn a_socket_whose_path_leads_elsewhere_is_known() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let socket = listener(&path);
        assert_eq!((socket.is_ours(), socket.state()), (true, ListenerState::Open));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(socket.state(), ListenerState::FileGone);
        let other = listener(&path);
        assert_eq!(
            (socket.state(), other.state()),
            (ListenerState::FileTaken, ListenerState::Open)
        );
        socket.remove_file();
        assert_eq!(
            other.state(),
            ListenerState::Open,
            "its file is not the first one's to remove"
        );
    }
}
