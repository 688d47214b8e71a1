//! A FastCGI responder in Rust, served by forked workers: `cargo run --example responder -- examples/responder.toml`.

use forkyard::{Request, Server};
use std::io::Write;

fn hello(request: &mut Request<'_>) {
    let name = String::from_utf8_lossy(request.param("QUERY_STRING")).into_owned();
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
    let file = std::env::args().nth(1).ok_or("usage: responder FILE.toml")?;
    Server::from_file(file)?.handler("hello", hello).run()?;
    Ok(())
}
