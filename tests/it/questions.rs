//! What operators ask at night: each question has one command, which answers by itself.

use crate::it::security::NOBODY;
use crate::it::upgrade;
use crate::support::prelude::*;

const STATIC: &str = "pm = \"static\"\nmax_children = 1\n";

fn configure(dir: &Path, global: &str, settings: &str, application: &str) -> String {
    let control = with_control(dir) + global;
    control + &php_pool(dir, settings, application)
}

fn start(settings: &str, application: &str) -> Daemon {
    Daemon::start(|dir| configure(dir, "", settings, application))
}

fn edit(daemon: &Daemon, from: &str, to: &str) {
    let file = daemon.dir.join("forkyard.toml");
    let text = read_file(&file);
    assert!(text.contains(from), "{from} in {text}");
    fs::write(&file, text.replace(from, to)).expect("configuration");
}

#[test]
fn which_program_runs_and_which_is_on_disk() {
    let mut daemon = Daemon::start_by(|dir| configure(dir, "", STATIC, ""), upgrade::installed);
    let path = daemon.dir.clone();
    let program = upgrade::program(&path);
    let version = env!("CARGO_PKG_VERSION");
    let asked = |with: &Path| {
        let mut command = Command::new(with);
        said_by(command.args(["version", "-c"]).arg(path.join("forkyard.toml")))
    };
    let (code, text) = asked(&program);
    let runs = format!(" runs, pid {}, {}\n", daemon.pid(), program.display());
    assert_starts(&text, &format!("forkyard {version}"));
    assert_contains(&text, &runs);
    assert!(text.ends_with("\nthe same is on disk\n"), "{text}");
    assert_eq!(code, Some(0));
    assert!(!daemon.said(&["status"]).1.contains("on disk"));
    upgrade::install(&path);
    let (code, text) = asked(&program);
    assert_contains(&text, &runs);
    assert_ends(&text, " is on disk: forkyard upgrade lets it take over\n");
    assert_eq!(code, Some(1));
    let (code, text) = asked(Path::new(env!("CARGO_BIN_EXE_forkyard")));
    assert_contains(&text, &format!("which {} --version names", program.display()));
    assert_eq!(code, Some(1));
    assert_contains(
        &daemon.said(&["status"]).1,
        "another program is on disk: forkyard version names it",
    );
    fs::remove_file(&program).expect("remove");
    let gone = "no longer on disk: install it again, because no new process of forkyard starts without it";
    let (code, text) = asked(Path::new(env!("CARGO_BIN_EXE_forkyard")));
    assert_contains(&text, &runs);
    assert_ends(&text, &format!("\nit is {gone}\n"));
    assert_eq!(code, Some(1));
    let (_, text) = daemon.said(&["status"]);
    assert_contains(&text, &format!("{} is {gone}\n", program.display()));
    upgrade::install(&path);
    daemon.signal(Signal::SIGTERM);
    daemon.wait();
    let (code, text) = asked(&program);
    assert_contains(&text, " is on disk; no daemon was asked\n");
    assert_eq!(code, Some(69));
}

#[test]
fn what_a_reload_would_change() {
    let settings = format!("{STATIC}env = {{ KEY = \"old-secret\" }}\n");
    let daemon = start(&settings, "");
    let workers = daemon.wait_for_workers("www", 1);
    let dry_run = || daemon.said(&["reload", "--dry-run"]);
    let same = "the configuration in force is the one that is written\n";
    assert_eq!(dry_run(), (Some(0), same.to_owned()));
    edit(
        &daemon,
        "max_children = 1",
        "max_children = 2\nrequest_terminate_timeout = \"5s\"",
    );
    edit(&daemon, "old-secret", "new-secret");
    edit(&daemon, "[global]", "[global]\nlog_level = \"debug\"");
    let other = php_pool(&daemon.dir, STATIC, "").replace("www", "other");
    let other = other.replace("user = \"other-data\"", "user = \"www-data\"");
    let written = read_file(daemon.dir.join("forkyard.toml")) + &other;
    fs::write(daemon.dir.join("forkyard.toml"), &written).expect("configuration");
    let expected = "[global] changes\n  log_level: \"Notice\" -> \"Debug\"\n\
                    pool www would be replaced: its settings changed\n  env.KEY: (not shown) -> (not shown)\n\
                    \x20 pm.max_children: 1 -> 2\n  request_terminate_timeout: nothing -> \"5s\"\npool other would be added\n";
    assert_eq!(dry_run(), (Some(1), expected.to_owned()));
    assert_eq!(daemon.workers("www"), workers);
    assert!(!daemon.socket("other").exists());
    // Socket attributes change without new workers; a removed pool would stop.
    assert_eq!(daemon.said(&["reload"]).0, Some(0));
    assert_eq!(dry_run(), (Some(0), same.to_owned()));
    edit(&daemon, &other, "");
    edit(&daemon, "mode = \"0666\"", "mode = \"0660\"");
    let expected =
        "pool www would keep its workers\n  listen.mode: \"0666\" -> \"0660\"\npool other would be removed\n";
    assert_eq!(dry_run(), (Some(1), expected.to_owned()));
    let (code, text) = daemon.said(&["reload", "--dry-run", "--all"]);
    assert_starts(&text, "pool www would be replaced: it is always replaced\n");
    assert_eq!(code, Some(1));
    edit(&daemon, "max_children = 2", "max_children = 0");
    let (code, text) = dry_run();
    assert_contains(&text, "max_children");
    assert_contains(&text, "would not be reloaded");
    assert_eq!(code, Some(78));
}

