//! Answers to clients, with streamed bodies from the application or a file.

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use hyper::{HeaderMap, Response, StatusCode, header};
use std::convert::Infallible;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::AsyncReadExt;
use tokio::sync::mpsc;

const WAITING: usize = 8;
const PIECE: usize = 64 * 1024;

pub(crate) const WEBSOCKET: &str = "websocket";

pub(crate) type Sender = mpsc::Sender<io::Result<Bytes>>;
pub(crate) type Reply = Response<Pieces>;

#[derive(Debug)]
pub(crate) enum Pieces {
    Whole(Option<Bytes>),
    Coming(mpsc::Receiver<io::Result<Bytes>>),
}

pub(crate) fn coming() -> (Sender, Pieces) {
    let (sender, receiver) = mpsc::channel(WAITING);
    (sender, Pieces::Coming(receiver))
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        match &mut *self {
            Pieces::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Pieces::Coming(pieces) => pieces
                .poll_recv(context)
                .map(|piece| piece.map(|piece| piece.map(Frame::data))),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Pieces::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            Pieces::Coming(_) => SizeHint::default(),
        }
    }
}

pub(crate) fn html(status: StatusCode, text: String) -> Reply {
    let mut reply = Response::new(Pieces::Whole(Some(text.into())));
    *reply.status_mut() = status;
    let kind = header::HeaderValue::from_static("text/html; charset=utf-8");
    reply.headers_mut().insert(header::CONTENT_TYPE, kind);
    reply.headers_mut().insert(
        header::CACHE_CONTROL,
        header::HeaderValue::from_static("no-store"),
    );
    reply
}

pub(crate) fn switched(headers: HeaderMap) -> Reply {
    let mut reply = Response::new(Pieces::Whole(None));
    *reply.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    *reply.headers_mut() = headers;
    for (name, value) in [(header::CONNECTION, "upgrade"), (header::UPGRADE, WEBSOCKET)] {
        reply
            .headers_mut()
            .insert(name, header::HeaderValue::from_static(value));
    }
    reply
}

pub(crate) fn moved(to: &str) -> Reply {
    let mut reply = html(StatusCode::MOVED_PERMANENTLY, String::new());
    if let Ok(to) = header::HeaderValue::from_str(to) {
        reply.headers_mut().insert(header::LOCATION, to);
    }
    reply
}

pub(crate) async fn file(path: &Path, wants_body: bool) -> io::Result<Reply> {
    let mut file = tokio::fs::File::open(path).await?;
    let length = file.metadata().await?.len();
    let kind = mime_guess::from_path(path).first_or_octet_stream();
    let text = match (kind.type_(), kind.subtype()) {
        (mime_guess::mime::TEXT, _) | (_, mime_guess::mime::JAVASCRIPT) => format!("{kind}; charset=utf-8"),
        _ => kind.to_string(),
    };
    let (sender, pieces) = coming();
    let builder = Response::builder()
        .header(header::CONTENT_TYPE, text)
        .header(header::CONTENT_LENGTH, length)
        .header(header::CACHE_CONTROL, "no-cache");
    if wants_body {
        tokio::spawn(async move {
            let mut left = length;
            while left > 0 {
                let mut piece = vec![0; PIECE.min(usize::try_from(left).unwrap_or(PIECE))];
                let read = match file.read(&mut piece).await {
                    Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
                    Ok(count) => {
                        piece.truncate(count);
                        left -= count as u64;
                        Ok(Bytes::from(piece))
                    }
                    Err(error) => Err(error),
                };
                let is_over = read.is_err();
                if sender.send(read).await.is_err() || is_over {
                    return;
                }
            }
        });
    }
    builder.body(pieces).map_err(io::Error::other)
}

pub(crate) type Served = Result<Reply, Infallible>;
