//! Unix sockets of native programs are removed with their process, however it exits.

use super::programs::{ONDEMAND, Site};
use crate::support::prelude::*;
use std::os::unix::fs::FileTypeExt;

/// Listens at its own path, never removes it, and prints path and pid.
const NATIVE: &str = r#"
import json, os, signal, socket

path = os.getcwd() + "/" + str(os.getpid()) + ".sock"
server = socket.socket(socket.AF_UNIX)
server.bind(path)
server.listen(128)
response = os.environ["FORKYARD_SPAWN_WORK_DIR"] + "/response"
sockets = [{"address": "unix:" + path, "protocol": "http", "concurrency": 1, "accept_http_requests": True}]
with open(response + "/properties.json", "w") as file:
    json.dump({"sockets": sockets}, file)
with open(response + "/finish", "w") as file:
    file.write("1")
signal.signal(signal.SIGTERM, signal.SIG_DFL)
while True:
    client, _ = server.accept()
    if client.recv(65536):
        body = str(os.getpid()).encode()
        client.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
    client.close()
"#;

const APPLICATION: &str = "start_command = \"python3 native.py\"\nhandshake = true";

fn sockets(root: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(root).expect("the directory").map_while(Result::ok);
    let sockets = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_socket()));
    sockets.map(|entry| entry.path()).collect()
}

#[test]
fn a_process_that_is_killed_leaves_no_socket() {
    let mut site = Site::start(&[("native.py", NATIVE)], ONDEMAND, "http", APPLICATION);
    let root = site.root.clone();
    let first: u32 = site.get("x").parse().expect("a pid");
    let own = |pid: u32| root.join(format!("{pid}.sock"));
    assert_eq!(sockets(&site.root), [own(first)]);
    process::signal(first, Signal::SIGKILL);
    site.daemon.wait_for_count("of the application is up", 2);
    let second: u32 = site.get("x").parse().expect("a pid");
    assert_ne!(first, second);
    assert_eq!(sockets(&site.root), [own(second)]);
    fs::remove_file(own(second)).expect("remove");
    let _other = UnixListener::bind(own(second)).expect("bind");
    let kept = own(second);
    site.daemon.signal(Signal::SIGTERM);
    site.daemon.wait();
    assert_eq!(sockets(&site.root), [kept]);
}

#[test]
fn a_symbolic_link_leads_nowhere() {
    let mut site = Site::start(&[("native.py", NATIVE)], ONDEMAND, "http", APPLICATION);
    let pid: u32 = site.get("x").parse().expect("a pid");
    let elsewhere = directory();
    let name = format!("{pid}.sock");
    let precious = elsewhere.path().join(&name);
    let _listener = UnixListener::bind(&precious).expect("bind");
    fs::rename(site.root.join(&name), site.root.join("moved")).expect("rename");
    symlink(&precious, site.root.join(&name)).expect("symlink");
    site.daemon.signal(Signal::SIGTERM);
    site.daemon.wait();
    assert!(precious.exists() && site.root.join(&name).is_symlink());
}

#[test]
fn a_master_that_is_killed_leaves_no_socket_either() {
    let dir = directory();
    let path = dir.path().to_owned();
    let root = path.join("app");
    make_folder(&root);
    fs::write(root.join("native.py"), NATIVE).expect("write");
    let application = application_in("http", &root, APPLICATION);
    let text = pool(&path, "www", "", &application);
    fs::write(path.join("forkyard.toml"), text).expect("configuration");
    let mut daemon = Daemon::launch(&path, forkyard(&["run", "--keeper"], &path)).ready();
    let first: u32 = daemon.get("www", "x").body().parse().expect("a pid");
    let own = |pid: u32| root.join(format!("{pid}.sock"));
    assert_eq!(sockets(&root), [own(first)]);
    let document = || {
        let fds = fs::read_dir(format!("/proc/{}/fd", daemon.pid())).expect("/proc");
        let texts = fds.filter_map(|fd| {
            let path = fd.ok()?.path();
            let is_document = fs::read_link(&path).ok()?.to_string_lossy().contains("handover-");
            is_document.then(|| text_of(&fs::read(&path).unwrap_or_default()))
        });
        texts.collect::<String>()
    };
    wait_until("the document", || document().contains(&format!("{first}.sock")));
    let old = daemon.kept_master();
    process::signal(old, Signal::SIGKILL);
    daemon.wait_for("taking over from process");
    let began = Instant::now();
    let second: u32 = until("the new program", || daemon.get("www", "x").body().parse().ok());
    assert_ne!(first, second);
    let took = began.elapsed();
    assert!(took < Duration::from_secs(20), "{took:?}\n{}", daemon.log());
    assert_lacks(&daemon.log(), "can't be reached");
    wait_until("the old socket to go", || sockets(&root) == [own(second)]);
    daemon.signal(Signal::SIGTERM);
    daemon.wait();
    wait_until("the last socket to go", || sockets(&root).is_empty());
}
