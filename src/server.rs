//! The public interface for programs that serve pools with their own functions.

use forkyard_config::{self as config, LogTarget, Workers};
use forkyard_daemon::background;
use forkyard_daemon::master::{self, Frontend, Handlers, RunError};
use forkyard_host::logs::Log;
use forkyard_sys::title;
use forkyard_worker::ClientGone;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

const PROGRAM: &str = "forkyard";

/// A daemon. Functions of this program serve its pools with `runtime = "rust"`.
///
/// ```no_run
/// use forkyard::{Request, Server};
/// use std::io::Write;
///
/// fn hello(request: &mut Request<'_>) {
///     // A client that is gone needs no answer.
///     let _ = request.write_all(b"Content-Type: text/plain\r\n\r\nHello\n");
/// }
///
/// fn main() -> Result<(), forkyard::Error> {
///     Server::from_file("/etc/hello.toml")?
///         .handler("hello", hello)
///         .run()
/// }
/// ```
pub struct Server {
    path: PathBuf,
    loaded: config::Loaded,
    handlers: Handlers,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl Server {
    /// Reads a TOML configuration file.
    ///
    /// Call it at the start of `main`, before any second thread: it moves the environment in memory so that ps(1) can
    /// show process titles.
    ///
    /// # Errors
    /// The file can't be read or is invalid. The error has one line for each mistake.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Server, Error> {
        title::prepare();
        background::look_for_php();
        let path = path.as_ref().to_owned();
        let loaded = config::load(&path).map_err(|errors| Error(Reason::Configuration(errors)))?;
        Ok(Server {
            path,
            loaded,
            handlers: Handlers::new(),
        })
    }

    /// Sets the function that answers the requests of the pool `pool`. Each worker has its own copy of the function's
    /// data, made by fork(2). The daemon answers status and ping itself.
    #[must_use]
    pub fn handler(
        mut self,
        pool: impl Into<String>,
        mut handler: impl FnMut(&mut Request<'_>) + 'static,
    ) -> Server {
        let runtime = move |inner: &mut forkyard_worker::Request<'_>| handler(&mut Request { inner });
        self.handlers.insert(pool.into(), Box::new(runtime));
        self
    }

    /// Runs the daemon until it receives a signal or command to stop, as `forkyard run` does.
    ///
    /// Pools with `status_listen` and pools of other runtimes need forkyard's programs, in this program's directory or in
    /// `PATH`.
    ///
    /// # Errors
    /// The configuration can't be applied: a pool with `runtime = "rust"` has no handler, a socket is taken, a user is
    /// unknown, the log can't be opened, or a system call failed. The error is also in the log.
    pub fn run(self) -> Result<(), Error> {
        let Server {
            path,
            loaded,
            handlers,
        } = self;
        Log::install();
        let inherited = forkyard_daemon::handover::collect();
        master::log_diagnostics(&loaded.warnings);
        let config = loaded.config;
        for name in unused(&config, &handlers) {
            log::warn!("there is a handler for [pool {name}], but no such pool with runtime = \"rust\"");
        }
        let is_seen = config.global.error_log == LogTarget::Stderr;
        let background = config.global.daemonize;
        background::run(
            config,
            handlers,
            Frontend::forkyard(path),
            background,
            &programs(),
            inherited,
        )
        .map_err(|error| {
            // If the log can't be opened, lines go to standard error, where the caller prints the error.
            if !is_seen && !matches!(error, RunError::Log(_)) {
                log::error!("{error}");
            }
            Error(Reason::Run(error))
        })
    }
}

fn unused(config: &config::Config, handlers: &Handlers) -> Vec<String> {
    let has_pool = |name: &String| {
        let mut pools = config.pools.iter();
        pools.any(|pool| pool.name == *name && pool.application.traits().workers == Workers::Daemon)
    };
    let mut names: Vec<String> = handlers.keys().filter(|name| !has_pool(name)).cloned().collect();
    names.sort();
    names
}

/// Returns the directory of forkyard's programs: this program's directory, or the first in `PATH` that has them.
fn programs() -> PathBuf {
    let own = background::program_directory();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::iter::once(own.clone())
        .chain(std::env::split_paths(&path).map(|directory| background::programs_of(&directory)))
        .find(|directory| directory.is_absolute() && directory.join(PROGRAM).is_file());
    found.unwrap_or(own)
}

/// The reason why a [`Server`] did not start or exited. `Debug` prints the same text as `Display`, for a `main` that
/// returns it.
pub struct Error(Reason);

enum Reason {
    Configuration(config::Errors),
    Run(RunError),
}

impl Error {
    /// Whether the configuration file is the cause.
    #[must_use]
    pub fn is_configuration(&self) -> bool {
        matches!(self.0, Reason::Configuration(_) | Reason::Run(RunError::Apply(_)))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Reason::Configuration(errors) => errors.fmt(f),
            Reason::Run(error) => error.fmt(f),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.0 {
            Reason::Configuration(_) => None,
            Reason::Run(error) => error.source(),
        }
    }
}

trait Inner: io::Read + io::Write {
    fn params(&self) -> &fastcgi::Params;
    fn pool(&self) -> &str;
    fn write_error(&mut self, bytes: &[u8]) -> Result<(), ClientGone>;
    fn finish(&mut self) -> Result<(), ClientGone>;
}

impl Inner for forkyard_worker::Request<'_> {
    fn params(&self) -> &fastcgi::Params {
        self.params()
    }

    fn pool(&self) -> &str {
        self.pool()
    }

    fn write_error(&mut self, bytes: &[u8]) -> Result<(), ClientGone> {
        self.write_error(bytes)
    }

    fn finish(&mut self) -> Result<(), ClientGone> {
        self.finish()
    }
}

/// One request. Reading returns the request's body. Writing sends the answer in CGI format: header lines (RFC 3875,
/// section 6), an empty line, the body. Output is buffered and flushed when the handler returns.
///
/// Reading and writing fail after the client has disconnected.
pub struct Request<'r> {
    inner: &'r mut (dyn Inner + 'r),
}

impl Request<'_> {
    /// Returns a parameter from the web server, such as `QUERY_STRING` or `HTTP_HOST`; empty if it is not set.
    #[must_use]
    pub fn param(&self, name: impl AsRef<[u8]>) -> &[u8] {
        self.inner.params().get(name.as_ref()).unwrap_or_default()
    }

    /// Returns the names and values of all parameters, in the order received.
    pub fn params(&self) -> impl ExactSizeIterator<Item = (&[u8], &[u8])> {
        self.inner.params().iter()
    }

    /// The pool's name.
    #[must_use]
    pub fn pool(&self) -> &str {
        self.inner.pool()
    }

    /// Writes text to the web server's error log.
    ///
    /// # Errors
    /// The client has disconnected.
    pub fn write_error(&mut self, text: impl AsRef<[u8]>) -> io::Result<()> {
        self.inner.write_error(text.as_ref()).map_err(gone)
    }

    /// Completes the answer. The handler can continue to work, but can't write.
    ///
    /// # Errors
    /// The client has disconnected.
    pub fn finish(&mut self) -> io::Result<()> {
        self.inner.finish().map_err(gone)
    }
}

fn gone(error: ClientGone) -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, error)
}

impl fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("pool", &self.pool())
            .finish_non_exhaustive()
    }
}

impl io::Read for Request<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.inner.read(buffer)
    }
}

impl io::Write for Request<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.inner.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
