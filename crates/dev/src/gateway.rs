//! One request over FastCGI. Both bodies are streamed concurrently, so they can carry a WebSocket.

use crate::answer::{self, Head};
use crate::params::Params;
use crate::reply::{self, Pieces, Reply, coming};
use bytes::{Buf, Bytes, BytesMut};
use fastcgi::{Answer, MAX_CONTENT, Part, RecordType, Request, header};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper::upgrade::OnUpgrade;
use hyper::{Response, StatusCode};
use hyper_util::rt::TokioIo;
use std::io;
use std::path::Path;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::task::JoinHandle;

const ID: u16 = 1;
const PIECE: usize = 64 * 1024;
const MOST_ERRORS: usize = 64 * 1024;

pub(crate) enum Upload {
    Coming(Incoming),
    Whole(Bytes),
    /// Another protocol, if the application agrees to it.
    Tunnel(OnUpgrade),
}

pub(crate) struct Begun {
    pub(crate) head: Head,
    pub(crate) first: Bytes,
    stream: Stream,
    tunnel: Option<Tunnel>,
}

struct Tunnel {
    client: OnUpgrade,
    write: OwnedWriteHalf,
}

struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

struct Stream {
    read: OwnedReadHalf,
    records: Answer,
    input: BytesMut,
    errors: Vec<u8>,
    is_over: bool,
    _upload: Option<Task>,
}

pub(crate) async fn ask(socket: &Path, params: &Params, upload: Upload) -> io::Result<Begun> {
    let stream = UnixStream::connect(socket).await?;
    let (read, mut write) = stream.into_split();
    let pairs: Vec<(&[u8], &[u8])> = params
        .iter()
        .map(|(name, value)| (&name[..], &value[..]))
        .collect();
    let mut wire = Vec::new();
    let request = Request {
        id: ID,
        params: &pairs,
        ..Request::default()
    };
    request.encode_head(&mut wire);
    let (sending, tunnel) = match upload {
        Upload::Tunnel(client) => {
            write.write_all(&wire).await?;
            (None, Some(Tunnel { client, write }))
        }
        Upload::Coming(body) => (Some(send(wire, write, body)), None),
        Upload::Whole(bytes) => (Some(send(wire, write, Full::new(bytes))), None),
    };
    let mut stream = Stream {
        read,
        records: Answer::new(),
        input: BytesMut::new(),
        errors: Vec::new(),
        is_over: false,
        _upload: sending,
    };
    let mut text = BytesMut::new();
    loop {
        if let Some(head) = answer::head(&text).map_err(io::Error::other)? {
            text.advance(head.length);
            return Ok(Begun {
                head,
                first: text.freeze(),
                stream,
                tunnel,
            });
        }
        match stream.next().await? {
            Some(piece) => text.extend_from_slice(&piece),
            None if text.is_empty() => {
                return Err(io::Error::other(
                    "the application closed the connection without an answer",
                ));
            }
            None => {
                return Err(io::Error::other(
                    "the application's answer has no complete header",
                ));
            }
        }
    }
}

fn send<B>(wire: Vec<u8>, mut write: OwnedWriteHalf, mut body: B) -> Task
where
    B: Body<Data = Bytes, Error: std::error::Error + Send + Sync> + Send + Unpin + 'static,
{
    Task(tokio::spawn(async move {
        let _ = async {
            write.write_all(&wire).await?;
            while let Some(frame) = body.frame().await {
                let frame = frame.map_err(io::Error::other)?;
                if let Some(data) = frame.data_ref() {
                    send_piece(&mut write, data).await?;
                }
            }
            write.write_all(&header(RecordType::Stdin, ID, 0, 0)).await
        }
        .await;
        // Closing signals the worker that the client is gone, so keep it open until the answer ends.
        std::future::pending::<()>().await;
        drop(write);
    }))
}

