//! PHP with a real MariaDB: mysqli and PDO, and connections that a worker keeps from request to request.

use crate::support::daemon::{Daemon, directory, php_pool};
use crate::support::{is_root, until};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A database server with a directory and a socket of its own.
struct MariaDb {
    child: Child,
    socket: PathBuf,
    _dir: tempfile::TempDir,
}

impl MariaDb {
    fn start() -> MariaDb {
        let dir = directory();
        let data = dir.path().join("data");
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
        let socket = dir.path().join("db.sock");
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
            .arg(format!("--pid-file={}", dir.path().join("pid").display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("mariadbd");
        let database = MariaDb {
            child,
            socket,
            _dir: dir,
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

fn daemon(script: &str, socket: &Path) -> Daemon {
    let daemon = Daemon::start(|dir| php_pool(dir, "pm = \"static\"\nmax_children = 1\n", ""));
    daemon.write("db.php", &script.replace("SOCKET", &socket.display().to_string()));
    daemon
}

#[test]
fn mysqli_and_pdo_work_and_persistent_connections_persist() {
    let database = MariaDb::start();
    let mysqli = "<?php $db = new mysqli(($_GET['p'] ?? '') . 'localhost', 'root', '', '', 0, 'SOCKET');
        $db->query('CREATE DATABASE IF NOT EXISTS wiki'); $db->select_db('wiki');
        $db->query('CREATE TABLE IF NOT EXISTS pages (id INT AUTO_INCREMENT PRIMARY KEY, text TEXT)');
        $insert = $db->prepare('INSERT INTO pages (text) VALUES (?)'); $text = 'ümläut'; $insert->bind_param('s', $text);
        $insert->execute();
        $row = $db->query('SELECT text, CONNECTION_ID() AS id FROM pages ORDER BY pages.id DESC LIMIT 1')->fetch_assoc();
        echo $row['text'], ' ', $row['id'];";
    let with_mysqli = daemon(mysqli, &database.socket);
    let ask = |daemon: &Daemon, query: &str| daemon.get("www", &format!("db.php?{query}")).body();
    let fresh = (ask(&with_mysqli, ""), ask(&with_mysqli, ""));
    assert!(fresh.0.starts_with("ümläut ") && fresh.0 != fresh.1, "{fresh:?}");
    let kept = (ask(&with_mysqli, "p=p:"), ask(&with_mysqli, "p=p:"));
    assert!(kept.0.starts_with("ümläut ") && kept.0 == kept.1, "{kept:?}");

    let pdo = "<?php $db = new PDO('mysql:unix_socket=SOCKET', 'root', '', [PDO::ATTR_PERSISTENT => isset($_GET['p'])]);
        $row = $db->prepare('SELECT ? AS text, CONNECTION_ID() AS id'); $row->execute(['ümläut']);
        echo implode(' ', $row->fetch(PDO::FETCH_NUM));";
    let with_pdo = daemon(pdo, &database.socket);
    let fresh = (ask(&with_pdo, ""), ask(&with_pdo, ""));
    assert!(fresh.0.starts_with("ümläut ") && fresh.0 != fresh.1, "{fresh:?}");
    let kept = (ask(&with_pdo, "p"), ask(&with_pdo, "p"));
    assert!(kept.0 == kept.1, "{kept:?}");
}
