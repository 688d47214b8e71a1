//! A real forkyard daemon in a temporary directory.

use super::fcgi::{Answer, Client, Params};
use super::{ear, is_root, place_library, process, text_of, until, write_program};
use nix::sys::signal::Signal;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex};

pub struct Daemon {
    pub dir: PathBuf,
    child: Child,
    log: Arc<Mutex<Vec<String>>>,
    _dir: Option<tempfile::TempDir>,
}

/// The directory of a test, which the user of its pools may write to.
pub fn directory() -> tempfile::TempDir {
    let dir = tempfile::Builder::new()
        .prefix("forkyard-test-")
        .tempdir()
        .expect("tempdir");
    place_library();
    make_writable(dir.path());
    dir
}

/// The lines of an application of PHP.
pub const PHP: &str = concat!("runtime = \"php\"\nversion = \"", env!("FORKYARD_PHP"), "\"\n");

pub fn php_pool(dir: &Path, settings: &str, application: &str) -> String {
    pool(dir, "www", settings, &format!("{PHP}{application}"))
}

/// Returns a pool's tables. Defaults: a socket below the directory, one worker, `www-data`.
pub fn pool(dir: &Path, name: &str, settings: &str, application: &str) -> String {
    let mut text = format!("[pool.{name}]\n");
    if !settings.lines().any(|line| line.starts_with("pm")) {
        text.push_str("pm = \"static\"\nmax_children = 1\n");
    }
    if !settings.lines().any(|line| line.starts_with("listen")) {
        let _ = writeln!(
            text,
            "listen = {{ address = \"{}/{name}.sock\", mode = \"0666\" }}",
            dir.display()
        );
    }
    if is_root() && !settings.lines().any(|line| line.starts_with("user")) {
        text.push_str("user = \"www-data\"\n");
    }
    text.push_str(settings);
    let _ = write!(text, "\n[pool.{name}.application]\n{application}\n");
    placed(&text, dir)
}

/// A configuration with the directory for `DIR`.
pub fn placed(text: &str, dir: &Path) -> String {
    let dir = dir.display();
    text.replace("DIR/", &format!("{dir}/"))
        .replace("DIR\"", &format!("{dir}\""))
}

/// The folder of an application, with its files; scripts (`#!`) are executable.
pub fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let root = directory();
    for (name, text) in files {
        let path = root.path().join(name);
        match text.starts_with("#!") {
            true => write_program(&path, text),
            false => fs::write(path, text).expect("write"),
        }
    }
    root
}

/// The global settings of a daemon that has a control socket in a directory.
pub fn with_control(dir: impl AsRef<Path>) -> String {
    format!(
        "[global]\ncontrol = \"{}/control.sock\"\n",
        dir.as_ref().display()
    )
}

pub fn application_in(runtime: &str, root: impl AsRef<Path>, more: &str) -> String {
    let root = root.as_ref().display();
    format!("runtime = \"{runtime}\"\nroot = \"{root}\"\n{more}")
}

pub fn forkyard(arguments: &[&str], dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forkyard"));
    command.args(arguments).arg("-c").arg(dir.join("forkyard.toml"));
    command
}

/// The command, which a background job's ignored signals do not concern.
pub fn with_signals(command: &Command) -> Command {
    let mut with = Command::new("env");
    with.arg("--default-signal")
        .arg(command.get_program())
        .args(command.get_args());
    with
}

/// The command, which root runs as another user.
pub fn as_user(mut command: Command, id: u32) -> Command {
    if is_root() {
        command.uid(id).gid(id);
    }
    command
}

/// All that a command wrote.
pub fn told(output: &Output) -> String {
    text_of(&[&output.stdout[..], &output.stderr].concat())
}

pub fn said_by(command: &mut Command) -> (Option<i32>, String) {
    let output = command.output().expect("a command");
    (output.status.code(), told(&output))
}

pub fn make_writable(dir: &Path) {
    fs::set_permissions(dir, fs::Permissions::from_mode(0o777)).expect("chmod");
}

/// Makes a folder that every user may write to.
pub fn make_folder(path: &Path) {
    fs::create_dir_all(path).expect("mkdir");
    make_writable(path);
}

impl Daemon {
    pub fn said(&self, arguments: &[&str]) -> (Option<i32>, String) {
        said_by(&mut forkyard(arguments, &self.dir))
    }

    /// Starts a daemon with one pool, `www`, of an application in a folder.
    pub fn serving(runtime: &str, root: impl AsRef<Path>, settings: &str, more: &str) -> Daemon {
        let application = application_in(runtime, root, more);
        Daemon::start(|dir| pool(dir, "www", settings, &application))
    }

