//! Applications with concurrent requests in one instance.

use super::Sites;
use crate::it::runtimes::concurrent::{APPLICATION, THREADED};
use crate::support::prelude::*;

pub(super) struct Bench {
    pub sites: Sites,
}

impl Bench {
    pub(super) fn start(applications: &str) -> Bench {
        Bench {
            sites: Sites::start(applications),
        }
    }

    fn add(&self, name: &str, own: &str) -> PathBuf {
        self.sites
            .add(name, 0, &[("asgi.py", APPLICATION), ("forkyard.toml", own)])
    }

    pub(super) fn params(root: &Path, path: &str, query: &str) -> Params {
        Params::get(root, path, query).with("FORKYARD_APP_ROOT", &root.display().to_string())
    }

    pub(super) fn send(&self, root: &Path, path: &str, query: &str) -> Client {
        self.sites.daemon.send("sites", &Bench::params(root, path, query))
    }

    pub(super) fn get(&self, root: &Path, path: &str, query: &str) -> String {
        body(&mut self.send(root, path, query))
    }

    /// Sends requests next to `stuck` until that is answered with 504; returns the last one, which still has most of
    /// its time.
    pub(super) fn beside_until_its_time_is_up(&self, mut stuck: Client, root: &Path) -> Client {
        let answer = std::thread::spawn(move || stuck.answer().expect("answer").text());
        let mut other = self.send(root, "until", "");
        let mut before = Vec::new();
        while !answer.is_finished() {
            (0..5).for_each(|_| pause());
            before.push(std::mem::replace(&mut other, self.send(root, "until", "")));
        }
        assert_starts(&answer.join().expect("the client"), "Status: 504");
        other
    }

