//! Background jobs on the real daemon.

mod clients;
mod commands;
mod deaths;
mod exact;
mod faults;
mod hostile;
mod keeping;
mod monitor;
mod outcomes;
mod postgresql;
mod progress;
mod recipes;
mod runtimes;
mod sequences;
mod stores;
mod tcp;

use crate::support::prelude::*;

const SCRIPT: &str = r#"<?php
$dir = __DIR__;
$job = fn ($name) => $_SERVER["FORKYARD_JOB_$name"] ?? '';
$line = $job('ID') . ' ' . $job('ATTEMPT') . ' ' . getmypid();
file_put_contents("$dir/out/starts", "$line\n", FILE_APPEND);
$body = file_get_contents('php://input');
$send = function () { while (ob_get_level()) { ob_end_flush(); } flush(); };
switch ($job('KIND')) {
    case 'echo': echo $body, ' ', $job('QUEUE'), ' ', $job('TENANT'); break;
    case 'line': file_put_contents("$dir/out/lines", "$body\n", FILE_APPEND); break;
    case 'flaky': if ($job('ATTEMPT') == 1) { error_log('not yet'); http_response_code(500); } break;
    case 'fail': http_response_code(500); break;
    case 'crash': exec('kill -9 ' . getmypid()); sleep(60); break;
    case 'crash-once': if ($job('ATTEMPT') == 1) { exec('kill -9 ' . getmypid()); sleep(60); } break;
    case 'snooze': if ($job('ATTEMPT') == 1) { header('Forkyard-Job: snooze=10ms'); } break;
    case 'unwanted': http_response_code(409); break;
    case 'bytes': echo bin2hex($body), ' ', $_SERVER['CONTENT_TYPE']; break;
    case 'Closure (web.php:12) #ü?%': echo $_SERVER['REQUEST_URI']; break;
    case 'header': header('Forkyard-Job: ' . base64_decode(json_decode($body))); break;
    case 'late': echo 'begun'; $send(); header('Forkyard-Job: ' . json_decode($body)); break;
    case 'late-status': echo 'begun'; $send(); @http_response_code(500); break;
    case 'late-error': echo 'begun'; $send(); throw new Exception('it broke');
    case 'again': if ($job('ATTEMPT') == 1) { header('Forkyard-Job: again=10ms'); echo 'the next'; } else { echo "given $body"; } break;
    case 'again-long': header('Forkyard-Job: again=10ms'); echo str_repeat('x', 300000); break;
    case 'cron':
        echo 'begun';
        fastcgi_finish_request();
        file_put_contents("$dir/out/answered", '');
        while (!file_exists("$dir/out/cron")) { clearstatcache(); usleep(10000); }
        header('Forkyard-Job: ' . json_decode($body));
        echo ' and done';
        break;
    case 'long': while (true) { sleep(60); } break;
    case 'gate':
        while (!file_exists("$dir/out/" . json_decode($body))) { clearstatcache(); usleep(10000); }
        echo 'through';
        break;
    case 'steps':
        echo $job('STEP');
        if ($job('STEP') == 'flaky' && $job('ATTEMPT') == 1) { http_response_code(500); }
        header('Forkyard-Job: ' . json_decode($body, true)[$job('STEP')]);
        break;
}
"#;

pub struct Jobs {
    pub daemon: Daemon,
}

/// The configuration; `@DIR` is the directory. `global`: lines of `[global]`, `pool`: of the pool, `queue`: of the
/// queue `mail`, `more`: the rest.
pub fn configuration(dir: &Path, global: &str, pool: &str, queue: &str, more: &str) -> String {
    for name in ["store", "out"] {
        let path = dir.join(name);
        if !path.exists() {
            make_folder(&path);
        }
    }
    fs::write(dir.join("jobs.php"), SCRIPT).expect("script");
    let mut text = String::new();
    let _ = writeln!(text, "[global]\n{global}");
    text.push_str(&php_pool(dir, &format!("pm = \"static\"\n{pool}"), ""));
    let user = if is_root() { "user = \"www-data\"\n" } else { "" };
    let dir = dir.display().to_string();
    let _ = write!(
        text,
        "[jobs]\nstore = \"{dir}/store/jobs.db\"\nlisten = \"{dir}/jobs.sock\"\n{user}\
         [jobs.queue.mail]\npool = \"www\"\nscript = \"{dir}/jobs.php\"\nbackoff = {{ first = \"20ms\", factor = 1 }}\n{queue}\n{more}"
    );
    text.replace("@DIR", &dir)
}

/// Adds pools with pages that push: `push.php` of `www`, and `/` of `wsgi` and `rack`.
pub fn with_pages(dir: &Path, php: &str, wsgi: &str, rack: &str) -> String {
    fs::write(dir.join("push.php"), php).expect("script");
    let mut more = String::new();
    for (runtime, file, script) in [("wsgi", "wsgi.py", wsgi), ("rack", "config.ru", rack)] {
        let root = dir.join(runtime);
        make_folder(&root);
        fs::write(root.join(file), script).expect("script");
        let application = application_in(runtime, root, "");
        more += &pool(dir, runtime, "", &application);
    }
    configuration(dir, "", "max_children = 1", "", &more)
}

pub struct Client {
    stream: BufReader<UnixStream>,
}

