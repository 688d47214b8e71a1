//! Binds listening sockets.

use super::inherited::Inherited;
use super::tenants;
use crate::config::{Address, Listen};
use crate::remedy;
use crate::sys::entry::HeldEntry;
use crate::sys::file::{Held, is_missing_support};
use crate::sys::guarded::Guarded;
use crate::sys::identity::{find_group, find_owner, own_group, own_user};
use crate::sys::{self, acl, process, socket};
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, UnixAddr, bind as bind_socket, connect, socket as make_socket,
};
use nix::sys::stat::{Mode, SFlag, umask};
use std::fmt;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a full backlog is watched for its owner to show signs of life before the address is called taken.
const BUSY_TIMEOUT: Duration = Duration::from_secs(2);

/// Bits of a file's mode: its group or everybody may write, which is to connect (unix(7)).
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// An open listening socket.
#[derive(Debug)]
pub struct Listener {
    /// The socket, non-blocking.
    pub socket: Guarded,
    /// Where it listens, as configured.
    pub address: Address,
    /// The socket file's device and inode: only the file that we made is removed at the end.
    file: Option<(u64, u64)>,
}

/// Whether clients reach a listening socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListenerState {
    /// They do, as far as can be told.
    Open,
    /// The unix socket's file is gone.
    FileGone,
    /// The unix socket's path leads to something else.
    FileTaken,
    /// A process that had the socket has shut it down (shutdown(2)): every connection is refused.
    ShutDown,
}

/// Why there is no socket.
#[derive(Debug)]
pub enum ListenError {
    /// A process that lives listens there already.
    Taken {
        address: String,
        /// The process' pid, if it is known.
        pid: Option<i32>,
    },
    /// The path names something that is no socket.
    NotASocket(PathBuf),
    /// Something else is where the socket was.
    Replaced(PathBuf),
    /// A link on the way, which another user may have put there.
    Link(PathBuf, std::io::Error),
    /// The file system keeps no access control lists.
    NoLists(PathBuf),
    /// A system call failed.
    System(sys::Error),
}

impl fmt::Display for ListenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListenError::Taken {
                address,
                pid: Some(pid),
            } if *pid == std::process::id() as i32 => write!(
                f,
                "this daemon itself listens on {address}, for another pool; give each pool its own address, or \
                 give this one the address in a later reload"
            ),
            ListenError::Taken { address, pid } => {
                let who = pid.map_or_else(String::new, |pid| format!(" (pid {pid})"));
                write!(
                    f,
                    "another process{who} already listens on {address}; end it, or listen elsewhere"
                )
            }
            ListenError::NotASocket(path) => {
                write!(
                    f,
                    "{} exists and is no socket; remove it or listen elsewhere",
                    path.display()
                )
            }
            ListenError::Replaced(path) => write!(
                f,
                "{} is not the socket that was made there: it has been replaced",
                path.display()
            ),
            ListenError::Link(path, error) => write!(f, "listen on {}: {error}", path.display()),
            ListenError::NoLists(path) => write!(
                f,
                "listen.acl_users and listen.acl_groups: the file system of {} keeps no access control lists; \
                 listen elsewhere, or use owner, group and mode",
                path.display()
            ),
            ListenError::System(error) => {
                let kind = std::io::Error::from(error.errno).kind();
                let remedy = remedy::of_socket(error.call, &error.subject, kind);
                write!(f, "{error}{remedy}")
            }
        }
    }
}

impl std::error::Error for ListenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ListenError::System(error) => Some(error),
            _ => None,
        }
    }
}

impl ListenError {
    /// The same of a port on every address.
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

impl From<sys::Error> for ListenError {
    fn from(error: sys::Error) -> ListenError {
        ListenError::System(error)
    }
}

/// Opens a listening socket, or takes the one that the daemon was started with.
///
/// # Errors
/// The address is taken, or can't be listened on.
pub fn bind(listen: &Listen, inherited: &mut Inherited) -> Result<Listener, ListenError> {
    let listener = |socket, file| Listener {
        socket: Guarded::new(socket),
        address: listen.address.clone(),
        file,
    };
    if let Some((socket, is_ours)) = inherited.take(&listen.address) {
        // The process that made its file removes it, too, unless it is gone.
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
                    // The port alone is what was configured.
                    bind_tcp(any, listen.backlog, false).map_err(|error| error.about(*port))?
                }
                bound => bound?,
            };
            Ok(listener(socket, None))
        }
    }
}

impl Listener {
    /// A socket that the master before this one has opened. This process calls listen(2) again, so that
    /// SO_PEERCRED (unix(7)) names a process that lives.
    ///
    /// # Errors
    /// The socket is none that listens.
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

    /// Whether this daemon has made the socket's file, and not a service manager.
    pub fn is_ours(&self) -> bool {
        self.file.is_some()
    }