#[test]
fn where_the_logs_of_a_pool_are() {
    let settings = format!(
        "{STATIC}access.log = \"DIR/access\"\nslowlog = \"DIR/slow\"\nrequest_slowlog_timeout = \"5s\"\napp_log = \"DIR/app\"\n"
    );
    let daemon = start(&settings, "php_admin_value = { error_log = \"DIR/php\" }\n");
    daemon.write("ok.php", "<?php echo 'fine';");
    daemon.get("www", "ok.php");
    let place = daemon.dir.display().to_string();
    until("a line of the access log", || {
        fs::metadata(daemon.dir.join("access"))
            .ok()
            .filter(|it| it.len() > 0)
    });
    let text = exited(Some(0), daemon.said(&["logs", "www"]));
    let line = |about: &str, file: &str| {
        let mut lines = text.lines();
        let found = lines.find(|line| line.starts_with(&format!("pool www  {about} ")));
        let found = found.unwrap_or_else(|| panic!("{about} in {text}"));
        assert_contains(found, &format!("  {place}/{file}, "));
        found.to_owned()
    };
    assert!(line("requests", "access").ends_with(" B"), "{text}");
    assert!(line("slow requests", "slow").ends_with(" 0 B"), "{text}");
    line("output of the application", "app");
    assert!(
        line("PHP's messages", "php").ends_with(" not there yet"),
        "{text}"
    );
    let last = text.lines().last().unwrap_or_default();
    assert_starts(last, "daemon  ");
    assert_contains(last, "standard error");
    let text = exited(Some(70), daemon.said(&["logs", "nope"]));
    assert_contains(&text, "there is no pool nope; there are www");
    let odd = "\u{1b}]0;odd\u{7}\u{202e}\n";
    fs::write(daemon.dir.join("app"), odd).expect("write");
    let mut command = forkyard(&["logs", "-f", "www"], &daemon.dir);
    let mut tail = command
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("tail");
    let output = tail.stdout.take().expect("output");
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(output));
    let mut wanted = vec!["/ok.php", "\\u001b]0;odd\\u0007\\u202e"];
    for line in lines.by_ref().map_while(Result::ok) {
        assert!(!line.contains(['\u{1b}', '\u{202e}']), "{line:?}");
        wanted.retain(|text| !line.contains(text));
        if wanted.is_empty() {
            break;
        }
    }
    assert!(wanted.is_empty(), "{wanted:?}");
    tail.kill().expect("kill");
    tail.wait().expect("wait");
}

#[test]
fn whether_the_web_server_can_connect() {
    skip_if!(needs_root());
    let daemon = start(STATIC, "");
    daemon.wait_for_workers("www", 1);
    let ask = |user: &str| daemon.said(&["health", user, "--pool", "www"]);
    assert_eq!(
        ask("--web-server=nobody"),
        (Some(0), "nobody can connect\n".to_owned())
    );
    let (code, text) = ask("--web-server");
    assert_eq!(
        (code, text.ends_with(" can connect\n")),
        (Some(0), true),
        "{text}"
    );
    let socket = daemon.socket("www");
    let close =
        |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("chmod");
    close(&socket, 0o600);
    let (code, text) = ask("--web-server=nobody");
    let expected = format!(
        "www: nobody can't connect to {}: it is root's, of group root, with mode 0600; set listen.owner = \"nobody\", \
         listen.group or listen.mode, then reload\n",
        socket.display()
    );
    assert_eq!((code, text.as_str()), (Some(1), expected.as_str()));
    let (_, text) = daemon.said(&["status"]);
    assert_contains(&text, "unreachable");
    assert_contains(&text, "no user except root can connect");
    let (code, text) = daemon.said(&["health", "--ready"]);
    assert_contains(&text, "no user except root can connect");
    assert_eq!(code, Some(1));
    close(&socket, 0o666);
    close(&daemon.dir, 0o700);
    let (code, text) = ask("--web-server=nobody");
    let way = format!(
        "The directory {} can't be entered by user nobody.",
        daemon.dir.display()
    );
    assert!(text.contains(&way), "{text}");
    assert_eq!(code, Some(1));
    close(&daemon.dir, 0o755);
    close(&daemon.dir.join("control.sock"), 0o666);
    let (code, text) = daemon.said(&["health", "--web-server=nosuchuser"]);
    assert_contains(&text, "nosuchuser");
    assert_eq!(code, Some(70));
}

