//! Applications in other languages: a wrapper in the language loads the application and forks workers from itself.
//!
//! The interpreter receives the wrapper as an unnamed file; the wrapper calls the worker's loop through the C ABI of
//! the daemon's library. The interpreter may belong to the site (a virtual environment) and runs the site's code when
//! it starts, so [`interpreter`] starts it as the pool's user.

pub mod interpreter;
mod python;

pub use interpreter::SETTLED;

use super::{Launch, SCRIPT};
use forkyard_config::{Interface, Wrapped};
use forkyard_sys::{Error, memfile};
use std::path::Path;

/// The library with the C ABI, next to the daemon.
pub const LIBRARY: &str = "libforkyard.so";

const RUBY: &str = concat!(
    include_str!("rack/library.rb"),
    include_str!("rack/jobs.rb"),
    include_str!("rack/input.rb"),
    include_str!("rack/exchange.rb"),
    include_str!("rack/environment.rb"),
    include_str!("rack/answer.rb"),
    include_str!("rack/telling.rb"),
    include_str!("rack/threads.rb"),
    include_str!("wrapper.rb"),
);

pub(super) fn launch(wrapped: &Wrapped, libexec: &Path) -> Result<Launch, Error> {
    let source = match wrapped.interface {
        Interface::Wsgi | Interface::Asgi => python::script(),
        Interface::Rack => RUBY.to_owned(),
    };
    let arguments = vec![
        interpreter::COMMAND.to_owned(),
        wrapped.interpreter.display().to_string(),
        format!("/proc/self/fd/{SCRIPT}"),
        libexec.join(LIBRARY).display().to_string(),
    ];
    Ok(Launch {
        path: libexec.join("forkyard"),
        arguments,
        script: Some(memfile::sealed("forkyard-wrapper", source.as_bytes())?),
    })
}
