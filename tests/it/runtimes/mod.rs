//! Every runtime, with applications that were written without forkyard in mind.

mod app_log;
mod bad_answers;
mod body_lengths;
mod cgi;
mod children;
mod concurrency;
pub mod concurrent;
mod concurrent_ends;
mod concurrent_status;
mod departures;
mod django;
mod equal;
mod fastcgi;
mod fastcgi_faults;
pub mod fastcgi_programs;
mod fastcgi_reports;
mod git;
mod headers;
mod http;
mod kept_idle;
mod leftovers;
mod log_lines;
mod node_sockets;
mod out_of_band;
mod preload;
mod programs;
mod programs_faults;
mod programs_sockets;
mod programs_status;
mod python;
mod python_applications;
mod rack;
mod rack_faults;
mod rack_forks;
mod rack_sites;
mod refork;
mod refork_changes;
mod refused;
mod renewal;
mod seen;
mod short;
mod slow;
mod stops;
pub(super) mod threads;
pub(super) mod websockets;
mod wsgi;

use crate::support::prelude::*;

/// Starts a program in Python that listens on a port; waits until it does.
fn serve_http(file: &Path, port: u16) -> process::Guard {
    let program = Command::new("python3")
        .arg(file)
        .arg(port.to_string())
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("python3");
    let program = process::Guard::kill(program);
    until("the program to listen", || {
        TcpStream::connect(("127.0.0.1", port)).ok()
    });
    program
}

fn assert_echoes(daemon: &Daemon, script: &str, query: &str) {
    let body: Vec<u8> = (0..20_000_000u32).map(|n| (n / 7) as u8).collect();
    let params = Params::get(&daemon.dir, script, query).posting(body.len());
    let (mut reader, mut writer) = daemon.client("www").split();
    let sent = std::thread::spawn({
        let body = body.clone();
        move || writer.send(&params, &body)
    });
    let answer = reader.answer().expect("answer");
    sent.join().expect("the sender").expect("send");
    let head = b"Content-Type: text/plain\r\n\r\n".len();
    assert!(
        answer.stdout[head..] == body,
        "{} bytes came back",
        answer.stdout.len() - head
    );
    assert!(answer.ended);
}
