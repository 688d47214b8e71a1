//! A program that speaks HTTP and knows nothing of forkyard: it listens on `$PORT` and answers every request with the path.
//! The end-to-end tests start it by `runtime = "http"`.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};

fn main() -> std::io::Result<()> {
    let port: u16 = std::env::var("PORT")
        .ok()
        .and_then(|port| port.parse().ok())
        .expect("PORT is a port");
    let listener = TcpListener::bind(("127.0.0.1", port))?;
    for stream in listener.incoming().map_while(Result::ok) {
        std::thread::spawn(move || serve(&stream));
    }
    Ok(())
}

/// Answers the requests of a connection, one after the other. They have no body.
fn serve(mut stream: &TcpStream) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream).lines();
    while let Some(line) = lines.next() {
        let line = line?;
        let path = line.split(' ').nth(1).unwrap_or("/").to_owned();
        for header in lines.by_ref() {
            if header?.is_empty() {
                break;
            }
        }
        let body = format!("process {}: {path}\n", std::process::id());
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        stream.write_all(&[head.as_bytes(), body.as_bytes()].concat())?;
    }
    Ok(())
}
