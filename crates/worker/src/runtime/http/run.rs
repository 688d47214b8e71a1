//! Passes requests on to an HTTP program and its answers back.

use super::answer::{Answer, Malformed, Part};
use super::head::{self, Framing};
use super::program::Processes;
use super::share::Share;
use crate::config::{self, Address};
use crate::runtime::refuse;
use crate::sys::{Error, fd, socket};
use crate::worker::{ClientGone, Peer, Request, Runtime, Sink, Stop, relay};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// How long a connection to the program may take.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// Answers requests by asking a program that speaks HTTP/1.1.
#[derive(Debug)]
pub struct Http {
    server: Server,
}

/// Who is asked.
#[derive(Debug)]
enum Server {
    /// Somebody else's program.
    There {
        address: Address,
        /// A connection that can serve another request.
        kept: Option<OwnedFd>,
    },
    /// One that was started for the pool.
    Started(Processes),
}

impl Http {
    /// A runtime with these settings.
    pub fn new(settings: config::Http) -> Http {
        Http {
            server: Server::There {
                address: settings.address,
                kept: None,
            },
        }
    }

    /// A runtime for the worker in `slot`, by a program that was started for its pool.
    pub fn with_program(program: &config::Program, share: Share, slot: u32) -> Http {
        let processes = Processes::new(share, slot as usize, program.start_timeout);
        Http {
            server: Server::Started(processes),
        }
    }
}

impl Runtime for Http {
    fn answer(&mut self, request: &mut Request<'_>) {
        if !request.is_for_application() {
            return;
        }
        // Whoever is gone needs no answer.
        let _ = match &mut self.server {
            Server::There { address, kept } => serve(request, address, kept),
            Server::Started(processes) => processes.serve(request),
        };
    }
}

fn serve(request: &mut Request<'_>, address: &Address, kept: &mut Option<OwnedFd>) -> Result<(), ClientGone> {
    let (head, framing) = head::write(request.params());
    if let Some(connection) = kept.take().filter(is_quiet) {
        match ask(request, connection, kept, &head, framing) {
            // Closed while the request was on its way. One without a body can be asked again (RFC 9110 section 9.2.2
            // allows that for what is safe or idempotent).
            Outcome::Nothing if framing == Framing::Nothing && is_repeatable(request) => {}
            outcome => return conclude(request, outcome),
        }
    }
    match connect(address) {
        Ok(connection) => {
            let outcome = ask(request, connection, kept, &head, framing);
            conclude(request, outcome)
        }
        Err(error) => {
            log::error!("the application can't be reached: {error}");
            bad_gateway(request, "the application can't be reached")
        }
    }
}

/// Whether a kept connection can be used, because the program has not closed it: nothing is to be read before the next
/// request, neither end of file nor bytes that nobody asked for.
pub(super) fn is_quiet(kept: &OwnedFd) -> bool {
    socket::receive(kept.as_fd(), &mut [0]) == Ok(socket::Progress::WouldBlock)
}

pub(super) fn connect(address: &Address) -> Result<OwnedFd, Error> {
    let connected = match address {
        Address::Unix(path) => UnixStream::connect(path).map(OwnedFd::from),
        Address::Tcp(address) => tcp(*address),
        Address::TcpAny(port) => tcp(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), *port)),
    };
    let connection = connected.map_err(|error| Error::from_io("connect", format!("{address}"), &error))?;
    fd::set_nonblocking(connection.as_fd(), true)?;
    Ok(connection)
}

