//! A FastCGI responder in Rust, served by forked workers: `cargo run --example responder -- examples/responder.toml`.

use forkyard::config;
use forkyard::master::{self, Handlers, Persona};
use forkyard::sys::title;
use forkyard::worker::Request;
use std::io::Write;
use std::path::Path;

fn hello(request: &mut Request<'_>) {
    let name = String::from_utf8_lossy(request.param(b"QUERY_STRING")).into_owned();
    let mut body = Vec::new();
    let written = std::io::copy(request, &mut body);
    let text = format!(
        "Content-Type: text/plain\r\n\r\nHello {name} from worker {}, which read {} bytes\n",
        std::process::id(),
        written.unwrap_or(0)
    );
    // A client that is gone needs no answer.
    let _ = request.write_all(text.as_bytes());
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // First of all, so that ps(1) can show which process is which.
    title::prepare();
    let file = std::env::args().nth(1).ok_or("usage: responder FILE.toml")?;
    let loaded = config::load(Path::new(&file))?;
    let mut handlers = Handlers::new();
    handlers.insert("hello".into(), Box::new(hello));
    master::run(
        loaded.config,
        handlers,
        Persona::forkyard(file.into()),
        Path::new("/nonexistent"),
        || {},
    )?;
    Ok(())
}
