//! A FastCGI client over a unix socket or TCP, on forkyard's own codec. (Independent peers have separate tests.)

use fastcgi::{Answer as Wire, Part, Request};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

pub fn encoded(request: &Request) -> Vec<u8> {
    let mut wire = Vec::new();
    request.encode(&mut wire);
    wire
}

#[derive(Clone, Debug)]
pub struct Params(pub Vec<(String, String)>);

impl Params {
    pub fn get(root: &Path, script: &str, query: &str) -> Params {
        let root = root.display().to_string();
        let name = format!("/{}", script.trim_start_matches('/'));
        let uri = if query.is_empty() {
            name.clone()
        } else {
            format!("{name}?{query}")
        };
        let pairs = [
            ("QUERY_STRING", query),
            ("REQUEST_METHOD", "GET"),
            ("CONTENT_TYPE", ""),
            ("CONTENT_LENGTH", ""),
            ("SCRIPT_NAME", &name),
            ("REQUEST_URI", &uri),
            ("DOCUMENT_URI", &name),
            ("DOCUMENT_ROOT", &root),
            ("SERVER_PROTOCOL", "HTTP/1.1"),
            ("REQUEST_SCHEME", "http"),
            ("GATEWAY_INTERFACE", "CGI/1.1"),
            ("SERVER_SOFTWARE", "nginx/1.22.1"),
            ("REMOTE_ADDR", "127.0.0.1"),
            ("REMOTE_PORT", "50000"),
            ("SERVER_ADDR", "127.0.0.1"),
            ("SERVER_PORT", "80"),
            ("SERVER_NAME", "localhost"),
            ("REDIRECT_STATUS", "200"),
            ("SCRIPT_FILENAME", &format!("{root}{name}")),
            ("HTTP_HOST", "localhost"),
        ];
        Params(
            pairs
                .iter()
                .map(|(n, v)| ((*n).to_owned(), (*v).to_owned()))
                .collect(),
        )
    }

    pub fn pairs(&self) -> Vec<(&[u8], &[u8])> {
        let pairs = self.0.iter();
        pairs
            .map(|(name, value)| (name.as_bytes(), value.as_bytes()))
            .collect()
    }

    pub fn with(mut self, name: &str, value: &str) -> Params {
        match self.0.iter_mut().find(|(n, _)| n == name) {
            Some(pair) => value.clone_into(&mut pair.1),
            None => self.0.push((name.to_owned(), value.to_owned())),
        }
        self
    }
}

impl Params {
    /// The bytes of a request.
    pub fn request(&self, body: &[u8]) -> Vec<u8> {
        let params = &self.pairs();
        encoded(&Request {
            params,
            body,
            ..Request::default()
        })
    }

    /// The bytes of a request up to its body, and the rest.
    pub fn request_in_two(&self, body: &[u8]) -> (Vec<u8>, Vec<u8>) {
        // An empty body still has its end record: a header of eight bytes.
        let head = self.request(b"").len() - 8;
        let mut whole = self.request(body);
        let rest = whole.split_off(head);
        (whole, rest)
    }

    /// Of a request with a body.
    pub fn posting(self, length: impl std::fmt::Display) -> Params {
        self.with("REQUEST_METHOD", "POST")
            .with("CONTENT_LENGTH", &length.to_string())
    }
}

#[derive(Debug, Clone, Default)]
pub struct Answer {
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub ended: bool,
    pub app_status: u32,
}

impl Answer {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    pub fn body(&self) -> String {
        let text = self.text();
        text.split_once("\r\n\r\n")
            .map_or_else(String::new, |(_, body)| body.to_owned())
    }

    /// The status line's text; `200` where there is none.
    pub fn status(&self) -> String {
        let text = self.text();
        let line = text.lines().find_map(|line| line.strip_prefix("Status: "));
        line.unwrap_or("200").trim().to_owned()
    }

    pub fn error_id(&self) -> String {
        let text = self.text();
        let id = text
            .split_once("(error ")
            .and_then(|(_, rest)| rest.split_once(')'));
        id.unwrap_or_else(|| panic!("no id in {text}")).0.to_owned()
    }

    pub fn error_text(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }
}

trait Stream: Read + Write + Send {
    fn shut(&self);
    fn wait_at_most(&self, time: Duration);
    fn again(&self) -> io::Result<Box<dyn Stream>>;
    /// Closes the connection for every process that has it: one that another test starts has a copy until its exec.
    fn leave(self: Box<Self>);
}

