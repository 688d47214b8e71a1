//! The site with several hosts in front of an application pool is served.

use super::blocks;
use super::served::{settle_nginx, settle_toml};
use crate::support::prelude::*;

const WSGI: &str = "def application(environ, start_response):
    start_response('200 OK', [('Content-Type', 'text/plain')])
    return [('%s %s %s' % (__file__.split('/')[-2], environ['PATH_INFO'], environ['HTTP_HOST'])).encode()]
";

fn write(apps: &Path, name: &str, text: &str) {
    let path = apps.join(name);
    fs::create_dir_all(path.parent().expect("a directory")).expect("mkdir");
    fs::write(path, text).expect("write");
}

#[test]
fn the_site_with_several_hosts_is_served() {
    let dir = directory();
    let apps = dir.path().canonicalize().expect("path").join("srv");
    write(
        &apps,
        "blog/public/index.php",
        "<?php echo 'blog ', $_SERVER['REQUEST_URI'];",
    );
    write(&apps, "shop/wsgi.py", WSGI);
    write(&apps, "shop/public/style.css", "a {}");
    write(&apps, "wiki/wsgi.py", WSGI);
    if is_root() {
        let status = Command::new("chown")
            .args(["-R", "www-data:www-data"])
            .arg(&apps)
            .status();
        assert!(status.expect("chown").success());
    }
    let there = |text: &str| text.replace("/srv", &apps.display().to_string());
    let toml = blocks::find("docs/howto/many-users.md", "toml", "max_per_app = 4");
    let toml = there(&toml).replace("max = 40", "max = 40\nmin_uid = 1");
    let daemon = Daemon::start(|dir: &Path| settle_toml(&toml, dir));
    let port = free_port();
    let site = blocks::find("docs/howto/many-users.md", "nginx", "server_name blog.example");
    let _nginx = Nginx::start("return 404;", &settle_nginx(&there(&site), &daemon.dir, port));
    for (host, path, answer) in [
        ("blog.example", "/", "blog /"),
        ("blog.example", "/2026/post?x=1", "blog /2026/post?x=1"),
        ("shop.example", "/cart", "shop /cart shop.example"),
        ("shop.example", "/style.css", "a {}"),
        ("wiki.sites.example", "/start", "wiki /start wiki.sites.example"),
        ("shop.sites.example", "/style.css", "a {}"),
    ] {
        let header = format!("Host: {host}");
        let said = curl(&["--header", &header, &format!("http://127.0.0.1:{port}{path}")]);
        assert_eq!(said, answer, "{host}{path}: {}", daemon.log());
    }
}
