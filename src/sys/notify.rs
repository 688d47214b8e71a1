//! Notifications to systemd, or to whoever stands in its place (sd_notify(3)).

use super::clock;
use std::ffi::OsString;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// Where notifications go.
#[derive(Debug)]
pub struct Notifier {
    socket: UnixDatagram,
    address: SocketAddr,
    /// How often the service manager wants to hear from us, at least.
    pub watchdog: Option<Duration>,
}

/// The variables that are meant for this process alone.
pub const VARIABLES: [&str; 3] = ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"];

impl Notifier {
    /// The notifier that the environment names; `None`: nobody wants to know, or can't be reached.
    pub fn from_environment() -> Option<Notifier> {
        let name: OsString = std::env::var_os("NOTIFY_SOCKET")?;
        let bytes = name.as_bytes();
        let address = match bytes.strip_prefix(b"@") {
            Some(abstract_name) => SocketAddr::from_abstract_name(abstract_name).ok()?,
            None => SocketAddr::from_pathname(&name).ok()?,
        };
        let socket = UnixDatagram::unbound().ok()?;
        socket.set_nonblocking(true).ok()?;
        Some(Notifier {
            socket,
            address,
            watchdog: watchdog(),
        })
    }

    /// Says something; that nobody listens is no error.
    pub fn tell(&self, text: &str) {
        if let Err(error) = self.socket.send_to_addr(text.as_bytes(), &self.address) {
            log::debug!("the service manager can't be told: {error}");
        }
    }

    /// A reload begins.
    pub fn tell_reloading(&self) {
        let micros = clock::now().as_nanos() / 1_000;
        self.tell(&format!(
            "RELOADING=1\nMONOTONIC_USEC={micros}\nSTATUS=Reloading\n"
        ));
    }
}

/// WATCHDOG_USEC, where it is meant for this process (sd_watchdog_enabled(3)).
fn watchdog() -> Option<Duration> {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    if number("WATCHDOG_PID").is_some_and(|pid| pid != u64::from(std::process::id())) {
        return None;
    }
    number("WATCHDOG_USEC")
        .filter(|micros| *micros > 0)
        .map(Duration::from_micros)
}
