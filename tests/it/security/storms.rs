//! Faults known from similar servers: silent connections, late answers, orphans with odd exit codes, and output in
//! pieces.

use super::needs_root;
use crate::support::prelude::*;

const ONE: &str = "pm = \"static\"\nmax_children = 1\n";
const NODE: &str = r#"
const fs = require("fs");
require("http").createServer((request, response) => {
  if (!request.url.startsWith("/late")) return response.end(`own ${request.url}`);
  setTimeout(() => { response.end("late"); fs.writeFileSync("done", ""); }, 1500);
}).listen(process.env.PORT);
"#;
const ASGI: &str = r#"
import asyncio
async def app(scope, receive, send):
    if scope["type"] != "http": raise RuntimeError("no lifespan")
    late = scope["path"].startswith("/late")
    try:
        if late: await asyncio.sleep(1.5)
    except asyncio.CancelledError:
        await asyncio.sleep(0.3)
    finally:
        if late: open("done", "w").close()
    target = scope["path"] + ("?" + scope["query_string"].decode() if scope["query_string"] else "")
    text = "late" if late else "own " + target
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": text.encode()})
"#;
const WSGI: &str = "def application(environ, start):\n    start('200 OK', [])\n    return [b'own']\n";
const PHP: &str = "<?php echo 'own';";
const RUNTIME: &str = concat!("runtime = \"php\"\nversion = \"", env!("FORKYARD_PHP"), "\"\n");

fn of_every_kind(dir: &Path, root: &Path, port: u16) -> String {
    for (name, text) in [
        ("app.js", NODE),
        ("main.py", ASGI),
        ("wsgi.py", WSGI),
        ("x.php", PHP),
    ] {
        fs::write(root.join(name), text).expect("write");
    }
    let cgi = "#!/bin/sh\nprintf 'Content-Type: text/plain\\r\\n\\r\\nown'\n";
    write_program(&root.join("x"), cgi);
    let place = root.display();
    let php = |preloader: &str| format!("{RUNTIME}preloader = \"{preloader}\"\n");
    let status = format!("{ONE}status_listen = \"DIR/status.sock\"\nping.path = \"/ping\"\n");
    let http = format!("{ONE}http_listen = \"127.0.0.1:{port}\"\n");
    let python = "interpreter = \"/usr/bin/python3\"";
    pool(dir, "own", &status, &php("own"))
        + &pool(dir, "zygote", ONE, &php("zygote"))
        + &pool(
            dir,
            "wsgi",
            ONE,
            &format!("runtime = \"wsgi\"\nroot = \"{place}\"\n{python}\n"),
        )
        + &pool(
            dir,
            "threads",
            ONE,
            &format!("runtime = \"wsgi\"\nroot = \"{place}\"\n{python}\nthreads = 2\n"),
        )
        + &pool(
            dir,
            "asgi",
            ONE,
            &format!("runtime = \"asgi\"\nroot = \"{place}\"\n{python}\nentry = \"main:app\"\n"),
        )
        + &pool(
            dir,
            "cgi",
            ONE,
            &format!("runtime = \"cgi\"\nroot = \"{place}\"\n"),
        )
        + &pool(
            dir,
            "node",
            &http,
            &format!("runtime = \"node\"\nroot = \"{place}\"\nstart_command = \"node app.js\"\n"),
        )
}

const POOLS: [&str; 7] = ["own", "zygote", "wsgi", "threads", "asgi", "cgi", "node"];

fn ask(daemon: &Daemon, root: &Path, pool: &str) -> String {
    let script = match pool {
        "own" | "zygote" => "x.php",
        "cgi" => "x",
        _ => "own",
    };
    let params = Params::get(root, script, "");
    daemon.ask(pool, &params).body()
}

fn ticks(pid: u32) -> u64 {
    let stat = read_file(format!("/proc/{pid}/stat"));
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .expect("fields")
        .split_whitespace()
        .collect();
    fields[11].parse::<u64>().expect("ticks") + fields[12].parse::<u64>().expect("ticks")
}

