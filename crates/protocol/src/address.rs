//! Where a pool listens.

use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::PathBuf;

/// A listening address.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Address {
    /// A unix socket at this absolute path.
    Unix(PathBuf),
    /// TCP on one address.
    Tcp(SocketAddr),
    /// TCP on every address of both families, `[::]` first and `0.0.0.0` where there is no IPv6 (a bare port).
    TcpAny(u16),
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