    /// Whether clients reach the socket now. As long as a unix socket is open no other file gets its inode.
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
            // Where this process can't follow the path, it may be right for others.
            Ok(_) | Err(_) => ListenerState::Open,
        }
    }

    /// Whether the socket's file lets nobody connect but root.
    pub fn is_for_root_alone(&self) -> bool {
        let (Address::Unix(path), Some(file)) = (&self.address, self.file) else {
            return false;
        };
        // With an access control list, the group's bits are its mask (acl(5)).
        std::fs::symlink_metadata(path).is_ok_and(|data| {
            (data.dev(), data.ino()) == file && data.uid() == 0 && data.mode() & WRITABLE_BY_OTHERS == 0
        })
    }

    /// Device and inode of a unix socket's file, if it was made by this daemon.
    pub fn file(&self) -> Option<(u64, u64)> {
        self.file
    }

    /// Gives an open socket the attributes of a new configuration: backlog, and a unix socket's mode, owner and list of
    /// users. An owner or group that it had by the configuration `before` is taken back. Where the name leads to something
    /// else by now, that is left alone.
    ///
    /// # Errors
    /// The socket's file is another by now, or can't be changed.
    pub fn adjust(&self, listen: &Listen, before: Option<&Listen>) -> Result<(), ListenError> {
        if let (Address::Unix(path), Some(file)) = (&self.address, self.file) {
            let held = Held::open(path)?;
            if held.socket_identity() != Some(file) {
                return Err(ListenError::Replaced(path.clone()));
            }
            // At no moment may a client be refused that is let in both before and after.
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
        // listen(2) on a listening socket changes its backlog and nothing else.
        Ok(tenants::listen_again(
            &self.socket,
            &self.address,
            listen.backlog,
        )?)
    }

    /// Removes the socket's file, if it is still the one that was made for it.
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

/// A file's device and inode.
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
    // The directory is held: a link that takes its place while this goes on leads to an error, and root changes nothing there.
    let entry = HeldEntry::locate(path).map_err(|error| match error.raw_os_error() {
        None => ListenError::Link(path.to_owned(), error),
        Some(_) => sys::Error::from_io("bind", &subject, &error).into(),
    })?;
    make_way(path, &entry)?;
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let fd =
        make_socket(AddressFamily::Unix, SockType::Stream, flags, None).map_err(|e| failed("socket", e))?;
    let address = UnixAddr::new(path).map_err(|e| failed("bind", e))?;
    // The file is created with its final mode. Until listen(2) it can't be reached, so that owner and list come in time.
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

/// Lets the users and groups of the list connect, beside whom the mode lets.
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

/// A list of users or groups takes the place of owner and group, as in php-fpm.
fn set_owner(held: &Held, listen: &Listen) -> Result<(), ListenError> {
    match wanted_owner(listen)? {
        (None, None) => Ok(()),
        (uid, gid) => Ok(held.change_owner(uid, gid)?),
    }
}

/// User and group that a socket is to be given.
fn wanted_owner(listen: &Listen) -> Result<(Option<u32>, Option<u32>), ListenError> {
    if has_list(listen) {
        return Ok((None, None));
    }
    let owner = listen.owner.as_deref().map(find_owner).transpose()?;
    let group = listen.group.as_deref().map(find_group).transpose()?;
    let uid = owner.map(|(uid, _)| uid);
    Ok((uid, group.or(owner.and_then(|(_, primary)| primary))))
}

/// What the configuration before gave the socket to and this one does not: it becomes this process' own, as it would be if
/// it were bound now.
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

/// Removes a stale socket; refuses a live one.
///
/// A socket is live when the process that called listen(2) for it lives. After a kill of the master its workers still
/// hold the socket while they finish their requests, but no process will serve what waits in its queue: stale.
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
                // 0: a process outside of our pid namespace.
                return Ok(match pid {
                    0 => Owner::Unknown,
                    pid if pid == std::process::id() as i32 => Owner::Alive(pid),
                    pid if is_alive(pid) => Owner::Alive(pid),
                    _ => Owner::Dead,
                });
            }
            Err(Errno::ECONNREFUSED | Errno::ENOENT) => return Ok(Owner::None),
            // Its queue is full.
            Err(Errno::EAGAIN) if Instant::now() < until => {
                let mut nothing = [];
                let _ = nix::poll::poll(&mut nothing, 50_u8);
            }
            Err(Errno::EAGAIN) => return Ok(Owner::Unknown),
            Err(errno) => return Err(failed("connect", errno)),
        }
    }
}

/// Whether a process lives and has not merely become a zombie.
fn is_alive(pid: i32) -> bool {
    if !process::exists(pid) {
        return false;
    }
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // proc(5): the state follows the command, which is in parentheses.
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
        // Also if it is another socket: the inode is not used again while the first one is open.
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
