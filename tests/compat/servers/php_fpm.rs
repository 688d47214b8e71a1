//! Stock php-fpm.

use super::{Setup, directory, is_root, wait_for};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// A running php-fpm; stopped when dropped.
#[derive(Debug)]
pub(crate) struct PhpFpm {
    process: Child,
    pub(crate) socket: PathBuf,
    _directory: TempDir,
}

impl PhpFpm {
    pub(crate) fn start(setup: &Setup) -> PhpFpm {
        let directory = directory();
        let socket = directory.path().join("fpm.sock");
        let log = directory.path().join("fpm.log");
        let mut conf = format!(
            "[global]\nerror_log = {}\ndaemonize = no\n[www]\nlisten = {}\nlisten.mode = 0666\npm = static\npm.max_children = {}\n",
            log.display(),
            socket.display(),
            setup.workers
        );
        if is_root() {
            conf.push_str("user = www-data\ngroup = www-data\n");
        }
        if setup.ping {
            conf.push_str("ping.path = /ping\nping.response = pong\n");
        }
        if let Some(endings) = &setup.limit_extensions {
            writeln!(conf, "security.limit_extensions = {}", endings.join(" ")).expect("to memory");
        }
        for (kind, list) in [
            ("env", &setup.env),
            ("php_value", &setup.php_value),
            ("php_admin_value", &setup.php_admin_value),
        ] {
            for (name, value) in list {
                let quoted = value.replace('"', "\\\"");
                writeln!(conf, "{kind}[{name}] = \"{quoted}\"").expect("to memory");
            }
        }
        let path = directory.path().join("fpm.conf");
        std::fs::write(&path, conf).expect("the directory is writable");
        let process = Command::new(concat!("/usr/sbin/php-fpm", env!("FORKYARD_PHP")))
            .args(["-F", "-c"])
            .arg(setup.write_php_ini(directory.path()))
            .arg("-y")
            .arg(&path)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("php-fpm is installed");
        let mut server = PhpFpm {
            process,
            socket,
            _directory: directory,
        };
        wait_for(&server.socket, || {
            server.process.try_wait().expect("our child").is_some()
        });
        server
    }
}

impl Drop for PhpFpm {
    fn drop(&mut self) {
        let pid = nix::unistd::Pid::from_raw(self.process.id() as i32);
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
        let _ = self.process.wait();
    }
}
