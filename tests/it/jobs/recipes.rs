//! The recipes of docs/howto/background-jobs.md.

use super::Jobs;
use crate::it::documents::blocks::{self, root};
use crate::support::prelude::*;

fn block(mark: &str, dir: &Path) -> String {
    let blocks = blocks::read(&root().join("docs/howto/background-jobs.md"));
    let found = blocks.iter().find(|block| block.text.contains(mark));
    let text = &found.unwrap_or_else(|| panic!("no block has {mark}")).text;
    let dir = dir.display().to_string();
    text.replace("/srv/shop", &dir)
        .replace("/srv/checks", &dir)
        .replace("/run/forkyard-jobs.sock", &format!("{dir}/jobs.sock"))
        .replace("/run/forkyard-", &format!("{dir}/"))
}

fn places(dir: &Path) -> String {
    let store = dir.join("store");
    make_folder(&store);
    let user = if is_root() { "" } else { "#" };
    let dir = dir.display();
    format!("[jobs]\nstore = \"{dir}/store/jobs.db\"\nlisten = \"{dir}/jobs.sock\"\n{user}")
}

#[test]
fn the_e_mails_of_the_recipe_are_sent() {
    let daemon = Daemon::start(|dir| {
        write_program(
            &dir.join("sendmail"),
            format!("#!/bin/sh\nexec cat >>{}/mails\n", dir.display()),
        );
        fs::write(dir.join("mails"), "").expect("mails");
        fs::set_permissions(dir.join("mails"), fs::Permissions::from_mode(0o666)).expect("chmod");
        fs::write(dir.join("jobs.php"), block("JSON_THROW_ON_ERROR", dir)).expect("script");
        fs::write(dir.join("push.php"), block("forkyard_push(", dir) + "echo $id;\n").expect("page");
        let sendmail = "php_admin_value = { sendmail_path = \"DIR/sendmail\" }\n";
        block("[pool.shop-jobs]", dir)
            .replace(
                concat!("version = \"", env!("FORKYARD_PHP"), "\"\n"),
                &format!("version = {:?}\n{sendmail}", env!("FORKYARD_PHP")),
            )
            .replace("[jobs]\n", &places(dir))
    });
    let jobs = Jobs { daemon };
    let page = jobs.daemon.get("shop-jobs", "push.php").body();
    let id: i64 = page.trim().parse().unwrap_or_else(|_| panic!("{page}"));
    let done = jobs.wait(id);
    assert_has(&done, json!({"state": "done", "attempt": 1}));
    let mails = read_file(jobs.dir().join("mails"));
    assert_contains(&mails, "To: you@example.org");
    assert_contains(&mails, "Welcome");
    let broken = json!({
        "queue": "mail", "kind": "welcome", "payload": "no JSON", "content_type": "text/plain", "attempts": 1
    });
    let broken = jobs.ask(&json!({"command": "push", "job": broken}));
    let broken = jobs.wait(broken["jobs"][0]["id"].as_i64().expect("id"));
    assert_has(
        &broken,
        json!({"state": "failed", "error": "JsonException: Syntax error (status 500)"}),
    );
    assert_contains(&jobs.daemon.get("shop-jobs", "jobs.php").text(), "Status: 404");
}

#[test]
fn what_is_written_in_a_transaction_is_pushed_once_that_is_committed() {
    let daemon = Daemon::start(|dir| {
        let table = block("CREATE TABLE outbox", dir);
        let database = dir.join("shop.db");
        let make = format!(
            "<?php (new PDO('sqlite:{}'))->exec(\"CREATE TABLE customer (mail TEXT CHECK (mail <> '')); {}\");",
            database.display(),
            table.trim()
        );
        fs::write(dir.join("make.php"), make).expect("script");
        fs::write(dir.join("register.php"), block("register.php", dir)).expect("page");
        fs::write(dir.join("outbox.php"), block("fetchAll", dir)).expect("script");
        write_file(
            dir.join("jobs.php"),
            "<?php echo file_get_contents('php://input');",
        );
        let text = block("[pool.shop-jobs]", dir) + &block("[jobs.queue.outbox]", dir);
        text.replace(
            concat!("version = \"", env!("FORKYARD_PHP"), "\""),
            &format!("version = {:?}", env!("FORKYARD_PHP")),
        )
        .replace("[jobs]\n", &places(dir))
    });
    let jobs = Jobs { daemon };
    let get = |page: &str| jobs.daemon.get("shop-jobs", page);
    assert_eq!(get("make.php").body(), "");
    assert_contains(&get("register.php?mail=").text(), "Status: 500");
    assert_lacks(&get("register.php?mail=you@example.org").text(), "Status:");
    let done = until("the job of the outbox", || {
        let list = jobs.ask(&json!({"command": "list", "queue": "mail", "state": "done"}));
        list["jobs"].as_array().filter(|list| !list.is_empty()).cloned()
    });
    assert_eq!((done.len(), &done[0]["key"]), (1, &json!("outbox/1")));
    let shown = jobs.show(done[0]["id"].as_i64().expect("a number"));
    assert_eq!(shown["result"], json!(r#"{"to":"you@example.org"}"#));
}

fn serve(listener: TcpListener) {
    for connection in listener.incoming() {
        let Ok(mut connection) = connection else { continue };
        let mut request = [0; 1024];
        let count = connection.read(&mut request).unwrap_or(0);
        let status = if request[..count].starts_with(b"GET /good ") {
            "200 OK"
        } else {
            "404 Not Found"
        };
        let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        let _ = connection.write_all(answer.as_bytes());
    }
}

#[test]
fn the_services_of_the_recipe_are_checked() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("address").port();
    std::thread::spawn(move || serve(listener));
    let daemon = Daemon::start(|dir| {
        let list = format!(
            "one anna http://127.0.0.1:{port}/good\ntwo bert http://127.0.0.1:{port}/gone\nthree bert nowhere\n"
        );
        fs::write(dir.join("services"), list).expect("services");
        let socket = format!("forkyard jobs --socket {}/jobs.sock push", dir.display());
        let forkyard = format!("{} jobs", env!("CARGO_BIN_EXE_forkyard"));
        let script = block("#!/bin/sh", dir).replace("forkyard jobs push", &socket);
        write_program(&dir.join("check.sh"), script.replace("forkyard jobs", &forkyard));
        block("[pool.checks]", dir).replace("[jobs]\n", &places(dir))
    });
    let jobs = Jobs { daemon };
    let all = jobs.ask(&json!({"command": "run-now", "schedule": "nightly"}));
    let all = jobs.wait(all["jobs"][0]["id"].as_i64().unwrap_or_else(|| panic!("{all}")));
    assert_has(&all, json!({"state": "done", "result": "all are pushed\n"}));
    let found = until("all services are checked", || {
        let list = jobs.ask(&json!({"command": "list", "kind": "service", "state": "done"}));
        let list = list["jobs"].as_array().cloned().unwrap_or_default();
        (list.len() == 3).then_some(list)
    });
    let status = |name: &str| {
        let job = found.iter().find(|job| job["key"] == format!("check/{name}"));
        job.map(|job| {
            (
                job["status"].clone(),
                jobs.show(job["id"].as_i64().unwrap_or(0))["steps"][1]["output"].clone(),
            )
        })
    };
    assert_eq!(status("one"), Some((json!("ok"), json!("200\n"))));
    assert_eq!(status("two"), Some((json!("error"), json!("404\n"))));
    assert_eq!(status("three"), Some((json!("error"), json!(null))));
}
