//! Stock php-fpm, and forkyard-fpm with the same command line and files.

use super::{Setup, directory, is_root, wait_for};
use crate::support::prelude::*;

pub(crate) const PHP_FPM: &str = concat!("/usr/sbin/php-fpm", env!("FORKYARD_PHP"));

#[derive(Debug)]
pub(crate) struct PhpFpm {
    process: Child,
    pub(crate) socket: PathBuf,
    directory: TempDir,
}

impl PhpFpm {
    pub(crate) fn start(setup: &Setup) -> PhpFpm {
        PhpFpm::start_as(PHP_FPM, setup)
    }

    pub(crate) fn start_as(program: &str, setup: &Setup) -> PhpFpm {
        let directory = directory();
        let socket = directory.path().join("fpm.sock");
        let log = directory.path().join("fpm.log");
        let mut conf = format!(
            "[global]\nerror_log = {}\ndaemonize = no\n[www]\nlisten = {}\nlisten.mode = 0666\npm = {}\npm.max_children = {}\n",
            log.display(),
            socket.display(),
            if setup.ondemand { "ondemand" } else { "static" },
            setup.workers
        );
        if is_root() {
            conf.push_str("user = www-data\ngroup = www-data\n");
        }
        if setup.ping {
            conf.push_str("ping.path = /ping\nping.response = pong\npm.status_path = /status\n");
        }
        if let Some(count) = setup.max_requests {
            writeln!(conf, "pm.max_requests = {count}").expect("to memory");
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
        fs::write(&path, conf).expect("the directory is writable");
        let process = Command::new(program)
            .args(["-F", "-c"])
            .arg(setup.write_php_ini(directory.path()))
            .arg("-y")
            .arg(&path)
            .envs(setup.started_with.iter().cloned())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program is installed");
        let mut server = PhpFpm {
            process,
            socket,
            directory,
        };
        wait_for(&server.socket, || {
            server.process.try_wait().expect("our child").is_some()
        });
        server
    }
}

impl PhpFpm {
    pub(crate) fn reload(&self) {
        let pid = nix::unistd::Pid::from_raw(self.process.id() as i32);
        nix::sys::signal::kill(pid, Signal::SIGUSR2).expect("it runs");
    }

    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }
}

impl Drop for PhpFpm {
    fn drop(&mut self) {
        let pid = nix::unistd::Pid::from_raw(self.process.id() as i32);
        let _ = nix::sys::signal::kill(pid, Signal::SIGTERM);
        let _ = self.process.wait();
    }
}
