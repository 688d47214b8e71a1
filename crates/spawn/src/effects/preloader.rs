//! A conversation with a preloader: connect, send a line, read a line.

use super::{Effects, Watched};
use crate::error::Fault;
use crate::event::{JourneyId, News};
use crate::handshake::properties::Address;
use crate::preloader::wire::{MOST_ANSWER, spawn_command};
use mio::event::Source;
use mio::net::{TcpStream, UnixStream};
use mio::{Interest, Registry, Token};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr};

/// One conversation.
#[derive(Debug)]
pub(super) struct Talk {
    stream: Stream,
    command: Vec<u8>,
    sent: usize,
    is_connected: bool,
    answer: Vec<u8>,
}

#[derive(Debug)]
enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Stream {
    fn connect(address: &Address) -> io::Result<Stream> {
        match address {
            Address::Unix(path) => UnixStream::connect(path).map(Stream::Unix),
            Address::Tcp(host, port) => {
                let host = if host == "localhost" { "127.0.0.1" } else { host };
                let ip: IpAddr = host
                    .parse()
                    .map_err(|_| io::Error::new(ErrorKind::InvalidInput, "the host is not an IP address"))?;
                TcpStream::connect(SocketAddr::new(ip, *port)).map(Stream::Tcp)
            }
        }
    }

    fn source(&mut self) -> &mut dyn Source {
        match self {
            Stream::Unix(stream) => stream,
            Stream::Tcp(stream) => stream,
        }
    }

    fn check(&self) -> io::Result<()> {
        let (error, peer) = match self {
            Stream::Unix(stream) => (stream.take_error()?, stream.peer_addr().map(drop)),
            Stream::Tcp(stream) => (stream.take_error()?, stream.peer_addr().map(drop)),
        };
        error.map_or(peer, Err)
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => stream.read(buffer),
            Stream::Tcp(stream) => stream.read(buffer),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => stream.write(bytes),
            Stream::Tcp(stream) => stream.write(bytes),
        }
    }
}

impl Talk {
    fn begin(address: &Address, command: Vec<u8>, registry: &Registry, token: Token) -> io::Result<Talk> {
        let mut stream = Stream::connect(address)?;
        registry.register(stream.source(), token, Interest::READABLE | Interest::WRITABLE)?;
        Ok(Talk {
            stream,
            command,
            sent: 0,
            is_connected: false,
            answer: Vec::new(),
        })
    }

    pub(super) fn unwatch(&mut self, registry: &Registry) {
        let _ = registry.deregister(self.stream.source());
    }

    /// Goes on as far as it can; says what happened, and whether the conversation is over.
    fn go_on(&mut self) -> (Vec<News>, bool) {
        let mut news = Vec::new();
        match self.try_on(&mut news) {
            Ok(over) => (news, over),
            Err(error) => {
                news.push(News::Lost(lost(&error)));
                (news, true)
            }
        }
    }

    fn try_on(&mut self, news: &mut Vec<News>) -> io::Result<bool> {
        if !self.is_connected {
            match self.stream.check() {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::NotConnected => return Ok(false),
                Err(error) => return Err(error),
            }
            self.is_connected = true;
            news.push(News::Connected);
        }
        while self.sent < self.command.len() {
            match self.stream.write(&self.command[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if self.sent == self.command.len() {
                news.push(News::Sent);
            }
        }
        let mut chunk = [0; 4096];
        loop {
            let count = match self.stream.read(&mut chunk) {
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if count == 0 && self.answer.is_empty() {
                return Err(io::Error::from_raw_os_error(nix::errno::Errno::ECONNRESET as i32));
            }
            self.answer.extend_from_slice(&chunk[..count]);
            let line = self.answer.iter().position(|byte| *byte == b'\n');
            if count == 0 || line.is_some() || self.answer.len() > MOST_ANSWER {
                let length = line.unwrap_or(self.answer.len());
                news.push(News::Answered(self.answer[..length].to_vec()));
                return Ok(true);
            }
        }
    }
}

fn lost(error: &io::Error) -> Fault {
    Fault {
        text: error.to_string(),
        errno: error.raw_os_error().unwrap_or(0),
    }
}

impl Effects {
    pub(super) fn ask(&mut self, id: JourneyId, address: &Address) {
        let token = self.token(id, Watched::Talk);
        let Some(live) = self.live.get_mut(&id) else {
            return;
        };
        if let Some(mut old) = live.talk.take() {
            old.unwatch(&self.registry);
        }
        let Some(directory) = &live.directory else { return };
        let command = spawn_command(directory.path());
        match Talk::begin(address, command, &self.registry, token) {
            Ok(talk) => {
                live.talk = Some(talk);
                // A unix socket is connected already, and makes no event for it later.
                self.talk(id);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => self.tell(id, News::Busy),
            Err(error) => self.tell(id, News::Lost(lost(&error))),
        }
    }

    pub(super) fn talk(&mut self, id: JourneyId) {
        let Some(live) = self.live.get_mut(&id) else {
            return;
        };
        let Some(mut talk) = live.talk.take() else { return };
        let (news, is_over) = talk.go_on();
        if is_over {
            talk.unwatch(&self.registry);
        } else {
            live.talk = Some(talk);
        }
        for piece in news {
            self.tell(id, piece);
        }
    }
}
