//! Applications in other languages: a wrapper in the application's language loads it and forks workers from itself.
//!
//! The wrappers are part of the daemon. They are given to the interpreter as a file that has no name, and reach the
//! worker's loop by the C ABI in the daemon's own library.

use super::{Launch, SCRIPT};
use crate::config::{Interface, Wrapped};
use crate::sys::{Error, memfile};
use std::path::Path;

/// The file of the C ABI, beside the daemon.
pub const LIBRARY: &str = "libforkyard.so";

const PYTHON: &str = include_str!("wrapper.py");
const RUBY: &str = concat!(
    include_str!("rack/library.rb"),
    include_str!("rack/input.rb"),
    include_str!("rack/exchange.rb"),
    include_str!("rack/environment.rb"),
    include_str!("rack/answer.rb"),
    include_str!("wrapper.rb"),
);

pub(super) fn launch(wrapped: &Wrapped, libexec: &Path) -> Result<Launch, Error> {
    let (source, options): (&str, &[&str]) = match wrapped.interface {
        // Nothing of the daemon's own directory is to be imported by chance.
        Interface::Wsgi | Interface::Asgi => (PYTHON, &["-P"]),
        Interface::Rack => (RUBY, &[]),
    };
    let mut arguments: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
    arguments.push(format!("/proc/self/fd/{SCRIPT}"));
    arguments.push(libexec.join(LIBRARY).display().to_string());
    Ok(Launch {
        path: wrapped.interpreter.clone(),
        arguments,
        script: Some(memfile::sealed("forkyard-wrapper", source.as_bytes())?),
    })
}
