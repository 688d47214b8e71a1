//! A small independent FastCGI client: a bug in the library's codec can't hide itself.

use crate::support::prelude::*;
use std::io;

const PATIENCE: Duration = Duration::from_secs(20);

const MAX_CONTENT: usize = 65_535;
const END_REQUEST: u8 = 3;

#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) params: Vec<(Vec<u8>, Vec<u8>)>,
    pub(crate) body: Vec<u8>,
}

impl Request {
    /// nginx's parameters for a script below `root`; `uri` may have a query.
    pub(crate) fn get(root: &Path, uri: &str) -> Request {
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        let root = root.display();
        Request {
            params: Vec::new(),
            body: Vec::new(),
        }
        .with("QUERY_STRING", query)
        .with("REQUEST_METHOD", "GET")
        .with("CONTENT_TYPE", "")
        .with("CONTENT_LENGTH", "")
        .with("SCRIPT_FILENAME", &format!("{root}{path}"))
        .with("SCRIPT_NAME", path)
        .with("REQUEST_URI", uri)
        .with("DOCUMENT_URI", path)
        .with("DOCUMENT_ROOT", &root.to_string())
        .with("SERVER_PROTOCOL", "HTTP/1.1")
        .with("GATEWAY_INTERFACE", "CGI/1.1")
        .with("SERVER_SOFTWARE", "nginx/1.22.1")
        .with("REMOTE_ADDR", "127.0.0.1")
        .with("REMOTE_PORT", "54321")
        .with("SERVER_ADDR", "127.0.0.1")
        .with("SERVER_PORT", "80")
        .with("SERVER_NAME", "example.org")
        .with("REDIRECT_STATUS", "200")
        .with("HTTP_HOST", "example.org")
    }

    pub(crate) fn post(root: &Path, uri: &str, content_type: &str, body: impl Into<Vec<u8>>) -> Request {
        let body = body.into();
        let length = body.len().to_string();
        let mut request = Request::get(root, uri)
            .with("REQUEST_METHOD", "POST")
            .with("CONTENT_TYPE", content_type)
            .with("CONTENT_LENGTH", &length);
        request.body = body;
        request
    }

    pub(crate) fn with(mut self, name: &str, value: &str) -> Request {
        let (name, value) = (name.as_bytes().to_vec(), value.as_bytes().to_vec());
        match self.params.iter_mut().find(|(known, _)| *known == name) {
            Some(pair) => pair.1 = value,
            None => self.params.push((name, value)),
        }
        self
    }

    pub(crate) fn without(mut self, name: &str) -> Request {
        self.params.retain(|(known, _)| known != name.as_bytes());
        self
    }

    pub(crate) fn encode(&self, keep: bool) -> Vec<u8> {
        let mut wire = record(1, &[0, 1, u8::from(keep), 0, 0, 0, 0, 0]);
        let mut pairs = Vec::new();
        for (name, value) in &self.params {
            let pair = pair(name, value);
            if pairs.len() + pair.len() > MAX_CONTENT {
                wire.extend(record(4, &std::mem::take(&mut pairs)));
            }
            pairs.extend(pair);
        }
        wire.extend(record(4, &pairs));
        if !pairs.is_empty() {
            wire.extend(record(4, &[]));
        }
        for piece in self.body.chunks(MAX_CONTENT) {
            wire.extend(record(5, piece));
        }
        wire.extend(record(5, &[]));
        wire
    }

    pub(crate) fn send(&self, socket: &Path) -> Reply {
        send(self.encode(false), socket)
    }

    /// Sends the request and reads the first bytes of output, then leaves.
    pub(crate) fn send_and_leave(&self, socket: &Path) {
        let mut connection = open(socket);
        connection
            .write_all(&self.encode(false))
            .expect("the request is sent");
        let mut header = [0; 8];
        connection.read_exact(&mut header).expect("some output comes");
    }
}

pub(crate) fn send(wire: Vec<u8>, socket: &Path) -> Reply {
    let mut connection = open(socket);
    let mut writer = connection.try_clone().expect("a second handle");
    let sender = std::thread::spawn(move || writer.write_all(&wire).is_ok());
    let mut bytes = Vec::new();
    let is_reset = connection.read_to_end(&mut bytes).is_err();
    let _ = sender.join();
    Reply::decode(&bytes, is_reset)
}

