//! A running `forkyard dev`, and its client.

use crate::support::prelude::*;

const USER: &str = "www-data";

pub(in crate::it) struct Dev {
    child: Child,
    pub(in crate::it) port: u16,
    said: Arc<Mutex<String>>,
}

#[derive(Debug)]
pub(in crate::it) struct Page {
    pub(in crate::it) status: u16,
    pub(in crate::it) kind: String,
    pub(in crate::it) body: String,
}

pub(in crate::it) fn site(files: &[(&str, &str)]) -> (tempfile::TempDir, PathBuf) {
    let dir = directory();
    let root = dir.path().canonicalize().expect("path").join("site");
    fs::create_dir(&root).expect("mkdir");
    for (name, text) in files {
        let path = root.join(name);
        fs::create_dir_all(path.parent().expect("parent")).expect("mkdir");
        if name.ends_with(".cgi") {
            write_program(&path, text);
        } else {
            fs::write(&path, text).expect("write");
        }
    }
    let root = owned(&root);
    (dir, root)
}

pub(in crate::it) fn owned(root: &Path) -> PathBuf {
    if is_root() {
        let status = Command::new("chown").args(["-R", USER]).arg(root).status();
        assert!(status.expect("chown").success());
    }
    root.to_owned()
}

pub(in crate::it) fn command(root: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forkyard"));
    command.arg("dev").arg(root).args(arguments).stdin(Stdio::null());
    command
}

fn keep(stream: impl Read + Send + 'static, said: &Arc<Mutex<String>>) {
    let said = Arc::clone(said);
    std::thread::spawn(move || {
        for line in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
            let mut said = said.lock().expect("said");
            said.push_str(&String::from_utf8_lossy(&line));
            said.push('\n');
        }
    });
}

impl Dev {
    pub(in crate::it) fn start(root: &Path) -> Dev {
        Dev::start_with(root, &[])
    }

    pub(in crate::it) fn start_with(root: &Path, arguments: &[&str]) -> Dev {
        Dev::run(&mut command(root, &[&["--port", "0"], arguments].concat()))
    }

    pub(in crate::it) fn start_in(root: &Path, variables: &[(&str, &str)]) -> Dev {
        Dev::run(command(root, &["--port", "0"]).envs(variables.iter().copied()))
    }

    fn run(command: &mut Command) -> Dev {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("forkyard dev");
        let said = Arc::new(Mutex::new(String::new()));
        keep(child.stdout.take().expect("stdout"), &said);
        keep(child.stderr.take().expect("stderr"), &said);
        let port = until("the address", || {
            let text = said.lock().expect("said").clone();
            let ended = child.try_wait().expect("wait");
            assert!(ended.is_none(), "forkyard dev ended: {text}");
            let (_, rest) = text.split_once("http://127.0.0.1:")?;
            rest.split('/').next()?.parse().ok()
        });
        Dev { child, port, said }
    }

    pub(in crate::it) fn refused(root: &Path, arguments: &[&str]) -> String {
        Dev::refused_with(root, arguments, None)
    }

    pub(in crate::it) fn refused_with(root: &Path, arguments: &[&str], path: Option<&str>) -> String {
        let mut command = command(root, arguments);
        if let Some(path) = path {
            command.env("PATH", path);
        }
        let output = command.output().expect("forkyard dev");
        assert_eq!(output.status.code(), Some(64), "{output:?}");
        text_of(&output.stderr)
    }

    pub(in crate::it) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(in crate::it) fn said(&self) -> String {
        self.said.lock().expect("said").clone()
    }

    pub(in crate::it) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).expect("connect");
        stream.set_read_timeout(Some(PATIENCE)).expect("timeout");
        stream
    }

    pub(in crate::it) fn get(&self, path: &str) -> Page {
        self.get_by("localhost", path)
    }

    pub(in crate::it) fn get_by(&self, host: &str, path: &str) -> Page {
        self.ask(&format!("GET {path} HTTP/1.0\r\nHost: {host}\r\n\r\n"), b"")
    }

    pub(in crate::it) fn post(&self, path: &str, body: &[u8]) -> Page {
        let head = format!(
            "POST {path} HTTP/1.0\r\nHost: localhost\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        self.ask(&head, body)
    }

    fn ask(&self, head: &str, body: &[u8]) -> Page {
        let mut stream = self.connect();
        stream.write_all(head.as_bytes()).expect("head");
        stream.write_all(body).expect("body");
        let mut text = Vec::new();
        stream
            .read_to_end(&mut text)
            .unwrap_or_else(|error| panic!("{error}: {}", self.said()));
        let text = text_of(&text);
        let (head, body) = text.split_once("\r\n\r\n").expect("a header");
        let kind = head.lines().find_map(|line| line.strip_prefix("content-type: "));
        Page {
            status: head.split(' ').nth(1).expect("status").parse().expect("a number"),
            kind: kind.unwrap_or_default().to_owned(),
            body: body.to_owned(),
        }
    }

    pub(in crate::it) fn kill(mut self) {
        let family = self.family();
        assert!(family.len() > 3, "{family:?}");
        self.child.kill().expect("kill");
        self.child.wait().expect("wait");
        process::wait_for_ends(&family);
    }

    fn family(&self) -> Vec<u32> {
        let mut family = process::children(self.pid());
        let mut at = 0;
        while let Some(pid) = family.get(at).copied() {
            family.extend(process::children(pid));
            at += 1;
        }
        family
    }
}

impl Drop for Dev {
    /// Sends Ctrl-C, and checks the exit code and that no process is left.
    fn drop(&mut self) {
        if !process::runs(self.pid()) {
            return;
        }
        let family = self.family();
        process::signal(self.pid(), Signal::SIGINT);
        let status = process::wait(&mut self.child, "the end of forkyard dev");
        if std::thread::panicking() {
            return;
        }
        assert!(status.success(), "{status}: {}", self.said());
        let left: Vec<u32> = family.into_iter().filter(|pid| process::runs(*pid)).collect();
        assert!(left.is_empty(), "{left:?} are left: {}", self.said());
    }
}
