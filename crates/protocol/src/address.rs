//! Listening addresses of pools.

use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::PathBuf;

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Address {
    /// An absolute path.
    Unix(PathBuf),
    /// One address and port.
    Tcp(SocketAddr),
    /// A bare port: `[::]` first, then `0.0.0.0` if there is no IPv6.
    TcpAny(u16),
}

/// No address: the empty path.
impl Default for Address {
    fn default() -> Address {
        Address::Unix(PathBuf::new())
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Address::Unix(path) => path.display().fmt(f),
            Address::Tcp(address) => address.fmt(f),
            Address::TcpAny(port) => port.fmt(f),
        }
    }
}