/// Asks over a connection; one that can serve another request is kept.
pub(super) fn ask(
    request: &mut Request<'_>,
    connection: OwnedFd,
    kept: &mut Option<OwnedFd>,
    head: &[u8],
    framing: Framing,
) -> Outcome {
    let halves = connection
        .try_clone()
        .and_then(|input| Ok((input, connection.try_clone()?)));
    let (input, output) = match halves {
        Ok(halves) => halves,
        Err(error) => return Outcome::Failed(format!("dup: {error}")),
    };
    let peer = Peer {
        head: head.to_vec(),
        chunked: framing == Framing::Chunked,
        input: Some(input),
        output,
        errors: None,
    };
    let mut passing = Passing {
        answer: Answer::new(request.param(b"REQUEST_METHOD") == b"HEAD"),
        pending: Vec::new(),
        malformed: None,
    };
    let outcome = relay(request, peer, &mut passing);
    match outcome {
        Err(Stop::ClientGone | Stop::ClientSilent) => Outcome::ClientGone,
        Err(Stop::Failed(errno)) => Outcome::Failed(format!("poll: {errno}")),
        Err(Stop::Enough) => match passing.malformed {
            Some(malformed) if passing.answer.has_begun() => Outcome::Cut(malformed.to_string()),
            Some(malformed) => Outcome::Failed(malformed.to_string()),
            None => {
                if passing.answer.keeps() && passing.pending.is_empty() {
                    *kept = Some(connection);
                }
                Outcome::Done
            }
        },
        Ok(()) if passing.answer.may_end() => Outcome::Done,
        Ok(()) if passing.answer.has_begun() => {
            Outcome::Cut("it closed the connection in the middle of its answer".into())
        }
        Ok(()) if passing.pending.is_empty() => Outcome::Nothing,
        Ok(()) => Outcome::Failed("it closed the connection in the middle of its answer's head".into()),
    }
}

/// Tells the client what became of a request, as far as it doesn't know.
pub(super) fn conclude(request: &mut Request<'_>, outcome: Outcome) -> Result<(), ClientGone> {
    let why = match outcome {
        Outcome::Done => return Ok(()),
        Outcome::ClientGone => return Err(ClientGone),
        Outcome::Cut(why) => {
            log::error!("an answer of the application is cut short: {why}");
            request.break_off();
            return Err(ClientGone);
        }
        Outcome::Nothing => "it closed the connection without an answer".to_owned(),
        Outcome::Failed(why) => why,
    };
    log::error!("the application gave no answer: {why}");
    bad_gateway(request, "the application gave no answer")
}

/// What became of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    ClientGone,
    /// Not one byte came.
    Nothing,
    /// What came is no answer.
    Failed(String),
    /// The answer broke off after it had begun.
    Cut(String),
}

/// An answer on its way to the client.
struct Passing {
    answer: Answer,
    /// What was read and can't be understood before more comes.
    pending: Vec<u8>,
    malformed: Option<Malformed>,
}

impl Sink for Passing {
    fn output(&mut self, request: &mut Request<'_>, bytes: &[u8]) -> Result<(), Stop> {
        // A body is passed on from where it is; only a torn head or a torn chunk's size is copied.
        let mut joined = std::mem::take(&mut self.pending);
        let mut rest = if joined.is_empty() {
            bytes
        } else {
            joined.extend_from_slice(bytes);
            &joined[..]
        };
        loop {
            let (used, part) = match self.answer.take(rest) {
                Ok(taken) => taken,
                Err(malformed) => {
                    self.malformed = Some(malformed);
                    return Err(Stop::Enough);
                }
            };
            match &part {
                Part::Head(head) => request.write(head)?,
                Part::Body(range) => request.write(&rest[range.clone()])?,
                Part::More | Part::End => {}
            }
            rest = &rest[used..];
            if part == Part::End {
                self.pending = rest.to_vec();
                return Err(Stop::Enough);
            }
            if part == Part::More && used == 0 {
                self.pending = rest.to_vec();
                return Ok(());
            }
        }
    }

    fn errors(&mut self, _: &mut Request<'_>, _: &[u8]) {}
}

fn tcp(address: SocketAddr) -> std::io::Result<OwnedFd> {
    let stream = TcpStream::connect_timeout(&address, CONNECT_LIMIT)?;
    stream.set_nodelay(true)?;
    Ok(stream.into())
}

/// Whether asking twice does what asking once does (RFC 9110 section 9.2.2).
pub(super) fn is_repeatable(request: &Request<'_>) -> bool {
    let method = request.param(b"REQUEST_METHOD");
    matches!(
        method,
        b"GET" | b"HEAD" | b"OPTIONS" | b"TRACE" | b"PUT" | b"DELETE"
    )
}

/// The log says more than the client is told.
pub(super) fn bad_gateway(request: &mut Request<'_>, why: &str) -> Result<(), ClientGone> {
    refuse(request, "502 Bad Gateway", "", why, why)
}
