//! Replaces Debian's php-fpm: its files, its unit's commands, nginx in front, with either program.

use super::both::{STOCK, compare, forkyard_fpm, is_stock_there, said};
use super::service::{Daemon, PATIENCE};
use crate::support::prelude::*;
use std::os::unix::net::UnixDatagram;

const TREE: &str = concat!("/etc/php/", env!("FORKYARD_PHP"), "/fpm");
const UNIT: &str = concat!("/lib/systemd/system/php", env!("FORKYARD_PHP"), "-fpm.service");

struct Copy {
    directory: tempfile::TempDir,
}

impl Copy {
    fn new() -> Copy {
        let copy = Copy {
            directory: tempfile::tempdir().expect("there is room"),
        };
        let path = copy.path("");
        fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
        fs::create_dir_all(copy.path("log")).expect("there is room");
        let done = Command::new("cp")
            .arg("-rL")
            .arg(TREE)
            .arg(copy.path("fpm"))
            .status();
        assert!(done.is_ok_and(|status| status.success()), "cp {TREE}");
        for file in ["fpm/php-fpm.conf", "fpm/pool.d/www.conf"] {
            let text = fs::read_to_string(copy.path(file)).expect("it was copied");
            copy.write(file, &copy.moved(&text));
        }
        copy
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("writable");
    }

    fn moved(&self, text: &str) -> String {
        let directory = self.directory.path().to_string_lossy();
        text.replace("/run/php/", &format!("{directory}/"))
            .replace("/var/log/", &format!("{directory}/log/"))
            .replace(&format!("{TREE}/"), &format!("{directory}/fpm/"))
    }
}

fn commands(unit: &str, name: &str) -> Vec<String> {
    let lines = unit
        .lines()
        .filter_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    lines
        .map(|line| line.trim_start_matches('-').to_owned())
        .collect()
}

#[test]
fn the_documents_drop_in_has_the_arguments_of_debians_unit() {
    let Ok(unit) = fs::read_to_string(concat!(
        "/lib/systemd/system/php",
        env!("FORKYARD_PHP"),
        "-fpm.service"
    )) else {
        crate::skip::skip(concat!("there is no php", env!("FORKYARD_PHP"), "-fpm.service"));
        return;
    };
    let document = include_str!("../../docs/start/replace-php-fpm.md");
    let lines: Vec<&str> = document.lines().map(str::trim).collect();
    let shown = commands(&lines.join("\n"), "ExecStart");
    assert_eq!(shown[0], "", "the first one takes the unit's away");
    let of_unit = commands(&unit, "ExecStart").remove(0);
    let of_unit = of_unit.replace(
        concat!("/usr/sbin/php-fpm", env!("FORKYARD_PHP")),
        "/usr/sbin/forkyard-fpm",
    );
    assert_eq!(shown[1], of_unit);
}

