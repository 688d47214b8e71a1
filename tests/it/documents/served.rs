//! The documents' sites are really served.

use super::blocks;
use super::blocks::root;
use crate::support::prelude::*;

fn readme(kind: &str, text: &str) -> String {
    blocks::find("README.md", kind, text)
}

pub(crate) fn settle_toml(text: &str, dir: &Path) -> String {
    let text = text.replace("/run/", &format!("{}/", dir.display()));
    if is_root() {
        return text;
    }
    let names_user = |line: &&str| {
        !line.starts_with("user =") && !line.starts_with("group =") && !line.starts_with("owner =")
    };
    let text: Vec<&str> = text.lines().filter(names_user).collect();
    text.join("\n")
        .replace(", owner = \"www-data\"", "")
        .replace(", group = \"www-data\"", "")
}

pub(crate) fn settle_nginx(text: &str, dir: &Path, port: u16) -> String {
    let text = text
        .replace("/run/", &format!("{}/", dir.display()))
        .replace("/var/www/html", &dir.join("html").display().to_string())
        .replace("include fastcgi_params", "include /etc/nginx/fastcgi_params")
        .replace("listen 80;", &format!("listen 127.0.0.1:{port};"));
    let other = |line: &&str| !line.trim().starts_with("listen [::]:80;");
    text.lines().filter(other).collect::<Vec<_>>().join("\n")
}

/// Daemon and nginx with these configurations, and a site with an index.php.
struct Served {
    daemon: Daemon,
    _nginx: Nginx,
    port: u16,
    html: PathBuf,
}

impl Served {
    fn start(toml: &str, nginx: &str) -> Served {
        let daemon = Daemon::start(|dir| settle_toml(toml, dir));
        let html = daemon.dir.join("html");
        fs::create_dir(&html).expect("html");
        write_file(
            html.join("index.php"),
            "<?php echo 'served ', $_GET['x'] ?? '-', ' ', $_SERVER['PATH_INFO'] ?? '-';",
        );
        let port = free_port();
        let nginx = Nginx::start("return 404;", &settle_nginx(nginx, &daemon.dir, port));
        Served {
            daemon,
            _nginx: nginx,
            port,
            html,
        }
    }

    fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    fn get(&self, path: &str) -> String {
        curl(&[&self.url(path)])
    }

    fn status(&self, path: &str) -> String {
        curl(&[
            "--path-as-is",
            "--output",
            "/dev/null",
            "--write-out",
            "%{http_code}",
            &self.url(path),
        ])
    }
}

#[test]
fn the_readme_s_site_is_served() {
    let served = Served::start(&readme("toml", "runtime = \"php\""), &readme("nginx", "server {"));
    assert_eq!(served.get("/index.php?x=1"), "served 1 -");
    assert_eq!(served.get("/?x=2"), "served 2 -");
    assert_eq!(served.status("/missing.php"), "404");
}

#[test]
fn the_sample_site_of_conf_is_served() {
    let toml = read_file(root().join("conf/forkyard.toml"));
    let nginx = read_file(root().join("conf/nginx-site.conf"));
    let toml = toml
        .replace("#status_path =", "status_path =")
        .replace("#ping.path =", "ping.path =");
    let served = Served::start(&toml, &nginx);
    assert_eq!(served.get("/index.php?x=1"), "served 1 ");
    assert_eq!(served.get("/index.php/a/b?x=2"), "served 2 /a/b");
    assert_eq!(served.get("/no/such/page?x=3"), "served 3 ");
    assert_eq!(served.get("/ping"), "pong");
    assert!(served.get("/status").starts_with("pool:                 www\n"));
    fs::create_dir(served.html.join("uploads")).expect("uploads");
    fs::write(served.html.join("uploads/a.php"), "<?php echo 'ran';").expect("upload");
    fs::write(served.html.join("uploads/a.jpg"), "<?php echo 'ran';").expect("upload");
    fs::write(served.html.join(".env"), "secret").expect(".env");
    assert_eq!(served.status("/uploads/a.php"), "403");
    assert_eq!(served.status("/uploads/a.php/x"), "403");
    assert_eq!(served.status("/uploads/a.jpg/x.php"), "403");
    assert_eq!(served.get("/uploads/a.jpg"), "<?php echo 'ran';");
    assert_eq!(served.status("/missing.php"), "404");
    assert_eq!(served.status("/.env"), "404");
    served.daemon.write(
        "html/proxy.php",
        "<?php var_dump(getenv('HTTP_PROXY'), $_SERVER['HTTP_PROXY'] ?? null);",
    );
    let said = curl(&[
        "--header",
        "Proxy: http://evil.example/",
        &served.url("/proxy.php"),
    ]);
    assert_lacks(&said, "evil");
}

#[test]
fn the_sample_configuration_is_right_as_it_is() {
    let file = root().join("conf/forkyard.toml").display().to_string();
    assert_success(&super::forkyard(&["check", "-c", &file]));
}

