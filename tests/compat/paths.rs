//! Which script runs, and its path variables.

use super::client::Request;
use super::servers::forkyard::Forkyard;
use super::servers::php_fpm::PhpFpm;
use super::servers::{Setup, directory};
use super::{Pair, pair, scripts};

fn request(params: &str) -> Request {
    let root = scripts().display().to_string();
    let mut request = Request {
        params: Vec::new(),
        body: Vec::new(),
    }
    .with("REQUEST_METHOD", "GET");
    for item in params.split_whitespace() {
        let (name, value) = item.split_once('=').expect("name=value");
        let name = match name {
            "SF" => "SCRIPT_FILENAME",
            "PT" => "PATH_TRANSLATED",
            "PI" => "PATH_INFO",
            "SN" => "SCRIPT_NAME",
            "DR" => "DOCUMENT_ROOT",
            other => other,
        };
        request = request.with(name, &value.replace("{d}", &root).replace('~', " "));
    }
    request
}

const SENT: [&str; 36] = [
    "DR={d} SF={d}/path.php/a/b SN=/path.php/a/b PI=/path.php/a/b PT={d}/path.php/a/b",
    "DR={d} SF={d}/path.php SN=/path.php PI=/a/b",
    "DR={d} SF={d}/path.php/a/b SN=/path.php/a/b",
    "DR={d} SF=proxy:fcgi://h:9{d}/path.php/1%202 SN=/path.php/1~2",
    "DR={d} SF=proxy:fcgi://h:9{d}/path.php?q=1 SN=/path.php PI=/x",
    "DR={d} SF={d}/path.php/ SN=/path.php/",
    "DR={d} SF=proxy:balancer://h{d}/path.php/a+b SN=/path.php/a+b",
    "DR={d} SF=PROXY:FCGI://h{d}/path.php/a SN=/else",
    "DR={d} SF=proxy:fcgi://h{d}/path.php/a SN=/path.php PI=/b",
    "DR={d} SF=proxy:fcgi://h{d}/path.php/a SN=/path.php PI=/a",
    "DR={d} SF=proxy:fcgi://h{d}/path.php/a PI=/b",
    "DR={d} SF=proxy:fcgi://h{d}/path.php/a",
    "SF=proxy:fcgi://h:9 SN=/p",
    "SF=proxy:fcgi://h:9{d}/missing.php SN=/p",
    "DR={d}/ SF={d}/path.php/a SN=/path.php PI=/a",
    "SF={d}/path.php/a/b SN=/path.php PI=/x/a/b",
    "SF={d}/path.php/a SN=/path.php",
    "SF={d}/path.php/a SN=/other",
    "SF={d}/path.php/a",
    "SF={d}/path.php/a PI=/x/a",
    "SF={d}/path.php",
    "PT={d}/path.php",
    "PT={d}/path.php/a PI=/q/a SN=/path.php",
    "DR={d} SF=/cgi/php SN=/cgi/php PT={d}/path.php PI=/path.php REDIRECT_URL=/path.php",
    "DR={d} SF=/cgi/php SN=/cgi/php PT={d}/path.php/x PI=/path.php/x REDIRECT_URL=/path.php/x",
    "DR={d} SF={d}/path.php SN=/path.php REDIRECT_URL=/other PI=/i PT={d}/path.php",
    "SERVER_SOFTWARE=Microsoft-IIS/10.0 DR={d} SF={d}/path.php SN=/path.php PI=/path.php/a",
    "SERVER_SOFTWARE=Microsoft-IIS/10.0 DR={d} SF={d}/path.php SN=/path.php PI=/path.php",
    "SERVER_SOFTWARE=Microsoft-IIS/10.0 DR={d} SF={d}/path.php/a SN=/path.php/a PI=/path.php/a",
    "DR={d} SF={d}/missing.php SN=/missing.php",
    "DR={d} SF={d}/ SN=/",
    "DR={d} SF={d} SN=/",
    "DR={d} SF={d}/../scripts/path.php SN=/path.php",
    "DR={d} SF= SN=/path.php",
    "DR={d} SN=/path.php",
    "DR={d} SF=path.php SN=/path.php",
];

#[test]
fn fix_ups() {
    let pair = pair();
    for sent in SENT {
        println!("{sent}");
        pair.same(&request(sent));
    }
}

fn paths(text: &str) -> Vec<String> {
    let is_path = |line: &&str| line.contains('=') && !line.starts_with("FRANKENPHP_WORKER=");
    text.lines().filter(is_path).map(str::to_owned).collect()
}

