//! Descriptors that this process was started with.

use super::fd::{set_close_on_exec, set_nonblocking};
use super::shm::PAGE_BYTES;
pub use forkyard_base::descriptor::Kind;
use nix::fcntl::{FcntlArg, FdFlag, OFlag, SealFlag, fcntl};
use nix::sys::socket::{SockType, getsockopt, sockopt};
use nix::sys::stat::{SFlag, fstat};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// Variables of socket activation, which children must not inherit.
pub const VARIABLES: [&str; 5] = ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", KEEPER, BACKGROUND];
/// The keeper's pid, for LISTEN_PID, which a parent can't know before the fork.
pub const KEEPER: &str = "FORKYARD_KEEPER";
/// Set if the keeper goes to the background.
pub const BACKGROUND: &str = "FORKYARD_BACKGROUND";
/// First passed descriptor (sd_listen_fds(3), SD_LISTEN_FDS_START).
pub const FIRST: RawFd = 3;
const MOST: RawFd = 65_536;
const NAMELESS: &str = "unknown";

/// Returns a descriptor's kind.
pub fn kind(fd: BorrowedFd<'_>) -> Kind {
    let Ok(data) = fstat(fd) else { return Kind::Other };
    let format = SFlag::from_bits_truncate(data.st_mode) & SFlag::S_IFMT;
    let access =
        fcntl(fd, FcntlArg::F_GETFL).map(|flags| OFlag::from_bits_truncate(flags) & OFlag::O_ACCMODE);
    match (format, access) {
        (SFlag::S_IFIFO, Ok(OFlag::O_RDONLY)) => Kind::PipeOut,
        (SFlag::S_IFIFO, Ok(OFlag::O_WRONLY)) => Kind::PipeIn,
        (SFlag::S_IFSOCK, _) => socket_kind(fd),
        (SFlag::S_IFREG, Ok(OFlag::O_RDWR)) => {
            let seals = fcntl(fd, FcntlArg::F_GET_SEALS).map(SealFlag::from_bits_truncate);
            let fixed = SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SHRINK;
            let bytes = usize::try_from(data.st_size).unwrap_or(0);
            match seals {
                Ok(seals) if seals.contains(fixed) && bytes % PAGE_BYTES == 0 => {
                    Kind::Memory(bytes / PAGE_BYTES)
                }
                _ => Kind::Other,
            }
        }
        _ => Kind::Other,
    }
}

fn socket_kind(fd: BorrowedFd<'_>) -> Kind {
    let listens = getsockopt(&fd, sockopt::AcceptConn).unwrap_or(false);
    match (getsockopt(&fd, sockopt::SockType), listens) {
        (Ok(SockType::Stream), true) => Kind::Listener,
        (Ok(SockType::Stream), false) => Kind::Stream,
        (Ok(SockType::SeqPacket), false) => Kind::Packets,
        _ => Kind::Other,
    }
}

/// Returns the service manager's descriptors (sd_listen_fds_with_names(3)) that `wants` accepts, close-on-exec. Only
/// the first call returns any.
pub fn from_service_manager(wants: impl Fn(&str, Kind) -> bool) -> Vec<(String, OwnedFd)> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    let number = |name: &str| std::env::var(name).ok()?.parse::<RawFd>().ok();
    let parent = nix::unistd::getppid().as_raw();
    let is_for_us =
        number("LISTEN_PID") == RawFd::try_from(std::process::id()).ok() || number(KEEPER) == Some(parent);
    let count = number("LISTEN_FDS").unwrap_or(0).clamp(0, MOST);
    if !is_for_us || TAKEN.swap(true, Ordering::SeqCst) {
        return Vec::new();
    }
    let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
    let names = names.split(':').filter(|name| !name.is_empty());
    let names = names.chain(std::iter::repeat(NAMELESS));
    (FIRST..FIRST + count)
        .zip(names)
        .filter_map(|(fd, name)| {
            let fd = adopt(fd)?;
            if wants(name, kind(fd.as_fd())) {
                return Some((name.to_owned(), fd));
            }
            let _ = fd.into_raw_fd();
            None
        })
        .collect()
}

/// Takes an inherited descriptor, close-on-exec, a listener non-blocking; `None` if not open.
pub fn adopt(fd: RawFd) -> Option<OwnedFd> {
    if fd < FIRST {
        return None;
    }
    // SAFETY: the descriptor is only borrowed; the call fails if it is not open.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    set_close_on_exec(borrowed, true).ok()?;
    // SAFETY: it is open, was passed to us, and is taken once.
    let owned = unsafe { OwnedFd::from_raw_fd(fd) };
    if kind(owned.as_fd()) == Kind::Listener {
        set_nonblocking(owned.as_fd(), true).ok()?;
    }
    Some(owned)
}

/// Takes all inherited descriptors from 3 up, before anything else opens some.
pub fn all() -> Vec<OwnedFd> {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else {
        return Vec::new();
    };
    let numbers: Vec<RawFd> = entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    numbers
        .into_iter()
        .filter(|fd| *fd >= FIRST && survives_exec(*fd))
        .filter_map(adopt)
        .collect()
}

fn survives_exec(fd: RawFd) -> bool {
    // SAFETY: the descriptor is only borrowed; the call fails if it is not open.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    fcntl(borrowed, FcntlArg::F_GETFD)
        .is_ok_and(|flags| !FdFlag::from_bits_truncate(flags).contains(FdFlag::FD_CLOEXEC))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_told_apart() {
        let (out, into) = crate::fd::pipe(true).unwrap();
        assert_eq!(
            (kind(out.as_fd()), kind(into.as_fd())),
            (Kind::PipeOut, Kind::PipeIn)
        );
        let (packets, _other) = crate::fd::socket_pair(SockType::SeqPacket).unwrap();
        assert_eq!(kind(packets.as_fd()), Kind::Packets);
        let (stream, _other) = crate::fd::socket_pair(SockType::Stream).unwrap();
        assert_eq!(kind(stream.as_fd()), Kind::Stream);
        let memory = crate::shm::Memory::create("test", 3).unwrap();
        assert_eq!(kind(memory.writable.as_fd()), Kind::Memory(3));
        assert_eq!(
            kind(memory.readable().unwrap().as_fd()),
            Kind::Other,
            "a worker's is no master's"
        );
        assert_eq!(kind(crate::memfile::create("test").unwrap().as_fd()), Kind::Other);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(kind(listener.as_fd()), Kind::Listener);
    }
}
