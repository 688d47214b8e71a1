//! Notifications to systemd or another service manager (sd_notify(3)).

use super::clock;
use super::error::{Error, Named, Result};
use super::fd::{receive_datagram, send_with};
use super::socket::{self as waiting, Readiness};
use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, bind, setsockopt, socket, sockopt};
use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// A connection to the service manager.
#[derive(Debug)]
pub struct Notifier {
    socket: UnixDatagram,
    variables: Vec<(&'static str, OsString)>,
    /// Watchdog interval.
    pub watchdog: Option<Duration>,
}

/// Variables that children must not inherit.
pub const VARIABLES: [&str; 4] = ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "FDSTORE"];
/// The service manager is trusted.
const TIMEOUT: Duration = Duration::from_millis(200);

impl Notifier {
    /// Connects to the environment's service manager, if any.
    pub fn from_environment() -> Option<Notifier> {
        let name: OsString = std::env::var_os("NOTIFY_SOCKET")?;
        let bytes = name.as_bytes();
        let address = match bytes.strip_prefix(b"@") {
            Some(abstract_name) => SocketAddr::from_abstract_name(abstract_name).ok()?,
            None => SocketAddr::from_pathname(&name).ok()?,
        };
        let socket = UnixDatagram::unbound().ok()?;
        socket.set_nonblocking(true).ok()?;
        socket.connect_addr(&address).ok()?;
        Some(Notifier {
            socket,
            variables: VARIABLES
                .iter()
                .filter_map(|name| Some((*name, std::env::var_os(name)?)))
                .collect(),
            watchdog: watchdog(),
        })
    }

    /// Sends a notification; ignores a missing receiver.
    pub fn tell(&self, text: &str) {
        if let Err(error) = self.send(text, &[]) {
            log::debug!("can't notify the service manager: {error}");
        }
    }

    /// The [`VARIABLES`] that this process was started with.
    pub fn variables(&self) -> &[(&'static str, OsString)] {
        &self.variables
    }

    /// Whether the service manager stores descriptors: systemd (from 254) and the keeper announce it.
    pub fn keeps_descriptors(&self) -> bool {
        self.said_of_store().is_some_and(|most| most != "0")
    }

    /// The store's limit, if it is known.
    pub fn most_descriptors(&self) -> Option<u64> {
        self.said_of_store()?.to_str()?.parse().ok()
    }

    fn said_of_store(&self) -> Option<&OsString> {
        let mut variables = self.variables.iter();
        variables.find_map(|(name, most)| (*name == "FDSTORE").then_some(most))
    }

    /// Stores a descriptor for the next process (sd_pid_notify_with_fds(3)).
    ///
    /// # Errors
    /// sendmsg(2).
    pub fn keep(&self, name: &str, fd: BorrowedFd<'_>) -> Result<()> {
        self.send(&format!("FDSTORE=1\nFDNAME={name}\n"), &[fd])
    }

    /// Removes the descriptors stored under a name.
    ///
    /// # Errors
    /// sendmsg(2).
    pub fn forget(&self, name: &str) -> Result<()> {
        self.send(&format!("FDSTOREREMOVE=1\nFDNAME={name}\n"), &[])
    }

    fn send(&self, text: &str, descriptors: &[BorrowedFd<'_>]) -> Result<()> {
        let raw: Vec<_> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
        loop {
            match send_with(self.socket.as_fd(), text.as_bytes(), &raw) {
                Ok(_) => return Ok(()),
                Err(error) if error.errno == Errno::EINTR => {}
                Err(error) if error.errno == Errno::EAGAIN => {
                    if !waiting::wait(self.socket.as_fd(), Readiness::Writable, TIMEOUT)? {
                        return Err(Error::new("sendmsg", "the service manager", Errno::EAGAIN));
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Announces a reload.
    pub fn tell_reloading(&self) {
        let micros = clock::now().as_nanos() / 1_000;
        self.tell(&format!(
            "RELOADING=1\nMONOTONIC_USEC={micros}\nSTATUS=Reloading\n"
        ));
    }
}

/// Receives notifications in place of a service manager.
#[derive(Debug)]
pub struct Receiver {
    socket: UnixDatagram,
    address: OsString,
}

/// A received notification.
#[derive(Debug)]
pub struct Datagram {
    /// The sender's pid, from the kernel (SCM_CREDENTIALS, unix(7)).
    pub sender: Option<i32>,
    /// The message.
    pub text: String,
    /// Received descriptors, close-on-exec.
    pub descriptors: Vec<OwnedFd>,
}

impl Receiver {
    /// Opens a socket with an abstract address.
    ///
    /// # Errors
    /// socket(2) or bind(2).
    pub fn open() -> Result<Receiver> {
        let failed = |call| move |e: std::io::Error| Error::from_io(call, "", &e);
        let fd = socket(
            AddressFamily::Unix,
            SockType::Datagram,
            SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK,
            None,
        )
        .named("socket", "")?;
        setsockopt(&fd, sockopt::PassCred, &true).named("setsockopt SO_PASSCRED", "")?;
        // An unnamed address requests autobind (unix(7)).
        bind(fd.as_raw_fd(), &UnixAddr::new_unnamed()).named("bind", "")?;
        let socket = UnixDatagram::from(fd);
        let bound = socket.local_addr().map_err(failed("getsockname"))?;
        let mut address = b"@".to_vec();
        address.extend(bound.as_abstract_name().unwrap_or_default());
        Ok(Receiver {
            socket,
            address: OsString::from_vec(address),
        })
    }

    /// The value for `NOTIFY_SOCKET`.
    pub fn address(&self) -> OsString {
        self.address.clone()
    }

    /// Returns the next notification, if any.
    pub fn receive(&self) -> Option<Datagram> {
        let mut buffer = [0; 4096];
        loop {
            match receive_datagram(self.socket.as_fd(), &mut buffer) {
                Ok((received, sender)) => {
                    return Some(Datagram {
                        sender,
                        text: String::from_utf8_lossy(&buffer[..received.bytes]).into_owned(),
                        descriptors: received.descriptors,
                    });
                }
                Err(error) if error.errno == Errno::EINTR => {}
                Err(_) => return None,
            }
        }
    }
}

impl AsFd for Receiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// WATCHDOG_USEC, if it is meant for this process (sd_watchdog_enabled(3)).
fn watchdog() -> Option<Duration> {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    if number("WATCHDOG_PID").is_some_and(|pid| pid != u64::from(std::process::id())) {
        return None;
    }
    number("WATCHDOG_USEC")
        .filter(|micros| *micros > 0)
        .map(Duration::from_micros)
}