impl Stream for UnixStream {
    fn wait_at_most(&self, time: Duration) {
        self.set_read_timeout(Some(time)).expect("a timeout");
    }

    fn shut(&self) {
        let _ = self.shutdown(std::net::Shutdown::Write);
    }

    fn again(&self) -> io::Result<Box<dyn Stream>> {
        Ok(Box::new(self.try_clone()?))
    }

    fn leave(self: Box<Self>) {
        let _ = self.shutdown(std::net::Shutdown::Both);
    }
}

impl Stream for TcpStream {
    fn wait_at_most(&self, time: Duration) {
        self.set_read_timeout(Some(time)).expect("a timeout");
    }

    fn shut(&self) {
        let _ = self.shutdown(std::net::Shutdown::Write);
    }

    fn again(&self) -> io::Result<Box<dyn Stream>> {
        Ok(Box::new(self.try_clone()?))
    }

    fn leave(self: Box<Self>) {
        let port = self.local_addr().expect("an address").port();
        drop(self);
        super::wait_until("nobody to have the connection", || !is_held(port));
    }
}

/// Whether a process has an IPv4 socket with this local port.
fn is_held(port: u16) -> bool {
    let connections = super::read_file("/proc/net/tcp");
    connections.lines().skip(1).any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields[1].ends_with(&format!(":{port:04X}")) && fields[9] != "0"
    })
}

pub struct Client {
    stream: Box<dyn Stream>,
    wire: Wire,
    input: Vec<u8>,
    pub keep: bool,
}

impl Client {
    pub fn connect(path: &Path) -> io::Result<Client> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(super::PATIENCE))?;
        Ok(Client::over(Box::new(stream)))
    }

    pub fn connect_tcp(address: &str) -> io::Result<Client> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(super::PATIENCE))?;
        Ok(Client::over(Box::new(stream)))
    }

    fn over(stream: Box<dyn Stream>) -> Client {
        Client {
            stream,
            wire: Wire::new(),
            input: Vec::new(),
            keep: false,
        }
    }

    pub fn kept(mut self) -> Client {
        self.keep = true;
        self
    }

    /// Reading fails after this time.
    pub fn patient_for(self, time: Duration) -> Client {
        self.stream.wait_at_most(time);
        self
    }

    pub fn split(self) -> (Client, Client) {
        let stream = self.stream.again().expect("dup");
        let sender = Client {
            stream,
            wire: Wire::new(),
            input: Vec::new(),
            keep: self.keep,
        };
        (self, sender)
    }

    pub fn request(&mut self, params: &Params, body: &[u8]) -> io::Result<Answer> {
        self.send(params, body)?;
        self.answer()
    }

    pub fn send(&mut self, params: &Params, body: &[u8]) -> io::Result<()> {
        self.send_raw(&encoded(&Request {
            keep: self.keep,
            params: &params.pairs(),
            body,
            ..Request::default()
        }))
    }

    pub fn send_raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    pub fn shut(&self) {
        self.stream.shut();
    }

    pub fn leave(self) {
        self.stream.leave();
    }

    pub fn answer(&mut self) -> io::Result<Answer> {
        let mut answer = Answer::default();
        loop {
            let mut at = 0;
            while at < self.input.len() {
                let (used, part) = self.wire.receive(&self.input[at..]);
                at += used;
                match part {
                    Part::More => break,
                    Part::Stdout(bytes) => answer.stdout.extend_from_slice(bytes),
                    Part::Stderr(bytes) => answer.stderr.extend_from_slice(bytes),
                    Part::Closed(_) | Part::Other(..) => {}
                    Part::End { app_status, .. } => {
                        (answer.ended, answer.app_status) = (true, app_status);
                        self.input.drain(..at);
                        return Ok(answer);
                    }
                    Part::Broken => return Err(io::Error::other("not FastCGI")),
                }
            }
            self.input.clear();
            let mut buffer = [0; 64 * 1024];
            match self.stream.read(&mut buffer) {
                Ok(0) => return Ok(answer),
                Ok(count) => self.input.extend_from_slice(&buffer[..count]),
                // A wait with a timeout fails like this if the test was stopped and continued (signal(7)).
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    pub fn read_some(&mut self) -> io::Result<String> {
        let mut buffer = [0; 64 * 1024];
        let count = self.stream.read(&mut buffer)?;
        Ok(String::from_utf8_lossy(&buffer[..count]).into_owned())
    }

    pub fn read_raw(&mut self) -> io::Result<Vec<u8>> {
        let mut bytes = std::mem::take(&mut self.input);
        self.stream.read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}
