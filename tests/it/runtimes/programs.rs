//! Programs that speak HTTP and are started by the daemon: how they come, serve and go.

use crate::support::prelude::*;

pub(super) struct Site {
    pub(super) daemon: Daemon,
    pub(super) root: PathBuf,
    pub(super) temporary: PathBuf,
    _dir: tempfile::TempDir,
}

pub(super) const ONDEMAND: &str = "pm = \"ondemand\"\nmax_children = 16\n";

impl Site {
    pub(super) fn start(files: &[(&str, &str)], pool_lines: &str, runtime: &str, application: &str) -> Site {
        let daemon = Path::new(env!("CARGO_BIN_EXE_forkyard"));
        Site::start_by(|_| daemon.to_owned(), files, pool_lines, runtime, application)
    }

    fn start_by(
        place: impl FnOnce(&Path) -> PathBuf,
        files: &[(&str, &str)],
        pool_lines: &str,
        runtime: &str,
        application: &str,
    ) -> Site {
        let dir = directory();
        let path = dir.path().to_owned();
        let (root, temporary) = (path.join("app"), path.join("tmp"));
        for made in [&root, &temporary] {
            fs::create_dir(made).expect("mkdir");
            fs::set_permissions(made, fs::Permissions::from_mode(0o777)).expect("chmod");
        }
        for (name, content) in files {
            fs::write(root.join(name), content).expect("write");
        }
        let application = application_in(runtime, &root, &format!("{application}\n"));
        let control = path.join("control");
        let text = format!(
            "[global]\ncontrol = \"{}\"\nlog_level = \"debug\"\n{}",
            control.display(),
            pool(
                &path,
                "app",
                &pool_lines.replace("DIRECTORY", &path.display().to_string()),
                &application
            )
        );
        fs::write(path.join("forkyard.toml"), text).expect("configuration");
        let mut command = Command::new(place(&path));
        command.args(["run", "-c"]).arg(path.join("forkyard.toml"));
        command.env("TMPDIR", &temporary).env("SECRET_OF_ROOT", "1");
        let daemon = Daemon::launch(&path, command).ready();
        Site {
            daemon,
            root,
            temporary,
            _dir: dir,
        }
    }

    pub(super) fn start_again(&mut self, command: Command) {
        self.daemon.end(Signal::SIGTERM);
        self.daemon = Daemon::launch(&self.daemon.dir, command);
        self.daemon.wait_for("ready to handle connections");
    }

    pub(super) fn get(&self, path: &str) -> String {
        self.daemon.get("app", path).body()
    }

    pub(super) fn nginx(&self) -> Nginx {
        Nginx::start(
            &format!(
                "location / {{ include /etc/nginx/fastcgi_params; fastcgi_request_buffering off; \
                 fastcgi_buffering off; fastcgi_pass unix:{}; }}",
                self.daemon.socket("app").display()
            ),
            "",
        )
    }

    pub(super) fn processes(&self) -> Vec<u32> {
        in_directory(&self.root)
    }

    pub(super) fn wait_for_processes(&self, count: usize) -> Vec<u32> {
        until(&format!("{count} processes of the application"), || {
            let found = self.processes();
            (found.len() == count).then_some(found)
        })
    }

    pub(super) fn order(&self, order: &str) -> String {
        let output = self.daemon.run(&[order]);
        text_of(&[output.stdout, output.stderr].concat())
    }

    pub(super) fn wait_until_tidy(&self) {
        wait_until("the work directories to go", || {
            let left = crate::it::starts::work_directories(&self.temporary);
            left.is_empty()
        });
    }
}

impl Drop for Site {
    /// Ends the daemon, unless the test has: nothing of it may be left.
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        if process::runs(self.daemon.pid()) {
            self.daemon.signal(Signal::SIGTERM);
        }
        let status = self.daemon.wait();
        assert_eq!(self.processes(), [0; 0], "nothing of the application may be left");
        // The next daemon removes the work directories of a killed one.
        if status.success() {
            self.wait_until_tidy();
        }
    }
}

fn in_directory(directory: &Path) -> Vec<u32> {
    let entries = fs::read_dir("/proc").expect("/proc").map_while(Result::ok);
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| {
        let cwd = fs::read_link(format!("/proc/{pid}/cwd"));
        cwd.is_ok_and(|cwd| cwd == directory) && process::runs(*pid)
    })
    .collect()
}

fn example() -> PathBuf {
    let beside = Path::new(env!("CARGO_BIN_EXE_forkyard")).with_file_name("examples");
    beside.join("http_server")
}