#[test]
fn a_storm_of_empty_connections_costs_no_worker_and_no_processor() {
    let root = directory();
    let port = free_port();
    let daemon = Daemon::start(|dir| {
        let all = of_every_kind(dir, root.path(), port);
        with_control(dir) + &all
    });
    each(POOLS, |pool| {
        assert_starts(&ask(&daemon, root.path(), pool), "own");
    });
    let processes = || -> BTreeMap<u32, String> {
        let all = process::children(daemon.pid()).into_iter();
        all.map(|pid| (pid, process::title(pid)))
            .filter(|(_, title)| !title.is_empty() && !title.contains("master process"))
            .collect()
    };
    let before = processes();
    let record = [1, 1, 0, 1, 0, 8, 0, 0, 0, 1, 0];
    let beginnings: [&[u8]; 5] = [b"", &record[..1], &record[..7], &record, b"GET / HT"];
    let sockets = POOLS.iter().map(|pool| daemon.socket(pool));
    let more = ["status.sock", "control.sock"].map(|name| daemon.dir.join(name));
    for socket in sockets.chain(more) {
        for number in 0..600 {
            let mut client = UnixStream::connect(&socket).expect("connect");
            let _ = client.write_all(beginnings[number % beginnings.len()]);
        }
    }
    for number in 0..600 {
        let mut client = TcpStream::connect(("127.0.0.1", port)).expect("connect");
        let _ = client.write_all(beginnings[number % beginnings.len()]);
        if number % 2 == 0 {
            nix::sys::socket::setsockopt(
                &client,
                nix::sys::socket::sockopt::Linger,
                &nix::libc::linger {
                    l_onoff: 1,
                    l_linger: 0,
                },
            )
            .expect("SO_LINGER");
        }
    }
    each(POOLS, |pool| {
        assert_starts(&ask(&daemon, root.path(), pool), "own");
    });
    let mut status = Client::connect(&daemon.dir.join("status.sock")).expect("connect");
    let params = Params::get(&daemon.dir, "", "").with("SCRIPT_NAME", "/ping");
    assert_eq!(status.request(&params, b"").expect("an answer").body(), "pong");
    assert_success(&daemon.run(&["health", "--ready"]));
    let mut http = TcpStream::connect(("127.0.0.1", port)).expect("connect");
    http.write_all(b"GET /x HTTP/1.1\r\nHost: a\r\n\r\n")
        .expect("send");
    let mut said = String::new();
    http.read_to_string(&mut said).expect("an answer");
    assert!(said.ends_with("own /x"), "{said}");
    let after = processes();
    let lost: Vec<_> = before
        .iter()
        .filter(|(pid, _)| !after.contains_key(pid))
        .collect();
    assert!(lost.is_empty(), "{lost:?}\n{}", daemon.log());
    let idle = || -> Vec<(u32, u64)> { after.keys().map(|pid| (*pid, ticks(*pid))).collect() };
    let (begin, worked) = (Instant::now(), idle());
    while begin.elapsed() < Duration::from_millis(500) {
        ask(&daemon, root.path(), "cgi");
    }
    let own = daemon.workers("cgi")[0];
    let busy: Vec<String> = worked
        .iter()
        .filter(|(pid, before)| *pid != own && ticks(*pid) > before + 10)
        .map(|(pid, _)| process::title(*pid))
        .collect();
    assert!(busy.is_empty(), "{busy:?}");
}

#[test]
fn after_a_timeout_the_next_request_gets_its_own_answer() {
    let python = "interpreter = \"/usr/bin/python3\"\nentry = \"main:app\"";
    for (name, application) in [
        (
            "node",
            "runtime = \"node\"\nstart_command = \"node app.js\"".to_owned(),
        ),
        ("asgi", format!("runtime = \"asgi\"\n{python}")),
    ] {
        let root = folder(&[("app.js", NODE), ("main.py", ASGI)]);
        let port = free_port();
        let daemon = Daemon::start(|dir| {
            let http = match name {
                "node" => format!("http_listen = \"127.0.0.1:{port}\"\n"),
                _ => String::new(),
            };
            let settings = format!("{ONE}request_terminate_timeout = \"1s\"\n{http}");
            let place = format!("{application}\nroot = \"{}\"\n", root.path().display());
            pool(dir, name, &settings, &place)
        });
        let done = root.path().join("done");
        let params = |uri: &str| {
            Params::get(root.path(), "", "")
                .with("REQUEST_URI", uri)
                .with("SCRIPT_NAME", "")
                .with("PATH_INFO", uri)
        };
        let mut client = daemon.client(name).kept();
        let late = client.request(&params("/late"), b"").expect("an answer");
        assert!(late.text().starts_with("Status: 504 "), "{name}: {}", late.text());
        let mut number = 0;
        let mut next = |client: &mut Client| {
            number += 1;
            let uri = format!("/next{number}");
            let answer = client
                .request(&params(&uri), b"")
                .ok()
                .filter(|answer| answer.ended);
            let answer = answer.unwrap_or_else(|| {
                *client = daemon.client(name).kept();
                client.request(&params(&uri), b"").expect("an answer")
            });
            assert_eq!(answer.body(), format!("own {uri}"), "{name}\n{}", daemon.log());
        };
        next(&mut client);
        wait_until("the late answer", || {
            next(&mut client);
            done.exists()
        });
        for _ in 0..20 {
            next(&mut client);
        }
        if name != "node" {
            continue;
        }
        fs::remove_file(&done).expect("rm");
        let say = |text: String| {
            let mut http = TcpStream::connect(("127.0.0.1", port)).expect("connect");
            http.write_all(text.as_bytes()).expect("send");
            let mut said = String::new();
            http.read_to_string(&mut said).expect("an answer");
            said
        };
        let said =
            say("GET /late HTTP/1.1\r\nHost: a\r\n\r\nGET /behind HTTP/1.1\r\nHost: a\r\n\r\n".to_owned());
        assert_starts(&said, "HTTP/1.1 504 ");
        assert_lacks(&said, "own");
        assert_lacks(&said, "late");
        wait_until("the late answer", || {
            let said = say("GET /after HTTP/1.1\r\nHost: a\r\n\r\n".to_owned());
            assert!(said.ends_with("own /after"), "{said}");
            done.exists()
        });
    }
}

