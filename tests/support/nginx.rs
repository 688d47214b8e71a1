//! A real nginx in a temporary directory, on a free loopback port.

use super::until;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

pub struct Nginx {
    child: Child,
    pub port: u16,
    dir: tempfile::TempDir,
}

/// A free port that neither another test nor the kernel hands out.
pub fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    const FIRST: u32 = 10_000;
    const COUNT: u32 = 20_000;
    let start = std::process::id().wrapping_mul(499);
    let next = || (FIRST + start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % COUNT) as u16;
    std::iter::repeat_with(next)
        .take(COUNT as usize)
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .expect("a port")
}

impl Nginx {
    /// Starts nginx with these lines in its `server` block and in its `http` block.
    pub fn start(server: &str, http: &str) -> Nginx {
        let dir = super::daemon::directory();
        let port = free_port();
        let path = dir.path().display();
        let user = if super::is_root() { "user www-data;" } else { "" };
        let text = format!(
            "{user}\ndaemon off;\nmaster_process on;\nworker_processes 2;\npid {path}/pid;\nerror_log {path}/error.log;\n\
             events {{ worker_connections 1024; }}\nhttp {{\naccess_log off;\nclient_max_body_size 200m;\n\
             client_body_temp_path {path}/body;\nfastcgi_temp_path {path}/fastcgi;\nproxy_temp_path {path}/proxy;\n\
             uwsgi_temp_path {path}/uwsgi;\nscgi_temp_path {path}/scgi;\n{http}\n\
             server {{\nlisten 127.0.0.1:{port};\n{server}\n}}\n}}\n"
        );
        let config = dir.path().join("nginx.conf");
        fs::write(&config, text).expect("nginx.conf");
        let child = Command::new("nginx")
            .arg("-e")
            .arg(dir.path().join("error.log"))
            .arg("-c")
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("nginx (Debian package nginx-light)");
        let nginx = Nginx { child, port, dir };
        until("nginx to listen", || TcpStream::connect(("127.0.0.1", port)).ok());
        nginx
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    pub fn workers(&self) -> Vec<u32> {
        super::process::children(self.child.id())
    }

    pub fn errors(&self) -> String {
        fs::read_to_string(self.dir.path().join("error.log")).unwrap_or_default()
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let pid = nix::unistd::Pid::from_raw(self.child.id() as i32);
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- nginx's error log:\n{}\n---", self.errors());
        }
    }
}

pub fn upload(file: &Path, url: &str) -> String {
    let data = format!("@{}", file.display());
    let whole = curl(&["--data-binary", &data, url]);
    let in_chunks = ["-H", "Transfer-Encoding: chunked", "-H", "Content-Length:"];
    let chunked = curl(&[&["--data-binary", &data], &in_chunks[..], &[url]].concat());
    assert_eq!(chunked, whole);
    whole
}

pub fn curl(arguments: &[&str]) -> String {
    let output = Command::new("curl")
        .args(["--silent", "--show-error", "--max-time", "60"])
        .args(arguments)
        .output()
        .expect("curl (Debian package curl)");
    assert!(
        output.status.success(),
        "curl {arguments:?}: {:?}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}
