//! Monitoring that others wrote reads the status page, behind nginx, while a worker is busy.

mod collectd;
mod prometheus;
mod zabbix;

pub(crate) use prometheus::Prometheus;

use crate::it::documents::blocks;
use crate::support::prelude::*;

/// A pool with one busy and one idle worker after four requests; nginx serves its status at `/status` and its ping at
/// `/ping` from the reporter, and at `/own` from a worker.
struct Site {
    daemon: Daemon,
    _nginx: Nginx,
    port: u16,
    busy: Client,
}

impl Site {
    fn start() -> Site {
        let daemon = Daemon::start(|dir| {
            let listen = |name: &str| format!("\"{}/{name}.sock\"", dir.display());
            let settings = format!(
                "pm = \"static\"\nmax_children = 2\nstatus_path = \"/status\"\nping.path = \"/ping\"\n\
                 listen = {{ address = {}, mode = \"0666\" }}\nstatus_listen = {}\n",
                listen("www"),
                listen("status")
            );
            php_pool(dir, &settings, "")
        });
        let gate = daemon.dir.join("gate");
        make_fifo(&gate);
        daemon.write("wait.php", "<?php fopen(__DIR__ . '/gate', 'r'); echo 'through';");
        daemon.write("a.php", "<?php echo 'a';");
        let dir = daemon.dir.display();
        let documented = blocks::read(&blocks::root().join("docs/reference/status.md")).into_iter();
        let documented = documented
            .filter(|block| block.kind == "nginx")
            .map(|block| block.text);
        let own = "location = /own {
            include /etc/nginx/fastcgi_params;
            fastcgi_param SCRIPT_NAME /status;
            fastcgi_param SCRIPT_FILENAME /status;
            fastcgi_pass unix:WWW;
            }\n    location ~";
        let port = free_port();
        let http = (documented.collect::<String>())
            .replacen("location ~", own, 1)
            .replace("WWW", &format!("{dir}/www.sock"))
            .replace("/run/forkyard-www-status.sock", &format!("{dir}/status.sock"))
            .replace("include fastcgi_params", "include /etc/nginx/fastcgi_params")
            .replace("listen 80;", &format!("listen 127.0.0.1:{port};"));
        let nginx = Nginx::start("return 404;", &http);
        for _ in 0..3 {
            assert_eq!(daemon.get("www", "a.php").body(), "a");
        }
        let busy = daemon.send("www", &Params::get(&daemon.dir, "wait.php", ""));
        let site = Site {
            daemon,
            _nginx: nginx,
            port,
            busy,
        };
        wait_until("a busy worker", || {
            let text = curl(&[&site.url("/status?full")]);
            let is_busy = text.contains("\nstate:                Running\n");
            is_busy && text.contains("\nidle processes:       1\n")
        });
        site
    }

    fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    fn finish(mut self) {
        drop(
            fs::OpenOptions::new()
                .write(true)
                .open(self.daemon.dir.join("gate")),
        );
        assert_eq!(self.busy.answer().expect("answer").body(), "through");
    }
}

pub(crate) struct Running {
    child: Child,
    name: &'static str,
    directory: tempfile::TempDir,
}

impl Running {
    fn start(mut command: Command, name: &'static str, directory: tempfile::TempDir) -> Running {
        let said = fs::File::create(directory.path().join("said")).expect("said");
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(said)
            .spawn()
            .unwrap_or_else(|error| panic!("{name} (Debian package): {error}"));
        Running {
            child,
            name,
            directory,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        process::signal(self.child.id(), Signal::SIGTERM);
        let _ = self.child.wait();
        if std::thread::panicking() {
            let said = fs::read_to_string(self.directory.path().join("said")).unwrap_or_default();
            eprintln!("--- {} said:\n{said}\n---", self.name);
        }
    }
}