#[test]
fn as_process_1_orphans_that_exit_with_any_code_change_nothing() {
    skip_if!(needs_root());
    let dir = directory();
    let path = dir.path();
    let control = format!(
        "[global]\ncontrol = \"{}/control\"\nlog_level = \"debug\"\n",
        path.display()
    );
    let application = application_in("cgi", path, "");
    write_file(
        path.join("forkyard.toml"),
        control + &pool(path, "app", ONE, &application),
    );
    let orphan = "#!/bin/sh\n(setsid sh -c 'while [ \"$(ps -o ppid= -p $$ | tr -d \" \")\" != 1 ]; do :; done; exit '$QUERY_STRING \
                  >/dev/null 2>&1 </dev/null &)\nprintf 'Content-Type: text/plain\\r\\n\\r\\n%s' $PPID\n";
    write_program(&path.join("x"), orphan);
    let mut command = Command::new("unshare");
    command
        .args(["--pid", "--fork", "--mount-proc", "--kill-child"])
        .args([env!("CARGO_BIN_EXE_forkyard"), "run", "-c"])
        .arg(path.join("forkyard.toml"));
    let mut daemon = Daemon::launch(path, command).ready();
    let master = until("process 1", || process::children(daemon.pid()).first().copied());
    let ask = |code: &str| {
        let params = Params::get(path, "x", code);
        daemon.ask("app", &params).body()
    };
    let worker = ask("0");
    wait_until("its end", || process::children(master).len() == 1);
    let lines = daemon.log().lines().count();
    for code in ["3", "4", "78", "70", "1", "255"] {
        assert_eq!(ask(code), worker, "{code}\n{}", daemon.log());
        wait_until("its end", || process::children(master).len() == 1);
    }
    assert_eq!(ask("0"), worker);
    let log = daemon.log();
    let new: Vec<&str> = log
        .lines()
        .skip(lines)
        .filter(|line| line.contains("exit") || line.contains("ERROR"))
        .collect();
    assert!(new.is_empty(), "{new:?}");
    // unshare(1) passes no signal on.
    process::signal(master, Signal::SIGTERM);
    assert!(daemon.wait().success());
}

/// CVE-2024-9026: one worker's output in pieces, or shaped like a frame, is neither cut nor mixed with another's lines.
#[test]
fn output_in_pieces_stays_the_lines_of_its_worker() {
    const PIECES: &str = r#"<?php
$error = fopen('php://stderr', 'w');
$mark = $_GET['mark'];
for ($n = 0; $n < 200; $n++) {
    foreach (["<$mark", " $n ", "\0fscf\0", "[pool other] child 1 said into stderr: ", "\x00\x00\x00\x05hello", " $n $mark>"] as $piece) {
        fwrite($error, $piece);
    }
    fwrite($error, "\n");
}
fwrite($error, "unfinished $mark");
echo 'done';
"#;
    let daemon = Daemon::start_logged(
        |dir| {
            let settings = "pm = \"static\"\nmax_children = 2\ncatch_workers_output = true\ndecorate_workers_output = true\n";
            pool(dir, "one", settings, RUNTIME) + &pool(dir, "other", settings, RUNTIME)
        },
        "daemon.log",
    );
    daemon.write("pieces.php", PIECES);
    let marks = ["a", "b", "c", "d"];
    std::thread::scope(|scope| {
        for mark in marks {
            let daemon = &daemon;
            scope.spawn(move || {
                let pool = if matches!(mark, "a" | "b") { "one" } else { "other" };
                let params = Params::get(&daemon.dir, "pieces.php", &format!("mark={mark}"));
                assert_eq!(daemon.ask(pool, &params).body(), "done");
            });
        }
    });
    let log = until("all of it", || {
        let log = fs::read_to_string(daemon.dir.join("daemon.log")).ok()?;
        marks
            .iter()
            .all(|mark| log.contains(&format!("unfinished {mark}")))
            .then_some(log)
    });
    for mark in marks {
        let pool = if matches!(mark, "a" | "b") { "one" } else { "other" };
        let own: Vec<&str> = log
            .lines()
            .filter(|line| line.contains(&format!("<{mark} ")) || line.contains(&format!(" {mark}>")))
            .collect();
        let begin = format!("[pool {pool}] child ");
        for line in &own {
            let said = line.split_once("] WARNING: ").map_or("", |(_, said)| said);
            assert!(said.starts_with(&begin), "{line}");
            let others = marks.iter().filter(|other| **other != mark);
            for other in others {
                assert_lacks(line, &format!("<{other} "));
                assert_lacks(line, &format!(" {other}>"));
            }
        }
        let all = own.join("\n");
        for number in 0..200 {
            for piece in [format!("<{mark} {number} "), format!(" {number} {mark}>")] {
                assert_eq!(all.matches(&piece).count(), 1, "{piece} in\n{all}");
            }
        }
    }
}