fn open(socket: &Path) -> UnixStream {
    let connection = UnixStream::connect(socket).expect("the server listens");
    connection.set_read_timeout(Some(PATIENCE)).expect("a time limit");
    connection
}

#[derive(Debug)]
pub(crate) struct Kept(UnixStream);

impl Kept {
    pub(crate) fn open(socket: &Path) -> Kept {
        Kept(open(socket))
    }

    pub(crate) fn send(&mut self, request: &Request) -> Reply {
        let reply = self.try_send(request).expect("the connection works");
        assert!(reply.end.is_some(), "no END_REQUEST: {reply:?}");
        reply
    }

    pub(crate) fn try_send(&mut self, request: &Request) -> io::Result<Reply> {
        self.0.write_all(&request.encode(true))?;
        let mut bytes = Vec::new();
        loop {
            let mut header = [0; 8];
            match self.0.read_exact(&mut header) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
                other => other?,
            }
            let content = usize::from(u16::from_be_bytes([header[4], header[5]])) + usize::from(header[6]);
            bytes.extend(header);
            let begin = bytes.len();
            bytes.resize(begin + content, 0);
            self.0.read_exact(&mut bytes[begin..])?;
            if header[1] == END_REQUEST {
                break;
            }
        }
        Ok(Reply::decode(&bytes, false))
    }
}

fn pair(name: &[u8], value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for text in [name, value] {
        match u8::try_from(text.len()) {
            Ok(length) if length < 128 => bytes.push(length),
            _ => bytes.extend((text.len() as u32 | 1 << 31).to_be_bytes()),
        }
    }
    bytes.extend(name);
    bytes.extend(value);
    bytes
}

pub(crate) fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(content.len())
        .expect("a record's content")
        .to_be_bytes();
    let mut bytes = vec![1, kind, 0, 1, length[0], length[1], 0, 0];
    bytes.extend(content);
    bytes
}

#[derive(Clone, PartialEq, Eq, Default)]
pub(crate) struct Reply {
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    pub(crate) end: Option<(u32, u8)>,
    pub(crate) is_reset: bool,
    pub(crate) records: Vec<String>,
}

impl Reply {
    fn decode(mut bytes: &[u8], is_reset: bool) -> Reply {
        let mut reply = Reply {
            is_reset,
            ..Reply::default()
        };
        while let [_, kind, _, _, high, low, padding, _, rest @ ..] = bytes {
            let length = usize::from(u16::from_be_bytes([*high, *low]));
            let whole = length + usize::from(*padding);
            assert!(rest.len() >= whole, "a record is cut off");
            let content = &rest[..length];
            let name = match (*kind, length) {
                (kind, 0) => format!("empty {kind}"),
                (6, _) => "STDOUT".to_owned(),
                (7, _) => "STDERR".to_owned(),
                (END_REQUEST, _) => "END_REQUEST".to_owned(),
                (kind, _) => kind.to_string(),
            };
            if length == 0 || reply.records.last() != Some(&name) {
                reply.records.push(name);
            }
            match *kind {
                6 => reply.stdout.extend(content),
                7 => reply.stderr.extend(content),
                END_REQUEST => {
                    let status = u32::from_be_bytes([content[0], content[1], content[2], content[3]]);
                    reply.end = Some((status, content[4]));
                }
                other => panic!("record of type {other}"),
            }
            bytes = &rest[whole..];
        }
        assert!(bytes.is_empty(), "bytes after the last record");
        reply
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    pub(crate) fn body(&self) -> String {
        self.text()
            .split_once("\r\n\r\n")
            .map(|(_, body)| body.to_owned())
            .unwrap_or_default()
    }

    pub(crate) fn errors(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }
}

impl std::fmt::Debug for Reply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const SHOWN: usize = 6000;
        let text = self.text();
        let shown: String = text.chars().take(SHOWN).collect();
        writeln!(f, "--- {} bytes of output", self.stdout.len())?;
        writeln!(f, "{}", shown.replace('\r', "\\r"))?;
        writeln!(f, "--- errors: {}", self.errors())?;
        writeln!(f, "--- records {:?}", self.records)?;
        write!(f, "--- end {:?}, reset {}", self.end, self.is_reset)
    }
}