fn occupy(daemon: &Daemon, script: &str) -> Client {
    let client = daemon.send("www", &Params::get(&daemon.dir, script, ""));
    wait_until("the request to run", || daemon.dir.join("begun").exists());
    client
}

#[test]
fn a_request_is_ended_by_command() {
    let daemon = start(STATIC, "");
    let worker = daemon.wait_for_workers("www", 1)[0];
    let end = |pid: u32| daemon.said(&["terminate", &pid.to_string()]);
    let (code, text) = end(worker);
    assert_eq!(
        (code, text),
        (Some(70), format!("forkyard: worker {worker} has no request\n"))
    );
    for other in [daemon.pid(), std::process::id(), daemon.preloaders("www")[0]] {
        let (code, text) = end(other);
        assert_contains(&text, &format!("process {other} is no worker"));
        assert_eq!(code, Some(70));
        assert!(process::runs(other));
    }
    daemon.write(
        "stuck.php",
        "<?php touch(__DIR__ . '/begun'); set_time_limit(0); while (true) {}",
    );
    let mut client = occupy(&daemon, "stuck.php");
    assert_eq!(end(worker), (Some(0), String::new()));
    let answer = client.answer().expect("answer");
    assert_starts(&answer.text(), "Status: 504 Gateway Timeout\r\n");
    let line = daemon.wait_for("is ended by forkyard terminate, terminating");
    assert_contains(&line, &format!("[pool www] child {worker}, script '"));
    wait_until("its end", || !process::runs(worker));
    daemon.write("ok.php", "<?php echo 'fine';");
    assert_eq!(daemon.get("www", "ok.php").body(), "fine");
    let (_, status) = daemon.said(&["status", "www", "--json"]);
    let status: Value = serde_json::from_str(&status).expect("JSON");
    assert_eq!(status["pools"][0]["counts"]["terminated"], 1, "{status}");
}

#[test]
fn a_request_that_has_begun_to_answer_is_cut() {
    let daemon = start(STATIC, "");
    let worker = daemon.wait_for_workers("www", 1)[0];
    daemon.write(
        "half.php",
        "<?php echo 'the first half'; ob_flush(); flush(); touch(__DIR__ . '/begun'); sleep(600);",
    );
    let mut client = occupy(&daemon, "half.php");
    assert_eq!(daemon.said(&["terminate", &worker.to_string()]).0, Some(0));
    let answer = client.answer().expect("answer");
    assert_eq!((answer.body().as_str(), answer.ended), ("the first half", false));
}

#[test]
fn the_owner_of_a_pool_ends_its_own_requests_alone() {
    skip_if!(needs_root());
    let daemon = Daemon::start(|dir| {
        let place = dir.display();
        let cgi = pool(
            dir,
            "www",
            STATIC,
            &format!("runtime = \"cgi\"\nroot = \"{place}\""),
        );
        format!("[global]\ncontrol = \"{place}/control.sock\"\n{cgi}")
    });
    let worker = daemon.wait_for_workers("www", 1)[0];
    write_program(
        &daemon.dir.join("stuck"),
        "#!/bin/sh\ntouch begun\nexec sleep 600\n",
    );
    let mut client = occupy(&daemon, "stuck");
    let end = |uid| {
        let mut command = forkyard(&["terminate", &worker.to_string()], &daemon.dir);
        said_by(command.uid(uid).gid(uid))
    };
    let (code, text) = end(NOBODY);
    assert_contains(&text, "permission denied: it is no worker of yours");
    assert_eq!(code, Some(70));
    let owner = process::user_and_group(worker)[0].parse().expect("a user's id");
    assert_eq!(end(owner), (Some(0), String::new()));
    assert!(client.answer().expect("answer").text().starts_with("Status: 504"));
}