#[test]
fn fix_ups_for_a_worker_script() {
    let place = directory();
    let worker = place.path().join("worker.php");
    let script = scripts().join("path.php");
    let text = format!(
        "<?php while (forkyard_handle_request(function () {{ include '{}'; }}));",
        script.display()
    );
    std::fs::write(&worker, text).expect("writable");
    let fpm = PhpFpm::start(&Setup::new());
    for mode in ["loop", "snapshot"] {
        let mut setup = Setup::new();
        setup.application = format!("worker = {worker:?}\nworker_mode = \"{mode}\"\n");
        let server = Forkyard::start(&setup);
        let mut count = 0;
        for sent in SENT {
            let expected = request(sent).send(&fpm.socket);
            let is_found =
                expected.text().contains("SCRIPT_FILENAME") && !expected.text().contains("Status: 404");
            if is_found {
                let answer = request(sent).send(&server.socket);
                let [expected, found] = [expected, answer].map(|reply| paths(&reply.body()));
                assert_eq!(expected, found, "{mode}: {sent}");
                count += 1;
            }
        }
        assert!(count > 15, "{count}");
    }
}

#[test]
fn without_fix_ups() {
    for setup in [
        Setup::new().ini("cgi.fix_pathinfo = 0"),
        Setup::new().ini("cgi.fix_pathinfo = 0\ncgi.discard_path = 1"),
        Setup::new().ini("doc_root = /var/www"),
    ] {
        let pair = Pair::start(&setup);
        for sent in SENT {
            println!("{setup:?} {sent}");
            pair.same(&request(sent));
        }
    }
}

#[test]
fn scripts_that_are_not_there() {
    let pair = pair();
    let reply = pair.get("/missing.php");
    assert!(reply.text().starts_with("Status: 404 Not Found\r\n") && reply.body() == "File not found.\n");
    assert_eq!(reply.errors(), "Primary script unknown");
    pair.get("/");
    pair.get("");
    pair.same(&Request::get(&scripts(), "/missing.php").with("REQUEST_METHOD", "HEAD"));
}

#[test]
fn scripts_that_may_not_run() {
    let pair = pair();
    let reply = pair.get("/broken.inc");
    assert!(reply.text().starts_with("Status: 403 Forbidden\r\n") && reply.body() == "Access denied.\n");
    let mut setup = Setup::new();
    setup.limit_extensions = Some(vec![".inc".to_owned(), ".rs".to_owned()]);
    let pair = Pair::start(&setup);
    for uri in ["/broken.inc", "/path.php", "/../main.rs", "/.inc"] {
        pair.get(uri);
    }
}

#[test]
fn scripts_that_can_not_be_read() {
    use std::os::unix::fs::PermissionsExt;
    let pair = pair();
    let directory = directory();
    let path = directory.path().join("secret.php");
    std::fs::write(&path, "<?php echo 'secret';").expect("the directory is writable");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o000)).expect("it is ours");
    std::fs::create_dir(directory.path().join("directory.php")).expect("the directory is writable");
    pair.same(&Request::get(directory.path(), "/secret.php"));
    pair.same(&Request::get(directory.path(), "/directory.php"));
    pair.same(&Request::get(directory.path(), "/secret.php/x"));
}

#[test]
fn requests_that_lack_something() {
    let pair = pair();
    for name in [
        "REQUEST_METHOD",
        "SCRIPT_NAME",
        "SCRIPT_FILENAME",
        "QUERY_STRING",
        "DOCUMENT_ROOT",
        "CONTENT_TYPE",
    ] {
        pair.same(&Request::get(&scripts(), "/server.php?a=1").without(name));
    }
    pair.same(&Request {
        params: Vec::new(),
        body: Vec::new(),
    });
}

#[test]
fn a_script_that_changes() {
    let pair = Pair::start(&Setup::new().ini("opcache.revalidate_freq = 0"));
    let directory = directory();
    for version in ["one", "two, longer", ""] {
        std::fs::write(directory.path().join("s.php"), format!("<?php echo '{version}';"))
            .expect("it is writable");
        let earlier =
            std::time::SystemTime::now() - std::time::Duration::from_secs(100 + version.len() as u64);
        let file = std::fs::File::options()
            .write(true)
            .open(directory.path().join("s.php"))
            .expect("it is there");
        file.set_modified(earlier).expect("it is ours");
        assert_eq!(
            pair.same(&Request::get(directory.path(), "/s.php")).body(),
            version
        );
    }
    std::fs::remove_file(directory.path().join("s.php")).expect("it is there");
    pair.same(&Request::get(directory.path(), "/s.php"));
}

#[test]
fn ping() {
    let mut setup = Setup::new();
    setup.ping = true;
    let pair = Pair::start(&setup);
    for request in [
        Request::get(&scripts(), "/ping"),
        Request::get(&scripts(), "/ping").without("REQUEST_METHOD"),
        Request::get(&scripts(), "/ping").without("SCRIPT_FILENAME"),
        Request::get(&scripts(), "/ping").with("REQUEST_METHOD", "HEAD"),
        Request::get(&scripts(), "/ping/x"),
    ] {
        pair.same(&request);
    }
}
