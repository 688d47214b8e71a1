//! Connections of either kind.

use crate::arguments::Address;
use mio::event::Source;
use mio::net::{TcpStream, UnixStream};
use std::fmt::Debug;
use std::io::{self, Read, Write};

/// A non-blocking connection, possibly still connecting.
pub(crate) trait Stream: Source + Read + Write + Debug {}

impl Stream for UnixStream {}
impl Stream for TcpStream {}

pub(crate) fn connect(address: &Address, keep: bool) -> io::Result<Box<dyn Stream>> {
    Ok(match address {
        Address::Unix(path) => Box::new(UnixStream::connect(path)?),
        Address::Tcp(address) => {
            let stream = TcpStream::connect(*address)?;
            if keep {
                stream.set_nodelay(true)?;
            }
            Box::new(stream)
        }
    })
}