async fn send_piece(write: &mut OwnedWriteHalf, data: &[u8]) -> io::Result<()> {
    for piece in data.chunks(MAX_CONTENT) {
        write
            .write_all(&header(RecordType::Stdin, ID, piece.len() as u16, 0))
            .await?;
        write.write_all(piece).await?;
    }
    Ok(())
}

impl Begun {
    pub(crate) fn errors(&self) -> String {
        String::from_utf8_lossy(&self.stream.errors).into_owned()
    }

    pub(crate) async fn collect(&mut self, most: usize) -> Bytes {
        let mut whole = BytesMut::from(&self.first[..]);
        while whole.len() <= most {
            match self.stream.next().await {
                Ok(Some(piece)) => whole.extend_from_slice(&piece),
                Ok(None) | Err(_) => break,
            }
        }
        self.first = whole.freeze();
        self.first.clone()
    }

    pub(crate) fn reply(self) -> Reply {
        let Begun {
            head,
            first,
            mut stream,
            tunnel,
        } = self;
        if let Some(tunnel) = tunnel.filter(|_| head.status == StatusCode::SWITCHING_PROTOCOLS) {
            tokio::spawn(async move {
                let _ = tunnel.carry(&first, stream).await;
            });
            return reply::switched(head.headers);
        }
        let (sender, pieces) = coming();
        tokio::spawn(async move {
            if !first.is_empty() && sender.send(Ok(first)).await.is_err() {
                return;
            }
            loop {
                let next = tokio::select! {
                    next = stream.next() => next,
                    () = sender.closed() => return,
                };
                let piece = match next {
                    Ok(Some(piece)) => Ok(piece),
                    Ok(None) => return,
                    Err(error) => Err(error),
                };
                let is_over = piece.is_err();
                if sender.send(piece).await.is_err() || is_over {
                    return;
                }
            }
        });
        let mut reply: Response<Pieces> = Response::new(pieces);
        *reply.status_mut() = head.status;
        *reply.headers_mut() = head.headers;
        reply
    }
}

impl Tunnel {
    /// Carries bytes both ways until either end closes. `first`: bytes already received from the application.
    async fn carry(self, first: &[u8], mut stream: Stream) -> io::Result<()> {
        let client = self.client.await.map_err(io::Error::other)?;
        let (mut from, mut to) = tokio::io::split(TokioIo::new(client));
        let mut write = self.write;
        let incoming = async {
            let mut piece = vec![0; PIECE];
            loop {
                match from.read(&mut piece).await? {
                    0 => return Ok(()),
                    count => send_piece(&mut write, &piece[..count]).await?,
                }
            }
        };
        let outgoing = async {
            to.write_all(first).await?;
            while let Some(piece) = stream.next().await? {
                to.write_all(&piece).await?;
            }
            to.shutdown().await
        };
        tokio::select! {
            ended = incoming => ended,
            ended = outgoing => ended,
        }
    }
}

impl Stream {
    async fn next(&mut self) -> io::Result<Option<Bytes>> {
        loop {
            while !self.is_over {
                let (used, part) = self.records.receive(&self.input);
                let piece = match part {
                    Part::More => None,
                    Part::Stdout(piece) => Some(Bytes::copy_from_slice(piece)),
                    Part::Stderr(text) => {
                        let room = MOST_ERRORS.saturating_sub(self.errors.len());
                        self.errors.extend_from_slice(&text[..text.len().min(room)]);
                        Some(Bytes::new())
                    }
                    Part::End { .. } => {
                        self.is_over = true;
                        Some(Bytes::new())
                    }
                    Part::Closed(_) | Part::Other(..) => Some(Bytes::new()),
                    Part::Broken => return Err(io::Error::other("the daemon's answer is not FastCGI")),
                };
                self.input.advance(used);
                match piece {
                    None => break,
                    Some(piece) if piece.is_empty() => {}
                    Some(piece) => return Ok(Some(piece)),
                }
            }
            if self.is_over {
                return Ok(None);
            }
            self.input.reserve(PIECE);
            if self.read.read_buf(&mut self.input).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}
