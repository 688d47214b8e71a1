//! `pm.status_listen` answers what php-fpm answers there, byte for byte.

use super::both::{STOCK, forkyard_fpm, is_stock_there};
use crate::support::prelude::*;

struct Server {
    child: Child,
    directory: tempfile::TempDir,
}

impl Server {
    fn start(program: &str, pages: &str) -> Server {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().expect("there is room");
        let path = directory.path().display().to_string();
        fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).expect("it is ours");
        let user = if nix::unistd::geteuid().is_root() {
            "user = www-data\ngroup = www-data\n"
        } else {
            ""
        };
        let text = format!(
            "[global]\nerror_log = {path}/log\ndaemonize = no\n[www]\nlisten = {path}/main.sock\n{user}\
             listen.mode = 0604\npm = static\npm.max_children = 2\npm.status_listen = {path}/status.sock\n{pages}"
        );
        let file = directory.path().join("fpm.conf");
        fs::write(&file, text).expect("writable");
        let child = Command::new(program)
            .args(["-F", "-n", "-y"])
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("it can be run");
        let server = Server { child, directory };
        server.until(|| {
            let path = server.path("status.sock");
            path.exists() && server.ask("GET", "/", "").is_some_and(|_| true)
        });
        server
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn until(&self, mut is_so: impl FnMut() -> bool) {
        let end = Instant::now() + Duration::from_secs(30);
        while !is_so() {
            assert!(Instant::now() < end, "waited in vain");
            let _ = nix::poll::poll(&mut [], 10_u8);
        }
    }

    fn wait_for_idle(&self, uri: &str) {
        self.until(|| {
            let (_, body, _) = self.ask("GET", uri, "full").expect("an answer");
            body.matches("state:                Idle").count() == 2
        });
    }

    fn ask(&self, method: &str, uri: &str, query: &str) -> Option<(String, String, String)> {
        let mut client = Client::connect(&self.path("status.sock")).ok()?;
        let params = Params::get(Path::new("/nowhere"), "x.php", query)
            .with("SCRIPT_NAME", uri)
            .with("REQUEST_METHOD", method);
        let answer = client.request(&params, b"").ok()?;
        let text = answer.text();
        let (head, body) = text.split_once("\r\n\r\n")?;
        Some((head.replace("\r\n", "\n"), body.to_owned(), answer.error_text()))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = kill(Pid::from_raw(self.child.id() as i32), Signal::SIGTERM);
        let _ = self.child.wait();
    }
}

/// Masks numbers, and the padding that depends on their width.
fn masked(text: &str) -> String {
    let mut masked = String::new();
    for character in text.chars() {
        let character = if character.is_ascii_digit() {
            '#'
        } else {
            character
        };
        if !((character == '#' || character == ' ') && masked.ends_with(character)) {
            masked.push(character);
        }
    }
    masked
}

fn counted(body: &str) -> Vec<(String, String)> {
    const OTHER: [&str; 7] = [
        "start time",
        "start since",
        "listen queue len",
        "max listen queue",
        "listen queue",
        "pid",
        "request duration",
    ];
    let value: Value = serde_json::from_str(body).expect("JSON");
    let mut all = Vec::new();
    let objects = std::iter::once(&value).chain(value["processes"].as_array().into_iter().flatten());
    for object in objects {
        for (name, value) in object.as_object().expect("an object") {
            if !OTHER.contains(&name.as_str()) && name != "processes" {
                all.push((name.clone(), value.to_string()));
            }
        }
    }
    all.sort();
    all
}

fn compare(stock: &Server, ours: &Server, uris: &[&str]) {
    for uri in uris {
        for query in [
            "",
            "full",
            "json",
            "json&full",
            "xml",
            "xml&full",
            "html",
            "html&full",
            "openmetrics",
            "full&openmetrics",
        ] {
            for method in ["GET", "HEAD", "POST"] {
                let both = [stock, ours].map(|server| server.ask(method, uri, query).expect("an answer"));
                let [theirs, own] = both.map(|(head, body, error)| (head, masked(&body), error));
                assert_eq!(theirs, own, "{method} {uri}?{query}");
            }
        }
    }
}

#[test]
fn the_status_address_answers_as_php_fpm_s_does() {
    skip_if!(!is_stock_there());
    let pages = "pm.status_path = /st\nping.path = /ping\nping.response = \"a <b>\"\n";
    let (stock, ours) = (Server::start(STOCK, pages), Server::start(forkyard_fpm(), pages));
    let both = [&stock, &ours];
    for server in both {
        server.wait_for_idle("/st");
    }
    compare(&stock, &ours, &["/st", "/ping"]);
    let [theirs, own] =
        both.map(|server| counted(&server.ask("GET", "/st", "json&full").expect("an answer").1));
    assert_eq!(theirs, own);
    use std::os::unix::fs::MetadataExt;
    let [theirs, own] = both.map(|server| {
        let data = fs::metadata(server.path("status.sock")).expect("a socket");
        (format!("{:o}", data.mode()), data.uid(), data.gid())
    });
    assert_eq!(theirs, own);
    compare(&stock, &ours, &["/none"]);
}

#[test]
fn without_a_path_the_status_is_the_root() {
    skip_if!(!is_stock_there());
    let (stock, ours) = (Server::start(STOCK, ""), Server::start(forkyard_fpm(), ""));
    for server in [&stock, &ours] {
        server.wait_for_idle("/");
    }
    compare(&stock, &ours, &["/", "/ping"]);
}

#[test]
fn php_is_named_before_it_was_started() {
    skip_if!(!is_stock_there());
    let ondemand = "pm = ondemand\npm.max_children = 1\n";
    let [theirs, own] = [STOCK, forkyard_fpm()].map(|program| {
        let server = Server::start(program, ondemand);
        server.ask("GET", "/", "").expect("an answer").0
    });
    assert_eq!(theirs, own);
    assert_contains(&own, "X-Powered-By: PHP/");
    let hidden = Server::start(
        forkyard_fpm(),
        &format!("{ondemand}php_admin_value[expose_php] = off\n"),
    );
    let (head, ..) = hidden.ask("GET", "/", "").expect("an answer");
    assert_lacks(&head, "X-Powered-By");
}
