//! A daemon and an nginx that faults are made with.

use super::super::forkyard as command;
use crate::support::prelude::*;

pub(super) const STATIC: &str = "pm = \"static\"\nmax_children = 1\n";

pub(super) struct Bench {
    pub(super) dir: PathBuf,
    pub(super) daemon: Option<Daemon>,
    nginx: Nginx,
    _dir: tempfile::TempDir,
}

fn site(dir: &Path, lines: &str) -> Nginx {
    let dir = dir.display();
    let root = if lines.contains("root ") {
        String::new()
    } else {
        format!("root {dir}/html;")
    };
    let socket = if lines.contains("fastcgi_pass") {
        String::new()
    } else {
        format!("fastcgi_pass unix:{dir}/www.sock;")
    };
    let server = format!("location / {{\n{root}\ninclude /etc/nginx/fastcgi_params;\n{lines}\n{socket}\n}}");
    Nginx::start(&server, "")
}

pub(super) const NAMED: &str = "fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;";

impl Bench {
    pub(super) fn new() -> Bench {
        let dir = directory();
        let path = dir.path().to_owned();
        fs::create_dir(path.join("html")).expect("html");
        let bench = Bench {
            nginx: site(&path, NAMED),
            dir: path,
            daemon: None,
            _dir: dir,
        };
        bench.script("index.php", "echo 'served';");
        bench.configure(STATIC, "");
        bench
    }

    pub(super) fn started() -> Bench {
        let mut bench = Bench::new();
        bench.start();
        bench
    }

    pub(super) fn start(&mut self) {
        self.daemon = None;
        self.daemon = Some(Daemon::start_in(&self.dir));
    }

    pub(super) fn site(&mut self, lines: &str) {
        self.nginx = site(&self.dir, lines);
    }

    pub(super) fn script(&self, name: &str, text: &str) {
        fs::write(self.dir.join("html").join(name), format!("<?php {text}")).expect("a script");
    }

    pub(super) fn configure(&self, settings: &str, application: &str) {
        let listen = format!(
            "listen = {{ address = \"{}/www.sock\", owner = \"www-data\" }}\n",
            self.dir.display()
        );
        let listen = if settings.contains("listen") { "" } else { &listen };
        self.write(&php_pool(&self.dir, &format!("{listen}{settings}"), application));
    }

    pub(super) fn write(&self, pools: &str) {
        let control = self.dir.join("control.sock");
        let text = format!("[global]\ncontrol = \"{}\"\n{pools}", control.display());
        fs::write(self.dir.join("forkyard.toml"), text).expect("configuration");
    }

    pub(super) fn reload(&self) {
        let output = forkyard(&["reload"], &self.dir).output().expect("forkyard");
        assert!(output.status.success(), "{}", told(&output));
    }

    pub(super) fn port(&self) -> u16 {
        self.nginx.port
    }

    pub(super) fn ask(&self, path: &str) -> String {
        curl(&[&self.nginx.url(path)])
    }

    pub(super) fn post(&self, path: &str, size: usize) -> String {
        let body = self.dir.join("body");
        fs::write(&body, "a=".to_owned() + &"b".repeat(size)).expect("a body");
        let data = format!("@{}", body.display());
        curl(&["--data-binary", &data, &self.nginx.url(path)])
    }

    pub(super) fn mark(&self) -> (usize, usize) {
        (self.nginx.errors().len(), self.log().len())
    }

    pub(super) fn since(&self, (nginx, daemon): (usize, usize)) -> String {
        format!("{}\n{}", &self.nginx.errors()[nginx..], &self.log()[daemon..])
    }

    fn log(&self) -> String {
        self.daemon.as_ref().map(Daemon::log).unwrap_or_default()
    }

    pub(super) fn here(&self, text: &str) -> String {
        let socket = self.dir.join("www.sock").display().to_string();
        text.replace("/run/forkyard-www.sock", &socket)
    }

    pub(super) fn run(&self, line: &str) -> String {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["journalctl", "-u", "forkyard"] => self.log(),
            ["/var/log/nginx/error.log"] => self.nginx.errors(),
            ["forkyard", "php"] => told(&command(&["php"])),
            ["forkyard", ..] => told(&forkyard(&words[1..], &self.dir).output().expect("forkyard")),
            _ => panic!("{line} is not known"),
        }
    }
}
