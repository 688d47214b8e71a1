//! Git's own server, and cgit, as CGI programs behind nginx.

use crate::it::documents::blocks::find;
use crate::it::documents::served::{settle_nginx, settle_toml};
use crate::support::prelude::*;

fn git(directory: &Path, arguments: &[&str]) -> String {
    let output = Command::new("git")
        .args([
            "-c",
            "user.name=T",
            "-c",
            "user.email=t@localhost",
            "-c",
            "init.defaultBranch=main",
        ])
        .args(["-c", "safe.directory=*", "-c", "http.postBuffer=100000"])
        .args(arguments)
        .current_dir(directory)
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("HOME", directory)
        .output()
        .expect("git (Debian package git)");
    let text = text_of(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "git {arguments:?}: {errors}");
    text
}

fn repository(daemon: &Daemon) {
    git(&daemon.dir, &["init", "-q", "--bare", "repositories/test.git"]);
    let bare = daemon.dir.join("repositories/test.git");
    git(&bare, &["config", "http.receivepack", "true"]);
    if is_root() {
        let owner = format!("www-data:{}", "www-data");
        let done = Command::new("chown")
            .args(["-R", &owner])
            .arg(&bare)
            .status()
            .expect("chown");
        assert!(done.success());
    }
}

#[test]
fn a_repository_is_cloned_and_pushed_to() {
    let toml = find("docs/reference/runtimes.md", "toml", "git-http-backend");
    let daemon = Daemon::start(|dir| settle_toml(&toml, dir));
    repository(&daemon);
    let port = free_port();
    let site = find("docs/reference/runtimes.md", "nginx", "GIT_PROJECT_ROOT");
    let projects = daemon.dir.join("repositories").display().to_string();
    let site = settle_nginx(&site, &daemon.dir, port).replace("/srv/git", &projects);
    let _nginx = Nginx::start("return 404;", &site);
    let url = format!("http://127.0.0.1:{port}/test.git");
    git(&daemon.dir, &["clone", "-q", &url, "first"]);
    let first = daemon.dir.join("first");
    let noise: Vec<u8> = (0..6_000_000u64)
        .map(|n| (n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8)
        .collect();
    fs::write(first.join("noise"), &noise).expect("write");
    git(&first, &["add", "."]);
    git(&first, &["commit", "-q", "-m", "noise"]);
    git(&first, &["push", "-q", "origin", "HEAD:main"]);
    git(&daemon.dir, &["clone", "-q", "-b", "main", &url, "second"]);
    let came = fs::read(daemon.dir.join("second/noise")).expect("read");
    assert!(came == noise, "{} bytes", came.len());
}

#[test]
fn cgit_shows_a_repository() {
    let daemon = Daemon::start(|dir| {
        let settings = "pm = \"ondemand\"\nmax_children = 4\n";
        pool(
            dir,
            "cgit",
            settings,
            "runtime = \"cgi\"\nscript = \"/usr/lib/cgit/cgit.cgi\"\nparameters = [\"CGIT_CONFIG\"]\n",
        )
    });
    repository(&daemon);
    let dir = daemon.dir.display();
    daemon.write(
        "cgitrc",
        &format!("repo.url=test\nrepo.path={dir}/repositories/test.git\nrepo.desc=A test\nvirtual-root=/\n"),
    );
    let nginx = Nginx::start(
        &format!(
            "location / {{ include /etc/nginx/fastcgi_params; fastcgi_param PATH_INFO $uri; fastcgi_param CGIT_CONFIG \
             {dir}/cgitrc; fastcgi_pass unix:{dir}/cgit.sock; }}"
        ),
        "",
    );
    let page = curl(&[&nginx.url("/")]);
    assert_contains(&page, "A test");
    assert_contains(&page, "/test/");
    assert_starts(&curl(&["--head", &nginx.url("/none/")]), "HTTP/1.1 404");
}
