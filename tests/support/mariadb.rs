//! A real MariaDB.

use super::daemon::directory;
use super::{is_root, until};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

pub struct MariaDb {
    child: Child,
    pub socket: PathBuf,
    _dir: Option<tempfile::TempDir>,
}

impl MariaDb {
    pub fn start() -> MariaDb {
        let dir = directory();
        let mut database = MariaDb::start_in(dir.path());
        database._dir = Some(dir);
        database
    }

    pub fn start_in(dir: &Path) -> MariaDb {
        let data = dir.join("data");
        let user = if is_root() {
            "--user=root"
        } else {
            "--skip-name-resolve"
        };
        let made = Command::new("mariadb-install-db")
            .args([
                "--no-defaults",
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
                user,
            ])
            .arg(format!("--datadir={}", data.display()))
            .output()
            .expect("mariadb-install-db (Debian package mariadb-server)");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let socket = dir.join("db.sock");
        let child = Command::new("mariadbd")
            .args([
                "--no-defaults",
                "--skip-networking",
                "--skip-grant-tables",
                "--innodb-buffer-pool-size=16M",
                user,
            ])
            .arg(format!("--datadir={}", data.display()))
            .arg(format!("--socket={}", socket.display()))
            .arg(format!("--pid-file={}", dir.join("pid").display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("mariadbd");
        let database = MariaDb {
            child,
            socket,
            _dir: None,
        };
        until("the database to listen", || {
            UnixStream::connect(&database.socket).ok()
        });
        database
    }
}

impl Drop for MariaDb {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
