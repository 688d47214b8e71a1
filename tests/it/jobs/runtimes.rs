//! Each runtime that can run jobs runs them and pushes others.

use super::Jobs;
use crate::support::prelude::*;

const PHP: &str = r#"<?php
$job = fn ($name) => $_SERVER["FORKYARD_JOB_$name"];
$body = file_get_contents('php://input');
$own = $job('QUEUE');
switch ($job('KIND')) {
    case 'echo': echo "$body {$job('ATTEMPT')} $own {$_SERVER['REQUEST_URI']}"; break;
    case 'fail': error_log('said'); http_response_code(500); break;
    case 'after': echo 'answered'; fastcgi_finish_request(); exec('kill -9 ' . getmypid()); sleep(60); break;
    case 'push': echo forkyard_push($own, 'echo', ['ü' => 1], ['key' => 'k']), ' ', forkyard_push($own, 'echo', null, ['key' => 'k']); break;
    case 'push-other': case 'push-wrong':
        try {
            echo $job('KIND') == 'push-other' ? forkyard_push('other', 'echo') : forkyard_push($own, 'echo', null, ['prio' => 1]);
        } catch (RuntimeException $exception) {
            echo $exception->getMessage();
        }
}
"#;

const CGI: &str = r#"#!/bin/sh
job=$FORKYARD_JOB_KIND
case "$job" in
echo) printf 'Content-Type: text/plain\n\n%s %s %s %s' "$(cat)" "$FORKYARD_JOB_ATTEMPT" "$FORKYARD_JOB_QUEUE" "$REQUEST_URI" ;;
fail) echo said >&2; exit 3 ;;
after) printf 'Content-Type: text/plain\n\nanswered'; exec >&- 2>&-; exit 3 ;;
esac
"#;

const WSGI: &str = r#"
import os
import forkyard

class After:
    def __iter__(self):
        return iter([b"answered"])

    def close(self):
        os.kill(os.getpid(), 9)

def application(environ, start_response):
    body = environ["wsgi.input"].read().decode()
    job = lambda name: environ["FORKYARD_JOB_" + name]
    own, status, text = job("QUEUE"), "200 OK", ""
    if job("KIND") == "echo":
        text = f"{body} {job('ATTEMPT')} {own} {environ['REQUEST_URI']}"
    elif job("KIND") == "fail":
        environ["wsgi.errors"].write("said")
        status = "500 Internal Server Error"
    elif job("KIND") == "after":
        start_response(status, [("Content-Type", "text/plain")])
        return After()
    elif job("KIND") == "push":
        text = "%d %d" % (forkyard.jobs.push(own, "echo", {"ü": 1}, key="k"), forkyard.jobs.push(own, "echo", key="k"))
    else:
        try:
            wrong = job("KIND") == "push-wrong"
            text = str(forkyard.jobs.push(own, "echo", prio=1) if wrong else forkyard.jobs.push("other", "echo"))
        except forkyard.jobs.PushError as error:
            text = str(error)
    start_response(status, [("Content-Type", "text/plain")])
    return [text.encode()]
"#;

const RACK: &str = r##"
run(lambda do |env|
  body = env["rack.input"].read.force_encoding("UTF-8")
  job = ->(name) { env["FORKYARD_JOB_#{name}"] }
  own, status, text = job["QUEUE"], 200, ""
  case job["KIND"]
  when "echo" then text = "#{body} #{job['ATTEMPT']} #{own} #{env['REQUEST_URI']}"
  when "fail"
    env["rack.errors"].write("said")
    status = 500
  when "after"
    env["rack.response_finished"] << ->(*) { Process.kill(:KILL, Process.pid) }
  when "push"
    text = [{ "ü" => 1 }, nil].map { |payload| Forkyard::Jobs.push(own, "echo", payload, key: "k") }.join(" ")
  else
    begin
      text = job["KIND"] == "push-wrong" ? Forkyard::Jobs.push(own, "echo", prio: 1) : Forkyard::Jobs.push("other", "echo")
    rescue Forkyard::Jobs::PushError => e
      text = e.message
    end
  end
  [status, { "content-type" => "text/plain" }, [text.to_s]]
end)
"##;

/// Name, application, script, and whether it can push.
fn rows(dir: &Path) -> Vec<(&'static str, String, Option<&'static str>, bool)> {
    let php = format!("runtime = \"php\"\nversion = {:?}\n", env!("FORKYARD_PHP"));
    let in_dir = |runtime: &str, more: &str| {
        format!(
            "runtime = \"{runtime}\"\nroot = \"{}/{runtime}\"\n{more}",
            dir.display()
        )
    };
    let cgi = format!(
        "start_command = \"/usr/bin/php-cgi{} -d cgi.force_redirect=0\"\n",
        env!("FORKYARD_PHP")
    );
    vec![
        ("php", php, Some("jobs.php"), true),
        ("cgi", in_dir("cgi", ""), Some("cgi/job.sh"), false),
        ("fastcgi", in_dir("fastcgi", &cgi), Some("jobs.php"), false),
        ("wsgi", in_dir("wsgi", ""), None, true),
        ("wsgi-threads", in_dir("wsgi", "threads = 3\n"), None, true),
        ("rack", in_dir("rack", ""), None, true),
    ]
}

