//! Answers requests: one runtime per kind of application, and the worker as a C interface ([`abi`]).
#![deny(unsafe_code)]

#[expect(unsafe_code, reason = "a C ABI takes raw pointers")]
pub mod abi;
pub mod cgi;
mod cgi_variables;
mod complaints;
pub mod fastcgi;
#[cfg(any(test, fuzzing))]
#[path = "../fuzz/targets.rs"]
pub mod fuzz;
pub mod http;
pub mod php;
pub mod preloader;
mod queue;
pub mod script_roots;
pub mod wrapped;

use forkyard_config::{Application, Pool};
use forkyard_sys::Error;
use forkyard_sys::socket::{Progress, receive};
use forkyard_worker::{ClientGone, Request, Runtime};
use nix::errno::Errno;
use std::io;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};

/// The descriptor with a preloader's script or PHP's settings files, if there are any.
pub const SCRIPT: RawFd = 4;

/// How to start an application's preloader.
#[derive(Debug)]
pub struct Launch {
    /// The executable.
    pub path: PathBuf,
    /// Its arguments, without its name.
    pub arguments: Vec<String>,
    /// A script or PHP's settings files, passed as descriptor [`SCRIPT`].
    pub script: Option<OwnedFd>,
}

/// How to start the application's preloader. `libexec` contains forkyard's own programs.
///
/// # Errors
/// The application has no preloader, or there is no memory for its script.
pub fn launch(application: &Application, libexec: &Path) -> Result<Launch, Error> {
    match application {
        Application::Php(_) => Ok(Launch {
            path: libexec.join("forkyard-php"),
            arguments: Vec::new(),
            script: None,
        }),
        Application::Wrapped(wrapped) => wrapped::launch(wrapped, libexec),
        Application::Cgi(_)
        | Application::FastCgi(_)
        | Application::Http(_)
        | Application::Program(_)
        | Application::Rust => Err(Error::new(
            "launch",
            "the application has no preloader",
            Errno::EINVAL,
        )),
    }
}

/// Creates the runtime of an application without a preloader. `None`: it is created elsewhere or has an event loop
/// ([`http::gateway`]). Failed starts are reported to the master through `reports`.
pub fn within_worker(pool: &Pool, reports: Option<OwnedFd>) -> Option<Box<dyn Runtime>> {
    match &pool.application {
        Application::FastCgi(fastcgi) => {
            Some(Box::new(fastcgi::FastCgi::new(pool, fastcgi.clone(), reports)))
        }
        Application::Cgi(cgi) => Some(Box::new(cgi::Cgi::new(cgi.clone()))),
        Application::Http(_)
        | Application::Program(_)
        | Application::Php(_)
        | Application::Wrapped(_)
        | Application::Rust => None,
    }
}

/// Answers in plain text: `why` for the web server's log, `body` for the client. Each of `fields` ends with CRLF.
fn refuse(
    request: &mut Request<'_>,
    status: &str,
    fields: &str,
    why: &str,
    body: &str,
) -> Result<(), ClientGone> {
    request.write_error(why.as_bytes())?;
    let text = format!("Status: {status}\r\n{fields}Content-Type: text/plain; charset=utf-8\r\n\r\n{body}\n");
    request.write(text.as_bytes())
}

/// Whether nothing can be read from a kept connection: neither bytes nor its end.
fn is_quiet(connection: &OwnedFd) -> bool {
    receive(connection.as_fd(), &mut [0]) == Ok(Progress::WouldBlock)
}

/// Whether the method is idempotent (RFC 9110 section 9.2.2).
fn is_idempotent(method: &[u8]) -> bool {
    matches!(
        method,
        b"GET" | b"HEAD" | b"OPTIONS" | b"TRACE" | b"PUT" | b"DELETE"
    )
}

fn is_missing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

/// Whether a byte may be in the name of a header (RFC 9110 section 5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}
