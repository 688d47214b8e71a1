//! Real applications: nginx in front, the daemon and PHP behind, curl as the browser.

mod access;
mod database;
mod dokuwiki;
mod identity;
mod limits;
mod load;
mod site;
mod streaming;
mod transfers;

use crate::support::prelude::*;

fn php_location(root: &str, upstream: &str, extra: &str) -> String {
    format!(
        "root {root};\nindex index.php doku.php;\nlocation ~ ^.+\\.(php|txt)(/|$) {{\n\
         fastcgi_split_path_info ^(.+?\\.(?:php|txt))(/.*)$;\ninclude /etc/nginx/fastcgi_params;\n\
         fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;\n\
         fastcgi_param PATH_INFO $fastcgi_path_info;\nfastcgi_param HTTP_HOST $http_host;\n{extra}\n\
         fastcgi_pass {upstream};\n}}\n"
    )
}

struct Site {
    nginx: Nginx,
    daemon: Daemon,
    root: PathBuf,
}

impl Site {
    /// `settings` and `application` are lines of the pool's tables, `extra` lines of nginx's location.
    fn start(settings: &str, application: &str, extra: &str) -> Site {
        let daemon = Daemon::start(|dir| php_pool(dir, settings, application));
        let root = daemon.dir.join("site");
        make_folder(&root);
        let upstream = format!("unix:{}", daemon.socket("www").display());
        let nginx = Nginx::start(&php_location(&root.display().to_string(), &upstream, extra), "");
        Site { nginx, daemon, root }
    }

    fn write(&self, name: &str, content: &str) {
        fs::write(self.root.join(name), content).expect("write");
    }

    fn get(&self, path: &str) -> Http {
        http(&[&self.nginx.url(path)])
    }
}

#[derive(Debug)]
struct Http {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Http {
    fn text(&self) -> String {
        text_of(&self.body)
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

fn http(arguments: &[&str]) -> Http {
    let output = Command::new("curl")
        .args([
            "--silent",
            "--show-error",
            "--include",
            "--max-time",
            "120",
            "--header",
            "Expect:",
        ])
        .args(arguments)
        .output()
        .expect("curl (Debian package curl)");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "curl {arguments:?}: {:?}\n{errors}",
        output.status
    );
    let bytes = output.stdout;
    let end = bytes
        .windows(4)
        .position(|four| four == b"\r\n\r\n")
        .expect("an end of the headers");
    let head = text_of(&bytes[..end]);
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|code| code.parse().ok())
        .expect("a status");
    Http {
        status,
        head,
        body: bytes[end + 4..].to_vec(),
    }
}

#[track_caller]
fn assert_quiet(daemon: &Daemon) {
    let log = daemon.log();
    let bad: Vec<&str> = log
        .lines()
        .filter(|line| {
            ["] WARNING: ", "] ERROR: ", "] ALERT: "]
                .iter()
                .any(|level| line.contains(level))
        })
        .collect();
    assert!(bad.is_empty(), "the log has {bad:#?}");
}
