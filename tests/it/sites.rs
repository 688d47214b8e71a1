//! Application pools: many applications behind one socket, nginx in front.

mod access_log;
mod app_log;
mod changes;
mod commands;
mod concurrent;
mod concurrent_programs;
mod deaths;
mod endings;
mod flood;
mod groups;
mod hands;
pub(super) mod heartbeat;
mod held;
mod many;
mod memory;
mod mounts;
mod names;
mod numbers;
mod proof;
mod refusals;
mod releases;
mod reserve;
mod restarts;
mod serving;
mod shares;
mod shortage;
mod sockets;
mod storm;
mod table;
mod table_faults;
mod terminal;
mod trust;
mod under_way;
mod versions;
mod work;
mod zygote;

use crate::support::prelude::*;

const USERS: [(&str, u32); 2] = [("www-data", 33), ("backup", 34)];

/// An application pool named `sites`, and nginx before it: `/NAME/…` is for the application in `apps/NAME`.
struct Sites {
    nginx: Nginx,
    daemon: Daemon,
    apps: PathBuf,
}

fn configuration(dir: &Path, applications: &str, more: &str) -> String {
    fs::create_dir_all(dir.join("apps")).expect("apps");
    let path = dir.display();
    let rate = match applications.contains("stat_throttle_rate") {
        true => "",
        false => "stat_throttle_rate = 0\n",
    };
    format!(
        "[global]\ncontrol = \"{path}/control.sock\"\nprocess_control_timeout = \"20s\"\nlog_level = \"debug\"\n\
         [pool.sites]\nlisten = {{ address = \"{path}/sites.sock\", mode = \"0666\" }}\nrouting = \"application\"\n\
         catch_workers_output = true\n{more}\n[pool.sites.applications]\ndirectories = [\"{path}/apps\"]\nmin_uid = 1\n\
         {rate}{applications}\n"
    )
}

impl Sites {
    fn start(applications: &str) -> Sites {
        Sites::start_with(applications, "")
    }

    fn start_with(applications: &str, more: &str) -> Sites {
        Sites::before(Daemon::start(|dir| configuration(dir, applications, more)))
    }

    /// With nginx before a daemon.
    fn before(daemon: Daemon) -> Sites {
        Sites {
            nginx: Nginx::start(&Sites::location(&daemon), ""),
            apps: daemon.dir.join("apps"),
            daemon,
        }
    }

    fn location(daemon: &Daemon) -> String {
        let (apps, socket) = (daemon.dir.join("apps"), daemon.socket("sites"));
        let (apps, socket) = (apps.display(), socket.display());
        let names = [
            "QUERY_STRING $query_string",
            "REQUEST_METHOD $request_method",
            "CONTENT_TYPE $content_type",
            "CONTENT_LENGTH $content_length",
            "REQUEST_URI $request_uri",
            "SERVER_PROTOCOL $server_protocol",
            "REMOTE_ADDR $remote_addr",
            "SERVER_NAME $server_name",
            "SERVER_PORT $server_port",
            "SCRIPT_NAME /$app",
            "PATH_INFO $rest",
        ];
        let params: String = names
            .iter()
            .map(|name| format!("fastcgi_param {name};\n"))
            .collect();
        format!(
            "location ~ ^/(?<app>[a-z0-9_-]+)(?<rest>/.*)?$ {{\n{params}fastcgi_param FORKYARD_APP_ROOT {apps}/$app;\n\
             fastcgi_param SCRIPT_FILENAME {apps}/$app/index.php;\nfastcgi_param DOCUMENT_ROOT {apps}/$app/public;\n\
             fastcgi_read_timeout 60s;\nfastcgi_pass unix:{socket};\n}}\n"
        )
    }

    fn add(&self, name: &str, user: usize, files: &[(&str, &str)]) -> PathBuf {
        let made = self.daemon.dir.join(format!(".{name}"));
        fs::create_dir_all(made.join("tmp")).expect("application");
        for (file, content) in files {
            write_program(&made.join(file), content);
        }
        if is_root() {
            let (_, uid) = USERS[user % USERS.len()];
            let all = [made.clone(), made.join("tmp")].into_iter();
            for path in all.chain(files.iter().map(|(file, _)| made.join(file))) {
                chown(path, Some(uid), Some(uid)).expect("chown");
            }
        }
        let place = self.apps.join(name);
        fs::rename(made, &place).expect("rename");
        place
    }

