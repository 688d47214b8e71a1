//! A router with workers and the example `router_stand` in the master's place.

use crate::support::prelude::*;
use std::cell::RefCell;
use std::process::ChildStdin;
use std::sync::mpsc::{Receiver, channel};

pub struct Stand {
    child: Child,
    requests: RefCell<Option<ChildStdin>>,
    told: Receiver<Value>,
    kept: RefCell<Vec<Value>>,
    number: std::cell::Cell<u64>,
    router: std::cell::Cell<u32>,
    dir: tempfile::TempDir,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    pub application: PathBuf,
    pub pid: u32,
    pub length: u64,
}

fn program() -> PathBuf {
    let mut path = std::env::current_exe().expect("the test's own path");
    path.pop();
    path.pop();
    path.join("examples/router_stand")
}

impl Stand {
    pub fn start(applications: &[&str], settings: &[&str]) -> Stand {
        Stand::start_with(applications, settings, "")
    }

    pub fn start_with(applications: &[&str], settings: &[&str], lines: &str) -> Stand {
        let dir = directory();
        let path = dir.path();
        for application in applications {
            fs::create_dir_all(path.join("apps").join(application).join("tmp")).expect("mkdir");
        }
        let text = pool(
            path,
            "stand",
            &format!("pm = \"static\"\nmax_children = 1\n{lines}"),
            "runtime = \"rust\"\n",
        );
        fs::write(path.join("pool.toml"), text).expect("configuration");
        let mut child = Command::new(program())
            .arg(path.join("pool.toml"))
            .arg(path.join("apps"))
            .args(settings)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(path.join("log")).expect("a file"))
            .spawn()
            .expect("the example is built");
        let requests = child.stdin.take();
        let output = child.stdout.take().expect("a pipe");
        let (sender, told) = channel();
        std::thread::Builder::new()
            .spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    let value = serde_json::from_str(&line).unwrap_or(Value::String(line));
                    if sender.send(value).is_err() {
                        return;
                    }
                }
            })
            .expect("a thread");
        let stand = Stand {
            child,
            requests: RefCell::new(requests),
            told,
            kept: RefCell::default(),
            number: 0.into(),
            router: 0.into(),
            dir,
        };
        stand.wait_for_router();
        stand
    }

    fn wait_for_router(&self) {
        let pid = self.wait_for("router")["router"].as_u64().expect("a pid");
        self.router.set(pid as u32);
    }

    pub fn wait_for(&self, member: &str) -> Value {
        self.wait_until(member, |told| told.get(member).is_some())
    }

    fn wait_until(&self, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        let end = Instant::now() + PATIENCE;
        let mut kept = self.kept.borrow_mut();
        if let Some(at) = kept.iter().position(&fits) {
            return kept.remove(at);
        }
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let told = self.told.recv_timeout(left);
            let told = told.unwrap_or_else(|_| panic!("no {what} was told; {kept:?}\n{}", self.log()));
            if fits(&told) {
                return told;
            }
            kept.push(told);
        }
    }

    pub fn count(&self, member: &str) -> usize {
        let mut kept = self.kept.borrow_mut();
        kept.extend(self.told.try_iter());
        kept.iter().filter(|told| told.get(member).is_some()).count()
    }

    pub fn say(&self, line: &str) {
        let mut requests = self.requests.borrow_mut();
        writeln!(requests.as_mut().expect("it was not closed"), "{line}").expect("the stand listens");
    }

    pub fn admin_request(&self, line: &str) -> Result<Value, String> {
        self.number.set(self.number.get() + 1);
        let number = self.number.get();
        self.say(line);
        let answer = self.wait_until("answer", |told| {
            told.get("request").and_then(Value::as_u64) == Some(number)
        });
        match answer["result"].get("Ok") {
            Some(value) => Ok(value.clone()),
            None => Err(answer["result"]["Err"].as_str().unwrap_or_default().to_owned()),
        }
    }

    #[track_caller]
    pub fn order(&self, line: &str) -> Value {
        self.admin_request(line)
            .unwrap_or_else(|error| panic!("{line}: {error}"))
    }

    pub fn view(&self) -> Value {
        self.order("view")
    }

    pub fn application(&self, name: &str) -> Value {
        let root = self.root(name).display().to_string();
        let view = self.view();
        let found = view["applications"]
            .as_array()
            .and_then(|all| all.iter().find(|one| one["name"] == root));
        found.cloned().unwrap_or(Value::Null)
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn router(&self) -> u32 {
        self.router.get()
    }

    pub fn replace_router(&self) {
        process::signal(self.router(), Signal::SIGKILL);
        self.wait_for("router_gone");
        self.say("start-router");
        self.wait_for_router();
    }

    pub fn root(&self, application: &str) -> PathBuf {
        let root = self.dir.path().join("apps").join(application);
        fs::canonicalize(&root).unwrap_or(root)
    }

    pub fn client(&self) -> Client {
        Client::connect(&self.dir.path().join("stand.sock")).expect("it listens")
    }

    pub fn params(&self, application: &str, query: &str) -> Params {
        let root = self.root(application);
        let params = Params::get(&root.join("public"), "x", query);
        params.with("APP_ROOT", &root.display().to_string())
    }

    pub fn get(&self, application: &str, query: &str) -> Answer {
        self.ask(&mut self.client(), application, query, b"")
    }

    #[track_caller]
    pub fn ask(&self, client: &mut Client, application: &str, query: &str, body: &[u8]) -> Answer {
        let answer = client.request(&self.params(application, query), body);
        answer.expect("an answer")
    }

    #[track_caller]
    pub fn send(&self, client: &mut Client, application: &str, query: &str, body: &[u8]) {
        let sent = client.send(&self.params(application, query), body);
        sent.expect("it listens");
    }

    /// One client whose request is at work, and one whose request waits.
    pub fn busy_and_waiting(&self, connect: impl Fn() -> Client, query: &str) -> (Client, Client) {
        let (mut busy, mut waits) = (connect(), connect());
        self.send(&mut busy, "shop", query, b"");
        self.wait_until_busy();
        self.send(&mut waits, "shop", "x", b"");
        self.wait_for_number("waiting", 1);
        (busy, waits)
    }

    pub fn said(&self, application: &str, query: &str) -> Said {
        let said = said(&self.get(application, query));
        self.wait_until_idle();
        said
    }

    pub fn wait_until_idle(&self) {
        self.wait_for_number("active", 0);
    }

    pub fn wait_until_busy(&self) {
        self.wait_for_number("active", 1);
    }

    #[track_caller]
    pub fn wait_for_number(&self, member: &str, number: u64) {
        until(&format!("{member} = {number}"), || {
            (self.view()[member].as_u64() == Some(number)).then_some(())
        });
    }

    /// Waits until another instance than `earlier` serves the shop. Returns its pid.
    #[track_caller]
    pub fn wait_for_another(&self, earlier: u32) -> u32 {
        until("another instance", || {
            Some(self.said("shop", "x").pid).filter(|pid| *pid != earlier)
        })
    }
}

pub fn said(answer: &Answer) -> Said {
    let body = answer.body();
    let mut words = body.split_whitespace();
    let mut word = || {
        words
            .next()
            .unwrap_or_else(|| panic!("{:?}", answer.text()))
            .to_owned()
    };
    Said {
        application: PathBuf::from(word()),
        pid: word().parse().unwrap_or_else(|_| panic!("{:?}", answer.text())),
        length: word().parse().unwrap_or_else(|_| panic!("{:?}", answer.text())),
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        self.requests.replace(None);
        if std::thread::panicking() {
            eprintln!("{}", self.log());
        }
        let _ = process::wait(&mut self.child, "the stand ends");
    }
}
