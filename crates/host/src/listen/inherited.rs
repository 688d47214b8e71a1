//! Listening sockets from a service manager (socket activation) or from php-fpm.

use super::fpm_sockets;
use super::tenants;
use forkyard_config::Address;
use forkyard_sys::fd;
use forkyard_sys::socket::Bound;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// Inherited sockets that no pool has taken yet.
#[derive(Debug, Default)]
pub struct Inherited {
    sockets: Vec<Passed>,
}

#[derive(Debug)]
struct Passed {
    address: Address,
    socket: OwnedFd,
    is_ours: bool,
}

impl Inherited {
    /// Takes inherited listening sockets. `ours`: left by another master.
    pub fn new(sockets: Vec<OwnedFd>, ours: Vec<OwnedFd>) -> Inherited {
        let with_address = |socket: OwnedFd, is_ours: bool| {
            let address = match tenants::local_address(socket.as_fd())? {
                Bound::Path(path) => Address::Unix(path),
                Bound::Port(address) => Address::Tcp(address),
            };
            Some(Passed {
                address,
                socket,
                is_ours,
            })
        };
        // php-fpm's variables know a socket's name.
        let mut sockets = sockets;
        let mut passed = from_php_fpm(&mut sockets);
        passed.extend(ours.into_iter().filter_map(|socket| with_address(socket, true)));
        passed.extend(
            sockets
                .into_iter()
                .filter_map(|socket| with_address(socket, false)),
        );
        Inherited { sockets: passed }
    }

    /// Takes the socket with the wanted address; also returns whether to remove its file at exit.
    pub fn take(&mut self, wanted: &Address) -> Option<(OwnedFd, bool)> {
        let at = self
            .sockets
            .iter()
            .position(|passed| serves(&passed.address, wanted))?;
        let passed = self.sockets.swap_remove(at);
        // After an upgrade a socket may come twice. The file is that of the one in use.
        self.sockets
            .retain(|other| !other.is_ours || !serves(&other.address, wanted));
        Some((passed.socket, passed.is_ours))
    }

    /// Closes php-fpm's unused sockets and removes their files. Keeps a service manager's: another configuration may
    /// need them.
    pub fn drop_unwanted(&mut self) {
        let (ours, others) = std::mem::take(&mut self.sockets)
            .into_iter()
            .partition(|passed| passed.is_ours);
        self.sockets = others;
        let ours: Vec<Passed> = ours;
        for passed in &ours {
            if let Address::Unix(path) = &passed.address {
                let _ = std::fs::remove_file(path);
            }
        }
    }
}

fn from_php_fpm(others: &mut Vec<OwnedFd>) -> Vec<Passed> {
    let mut sockets = Vec::new();
    for (_, value) in variables() {
        for named in fpm_sockets::parse(&value) {
            let other = others.iter().position(|socket| socket.as_raw_fd() == named.fd);
            let socket = match other {
                Some(at) => Some(others.swap_remove(at)),
                None => fd::passed_listener(named.fd),
            };
            let Some(socket) = socket else {
                log::warn!("FPM_SOCKETS: descriptor {} is no listening socket", named.fd);
                continue;
            };
            let is_unix = matches!(tenants::local_address(socket.as_fd()), Some(Bound::Path(_)));
            if is_unix != matches!(named.address, Address::Unix(_)) {
                log::warn!(
                    "FPM_SOCKETS: descriptor {} does not listen on {}",
                    named.fd,
                    named.key
                );
                continue;
            }
            log::info!("using inherited socket fd={}, \"{}\"", named.fd, named.key);
            sockets.push(Passed {
                address: named.address,
                socket,
                is_ours: true,
            });
        }
    }
    sockets
}

fn variables() -> Vec<(String, String)> {
    fpm_sockets::variables(&|name| std::env::var(name).ok())
}

/// Names of the FPM_SOCKETS variables that are set.
pub fn fpm_variables() -> Vec<String> {
    variables().into_iter().map(|(name, _)| name).collect()
}

fn serves(address: &Address, wanted: &Address) -> bool {
    match (address, wanted) {
        (Address::Tcp(is), Address::TcpAny(port)) => is.ip().is_unspecified() && is.port() == *port,
        (is, wanted) => is == wanted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_port_is_served_by_any_address_only() {
        let tcp = |text: &str| Address::Tcp(text.parse().unwrap());
        assert!(serves(&tcp("[::]:9000"), &Address::TcpAny(9000)));
        assert!(serves(&tcp("0.0.0.0:9000"), &Address::TcpAny(9000)));
        assert!(!serves(&tcp("127.0.0.1:9000"), &Address::TcpAny(9000)));
        assert!(serves(&tcp("127.0.0.1:9000"), &tcp("127.0.0.1:9000")));
        assert!(!serves(&tcp("127.0.0.1:9000"), &tcp("127.0.0.1:9001")));
    }
}
