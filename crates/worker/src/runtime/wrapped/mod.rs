//! Applications in other languages: a wrapper in the application's language loads it and forks workers from itself.
//!
//! The wrappers are part of the daemon. They are given to the interpreter as a file that has no name, and reach the
//! worker's loop by the C ABI in the daemon's own library. The interpreter itself is often the site's own (a virtual
//! environment), and runs code of the site as it starts: so it is started by [`interpreter`], as the pool's user.

pub mod interpreter;
mod python;

pub use interpreter::SETTLED;

use super::{Launch, SCRIPT};
use crate::config::{Interface, Wrapped};
use crate::sys::{Error, memfile};
use std::path::Path;

/// The file of the C ABI, beside the daemon.
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
