//! FastCGI programs written for other servers: libfcgi, php-cgi, Perl's FCGI and Plack.

use super::assert_echoes;
use super::fastcgi_programs::*;
use crate::it::documents::blocks;
use crate::it::documents::served::{settle_nginx, settle_toml};
use crate::support::prelude::*;

fn nginx(daemon: &Daemon) -> Nginx {
    serve(daemon, "")
}

fn serve(daemon: &Daemon, more: &str) -> Nginx {
    let server = format!(
        "server_name localhost; root {}; location / {{ include /etc/nginx/fastcgi_params; fastcgi_param SCRIPT_FILENAME \
         $document_root$fastcgi_script_name; fastcgi_keep_conn on; fastcgi_request_buffering off; \
         {more} fastcgi_pass unix:{}; }}",
        daemon.dir.display(),
        daemon.socket("www").display()
    );
    Nginx::start(&server, "")
}

#[test]
fn one_program_answers_all_requests_of_a_worker() {
    let daemon = start("env = { OWN = \"value\" }\n", |_| {
        format!("program = \"{}\"", compiled().display())
    });
    let pids: Vec<u32> = (0..5).map(|_| pid_of(&ask(&daemon, ""))).collect();
    assert!(pids.iter().all(|pid| *pid == pids[0]), "{pids:?}");
    assert_eq!(ask(&daemon, "").body(), format!("pid={} own=value", pids[0]));
    assert_eq!(process::children(daemon.wait_for_workers("www", 1)[0]), [pids[0]]);
    let link = |name: &str| fs::read_link(format!("/proc/{}/{name}", pids[0])).expect("link");
    assert_eq!(link("cwd"), daemon.dir);
    assert!(link("fd/0").display().to_string().starts_with("socket:"));
    assert!(fs::read_dir(format!("/proc/{}/fd", pids[0])).expect("fd").count() <= 4);
    let group = nix::unistd::getpgid(Some(nix::unistd::Pid::from_raw(pids[0] as i32)));
    assert_eq!(group, Ok(nix::unistd::Pid::from_raw(pids[0] as i32)));
    assert_eq!(ask(&daemon, "").app_status, 0);
    assert_eq!(ask(&daemon, "status").app_status, 7);
}

#[test]
fn bodies_stream_both_ways() {
    let daemon = libfcgi("");
    assert_echoes(&daemon, "x", "echo");
}

#[test]
fn an_answer_may_come_before_the_body_is_read() {
    let daemon = libfcgi("");
    let nginx = nginx(&daemon);
    let file = format!("@{}", daemon.write("body", &"x".repeat(5_000_000)).display());
    for _ in 0..3 {
        assert_eq!(curl(&["--data-binary", &file, &nginx.url("/x?early")]), "early");
    }
    assert!(curl(&[&nginx.url("/x")]).starts_with("pid="));
}

#[test]
fn complaints_reach_the_web_server_and_the_log() {
    let daemon = libfcgi("");
    assert_eq!(ask(&daemon, "moan").error_text(), "oh dear\n");
    daemon.wait_for("the FastCGI program said into stderr: \"oh dear\"");
    assert_eq!(ask(&daemon, "say").error_text(), "plain words\n");
    daemon.wait_for("the FastCGI program said into stderr: \"plain words\"");
}

#[test]
fn the_scoreboard_and_the_access_log_show_the_programs_work() {
    let settings = "pm = \"static\"\nmax_children = 2\nstatus_path = \"/status\"\n\
                    access = { log = \"DIR/access\", format = \"%{total}C %{kilo}M %s %q\" }\n";
    let daemon = libfcgi(settings);
    let mut waiting = begin(&daemon, "slow");
    pid_in(&daemon, "slow");
    // On a kept connection one worker shows the page both times, and the other one's last request stays visible.
    let mut client = daemon.client("www").kept();
    let mut rows = || {
        let params = Params::get(&daemon.dir, "status", "json&full");
        let body = client.request(&params, b"").expect("answer").body();
        let page: Value = serde_json::from_str(&body).expect("JSON");
        let all = page["processes"].as_array().expect("processes").clone();
        let script = daemon.dir.join("x").display().to_string();
        let ours = all.into_iter().filter(|row| row["script"] == script.as_str());
        ours.collect::<Vec<Value>>()
    };
    let running = rows();
    assert!(
        running.len() == 1 && running[0]["state"] == "Running",
        "{running:?}"
    );
    assert_eq!(running[0]["request uri"], "/x?slow");
    daemon.write("go", "");
    assert!(waiting.answer().expect("answer").ended);
    let done = until("the worker to be idle", || {
        Some(rows()).filter(|rows| rows[0]["state"] == "Idle")
    });
    let (cpu, memory) = (
        done[0]["last request cpu"].as_f64(),
        done[0]["last request memory"].as_u64(),
    );
    assert!(cpu > Some(10.0) && memory > Some(100_000), "{done:?}");
    let log = read_file(daemon.dir.join("access"));
    let line = log.lines().find(|line| line.ends_with("slow")).expect("a line");
    let numbers: Vec<f64> = line
        .split(' ')
        .take(2)
        .map(|word| word.parse().expect("a number"))
        .collect();
    assert!(
        numbers[0] > 10.0 && numbers[1] > 100.0 && line.contains(" 200 "),
        "{line}"
    );
}