    fn php(&self, name: &str, user: usize, code: &str) -> PathBuf {
        self.add(name, user, &[("index.php", &format!("<?php {code}"))])
    }

    fn wsgi(&self, name: &str, user: usize, body: &str) -> PathBuf {
        let code = format!(
            "import os, time\ndef application(environ, start_response):\n    start_response('200 OK', \
             [('Content-Type', 'text/plain')])\n    return [({body}).encode()]\n"
        );
        self.add(name, user, &[("passenger_wsgi.py", &code)])
    }

    fn cgi(&self, name: &str, user: usize, body: &str) -> PathBuf {
        let code = format!("#!/bin/sh\nprintf 'Content-Type: text/plain\\r\\n\\r\\n'\n{body}\n");
        let settings = "runtime = \"cgi\"\nentry = \"run.cgi\"\n";
        self.add(name, user, &[("run.cgi", &code), ("forkyard.toml", settings)])
    }

    fn get(&self, path: &str) -> (u16, String) {
        get(self.nginx.port, path).expect("answer")
    }

    fn body(&self, path: &str) -> String {
        let (status, body) = self.get(path);
        assert_eq!(status, 200, "{path}: {body}\n{}", self.daemon.log());
        body
    }

    fn forkyard(&self, arguments: &[&str]) -> Output {
        let (command, rest) = match arguments {
            ["pool", which, rest @ ..] => (vec!["pool", *which], rest),
            [command, rest @ ..] => (vec![*command], rest),
            [] => panic!("no command"),
        };
        Command::new(env!("CARGO_BIN_EXE_forkyard"))
            .args(command)
            .arg("--socket")
            .arg(self.daemon.dir.join("control.sock"))
            .args(rest)
            .output()
            .expect("forkyard")
    }

    fn table(&self, arguments: &[&str]) -> String {
        let all: Vec<&str> = std::iter::once("status")
            .chain(arguments.iter().copied())
            .collect();
        String::from_utf8(self.forkyard(&all).stdout).expect("text")
    }

    fn status(&self) -> Value {
        let all = parsed(&text_of(&self.forkyard(&["status", "--json"]).stdout));
        let pools = all["pools"].as_array().expect("pools").clone();
        let sites = pools.into_iter().find(|pool| pool["name"] == "sites");
        sites.expect("the pool")["applications"].clone()
    }

    fn instances(&self) -> BTreeSet<u32> {
        let children = process::children(self.daemon.pid());
        let is_instance = |pid: &u32| process::title(*pid).starts_with("forkyard: pool sites:");
        children.into_iter().filter(is_instance).collect()
    }

    fn companion(&self, which: &str) -> u32 {
        companion(&self.daemon, which)
    }
}

impl Drop for Sites {
    /// Ends the daemon, unless the test has: nothing of it may be left.
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let children = process::children(self.daemon.pid());
        if process::runs(self.daemon.pid()) {
            self.daemon.signal(Signal::SIGQUIT);
        }
        let status = self.daemon.wait();
        assert!(status.success(), "{status}\n{}", self.daemon.log());
        for child in children {
            assert!(!process::runs(child), "{} is left", process::title(child));
        }
        assert!(!self.daemon.socket("sites").exists());
        assert_lacks(&self.daemon.log(), "panicked");
    }
}

fn companion(daemon: &Daemon, which: &str) -> u32 {
    let wanted = format!("forkyard: {which} sites");
    until(which, || process::child_titled(daemon.pid(), &wanted))
}

fn get(port: u16, path: &str) -> std::io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let text = text_of(&answer);
    let status = text
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .unwrap_or(0);
    let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    Ok((status, body.to_owned()))
}

/// Visitors, each of which asks for the paths in turn.
fn visitors(port: u16, paths: &'static [&'static str], clients: usize) -> Load<(u16, String)> {
    Load::start(clients, |client| {
        let mut paths = paths.iter().cycle().skip(client);
        move || {
            let path = paths.next().expect("a path");
            get(port, path).unwrap_or_else(|error| (0, error.to_string()))
        }
    })
}