#[test]
fn debians_unit_runs_forkyard_as_it_runs_php_fpm() {
    let Ok(unit) = fs::read_to_string(UNIT) else {
        crate::skip::skip(&format!("there is no {UNIT}"));
        return;
    };
    skip_if!(!is_stock_there() || needs_root());
    let lines = [STOCK, forkyard_fpm()].map(|program| {
        let copy = Copy::new();
        copy.write(
            "a.php",
            "<?php echo PHP_SAPI, ' ', ini_get('memory_limit'), ' ', get_current_user();",
        );
        let notified = copy.path("notify");
        let socket = UnixDatagram::bind(&notified).expect("writable");
        socket.set_read_timeout(Some(PATIENCE)).expect("a time");

        let start = commands(&unit, "ExecStart").remove(0);
        let start = copy.moved(&start);
        let mut words = start.split_whitespace();
        assert_eq!(words.next(), Some(STOCK));
        let mut daemon = Daemon::run(Command::new(program).args(words).env("NOTIFY_SOCKET", &notified));
        let mut buffer = [0; 1000];
        let length = socket.recv(&mut buffer).expect("it says when it is ready");
        let said = text_of(&buffer[..length]);
        assert!(said.contains("READY=1"), "{program}: {said}");
        assert!(
            said.contains(&format!("MAINPID={}", daemon.child.id())),
            "{program}: {said}"
        );
        let pid = read_file(copy.path(concat!("php", env!("FORKYARD_PHP"), "-fpm.pid")));
        assert_eq!(pid, daemon.child.id().to_string());

        let post = commands(&unit, "ExecStartPost").remove(0);
        let pool = copy.moved(post.split_whitespace().nth(3).unwrap_or_default());
        let pool = fs::read_to_string(pool).expect("the helper's file");
        let line = pool.lines().find_map(|line| line.strip_prefix("listen = "));
        let fastcgi = PathBuf::from(line.expect("it says where it listens"));
        let metadata = fs::metadata(&fastcgi).expect("it listens");
        assert_eq!(metadata.permissions().mode() & 0o777, 0o660);

        let nginx = Nginx::start(
            &format!(
                "root {};\nlocation ~ \\.php$ {{ include /etc/nginx/fastcgi.conf; fastcgi_pass unix:{}; }}",
                copy.path("").display(),
                fastcgi.display()
            ),
            "",
        );
        let page = || curl(&[&nginx.url("/a.php")]);
        assert_eq!(page(), "fpm-fcgi 128M root");

        let reload = commands(&unit, "ExecReload").remove(0);
        let reload = reload.replace("$MAINPID", &daemon.child.id().to_string());
        let mut words = reload.split_whitespace();
        let done = Command::new(words.next().unwrap_or_default())
            .args(words)
            .status();
        assert!(done.is_ok_and(|status| status.success()), "{reload}");
        assert_eq!(page(), "fpm-fcgi 128M root");

        daemon.signal(Signal::SIGTERM);
        let status = daemon.child.wait().expect("it is our child");
        assert!(status.success(), "{program}: {status}");
        assert!(
            !fastcgi.exists()
                && !copy
                    .path(concat!("php", env!("FORKYARD_PHP"), "-fpm.pid"))
                    .exists()
        );
        let log = read_file(copy.path(concat!("log/php", env!("FORKYARD_PHP"), "-fpm.log")));
        milestones(&log)
    });
    assert_eq!(lines[0], lines[1]);
}

fn milestones(log: &str) -> Vec<String> {
    let known = [
        "fpm is running",
        "ready to handle",
        "Reloading in progress",
        "Terminating",
        "exiting, bye-bye",
    ];
    let text = |line: &str| line.split_once("] ").map(|(_, text)| text.to_owned());
    let lines = log.lines().filter_map(text);
    let mut found: Vec<String> = lines
        .filter(|line| known.iter().any(|start| line.contains(start)))
        .map(|line| line.split(", pid").next().unwrap_or_default().to_owned())
        .collect();
    found.dedup();
    let again = found.iter().rposition(|line| line.contains("Reloading"));
    if let Some(at) = again {
        found = [&found[..=at], &found[found.len() - 2..]].concat();
    }
    found
}

#[test]
fn every_line_that_debian_comments_out_is_read_alike() {
    skip_if!(!is_stock_there() || needs_root() || needs_file(TREE));
    let copy = Copy::new();
    let prefix = copy.path("").to_string_lossy().trim_end_matches('/').to_owned();
    let mut fine = 0;
    for file in ["fpm/php-fpm.conf", "fpm/pool.d/www.conf"] {
        let text = fs::read_to_string(copy.path(file)).expect("it was copied");
        let lines = text.lines().filter_map(|line| line.strip_prefix(';'));
        for line in lines.filter(|line| line.starts_with(|first: char| first.is_ascii_lowercase())) {
            copy.write(
                file,
                &format!("{text}\n{line}\n").replace("/path/to/pools/$pool", &prefix),
            );
            if file == "fpm/php-fpm.conf" {
                let (before, include) = text.rsplit_once("include=").expect("Debian's includes pools");
                copy.write(file, &format!("{before}\n{line}\ninclude={include}"));
            }
            let main = copy.path("fpm/php-fpm.conf").to_string_lossy().into_owned();
            let arguments = ["-n", "-tt", "-p", &prefix, "-y", &main];
            if line.contains("setfib") {
                // php-fpm reports a wrong line of the including file, so the rest differs.
                let [stock, ours] = [STOCK, forkyard_fpm()].map(|program| said(program, &arguments));
                assert_contains(&stock.0, "unknown entry 'listen.setfib'");
                assert_eq!((stock.0.lines().next(), stock.1), (ours.0.lines().next(), ours.1));
                continue;
            }
            let dump = compare(line, &arguments).unwrap_or_else(|text| panic!("{text}"));
            fine += usize::from(dump.contains("test is successful"));
        }
        copy.write(file, &text);
    }
    assert!(fine > 50, "only {fine} lines are right");
}