pub(super) const SERVER: &str = r#"
const fs = require("fs");
const http = require("http");
const crypto = require("crypto");
http.createServer((request, response) => {
  const path = request.url.split("?")[0];
  if (path === "/pid") return response.end(String(process.pid));
  if (path === "/env") return response.end(JSON.stringify(process.env));
  if (path === "/crash") return process.exit(3);
  if (path === "/hang" || path === "/slow") console.log("asked for " + path);
  if (path === "/hang") return;
  if (path === "/hold") {
    console.log("holding");
    const timer = setInterval(() => {
      if (!fs.existsSync("go")) return;
      clearInterval(timer);
      response.end("held");
    }, 10);
    return;
  }
  if (path === "/slow") return setTimeout(() => response.end("slow"), 300);
  if (path === "/chunks") {
    let left = 2000;
    const more = () => {
      while (left-- > 0) if (!response.write("x".repeat(1000))) return response.once("drain", more);
      response.end();
    };
    return more();
  }
  if (path === "/events") {
    response.writeHead(200, { "Content-Type": "text/event-stream" });
    let number = 0;
    const timer = setInterval(() => response.write(`data: ${++number}\n\n`), 20);
    response.on("close", () => { clearInterval(timer); console.log("the reader is gone"); });
    return;
  }
  const hash = crypto.createHash("md5");
  let length = 0;
  request.on("data", (piece) => { hash.update(piece); length += piece.length; });
  request.on("end", () => response.end(`${length} ${hash.digest("hex")}`));
}).listen(process.env.PORT, "127.0.0.1");
"#;

#[test]
fn a_program_is_started_when_it_is_needed_and_stopped_when_it_is_not() {
    let pool = "pm = \"ondemand\"\nmax_children = 4\nprocess_idle_timeout = \"300ms\"\nenv = { COLOUR = \"green\" }\n";
    let application = format!(
        "start_command = \"{} --port $PORT\"\npreloader_idle_timeout = \"300ms\"\numask = \"0027\"\n\
         rlimits = {{ nofile = 333, core = 0 }}",
        example().display()
    );
    let site = Site::start(&[], pool, "http", &application);
    assert_eq!(site.processes(), [0; 0]);
    assert!(site.get("a/b").ends_with(": /a/b\n"));
    let pid = site.processes()[0];
    let title = process::title(pid);
    assert_lacks(&title, "$PORT");
    assert_contains(&title, "--port ");
    let limits = read_file(format!("/proc/{pid}/limits"));
    let files = limits.lines().find(|line| line.starts_with("Max open files"));
    assert!(files.is_some_and(|line| line.contains(" 333 ")), "{limits}");
    assert_eq!(process::status_line(pid, "Umask").as_deref(), Some("0027"));
    if is_root() {
        assert_eq!(
            process::status_line(pid, "Uid").as_deref(),
            Some("33\t33\t33\t33")
        );
        let groups = process::status_line(pid, "Groups");
        assert!(groups.is_some_and(|groups| !groups.split(' ').any(|group| group == "0")));
    }
    site.wait_until_tidy();
    site.wait_for_processes(0);
    site.daemon.wait_for("has ended");
    assert!(site.get("again").ends_with(": /again\n"), "it comes back");
    let new = site.processes();
    assert!(new.len() == 1 && new[0] != pid);
}

#[test]
fn a_program_has_the_environment_of_its_pool() {
    let pool = format!("{ONDEMAND}env = {{ COLOUR = \"green\" }}\n");
    let files = [("server.js", SERVER)];
    let mut site = Site::start(&files, &pool, "node", "app_env = \"staging\"");
    let environment: Value = serde_json::from_str(&site.get("env")).expect("JSON");
    let value = |name: &str| environment[name].as_str().unwrap_or("-").to_owned();
    assert_eq!(value("COLOUR"), "green");
    assert_eq!(value("NODE_ENV"), "staging");
    assert_eq!(value("SECRET_OF_ROOT"), "-");
    assert!(value("PATH").contains("/usr/bin"));
    if is_root() {
        assert_eq!(value("HOME"), "/var/www");
    }
    site.daemon.end(Signal::SIGQUIT);
}

#[test]
fn bodies_are_streamed_both_ways_and_events_come_as_they_happen() {
    let site = Site::start(&[("server.js", SERVER)], ONDEMAND, "node", "");
    let nginx = site.nginx();
    let body: Vec<u8> = (0..3_000_000u32).map(|n| (n / 3) as u8).collect();
    let file = site.daemon.write("body", "");
    fs::write(&file, &body).expect("write");
    assert_starts(&upload(&file, &nginx.url("/")), "3000000 ");
    assert_eq!(curl(&[&nginx.url("/chunks")]).len(), 2_000_000);
    let mut reader = Command::new("curl")
        .args(["-sN", &nginx.url("/events")])
        .stdout(Stdio::piped())
        .spawn()
        .expect("curl");
    let lines = BufReader::new(reader.stdout.take().expect("stdout")).lines();
    let events = lines.map_while(Result::ok).filter(|line| !line.is_empty());
    assert_eq!(
        events.take(3).collect::<Vec<_>>(),
        ["data: 1", "data: 2", "data: 3"]
    );
    let _ = reader.kill();
    let _ = reader.wait();
    site.daemon.wait_for("the reader is gone");
}