    /// Returns a command's standard output.
    pub fn shown(&self, arguments: &[&str]) -> String {
        text_of(&self.run(arguments).stdout)
    }

    /// A command by the control socket: the configuration may be broken.
    pub fn at_socket(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forkyard"));
        command.arg(arguments[0]).arg("--socket");
        command.arg(self.dir.join("control.sock")).args(&arguments[1..]);
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Output {
        forkyard(arguments, &self.dir).output().expect("forkyard")
    }

    pub fn start_logged(configure: impl FnOnce(&Path) -> String, file: &str) -> Daemon {
        let dir = directory();
        let path = dir.path().to_owned();
        let log = path.join(file);
        let text = format!(
            "[global]\nerror_log = \"{}\"\n{}",
            log.display(),
            configure(&path)
        );
        fs::write(path.join("forkyard.toml"), text).expect("configuration");
        let command = forkyard(&["run"], &path);
        let mut daemon = Daemon::launch(&path, command);
        daemon._dir = Some(dir);
        until("the daemon's log", || {
            fs::read_to_string(&log)
                .ok()?
                .contains("ready to handle connections")
                .then_some(())
        });
        daemon
    }

    /// Starts `forkyard run` on the configuration from `configure`, and waits until it is ready.
    pub fn start(configure: impl FnOnce(&Path) -> String) -> Daemon {
        Daemon::start_by(configure, |dir| forkyard(&["run"], dir))
    }

    pub fn start_in(dir: &Path) -> Daemon {
        Daemon::launch(dir, forkyard(&["run"], dir)).ready()
    }

    /// Starts a daemon with a keeper.
    pub fn start_kept(configure: impl FnOnce(&Path) -> String) -> Daemon {
        Daemon::start_by(configure, |dir| {
            let mut command = forkyard(&["run", "--keeper"], dir);
            command.env_remove("NOTIFY_SOCKET");
            command
        })
    }

    /// Starts a daemon by a command, on the configuration from `configure`, and waits until it is ready.
    pub fn start_by(
        configure: impl FnOnce(&Path) -> String,
        command: impl FnOnce(&Path) -> Command,
    ) -> Daemon {
        let dir = directory();
        let path = dir.path().to_owned();
        fs::write(path.join("forkyard.toml"), placed(&configure(&path), &path)).expect("configuration");
        Daemon::launch(&path, command(&path)).keeping(dir).ready()
    }

    pub fn start_bounded(dir: &Path, capabilities: &str) -> Daemon {
        let mut command = Command::new("setpriv");
        command
            .args(["--bounding-set", capabilities, "--"])
            .args([env!("CARGO_BIN_EXE_forkyard"), "run", "-c"])
            .arg(dir.join("forkyard.toml"));
        Daemon::launch(dir, command).ready()
    }

    pub fn start_notified(dir: &Path, text: &str, variables: &[(&str, &str)]) -> (Daemon, UnixDatagram) {
        fs::write(dir.join("forkyard.toml"), text).expect("configuration");
        let socket = ear(&dir.join("notify"));
        let mut command = forkyard(&["run"], dir);
        command
            .env("NOTIFY_SOCKET", dir.join("notify"))
            .envs(variables.iter().copied());
        (Daemon::launch(dir, command), socket)
    }

    pub fn launch(dir: &Path, mut command: Command) -> Daemon {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("spawn");
        let log = Arc::new(Mutex::new(Vec::new()));
        let stderr = BufReader::new(child.stderr.take().expect("stderr"));
        let lines = Arc::clone(&log);
        std::thread::spawn(move || {
            for line in stderr.split(b'\n').map_while(Result::ok) {
                lines
                    .lock()
                    .expect("log")
                    .push(String::from_utf8_lossy(&line).into_owned());
            }
        });
        Daemon {
            dir: dir.to_owned(),
            child,
            log,
            _dir: None,
        }
    }

    /// The daemon, which has a directory to remove at its end.
    pub fn keeping(mut self, directory: tempfile::TempDir) -> Daemon {
        self._dir = Some(directory);
        self
    }

    /// The daemon once it is ready.
    pub fn ready(self) -> Daemon {
        self.wait_for("ready to handle connections");
        self
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn kept_master(&self) -> u32 {
        until("a master", || self.find_kept_master())
    }

    pub fn next_kept_master(&self, before: u32) -> u32 {
        until("another master", || {
            self.find_kept_master().filter(|pid| *pid != before)
        })
    }

    fn find_kept_master(&self) -> Option<u32> {
        let mut children = process::children(self.pid()).into_iter();
        children.find(|pid| process::title(*pid).starts_with("forkyard: master process"))
    }

    pub fn log(&self) -> String {
        self.log.lock().expect("log").join("\n")
    }

    /// Asks for a reload, and waits for a line of the log.
    #[track_caller]
    pub fn reload_until(&self, text: &str) {
        self.signal(Signal::SIGUSR2);
        self.wait_for(text);
    }

    pub fn wait_for(&self, text: &str) -> String {
        self.wait_for_count(text, 1)
    }

    pub fn wait_for_count(&self, text: &str, count: usize) -> String {
        let end = std::time::Instant::now() + super::PATIENCE;
        // A log may have many thousands of lines: each is read once.
        let (mut seen, mut found) = (0, 0);
        loop {
            for line in &self.log.lock().expect("log")[seen..] {
                seen += 1;
                found += usize::from(line.contains(text));
                if found == count {
                    return line.clone();
                }
            }
            assert!(
                std::time::Instant::now() < end,
                "no line with {text:?} (x{count}) in the log:\n{}",
                self.log()
            );
            super::pause();
        }
    }

    pub fn workers(&self, pool: &str) -> Vec<u32> {
        self.children_titled(&format!("forkyard: pool {pool}"))
    }

    pub fn preloaders(&self, pool: &str) -> Vec<u32> {
        let own = self.own_preloaders(pool);
        match own.is_empty() {
            true => self.own_preloaders("zygote"),
            false => own,
        }
    }

    pub fn own_preloaders(&self, pool: &str) -> Vec<u32> {
        self.children_titled(&format!("forkyard: preloader {pool}"))
    }

    fn children_titled(&self, title: &str) -> Vec<u32> {
        process::children(self.pid())
            .into_iter()
            .filter(|pid| process::title(*pid) == title)
            .collect()
    }

    pub fn wait_for_workers(&self, pool: &str, count: usize) -> Vec<u32> {
        until(&format!("{count} workers of {pool}"), || {
            let workers = self.workers(pool);
            (workers.len() == count).then_some(workers)
        })
    }

    /// Waits until a pool has so many workers, and none that it had before.
    #[track_caller]
    pub fn wait_for_other_workers(&self, pool: &str, count: usize, before: &[u32]) -> Vec<u32> {
        until(&format!("{count} other workers of {pool}"), || {
            let workers = self.workers(pool);
            let is_new = workers.len() == count && workers.iter().all(|pid| !before.contains(pid));
            is_new.then_some(workers)
        })
    }

    pub fn write(&self, name: &str, content: &str) -> PathBuf {
        let path = self.dir.join(name);
        fs::write(&path, content).expect("write");
        path
    }

    pub fn socket(&self, pool: &str) -> PathBuf {
        self.dir.join(format!("{pool}.sock"))
    }

    pub fn client(&self, pool: &str) -> Client {
        Client::connect(&self.socket(pool)).expect("connect")
    }

    pub fn send(&self, pool: &str, params: &Params) -> Client {
        let mut client = self.client(pool);
        client.send(params, b"").expect("send");
        client
    }

    pub fn ask(&self, pool: &str, params: &Params) -> Answer {
        self.put(pool, params, b"")
    }

    pub fn put(&self, pool: &str, params: &Params, body: &[u8]) -> Answer {
        self.client(pool).request(params, body).expect("answer")
    }

    pub fn get(&self, pool: &str, script: &str) -> Answer {
        let (script, query) = script.split_once('?').unwrap_or((script, ""));
        self.ask(pool, &Params::get(&self.dir, script, query))
    }

    /// The answer of `forkyard status --json`.
    pub fn status(&self, more: &[&str]) -> serde_json::Value {
        let output = self.run(&[&["status", "--json"], more].concat());
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
    }

    pub fn signal(&self, signal: Signal) {
        process::signal(self.pid(), signal);
    }

    pub fn end(&mut self, signal: Signal) {
        self.signal(signal);
        assert!(self.wait().success());
    }

    pub fn wait(&mut self) -> ExitStatus {
        process::wait(&mut self.child, "the master's end")
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let children = process::children(self.pid());
        if self.child.try_wait().ok().flatten().is_none() {
            let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.pid() as i32), Signal::SIGTERM);
            let end = std::time::Instant::now() + super::PATIENCE;
            while self.child.try_wait().ok().flatten().is_none() {
                if std::time::Instant::now() > end {
                    let _ = self.child.kill();
                    let _ = self.child.wait();
                    break;
                }
                super::pause();
            }
        }
        for child in children {
            if process::runs(child) && process::title(child).starts_with("forkyard: ") {
                let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(child as i32), Signal::SIGKILL);
            }
        }
        if std::thread::panicking() {
            eprintln!("--- the daemon's log:\n{}\n---", self.log());
        }
    }
}