    pub(super) fn status(&self, root: &Path) -> Value {
        let status = self.sites.status();
        let all = status["book"]["applications"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let name = root.display().to_string();
        all.into_iter()
            .find(|application| application["name"] == name.as_str())
            .unwrap_or_default()
    }

    fn numbers(&self, root: &Path, of: &str, name: &str) -> Vec<u64> {
        let status = self.status(root);
        let all = status[of].as_array().cloned().unwrap_or_default();
        all.iter().filter_map(|one| one[name].as_u64()).collect()
    }

    pub(super) fn sessions(&self, root: &Path) -> Vec<u64> {
        self.numbers(root, "instances", "sessions")
    }

    /// The processes that answer: programs, or else instances.
    fn processes(&self, root: &Path) -> BTreeSet<u32> {
        let programs = self.numbers(root, "programs", "pid");
        let pids = match programs.is_empty() {
            true => self.numbers(root, "instances", "pid"),
            false => programs,
        };
        pids.into_iter().map(|pid| pid as u32).collect()
    }

    pub(super) fn wait_for_sessions(&self, root: &Path, wanted: &[u64]) {
        wait_until(&format!("sessions {wanted:?}"), || {
            let found = self.sessions(root);
            found == wanted
        });
    }
}

pub(super) fn body(client: &mut Client) -> String {
    client.answer().expect("answer").body()
}

pub(super) fn marks(root: &Path, begin: &str) -> usize {
    let entries = fs::read_dir(root).expect("directory");
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter(|name| name.starts_with(begin)).count()
}

pub(super) fn go(root: &Path) {
    fs::write(root.join("go"), "").expect("go");
}

pub(super) fn many(bench: &Bench, root: &Path, path: &str, query: &str, count: usize) -> Vec<Client> {
    (0..count).map(|_| bench.send(root, path, query)).collect()
}

pub(super) fn pids(clients: &mut [Client]) -> BTreeMap<u32, usize> {
    let mut pids = BTreeMap::new();
    for client in clients {
        let body = body(client);
        let pid = body.parse().unwrap_or_else(|_| panic!("no pid: {body}"));
        *pids.entry(pid).or_default() += 1;
    }
    pids
}

type Add = fn(&Bench, &str, &str) -> PathBuf;

/// How an application in ASGI and one in Node are added.
const KINDS: [(&str, Add); 2] = [("asgi", Bench::add), ("node", super::concurrent_programs::add)];

#[test]
fn requests_of_one_instance_wait_at_the_same_time_and_take_one_place() {
    for ((kind, add), first, more) in [(KINDS[0], 48, 16), (KINDS[1], 150, 50)] {
        let bench = Bench::start("max = 2");
        let root = add(&bench, "app", "");
        assert!(bench.get(&root, "pid", "").parse::<u32>().is_ok());
        let all = (first + more).to_string();
        let mut clients = many(&bench, &root, "met", &all, first);
        bench.wait_for_sessions(&root, &[first as u64]);
        bench.sites.php("other", 1, "echo 'other';");
        assert_eq!(bench.sites.body("/other/"), "other");
        clients.extend(many(&bench, &root, "met", &all, more));
        assert_eq!(pids(&mut clients).len(), 1, "{kind}");
        bench.wait_for_sessions(&root, &[0]);
    }
}

#[test]
fn kept_connections_have_many_requests_of_several_applications() {
    each(KINDS, |(kind, add)| {
        let bench =
            Bench::start("user_switching = false\ndefault_user = \"www-data\"\nrouter_user = \"nobody\"");
        let roots = ["one", "two"].map(|name| add(&bench, name, ""));
        let mut clients: Vec<Client> = (0..8)
            .map(|_| bench.sites.daemon.client("sites").kept())
            .collect();
        let first = roots.each_ref().map(|root| bench.get(root, "pid", ""));
        assert_ne!(first[0], first[1], "{kind}");
        for _ in 0..4 {
            for (root, pid) in roots.iter().zip(&first) {
                for client in &mut clients {
                    client.send(&Bench::params(root, "met", "8"), b"").expect("send");
                }
                assert_eq!(
                    pids(&mut clients),
                    BTreeMap::from([(pid.parse().expect("a pid"), 8)])
                );
            }
        }
        bench.wait_for_sessions(&roots[0], &[0]);
    });
}

#[test]
fn a_client_that_leaves_ends_its_session_and_no_other() {
    each(KINDS, |(_, add)| {
        // A second instance would start if the first one's loop is delayed, as on a busy machine.
        let bench = Bench::start("max_per_app = 1");
        let root = add(&bench, "app", "");
        let mut other = bench.send(&root, "until", "");
        let leaving = bench.send(&root, "events", "1");
        wait_until("it is open", || marks(&root, "open.1") == 1);
        bench.wait_for_sessions(&root, &[2]);
        drop(leaving);
        assert_eq!(bench.get(&root, "gone", "1"), "1");
        bench.wait_for_sessions(&root, &[1]);
        go(&root);
        assert!(body(&mut other).parse::<u32>().is_ok());
    });
}

#[test]
fn a_router_that_is_killed_is_followed_by_one_that_knows_the_requests_under_way() {
    each(KINDS, |(_, add)| {
        let bench = Bench::start("concurrency = 6\nmax_per_app = 1");
        let root = add(&bench, "app", "");
        let mut clients = many(&bench, &root, "until", "", 5);
        bench.wait_for_sessions(&root, &[5]);
        let router = bench.sites.companion("router");
        process::signal(router, Signal::SIGKILL);
        wait_until("its end", || !process::runs(router));
        assert_ne!(bench.sites.companion("router"), router);
        bench.wait_for_sessions(&root, &[5]);
        clients.extend(many(&bench, &root, "until", "", 2));
        wait_until("one waits", || {
            bench.status(&root)["waiting"] == 1 && bench.sessions(&root) == [6]
        });
        go(&root);
        assert_eq!(pids(&mut clients).len(), 1);
        bench.wait_for_sessions(&root, &[0]);
    });
}

#[test]
fn a_restart_waits_for_the_requests_under_way() {
    each(KINDS, |(_, add)| {
        let bench = Bench::start("max = 4");
        let root = add(&bench, "app", "");
        let mut clients = many(&bench, &root, "until", "", 5);
        bench.wait_for_sessions(&root, &[5]);
        let old = bench.processes(&root);
        let name = root.display().to_string();
        assert_success(&bench.sites.forkyard(&["restart", &name, "--rolling"]));
        let new = until("another process", || {
            let pid: u32 = bench.get(&root, "pid", "").parse().expect("a pid");
            (!old.contains(&pid)).then_some(pid)
        });
        assert!(old.iter().all(|pid| process::runs(*pid)), "they have requests");
        go(&root);
        let answered: BTreeSet<u32> = pids(&mut clients).into_keys().collect();
        assert!(answered.is_subset(&old), "{answered:?} and not {old:?}");
        wait_until("the new one alone", || {
            bench.processes(&root) == BTreeSet::from([new]) && !old.iter().any(|pid| process::runs(*pid))
        });
    });
}

#[test]
fn a_request_that_takes_too_long_is_ended_alone() {
    each(KINDS, |(kind, add)| {
        // A second instance would start if the first one's loop is delayed, as on a busy machine.
        let bench = Bench::start("max_request_time = \"1s\"\nmax = 1");
        let root = add(&bench, "app", "");
        let pid = bench.get(&root, "pid", "");
        let stuck = bench.send(&root, "stuck", "");
        let mut other = bench.beside_until_its_time_is_up(stuck, &root);
        go(&root);
        assert_eq!(body(&mut other), pid);
        let mark = if kind == "asgi" { "cancelled" } else { "left.1" };
        wait_until("the application to notice", || root.join(mark).exists());
        assert_eq!(bench.get(&root, "pid", ""), pid);
    });
}

#[test]
fn an_instance_that_dies_takes_its_own_requests_with_it() {
    each(KINDS, |(kind, add)| {
        let bench = Bench::start("");
        let [root, other] = ["app", "other"].map(|name| add(&bench, name, ""));
        let mut unharmed = bench.send(&other, "until", "");
        bench.wait_for_sessions(&other, &[1]);
        let first = bench.get(&root, "pid", "");
        let mut clients = many(&bench, &root, "events", "1", 3);
        wait_until("they are open", || marks(&root, "open.1") == 1);
        bench.wait_for_sessions(&root, &[3]);
        if kind == "asgi" {
            process::signal(first.parse().expect("a pid"), Signal::SIGKILL);
        } else {
            let answer = bench.send(&root, "dies", "").answer().expect("answer");
            assert_starts(&answer.text(), "Status: 50");
        }
        for client in &mut clients {
            assert!(!client.answer().is_ok_and(|answer| answer.ended), "it is cut");
        }
        assert_ne!(bench.get(&root, "pid", ""), first);
        bench.wait_for_sessions(&root, &[0]);
        go(&other);
        assert!(body(&mut unharmed).parse::<u32>().is_ok());
    });
}

#[test]
fn slow_requests_of_one_application_do_not_stop_another() {
    let bench = Bench::start("max = 2");
    let slow = bench.add("slow", "");
    let fast = bench.add("fast", "");
    let mut clients = many(&bench, &slow, "until", "", 20);
    bench.wait_for_sessions(&slow, &[20]);
    for _ in 0..5 {
        assert!(bench.get(&fast, "pid", "").parse::<u32>().is_ok());
    }
    assert_contains(&bench.sites.table(&["sites"]), "20");
    go(&slow);
    assert_eq!(pids(&mut clients).len(), 1);
    bench.wait_for_sessions(&slow, &[0]);
}

#[test]
fn no_instance_has_more_than_concurrency_allows() {
    let bench = Bench::start("concurrency = 4\nmax_per_app = 2");
    let root = bench.add("app", "concurrency = 3\n");
    let mut clients = many(&bench, &root, "until", "", 8);
    bench.wait_for_sessions(&root, &[3, 3]);
    assert_eq!(bench.status(&root)["waiting"], 2);
    wait_until("two instances have begun", || marks(&root, "begun.") == 2);
    go(&root);
    for client in &mut clients {
        assert!(body(client).parse::<u32>().is_ok());
    }
    assert_eq!(bench.get(&root, "most", ""), "3");
}

#[test]
fn an_instance_is_replaced_after_max_requests_and_loses_none() {
    let bench = Bench::start("max_requests = 20\nmax = 4");
    let root = bench.add("app", "");
    let mut pids = BTreeSet::new();
    for _ in 0..5 {
        let mut clients = many(&bench, &root, "pid", "", 16);
        for client in &mut clients {
            pids.insert(body(client).parse::<u32>().expect("a pid"));
        }
    }
    assert_eq!(pids.len(), 4, "80 requests");
}

#[test]
fn an_instance_whose_loop_does_not_run_when_the_time_is_up_is_killed() {
    let bench = Bench::start("max_request_time = \"1s\"");
    let root = bench.add("app", "");
    let mut holds = bench.send(&root, "hold", "never");
    wait_until("it is held up", || marks(&root, "held.") == 1);
    let before = bench.sites.instances();
    assert!(!holds.answer().expect("no answer").text().contains("Status: 200"));
    let next: u32 = bench.get(&root, "pid", "").parse().expect("a pid");
    assert!(!before.contains(&next));
}

#[test]
fn an_application_is_spread_over_the_instances_it_asks_for() {
    let bench = Bench::start("max = 6\nmax_per_app = 3");
    let root = bench.add("app", "instances = 2\n");
    let mut clients = many(&bench, &root, "until", "", 4);
    wait_until("another instance", || {
        let status = bench.status(&root).to_string();
        status.contains("\"state\":\"idle\"")
    });
    clients.extend(many(&bench, &root, "until", "", 6));
    wait_until("all are under way", || {
        bench.sessions(&root).iter().sum::<u64>() == 10
    });
    let sessions = bench.sessions(&root);
    assert!(
        sessions.len() == 2 && sessions.iter().all(|count| *count >= 4),
        "{sessions:?}"
    );
    go(&root);
    assert_eq!(pids(&mut clients).len(), 2);
}

#[test]
fn a_loop_that_is_held_up_gets_no_more_requests() {
    let bench = Bench::start("max = 3\nreserve = 0");
    let root = bench.add("app", "");
    let first = bench.get(&root, "pid", "");
    let mut holds = bench.send(&root, "hold", "free");
    wait_until("it is held up", || marks(&root, "held.") == 1);
    // The stuck loop shows only when a request arrives that it doesn't accept: that request waits.
    let (tell, answers) = std::sync::mpsc::channel();
    let other = until("an answer of another instance", || {
        let (mut client, tell) = (bench.send(&root, "pid", ""), tell.clone());
        std::thread::spawn(move || tell.send(body(&mut client)));
        answers.recv_timeout(Duration::from_millis(100)).ok()
    });
    assert_ne!(other, first);
    fs::write(root.join("free"), "").expect("write");
    assert_eq!(body(&mut holds), first);
    drop(tell);
    for answer in answers {
        assert!([&first, &other].contains(&&answer), "{answer}");
    }
}

#[test]
fn an_instance_has_the_threads_that_its_application_asks_for() {
    let bench = Bench::start("max_per_app = 1");
    for kind in THREADED {
        let runtime = kind.runtime;
        let root = bench.sites.add(
            runtime,
            0,
            &[(kind.file, kind.text), ("forkyard.toml", "threads = 3\n")],
        );
        let mut clients = many(&bench, &root, "met", "3", 3);
        let answers: BTreeSet<String> = clients.iter_mut().map(body).collect();
        assert_eq!(answers.len(), 1, "{runtime}: {answers:?}");
        let mut clients: Vec<Client> = (0..4)
            .map(|query| bench.send(&root, "until", &query.to_string()))
            .collect();
        bench.wait_for_sessions(&root, &[3]);
        assert_eq!(bench.status(&root)["waiting"], 1, "{runtime}");
        go(&root);
        for client in &mut clients {
            assert!(answers.contains(&body(client)), "{runtime}");
        }
        assert_eq!(bench.get(&root, "most", ""), "3", "{runtime}");
    }
}

#[test]
fn a_key_without_effect_on_a_runtime_is_refused() {
    let bench = Bench::start("");
    for (name, file, key, problem) in [
        ("asgi", "asgi.py", "threads = 2", "set concurrency instead"),
        ("wsgi", "wsgi.py", "concurrency = 2", "set threads instead"),
        (
            "rack",
            "config.ru",
            "handshake = true",
            "it is for programs that speak HTTP",
        ),
        (
            "php",
            "index.php",
            "threads = 2",
            "an instance of it works on one request at a time",
        ),
        (
            "plain",
            "index.php",
            "preload = false",
            "it is for WSGI, ASGI and Rack",
        ),
    ] {
        let root = bench.sites.add(name, 0, &[(file, ""), ("forkyard.toml", key)]);
        let (status, _) = bench.sites.get(&format!("/{name}/"));
        assert!(status >= 500, "{name}: {status}");
        wait_until(&format!("the log says what is wrong with {name}"), || {
            let log = bench.sites.daemon.log();
            let root = root.display().to_string();
            log.lines()
                .any(|line| line.contains(&root) && line.contains(problem))
        });
    }
}
