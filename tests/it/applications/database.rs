//! PHP with a real MariaDB: mysqli and PDO, and connections that a worker keeps from request to request.

use crate::support::mariadb::MariaDb;
use crate::support::prelude::*;

fn daemon(script: &str, socket: &Path) -> Daemon {
    let daemon = Daemon::start(|dir| php_pool(dir, "", ""));
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