#[test]
fn php_cgi_runs_an_application() {
    let daemon = start("", |_| {
        concat!(
            "start_command = \"/usr/bin/php-cgi",
            env!("FORKYARD_PHP"),
            " -d display_errors=0 -d log_errors=1\""
        )
        .to_owned()
    });
    daemon.write(
        "app.php",
        "<?php\nheader('X-Own: value');\nif (isset($_GET['fail'])) { trigger_error('oh dear', E_USER_WARNING); }\n\
         echo $_SERVER['REQUEST_METHOD'], ' ', getmypid(), ' ', strlen(file_get_contents('php://input')), ' ', $_GET['q'] ?? '';\n",
    );
    let nginx = nginx(&daemon);
    let first = curl(&[&nginx.url("/app.php?q=hello%20world")]);
    let pid = first.split(' ').nth(1).expect("pid").to_owned();
    assert_eq!(first, format!("GET {pid} 0 hello world"));
    let file = format!("@{}", daemon.write("body", &"x".repeat(3_000_000)).display());
    assert_eq!(
        curl(&[
            "--data-binary",
            &file,
            "-H",
            "Content-Type: text/plain",
            &nginx.url("/app.php")
        ]),
        format!("POST {pid} 3000000 ")
    );
    assert!(curl(&["-i", &nginx.url("/app.php?fail=1")]).contains("X-Own: value"));
    daemon.wait_for("oh dear");
    assert!(curl(&["-i", &nginx.url("/none.php")]).starts_with("HTTP/1.1 404"));
}

#[test]
fn a_program_that_ends_by_itself_is_replaced_without_a_failed_request() {
    let settings = "pm = \"static\"\nmax_children = 2\nenv = { PHP_FCGI_MAX_REQUESTS = \"3\" }\n";
    let daemon = start(settings, |_| {
        concat!("start_command = \"/usr/bin/php-cgi", env!("FORKYARD_PHP"), "\"").to_owned()
    });
    daemon.write(
        "pid.php",
        "<?php echo getmypid(), ' ', file_get_contents('php://input');",
    );
    let pids: Vec<String> = std::thread::scope(|scope| {
        let ask = |method: &'static str| {
            let daemon = &daemon;
            move || {
                let mut client = daemon.client("www").kept();
                let body: &[u8] = if method == "POST" { b"body" } else { b"" };
                let length = if body.is_empty() {
                    String::new()
                } else {
                    body.len().to_string()
                };
                let params = Params::get(&daemon.dir, "pid.php", "").with("REQUEST_METHOD", method);
                let params = params.with("CONTENT_LENGTH", &length);
                let answers = (0..25).map(|_| client.request(&params, body).expect("answer"));
                let bodies = answers.map(|answer| {
                    assert!(answer.ended && answer.status() == "200", "{}", answer.text());
                    let text = answer.body();
                    let (pid, rest) = text.split_once(' ').expect("a pid");
                    assert_eq!(rest.as_bytes(), body);
                    pid.to_owned()
                });
                bodies.collect::<Vec<String>>()
            }
        };
        let threads: Vec<_> = ["GET", "POST", "GET", "POST"]
            .into_iter()
            .map(|method| scope.spawn(ask(method)))
            .collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().expect("a thread"))
            .collect()
    });
    assert_eq!(pids.len(), 100);
    let different: BTreeSet<&String> = pids.iter().collect();
    assert!(different.len() >= 33, "{different:?}");
    assert_lacks(&daemon.log(), "gave no answer");
}

#[test]
fn perls_fcgi_runs() {
    let daemon = start("", |dir| {
        let app = "use FCGI;\nmy $r = FCGI::Request();\nwhile ($r->Accept() >= 0) {\n  read(STDIN, my $body, $ENV{CONTENT_LENGTH} || 0);\n\
         \x20 print STDERR \"oh dear\\n\" if $ENV{QUERY_STRING} eq 'moan';\n\
             \x20 print \"Content-Type: text/plain\\r\\n\\r\\npid=$$ \", uc $body;\n}\n";
        fs::write(dir.join("app.pl"), app).expect("write");
        "start_command = \"perl app.pl\"".to_owned()
    });
    let pid = pid_of(&ask(&daemon, ""));
    let params = Params::get(&daemon.dir, "x", "")
        .with("REQUEST_METHOD", "POST")
        .with("CONTENT_LENGTH", "5");
    let answer = daemon.client("www").request(&params, b"hello").expect("answer");
    assert_eq!(answer.body(), format!("pid={pid} HELLO"));
    assert_eq!(ask(&daemon, "moan").error_text(), "oh dear\n");
}