/// nginx's warnings and errors for a site.
fn refused_by_nginx(site: &str) -> Option<String> {
    let dir = directory();
    let site = settle_nginx(site, dir.path(), free_port());
    let file = dir.path().join("nginx.conf");
    let path = dir.path().display();
    let text = format!(
        "pid {path}/pid;\nerror_log {path}/log;\nevents {{}}\nhttp {{\nclient_body_temp_path {path}/body;\n\
         fastcgi_temp_path {path}/fastcgi;\nproxy_temp_path {path}/proxy;\nuwsgi_temp_path {path}/uwsgi;\n\
         scgi_temp_path {path}/scgi;\naccess_log off;\n{site}\n}}\n"
    );
    fs::write(&file, text).expect("nginx.conf");
    let output = Command::new("nginx")
        .args(["-t", "-e", "stderr", "-c"])
        .arg(&file)
        .output()
        .expect("nginx");
    let said = text_of(&output.stderr);
    (!output.status.success() || said.contains("[warn]")).then_some(said)
}

#[test]
fn the_sample_site_passes_nginx_s_own_check() {
    let site = read_file(root().join("conf/nginx-site.conf"));
    assert_eq!(refused_by_nginx(&site), None);
}

#[test]
fn every_site_of_nginx_in_the_documents_passes_its_check() {
    let sites = super::blocks("nginx");
    assert!(sites.len() > 5);
    for block in sites {
        if let Some(said) = refused_by_nginx(&block.text) {
            panic!("{block}: {said}");
        }
    }
}

#[test]
fn the_responder_s_configuration_is_the_documents() {
    let file = read_file(root().join("examples/responder.toml"));
    let shown = blocks::find("docs/start/rust-handler.md", "toml", "runtime = \"rust\"");
    assert!(file.contains(&shown));
}

fn responder() -> PathBuf {
    let program = Path::new(env!("CARGO_BIN_EXE_forkyard"));
    let profile = program.parent().expect("a folder");
    let target = profile.parent().expect("a target folder");
    let mut command = Command::new(env!("CARGO"));
    command
        .args([
            "build",
            "--quiet",
            "--locked",
            "--offline",
            "--example",
            "responder",
            "--target-dir",
        ])
        .arg(target);
    if profile.ends_with("release") {
        command.arg("--release");
    }
    assert_success(&command.current_dir(root()).output().expect("cargo"));
    profile.join("examples/responder")
}

#[test]
fn the_responder_answers_through_nginx() {
    let dir = directory();
    let text = read_file(root().join("examples/responder.toml"));
    let text = settle_toml(&text, dir.path());
    fs::write(dir.path().join("responder.toml"), text).expect("configuration");
    let mut command = Command::new(responder());
    command.arg(dir.path().join("responder.toml"));
    let daemon = Daemon::launch(dir.path(), command).ready();
    let socket = dir.path().join("forkyard-hello.sock");
    let server = format!(
        "location / {{ include /etc/nginx/fastcgi_params; fastcgi_pass unix:{}; }}",
        socket.display()
    );
    let nginx = Nginx::start(&server, "");
    let workers = daemon.wait_for_workers("hello", 2);
    let body = "x".repeat(100_000);
    let file = daemon.write("body", &body);
    let data = format!("@{}", file.display());
    let answer = curl(&[
        "--header",
        "Expect:",
        "--data-binary",
        &data,
        &nginx.url("/any?World"),
    ]);
    let pid = answer
        .split_whitespace()
        .nth(4)
        .and_then(|pid| pid.trim_end_matches(',').parse().ok());
    assert!(pid.is_some_and(|pid: u32| workers.contains(&pid)), "{answer}");
    assert_eq!(
        answer,
        format!(
            "Hello World from worker {}, which read 100000 bytes\n",
            pid.unwrap_or(0)
        )
    );
    let mut client = Client::connect(&socket).expect("connect").kept();
    for name in ["a", "b"] {
        let params = Params::get(Path::new("/srv"), "x", name);
        let answer = client.request(&params, b"").expect("answer").body();
        assert_starts(&answer, &format!("Hello {name} from worker "));
    }
    assert_lacks(&daemon.log(), "WARNING");
    assert_lacks(&daemon.log(), "ERROR");
}

#[test]
fn the_responder_answers_from_an_empty_chroot() {
    skip_if!(needs_root());
    let dir = directory();
    let empty = dir.path().join("empty");
    fs::create_dir(&empty).expect("empty");
    let text = read_file(root().join("examples/responder.toml"));
    let text = settle_toml(&text, dir.path()) + &format!("chroot = \"{}\"\n", empty.display());
    fs::write(dir.path().join("responder.toml"), text).expect("configuration");
    let mut command = Command::new(responder());
    command.arg(dir.path().join("responder.toml"));
    let daemon = Daemon::launch(dir.path(), command);
    let worker = daemon.wait_for_workers("hello", 2)[0];
    let socket = dir.path().join("forkyard-hello.sock");
    let mut client = Client::connect(&socket).expect("connect");
    let answer = client
        .request(&Params::get(Path::new("/srv"), "x", "root"), b"")
        .expect("answer")
        .body();
    assert_starts(&answer, "Hello root from worker ");
    let inside = fs::read_link(format!("/proc/{worker}/root")).expect("a link");
    assert_eq!(inside, empty);
    assert_lacks(&daemon.log(), "ERROR");
}

#[test]
fn blocks_and_links_are_found() {
    assert_eq!(
        blocks::links("see [a](b.md#c) and [d](e)\n```\n[x](y)\n```\n"),
        ["b.md#c", "e"]
    );
    assert!(blocks::anchors("# One\n## Two `x` (y)\n").contains("two-x-y"));
}
