//! The client of the control socket.

use forkyard_protocol::control::{Answer, Request};
use forkyard_sys::socket::connect_unix_within;
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The longest answer, in bytes: the status of thousands of pools.
const LONGEST_ANSWER: u64 = 256 << 20;
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// The reason for a missing answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// The connection to the socket failed.
    #[error("{0}: {1}; {remedy}", remedy = connect_remedy(.1.kind()))]
    Connect(PathBuf, #[source] io::Error),
    /// The connection was lost.
    #[error("{0}: no answer: {1}")]
    Lost(PathBuf, #[source] io::Error),
    /// The answer is invalid.
    #[error("{0}: this is no answer: {1}")]
    Nonsense(PathBuf, #[source] serde_json::Error),
}

impl AskError {
    /// Whether no daemon answers: none listens, or it took too long.
    pub fn is_silence(&self) -> bool {
        match self {
            AskError::Connect(..) => true,
            AskError::Lost(_, error) => error.kind() == io::ErrorKind::TimedOut,
            AskError::Nonsense(..) => false,
        }
    }
}

fn connect_remedy(kind: io::ErrorKind) -> String {
    match kind {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            let command = start_command(Path::new("/"));
            let starts = command.map_or_else(String::new, |command| format!(" ({command} starts it)"));
            format!("is the daemon running{starts}, and does its configuration have this as control?")
        }
        io::ErrorKind::PermissionDenied => "root and the daemon's own user may ask".to_owned(),
        _ => "it must be the daemon's control socket".to_owned(),
    }
}

/// Returns the command that starts an installed daemon. `root` is the root of the file system.
fn start_command(root: &Path) -> Option<&'static str> {
    let has = |path: &str| root.join(path).exists();
    let units = ["etc", "usr/lib", "lib"].map(|prefix| format!("{prefix}/systemd/system/forkyard.service"));
    // The running init is systemd (sd_booted(3)).
    if has("run/systemd/system") && units.iter().any(|unit| has(unit)) {
        return Some("systemctl start forkyard");
    }
    has("etc/init.d/forkyard").then_some("service forkyard start")
}

/// Returns the path of the socket for application owners.
pub fn owners_socket(control: &Path) -> PathBuf {
    let mut path = OsString::from(control);
    path.push(".owners");
    PathBuf::from(path)
}

/// A suspended daemon accepts no connection, and its backlog may be full.
fn connect(path: &Path) -> io::Result<UnixStream> {
    let connected = connect_unix_within(path, CONNECT_LIMIT);
    let connected = connected.map_err(|error| io::Error::from_raw_os_error(error.errno as i32));
    connected.map(UnixStream::from)
}

/// A connection to a daemon.
#[derive(Debug)]
pub struct Conversation {
    path: PathBuf,
    stream: BufReader<UnixStream>,
    patience: Option<Duration>,
}

impl Conversation {
    /// Connects to the control socket, or to the owners' socket if the caller has no permission.
    ///
    /// # Errors
    /// The connection failed.
    pub fn begin(path: &Path) -> Result<Conversation, AskError> {
        log::debug!(target: "forkyard::control", "connecting to the daemon at {}", path.display());
        let stream = match connect(path) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                connect(&owners_socket(path)).map_err(|_| error)
            }
            connected => connected,
        };
        let stream = stream.map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => late(path, CONNECT_LIMIT),
            _ => AskError::Connect(path.to_owned(), error),
        })?;
        Ok(Conversation {
            path: path.to_owned(),
            stream: BufReader::new(stream),
            patience: None,
        })
    }

    /// Waits for each answer this long at most.
    ///
    /// # Errors
    /// The system refuses the time.
    pub fn with_patience(mut self, patience: Duration) -> Result<Conversation, AskError> {
        self.wait_at_most(Some(patience))?;
        Ok(self)
    }

    /// Waits until the daemon answers, this long at most. Later answers may take any time.
    ///
    /// # Errors
    /// The daemon does not answer.
    pub fn awake_within(self, patience: Duration) -> Result<Conversation, AskError> {
        let mut daemon = self.with_patience(patience)?;
        daemon.ask(&Request::Ping {})?;
        daemon.wait_at_most(None)?;
        Ok(daemon)
    }

    fn wait_at_most(&mut self, patience: Option<Duration>) -> Result<(), AskError> {
        let set = self.stream.get_ref().set_read_timeout(patience);
        set.map_err(|error| AskError::Lost(self.path.clone(), error))?;
        self.patience = patience;
        Ok(())
    }

    /// Sends a request and waits for the answer.
    ///
    /// # Errors
    /// The connection was lost, or the answer is invalid. A rejected request returns [`Answer::Error`].
    pub fn ask(&mut self, request: &Request) -> Result<Answer, AskError> {
        let answer = self.exchange(serde_json::to_vec(request).unwrap_or_default())?;
        serde_json::from_slice(&answer).map_err(|error| AskError::Nonsense(self.path.clone(), error))
    }

    /// Sends a line and returns the line that answers.
    ///
    /// # Errors
    /// The connection was lost.
    pub fn exchange(&mut self, mut line: Vec<u8>) -> Result<Vec<u8>, AskError> {
        let (path, patience) = (self.path.clone(), self.patience);
        let lost = move |error: io::Error| match patience {
            Some(patience) if error.kind() == io::ErrorKind::WouldBlock => late(&path, patience),
            _ => AskError::Lost(path.clone(), error),
        };
        log::debug!(target: "forkyard::control", "asking {}", String::from_utf8_lossy(&line));
        line.push(b'\n');
        // A daemon that rejects the connection does not read the request; its error is read below.
        let _ = self.stream.get_mut().write_all(&line);
        let mut answer = Vec::new();
        (&mut self.stream)
            .take(LONGEST_ANSWER)
            .read_until(b'\n', &mut answer)
            .map_err(&lost)?;
        if answer.last() != Some(&b'\n') {
            return Err(lost(io::ErrorKind::UnexpectedEof.into()));
        }
        log::debug!(target: "forkyard::control", "answered in {} bytes", answer.len());
        Ok(answer)
    }
}

/// Returns the error for an answer that took too long.
pub fn late(socket: &Path, patience: Duration) -> AskError {
    let error = io::Error::new(
        io::ErrorKind::TimedOut,
        format!("the daemon did not answer within {} s", patience.as_secs()),
    );
    AskError::Lost(socket.to_owned(), error)
}

/// Connects, sends a request and waits for the answer.
///
/// # Errors
/// See [`AskError`]. A rejected request returns [`Answer::Error`].
pub fn ask(path: &Path, request: &Request) -> Result<Answer, AskError> {
    Conversation::begin(path)?.ask(request)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn what_starts_the_daemon_is_what_the_package_brought() {
        let root = tempfile::tempdir().unwrap();
        let make = |path: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        };
        assert_eq!(start_command(root.path()), None);
        make("lib/systemd/system/forkyard.service");
        assert_eq!(start_command(root.path()), None);
        make("etc/init.d/forkyard");
        assert_eq!(start_command(root.path()), Some("service forkyard start"));
        fs::create_dir_all(root.path().join("run/systemd/system")).unwrap();
        assert_eq!(start_command(root.path()), Some("systemctl start forkyard"));
    }

    #[test]
    fn the_owners_socket_lies_beside_the_other() {
        let path = owners_socket(Path::new("/run/forkyard.sock"));
        assert_eq!(path, Path::new("/run/forkyard.sock.owners"));
    }
}