/// For each question of the document, in its order: words of the answer, with `PID` for a busy worker.
const ANSWERS: [&[&str]; 25] = [
    &["GET /slow.php"],
    &["www"],
    &["www"],
    &["GET /die.php", "SIGSEGV"],
    &["www", "SIGSEGV"],
    &["max-children", "all 2 of max_children are needed"],
    &["GET /ok.php"],
    &["last reload", "refused"],
    &["last hour: ", "waited"],
    &["pool=\"www\",class=\"5xx\""],
    &["GET /ok.php", "P95"],
    &["up "],
    &["runs, pid "],
    &["max_children: 2 -> 3"],
    &["192.0.2.9"],
    &["Core"],
    &["How to solve it"],
    &["www"],
    &["worker-died"],
    &["requests", "access"],
    &["www"],
    &["jobs"],
    // It prints nothing.
    &[],
    &["www would be replaced"],
    &["www"],
];

fn questions() -> Vec<(String, String)> {
    let text = read_file(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/howto/questions.md"));
    let rows = text.lines().filter(|line| line.ends_with("` |"));
    let rows = rows.filter_map(|line| line.trim_matches(['|', ' ']).split_once(" | `"));
    let rows = rows.map(|(question, command)| {
        (
            question.to_owned(),
            command.trim_end_matches(['`', ' ', '|']).replace("\\|", "|"),
        )
    });
    rows.collect()
}

#[test]
fn each_question_of_the_document_is_answered_by_its_command() {
    let pm = "pm = \"dynamic\"\nmax_children = 2\nstart_servers = 1\nmin_spare_servers = 1\nmax_spare_servers = 1\n";
    let daemon = Daemon::start(|dir| {
        let place = dir.display();
        let user = if is_root() { "user = \"nobody\"\n" } else { "" };
        let jobs = format!(
            "[jobs]\nstore = \"{place}/jobs.db\"\nlisten = \"{place}/jobs.sock\"\n{user}[jobs.queue.mail]\npool = \"www\"\nscript = \"{place}/ok.php\"\n"
        );
        let pool =
            format!("{pm}access.log = \"DIR/access\"\naccess.format = \"%{{REMOTE_ADDR}}e %m %r %s\"\n");
        configure(dir, "", &pool, "") + &jobs
    });
    daemon.write("ok.php", "<?php echo 'fine';");
    daemon.write("die.php", "<?php posix_kill(getmypid(), 11); sleep(10);");
    daemon.write(
        "slow.php",
        "<?php while (!file_exists(__DIR__ . '/go')) { usleep(1000); clearstatcache(); }",
    );
    let params = |script: &str| Params::get(&daemon.dir, script, "").with("REMOTE_ADDR", "192.0.2.9");
    assert_eq!(daemon.ask("www", &params("ok.php")).body(), "fine");
    let mut dies = daemon.client("www");
    dies.send(&params("die.php"), b"").expect("send");
    daemon.wait_for("exited on signal 11");
    edit(&daemon, "max_children = 2", "max_children = \"many\"");
    assert_ne!(daemon.said(&["reload"]).0, Some(0));
    edit(&daemon, "max_children = \"many\"", "max_children = 3");
    let slow = [(); 2].map(|()| daemon.send("www", &params("slow.php")));
    daemon.wait_for("max_children");
    let busy = until("a busy worker", || {
        let status = daemon.status(&["www"]);
        let workers = status["pools"][0]["generations"][0]["workers"]
            .as_array()?
            .clone();
        let busy = workers
            .iter()
            .find(|it| it["uri"].as_str().is_some_and(|uri| uri.contains("slow")))?;
        busy["pid"].as_u64()
    });
    let questions = questions();
    assert_eq!(questions.len(), ANSWERS.len(), "{questions:?}");
    let own = Path::new(env!("CARGO_BIN_EXE_forkyard"));
    let directory = own.parent().expect("a directory").display();
    let config = daemon.dir.join("forkyard.toml").display().to_string();
    let failures: Vec<String> = questions
        .iter()
        .zip(ANSWERS)
        .filter_map(|((question, command), words)| {
            let mut line = command
                .replace(
                    "/var/log/forkyard-www.access",
                    &daemon.dir.join("access").display().to_string(),
                )
                .replace("PID", &busy.to_string());
            if line.starts_with("forkyard ") {
                line = match line.split_once(" | ") {
                    Some((first, rest)) => format!("{first} -c {config} | {rest}"),
                    None => format!("{line} -c {config}"),
                };
            }
            let mut shell = Command::new("sh");
            shell
                .args(["-c", &line])
                .env("PATH", format!("{directory}:/usr/sbin:/usr/bin:/sbin:/bin"));
            let (code, text) = said_by(&mut shell);
            let missing: Vec<_> = words
                .iter()
                .map(|word| word.replace("PID", &busy.to_string()))
                .filter(|word| !text.contains(word.as_str()))
                .collect();
            let is_answered = missing.is_empty() && (code == Some(0) || !words.is_empty());
            (!is_answered).then(|| format!("{question}\n$ {line}\n{code:?} {text}\nlacks {missing:?}\n"))
        })
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    drop(slow);
}
