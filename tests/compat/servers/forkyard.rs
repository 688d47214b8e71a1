//! The forkyard daemon.

use super::{Setup, directory, is_root, wait_for};
use crate::support::prelude::*;

#[derive(Debug)]
pub(crate) struct Forkyard {
    process: Child,
    pub(crate) socket: PathBuf,
    directory: TempDir,
}

impl Forkyard {
    pub(crate) fn start(setup: &Setup) -> Forkyard {
        let directory = directory();
        let socket = directory.path().join("forkyard.sock");
        let path = directory.path().join("forkyard.toml");
        fs::write(&path, configuration(setup, &directory, &socket)).expect("the directory is writable");
        let process = Command::new(env!("CARGO_BIN_EXE_forkyard"))
            .args(["run", "-F", "-c"])
            .arg(&path)
            .env("SECRET", "1")
            .envs(setup.started_with.iter().cloned())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(
                std::fs::File::create(directory.path().join("stderr")).expect("the directory is writable"),
            )
            .spawn()
            .expect("the daemon starts");
        assert!(Path::new(env!("CARGO_BIN_EXE_forkyard-php")).exists());
        let mut server = Forkyard {
            process,
            socket,
            directory,
        };
        wait_for(&server.socket, || {
            server.process.try_wait().expect("our child").is_some()
        });
        server
    }

    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Forkyard {
    fn drop(&mut self) {
        let pid = nix::unistd::Pid::from_raw(self.process.id() as i32);
        let _ = nix::sys::signal::kill(pid, Signal::SIGTERM);
        let _ = self.process.wait();
        if std::thread::panicking() {
            let errors = fs::read_to_string(self.directory.path().join("stderr")).unwrap_or_default();
            eprintln!("forkyard's log:\n{}\nits standard error:\n{errors}", self.log());
        }
    }
}

fn configuration(setup: &Setup, directory: &TempDir, socket: &Path) -> String {
    let table = |list: &[(String, String)]| {
        let entries: Vec<String> = list
            .iter()
            .map(|(name, value)| format!("{name:?} = {}", text(value)))
            .collect();
        format!("{{ {} }}", entries.join(", "))
    };
    let endings = setup
        .limit_extensions
        .as_ref()
        .map(|endings| format!("limit_extensions = {endings:?}\n"));
    format!(
        "[global]\n\
         error_log = {log:?}\n\
         [pool.www]\n\
         listen = {{ address = {socket:?}, mode = \"0666\" }}\n\
         pm = \"static\"\n\
         max_children = {workers}\n\
         {user}{ping}env = {env}\n\
         [pool.www.application]\n\
         runtime = \"php\"\n\
         version = {version:?}\n\
         php_ini = {php_ini:?}\n\
         request_settings = \"all\"\n\
         php_value = {php_value}\n\
         php_admin_value = {php_admin_value}\n\
         {endings}{application}",
        application = setup.application,
        version = env!("FORKYARD_PHP"),
        log = directory.path().join("log"),
        workers = setup.workers,
        user = if is_root() { "user = \"www-data\"\n" } else { "" },
        ping = if setup.ping {
            "ping.path = \"/ping\"\nstatus_path = \"/status\"\n"
        } else {
            ""
        },
        env = table(&setup.env),
        php_ini = setup.write_php_ini(directory.path()),
        php_value = table(&setup.php_value),
        php_admin_value = table(&setup.php_admin_value),
        endings = endings.unwrap_or_default(),
    )
}

fn text(value: &str) -> String {
    format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
}
