//! Two handlers for the end-to-end tests: `rust-good` answers, `rust-broken` fails.

use forkyard::{Request, Server};
use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

const HOARD_BYTES: usize = 200_000_000;

fn good(request: &mut Request<'_>, held: &mut Vec<u8>) {
    let root = Path::new(OsStr::from_bytes(request.param("DOCUMENT_ROOT"))).to_owned();
    match request.param("QUERY_STRING") {
        b"log" => eprintln!("a line of it"),
        b"slow" => {
            let pid = format!("{}\n", std::process::id());
            std::fs::write(root.join("slow"), pid).expect("the directory is writable");
            while !root.join("go").exists() {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        b"hoard" => *held = vec![1; HOARD_BYTES],
        b"panic" => panic!("it was asked to"),
        _ => {}
    }
    // A client that is gone needs no answer.
    let _ = write!(
        request,
        "Content-Type: text/plain\r\n\r\npid={}",
        std::process::id()
    );
}

fn broken(request: &mut Request<'_>) {
    let _ = request.write_error("the database is not there\n");
    let _ =
        request.write_all(b"Status: 500 Internal Server Error\r\nContent-Type: text/plain\r\n\r\nsorry\n");
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = std::env::args().nth(1).ok_or("usage: handlers FILE.toml")?;
    let mut held = Vec::new();
    Server::from_file(file)?
        .handler("rust-good", move |request| good(request, &mut held))
        .handler("rust-broken", broken)
        .run()?;
    Ok(())
}