#[test]
fn express_runs_as_it_is() {
    const APP: &str = r#"
const express = require("express");
const app = express();
app.use(express.json());
app.set("trust proxy", true);
app.get("/hello/:name", (request, response) => response.send(`Hello ${request.params.name} from ${request.ip}`));
app.post("/sum", (request, response) => response.json({ sum: request.body.reduce((a, b) => a + b, 0) }));
app.listen(process.env.PORT, "127.0.0.1");
"#;
    let package = r#"{"scripts": {"start": "NODE_PATH=/usr/share/nodejs node app/main.js"}}"#;
    let site = Site::start(
        &[("package.json", package), ("main.js", APP)],
        ONDEMAND,
        "node",
        "",
    );
    fs::create_dir(site.root.join("app")).expect("mkdir");
    fs::rename(site.root.join("main.js"), site.root.join("app/main.js")).expect("rename");
    let nginx = site.nginx();
    let hello = curl(&["-H", "X-Forwarded-For: 10.1.2.3", &nginx.url("/hello/you")]);
    assert_eq!(hello, "Hello you from 10.1.2.3");
    let json = ["-H", "Content-Type: application/json", "--data", "[1, 2, 39]"];
    let sum = curl(&[json[0], json[1], json[2], json[3], &nginx.url("/sum")]);
    assert_eq!(sum, r#"{"sum":42}"#);
    let missing = curl(&["-o", "/dev/null", "-w", "%{http_code}", &nginx.url("/none")]);
    assert_eq!(missing, "404");
    let usual = process::policy(site.daemon.pid()).expect("a policy");
    let batch = if usual == nix::libc::SCHED_OTHER {
        nix::libc::SCHED_BATCH
    } else {
        usual
    };
    let have = |pids: Vec<u32>, policy| {
        !pids.is_empty() && pids.into_iter().all(|pid| process::policy(pid) == Some(policy))
    };
    assert!(have(site.daemon.workers("app"), batch));
    assert!(have(site.processes(), usual));
}

#[test]
fn pythons_own_server_is_given_its_port() {
    let files = [("page.html", "<p>a page</p>\n")];
    let command = "start_command = \"python3 -m http.server $PORT\"";
    let site = Site::start(&files, ONDEMAND, "http", command);
    assert_eq!(site.get("page.html"), "<p>a page</p>\n");
    assert!(site.daemon.get("app", "none").text().starts_with("Status: 404"));
}

#[test]
fn a_native_program_names_a_unix_socket() {
    const NATIVE: &str = r#"
const fs = require("fs");
const http = require("http");
const socket = process.cwd() + "/own.sock";
http.createServer((request, response) => response.end("by " + socket)).listen(socket, () => {
  const work = process.env.FORKYARD_SPAWN_WORK_DIR + "/response";
  const sockets = [{ address: "unix:" + socket, protocol: "http", concurrency: 0, accept_http_requests: true }];
  fs.writeFileSync(work + "/properties.json", JSON.stringify({ sockets }));
  fs.writeFileSync(work + "/finish", "1");
});
process.stdin.resume();
process.stdin.on("end", () => { fs.unlinkSync(socket); process.exit(); });
"#;
    let files = [("native.js", NATIVE)];
    let application = "start_command = \"node native.js\"\nhandshake = true";
    let site = Site::start(&files, ONDEMAND, "http", application);
    let socket = site.root.join("own.sock");
    assert_eq!(site.get("x"), format!("by {}", socket.display()));
    let root = site.root.clone();
    let daemon = &site.daemon;
    daemon.signal(Signal::SIGQUIT);
    wait_until("the program to leave by itself", || {
        !root.join("own.sock").exists()
    });
}

#[test]
fn a_request_that_ends_the_program_keeps_others_waiting_for_a_start_alone() {
    const APP: &str = r#"
require("http").createServer((request, response) => {
  if (request.url.includes("crash")) process.exit(3);
  response.end("fine");
}).listen(process.env.PORT, "127.0.0.1");
"#;
    let site = Site::start(
        &[("app.js", APP)],
        ONDEMAND,
        "http",
        "start_command = \"node app.js\"",
    );
    assert_eq!(site.get("x"), "fine");
    let begun = Instant::now();
    for _ in 0..5 {
        assert_ne!(site.get("crash"), "fine");
    }
    assert_eq!(site.get("x"), "fine");
    // An exponential back-off would take most of a minute.
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}

#[test]
fn requests_go_to_the_least_busy_process() {
    let files = [("server.js", SERVER)];
    let site = Site::start(&files, ONDEMAND, "node", "instances = 3");
    let mut waiting: Vec<_> = Vec::new();
    let first = site.get("pid");
    site.wait_for_processes(3);
    site.daemon.wait_for_count("of the application is up", 3);
    for _ in 0..2 {
        let socket = site.daemon.socket("app");
        let dir = site.daemon.dir.clone();
        let mut client = Client::connect(&socket).expect("connect");
        client.send(&Params::get(&dir, "hang", ""), b"").expect("send");
        waiting.push(client);
        site.daemon.wait_for_count("asked for /hang", waiting.len());
    }
    let pids: Vec<String> = (0..6).map(|_| site.get("pid")).collect();
    assert!(pids.iter().all(|pid| *pid == pids[0]), "{pids:?} after {first}");
    drop(waiting);
    let mut all = BTreeSet::new();
    wait_until("idle ones to take turns", || {
        all.insert(site.get("pid"));
        all.len() == 3
    });
}

#[test]
fn a_reload_changes_over_without_a_gap() {
    let files = [("server.js", SERVER)];
    let site = Site::start(&files, "pm = \"static\"\nmax_children = 4\n", "node", "");
    let old = site.get("pid");
    let nginx = site.nginx();
    let slow = Command::new("curl")
        .args(["-s", &nginx.url("/slow")])
        .stdout(Stdio::piped())
        .spawn()
        .expect("curl");
    site.daemon.wait_for("asked for /slow");
    let url = nginx.url("/pid");
    let load = Command::new("curl")
        .args(["-s", "-f", "-o", "/dev/null"])
        .args(["-w", "%{http_code}\n", &format!("{url}?[1-400]")])
        .stdout(Stdio::piped())
        .spawn()
        .expect("curl");
    assert!(site.order("reload").contains("its code may have changed"));
    site.daemon.wait_for("the new workers serve");
    let output = slow.wait_with_output().expect("curl");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "slow",
        "the old program goes on with it"
    );
    let codes = load.wait_with_output().expect("curl");
    let codes = text_of(&codes.stdout);
    assert_eq!(
        codes.lines().filter(|code| *code == "200").count(),
        400,
        "{codes}"
    );
    let new = site.get("pid");
    assert_ne!(old, new);
    wait_until("the old program to end", || {
        site.processes() == [new.parse::<u32>().expect("a pid")]
    });
}