#[test]
fn plack_runs_as_it_is() {
    let daemon = start("", |dir| {
        let app = "use Plack::Request;\nsub { my $r = Plack::Request->new(shift);\n\
             [200, ['Content-Type' => 'text/plain'], [join ' ', $r->method, $r->path, $r->param('q') // '', length $r->content]] }\n";
        fs::write(dir.join("app.psgi"), app).expect("write");
        "start_command = \"plackup -s FCGI --manager= app.psgi\"".to_owned()
    });
    let nginx = serve(
        &daemon,
        "fastcgi_param SCRIPT_NAME ''; fastcgi_param PATH_INFO $fastcgi_script_name;",
    );
    assert_eq!(curl(&[&nginx.url("/some/path?q=1")]), "GET /some/path 1 0");
    assert_eq!(
        curl(&[
            "-H",
            "Content-Type: text/plain",
            "--data-binary",
            "hello",
            &nginx.url("/p")
        ]),
        "POST /p  5"
    );
}

#[test]
fn the_documents_site_is_served() {
    let toml = blocks::find("docs/reference/runtimes.md", "toml", "plackup");
    let site = blocks::find(
        "docs/reference/runtimes.md",
        "nginx",
        "fastcgi_param SCRIPT_NAME \"\"",
    );
    let daemon = Daemon::start(|dir| {
        write_file(
            dir.join("app.psgi"),
            "sub { my $e = shift; [200, ['Content-Type' => 'text/plain'], [\"$e->{PATH_INFO} in $ENV{PWD}\"]] }",
        );
        settle_toml(&toml, dir).replace("/srv/app", &dir.display().to_string())
    });
    let port = free_port();
    let _nginx = Nginx::start("return 404;", &settle_nginx(&site, &daemon.dir, port));
    let answer = curl(&[&format!("http://127.0.0.1:{port}/some/path")]);
    assert_starts(&answer, "/some/path in");
}

#[test]
fn a_worker_takes_its_program_along_however_it_ends() {
    let daemon = libfcgi("request_terminate_timeout = \"1s\"\nmax_requests = 2\n");
    let first = pid_of(&ask(&daemon, ""));
    assert_eq!(first, pid_of(&ask(&daemon, "")));
    wait_for_end(first);
    let third = pid_of(&ask(&daemon, ""));
    process::signal(daemon.wait_for_workers("www", 1)[0], Signal::SIGKILL);
    wait_for_end(third);
    assert_eq!(ask(&daemon, "hang").status(), "504 Gateway Timeout");
    wait_for_end(pid_in(&daemon, "hanging"));
    assert_eq!(ask(&daemon, "").status(), "200");
}

#[test]
fn a_reload_replaces_the_programs_and_a_stop_leaves_nothing() {
    let before_it = sockets_left();
    let mut daemon = libfcgi("");
    let before = pid_of(&ask(&daemon, ""));
    daemon.signal(Signal::SIGUSR2);
    let after = until("another program", || {
        let answer = ask(&daemon, "");
        assert_eq!(answer.status(), "200");
        Some(pid_of(&answer)).filter(|pid| *pid != before)
    });
    wait_for_end(before);
    daemon.end(Signal::SIGTERM);
    wait_for_end(after);
    let left = sockets_left();
    for path in left.difference(&before_it) {
        wait_until("a directory to go", || !path.exists());
    }
}

fn sockets_left() -> BTreeSet<PathBuf> {
    let all = fs::read_dir(std::env::temp_dir()).expect("the directory");
    all.map_while(Result::ok)
        .filter(|entry| {
            entry
                .file_name()
                .to_string_lossy()
                .starts_with("forkyard.fastcgi.")
        })
        .map(|entry| entry.path())
        .collect()
}

#[test]
fn a_reload_to_a_broken_program_changes_nothing() {
    let daemon = libfcgi("");
    let before = pid_of(&ask(&daemon, ""));
    let path = daemon.dir.join("forkyard.toml");
    let text = read_file(&path);
    let broken = text.replace(
        &format!("program = \"{}\"", compiled().display()),
        "program = \"/no/such/program\"",
    );
    fs::write(&path, broken).expect("configuration");
    daemon.reload_until("there is no file /no/such/program");
    for _ in 0..20 {
        assert_eq!(pid_of(&ask(&daemon, "")), before);
    }
    fs::write(&path, text).expect("configuration");
    daemon.signal(Signal::SIGUSR2);
    wait_until("another program", || pid_of(&ask(&daemon, "")) != before);
}