impl Client {
    pub fn connect(dir: &Path) -> Client {
        let path = dir.join("jobs.sock");
        let stream = until("the jobs' socket", || UnixStream::connect(&path).ok());
        stream.set_read_timeout(Some(PATIENCE)).expect("timeout");
        Client {
            stream: BufReader::new(stream),
        }
    }

    pub fn ask(&mut self, request: &Value) -> Value {
        self.try_ask(request)
            .unwrap_or_else(|| panic!("no answer to {request}"))
    }

    pub fn say(&mut self, request: &Value) {
        let said = self.stream.get_mut().write_all(format!("{request}\n").as_bytes());
        said.unwrap_or_else(|error| panic!("{request}: {error}"));
    }

    pub fn hear(&mut self) -> Value {
        let mut line = String::new();
        self.stream.read_line(&mut line).expect("an answer");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line}: {error}"))
    }

    fn try_ask(&mut self, request: &Value) -> Option<Value> {
        self.stream
            .get_mut()
            .write_all(format!("{request}\n").as_bytes())
            .ok()?;
        let mut line = String::new();
        self.stream.read_line(&mut line).ok()?;
        serde_json::from_str(&line).ok()
    }
}

impl Jobs {
    pub fn start(pool: &str, queue: &str) -> Jobs {
        Jobs::start_with("", pool, queue, "")
    }

    pub fn start_with(global: &str, pool: &str, queue: &str, more: &str) -> Jobs {
        let daemon = Daemon::start(|dir| configuration(dir, global, pool, queue, more));
        Jobs { daemon }
    }

    pub fn dir(&self) -> PathBuf {
        self.daemon.dir.clone()
    }

    pub fn again(&self) -> Jobs {
        let daemon = Daemon::start_in(&self.daemon.dir);
        Jobs { daemon }
    }

    pub fn ask(&self, request: &Value) -> Value {
        until("an answer", || Client::connect(&self.daemon.dir).try_ask(request))
    }

    pub fn push(&self, kind: &str, more: Value) -> i64 {
        let mut job = json!({"queue": "mail", "kind": kind});
        if let (Some(job), Value::Object(more)) = (job.as_object_mut(), more) {
            job.extend(more);
        }
        let answer = self.ask(&json!({"command": "push", "job": job}));
        answer["jobs"][0]["id"]
            .as_i64()
            .unwrap_or_else(|| panic!("{answer}"))
    }

    pub fn show(&self, id: i64) -> Value {
        self.ask(&json!({"command": "show", "id": id}))["job"].clone()
    }

    pub fn wait(&self, id: i64) -> Value {
        self.ask(&json!({"command": "wait", "id": id}))["job"].clone()
    }

    pub fn done(&self, kind: &str, more: Value) -> Value {
        self.wait(self.push(kind, more))
    }

    pub fn wait_for_start(&self, id: i64, attempt: u32) -> u32 {
        until(&format!("start {attempt} of job {id}"), || {
            let starts = self.starts();
            let found = starts
                .iter()
                .find(|(job, start, _)| (*job, *start) == (id, attempt));
            found.map(|(.., pid)| *pid)
        })
    }

    /// Clients wait for a job while many others end it: each gets one answer, and its next answer is right.
    pub fn assert_waits_are_answered_once(&self) {
        let queues = json!({"command": "queues"});
        let mut clients: Vec<Client> = (0..24).map(|_| Client::connect(&self.daemon.dir)).collect();
        for _ in 0..5 {
            let id = self.push("echo", json!({"in_ms": 600_000}));
            let (waits, ends) = clients.split_at_mut(4);
            for client in &mut *waits {
                client.say(&json!({"command": "wait", "id": id}));
            }
            for client in &mut *ends {
                client.say(&json!({"command": "cancel", "id": id}));
            }
            for client in ends {
                assert_eq!(client.hear()["result"], "changed");
            }
            for client in waits {
                assert_eq!(client.hear()["job"]["state"], "cancelled");
                assert_eq!(client.ask(&queues)["result"], "queues");
            }
        }
        // The job ends by itself at the same time.
        let [client, ..] = clients.as_mut_slice() else {
            panic!("no clients");
        };
        for _ in 0..100 {
            let job = json!({"queue": "mail", "kind": "echo"});
            let pushed = client.ask(&json!({"command": "push", "job": job}));
            let id = pushed["jobs"][0]["id"]
                .as_i64()
                .unwrap_or_else(|| panic!("{pushed}"));
            let job = client.ask(&json!({"command": "wait", "id": id}));
            assert_eq!(job["job"]["id"], id, "{job}");
        }
    }

    pub fn starts(&self) -> Vec<(i64, u32, u32)> {
        let text = fs::read_to_string(self.daemon.dir.join("out/starts")).unwrap_or_default();
        let read = |line: &str| {
            let mut words = line.split(' ');
            Some((
                words.next()?.parse().ok()?,
                words.next()?.parse().ok()?,
                words.next()?.parse().ok()?,
            ))
        };
        text.lines().filter_map(read).collect()
    }

    /// Opens the gate of waiting `gate` jobs.
    pub fn open(&self, gate: &str) {
        fs::write(self.daemon.dir.join("out").join(gate), "").expect("gate");
    }

    pub fn keeper_of_jobs(&self, master: u32) -> u32 {
        until("the process that keeps jobs", || {
            process::child_titled(master, "forkyard: jobs")
        })
    }
}