#[test]
fn it_dies_with_a_daemon_that_is_killed() {
    let files = [("server.js", SERVER)];
    let mut site = Site::start(
        &files,
        "pm = \"static\"\nmax_children = 2\n",
        "node",
        "instances = 2",
    );
    site.get("pid");
    site.wait_for_processes(2);
    let workers = site.daemon.workers("app");
    site.daemon.signal(Signal::SIGKILL);
    site.daemon.wait();
    site.wait_for_processes(0);
    process::wait_for_ends(&workers);
}

fn install(dir: &Path) -> PathBuf {
    let (path, new) = (dir.join("bin/forkyard"), dir.join("bin/forkyard.new"));
    fs::create_dir_all(dir.join("bin")).expect("mkdir");
    crate::support::copy_program(env!("CARGO_BIN_EXE_forkyard").as_ref(), &new);
    fs::rename(&new, &path).expect("rename");
    path
}

#[test]
fn an_upgrade_leaves_the_program_to_those_who_need_it() {
    let files = [("server.js", SERVER)];
    let pool = "pm = \"static\"\nmax_children = 2\n";
    let site = Site::start_by(install, &files, pool, "node", "instances = 2");
    site.daemon.wait_for_count("of the application is up", 2);
    let old = site.processes();
    let mut held = site.daemon.send("app", &Params::get(&site.root, "hold", ""));
    site.daemon.wait_for("holding");
    install(&site.daemon.dir);
    site.daemon.signal(Signal::SIGUSR2);
    site.daemon.wait_for("workers go on");
    site.daemon.wait_for("the new workers serve");
    assert!(
        old.iter().all(|pid| process::runs(*pid)),
        "they have a request yet"
    );
    wait_until("a new process to answer", || {
        let new: u32 = site.get("pid").parse().expect("a pid");
        !old.contains(&new)
    });
    fs::write(site.root.join("go"), "").expect("go");
    assert_eq!(held.answer().expect("answer").body(), "held");
    process::wait_for_ends(&old);
    assert_eq!(
        site.wait_for_processes(2)
            .iter()
            .filter(|pid| old.contains(pid))
            .count(),
        0
    );
}
