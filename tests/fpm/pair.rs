//! One configuration, run by php-fpm and by forkyard-fpm.

use super::both::forkyard_fpm;
use crate::support::prelude::*;

pub(crate) const STOCK: &str = concat!("/usr/sbin/php-fpm", env!("FORKYARD_PHP"));
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn is_possible() -> bool {
    super::both::is_stock_there() && !needs_root()
}

pub(crate) struct Fpm {
    child: Child,
    directory: tempfile::TempDir,
    pub(crate) address: String,
}

impl Fpm {
    pub(crate) fn start(program: &str, global: &str, pool: &str, scripts: &[(&str, &str)]) -> Fpm {
        Fpm::start_with(program, &[], global, pool, scripts)
    }

    pub(crate) fn start_with(
        program: &str,
        options: &[&str],
        global: &str,
        pool: &str,
        scripts: &[(&str, &str)],
    ) -> Fpm {
        let fpm = Fpm::launch_by(Command::new(program).args(options), global, pool, scripts);
        fpm.wait_for("error", "ready to handle connections");
        fpm
    }

    pub(crate) fn launch(program: &str, global: &str, pool: &str, scripts: &[(&str, &str)]) -> Fpm {
        Fpm::launch_by(&mut Command::new(program), global, pool, scripts)
    }

    pub(crate) fn launch_by(
        command: &mut Command,
        global: &str,
        pool: &str,
        scripts: &[(&str, &str)],
    ) -> Fpm {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().expect("there is room");
        let path = directory.path();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("it is ours");
        for (name, text) in scripts {
            fs::write(path.join(name), text).expect("writable");
        }
        let port = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
        let address = port.expect("there are ports").to_string();
        let text = format!(
            "[global]\nerror_log = {{DIR}}/error\npid = {{DIR}}/pid\n{global}\n[www]\nuser = www-data\nlisten = {address}\n\
             pm = static\npm.max_children = 1\n{pool}\n"
        );
        let port = address.rsplit(':').next().unwrap_or_default();
        let text = text
            .replace("{DIR}", &path.display().to_string())
            .replace("{PORT}", port);
        fs::write(path.join("fpm.conf"), text).expect("writable");
        let errors = fs::File::create(path.join("stderr")).expect("writable");
        let child = command
            .args(["-F", "-n", "-y"])
            .arg(path.join("fpm.conf"))
            .env("FORKYARD_GLOBAL__CONTROL", path.join("control"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(errors)
            .spawn()
            .expect("it can be run");
        Fpm {
            child,
            directory,
            address,
        }
    }

    pub(crate) fn both(global: &str, pool: &str, scripts: &[(&str, &str)]) -> [Fpm; 2] {
        [STOCK, forkyard_fpm()].map(|program| Fpm::start(program, global, pool, scripts))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn read(&self, name: &str) -> String {
        let bytes = fs::read(self.path(name)).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        text.replace(&self.directory.path().display().to_string(), "DIR")
    }

    pub(crate) fn wait_for(&self, name: &str, text: &str) -> String {
        self.wait_for_count(name, text, 1)
    }

    pub(crate) fn wait_for_count(&self, name: &str, text: &str, count: usize) -> String {
        let end = Instant::now() + PATIENCE;
        loop {
            let read = self.read(name);
            if read.matches(text).count() >= count {
                return read;
            }
            assert!(
                Instant::now() < end,
                "not {count} times {text:?} in {name}:\n{read}"
            );
            let mut nothing = [];
            let _ = nix::poll::poll(&mut nothing, 10_u8);
        }
    }

    pub(crate) fn params(&self, script: &str, query: &str) -> Params {
        Params::get(self.directory.path(), script, query)
    }

    pub(crate) fn ask(&self, params: &Params, body: &[u8]) -> Answer {
        let mut client = Client::connect_tcp(&self.address).expect("it listens");
        client.request(params, body).expect("it answers")
    }

    pub(crate) fn get(&self, script: &str) -> String {
        self.ask(&self.params(script, ""), b"").body()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).expect("it runs");
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }
}

impl Drop for Fpm {
    fn drop(&mut self) {
        let path = format!("/proc/{0}/task/{0}/children", self.child.id());
        let children = fs::read_to_string(path).unwrap_or_default();
        let _ = self.child.kill();
        let _ = self.child.wait();
        for pid in children.split_whitespace().filter_map(|pid| pid.parse().ok()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}