fn configuration(dir: &Path) -> String {
    for name in ["store", "cgi", "fastcgi", "wsgi", "rack"] {
        make_folder(&dir.join(name));
    }
    fs::write(dir.join("jobs.php"), PHP).expect("script");
    write_program(&dir.join("cgi/job.sh"), CGI);
    fs::write(dir.join("wsgi/wsgi.py"), WSGI).expect("script");
    fs::write(dir.join("rack/config.ru"), RACK).expect("script");
    // The jobs user may push into every queue and is no pool's user.
    let user = if is_root() { "user = \"nobody\"\n" } else { "" };
    let place = dir.display();
    let mut text = format!(
        "[jobs]\nstore = \"{place}/store/jobs.db\"\nlisten = \"{place}/jobs.sock\"\n{user}[jobs.queue.other]\npool = \"other\"\n\
         script = \"{place}/jobs.php\"\n"
    );
    let other = format!("runtime = \"php\"\nversion = {:?}\n", env!("FORKYARD_PHP"));
    let settings = if is_root() { "user = \"games\"\n" } else { "" };
    let settings = format!("{settings}pm = \"ondemand\"\nmax_children = 1\n");
    let mut pools = pool(dir, "other", &settings, &other);
    for (name, application, script, _) in rows(dir) {
        pools += &pool(dir, name, "", &application);
        let _ = write!(text, "[jobs.queue.{name}]\npool = \"{name}\"\nattempts = 1\n");
        if let Some(script) = script {
            let _ = writeln!(text, "script = \"{place}/{script}\"");
        }
    }
    pools + &text
}

#[test]
fn every_runtime_runs_jobs_and_those_with_a_library_push_them() {
    let jobs = Jobs {
        daemon: Daemon::start(configuration),
    };
    let push = |queue: &str, kind: &str| {
        let job = json!({"queue": queue, "kind": kind, "payload": {"a": "ö"}});
        let answer = jobs.ask(&json!({"command": "push", "job": job}));
        answer["jobs"][0]["id"]
            .as_i64()
            .unwrap_or_else(|| panic!("{answer}"))
    };
    let rows = rows(&jobs.dir());
    let kinds = ["echo", "fail", "push", "push-other", "push-wrong"];
    // All are pushed before the first wait, so that the applications start in parallel.
    let pushed: Vec<_> = (rows.iter())
        .flat_map(|(name, _, _, pushes)| {
            kinds[..if *pushes { 5 } else { 2 }]
                .iter()
                .map(move |kind| (*name, *kind))
        })
        .map(|(name, kind)| (name, kind, push(name, kind)))
        .collect();
    for (name, kind, id) in pushed {
        let job = jobs.wait(id);
        let text = |field: &str| job[field].as_str().unwrap_or_default().to_owned();
        let what = format!("{kind} of {name}: {job}");
        match kind {
            "echo" => {
                let wanted = format!("{{\"a\":\"ö\"}} 1 {name} /jobs/{name}/echo");
                assert!(text("result").starts_with(&wanted), "{what}");
                assert_eq!(text("state"), "done", "{what}");
            }
            "fail" => {
                assert_eq!(
                    (text("state"), job["failures"].clone()),
                    ("failed".into(), json!(1)),
                    "{what}"
                );
                assert!(text("log").contains("said"), "{what}");
                assert_eq!(job["ends"][0]["outcome"], "failed", "{what}");
            }
            "push" => {
                let result = text("result");
                let (first, second) = result.split_once(' ').unwrap_or_else(|| panic!("{what}"));
                let pushed = jobs.wait(first.parse().unwrap_or_else(|_| panic!("{what}")));
                assert_eq!(
                    (&pushed["queue"], &pushed["payload"]),
                    (&json!(name), &json!("{\"ü\":1}")),
                    "{what}"
                );
                assert_eq!(pushed["key"], "k", "{pushed}");
                let other: Value = jobs.show(second.parse().unwrap_or_else(|_| panic!("{what}")));
                assert_eq!(other["key"], "k", "{what}");
            }
            "push-other" if is_root() => {
                assert!(text("result").contains("may not use queue \"other\""), "{what}");
            }
            "push-other" => {}
            _ => assert!(text("result").contains("unknown field `prio`"), "{what}"),
        }
    }
    // A worker that dies after its answer fails its job, which ends with the request.
    for (name, ..) in rows.iter().filter(|(name, ..)| *name != "fastcgi") {
        let job = jobs.wait(push(name, "after"));
        let (state, outcome, error) = match *name {
            "cgi" => ("failed", "failed", "exit code 3"),
            _ => ("quarantined", "crashed", "signal 9"),
        };
        assert_eq!(
            (&job["state"], &job["outcome"]),
            (&json!(state), &json!(outcome)),
            "{name}: {job}"
        );
        assert!(
            job["error"].as_str().is_some_and(|why| why.contains(error)),
            "{name}: {job}"
        );
    }
}

/// A page that uses and frees memory, then pushes a job.
const PAGE: &str = "<?php $html = '';
for ($i = 0; $i < (int) $_GET['lines']; $i++) { $html .= \"<p>line $i of a page that is built as one text</p>\\n\"; }
$rows = json_encode(range(0, (int) $_GET['lines']));
unset($html, $rows);
echo forkyard_push('mail', 'echo', ['a' => 1]);
";

#[test]
fn a_page_pushes_whatever_it_did_before() {
    let jobs = Jobs::start("max_children = 1", "");
    jobs.daemon.write("page.php", PAGE);
    for lines in [0, 100, 1000, 10, 50_000, 3] {
        let page = jobs.daemon.get("www", &format!("page.php?lines={lines}")).body();
        let id: i64 = page
            .parse()
            .unwrap_or_else(|_| panic!("after {lines} lines: {page}"));
        assert_eq!(jobs.wait(id)["state"], "done", "after {lines} lines");
    }
}
