//! Groups of applications that share instances.

use super::Sites;
use crate::support::prelude::*;

struct Taken {
    child: Child,
    lent: Value,
}

impl Taken {
    fn pid(&self) -> u64 {
        self.lent["pid"].as_u64().expect("a process")
    }

    fn end(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().expect("wait").success());
    }
}

fn take(daemon: &Daemon, of: &str) -> Result<Taken, String> {
    let mut child = Command::new(env!("CARGO_BIN_EXE_forkyard"))
        .args(["take", of, "--socket"])
        .arg(daemon.dir.join("control.sock"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("forkyard");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("output"))
        .read_line(&mut line)
        .expect("read");
    match serde_json::from_str(&line) {
        Ok(lent) => Ok(Taken { child, lent }),
        Err(_) => {
            let output = child.wait_with_output().expect("wait");
            assert!(!output.status.success());
            Err(line + &String::from_utf8_lossy(&output.stderr))
        }
    }
}

fn groups(sites: &Path, all: &[(&str, &[&str])]) -> String {
    let one = |(name, members): &(&str, &[&str])| {
        let roots: Vec<String> = members
            .iter()
            .map(|it| format!("\"{}/apps/{it}\"", sites.display()))
            .collect();
        format!("{name} = [{}]\n", roots.join(", "))
    };
    let all: String = all.iter().map(one).collect();
    format!("[pool.sites.applications.groups]\n{all}")
}

fn reload(sites: &Sites, applications: &str) {
    let text = super::configuration(&sites.daemon.dir, applications, "");
    sites.daemon.write("forkyard.toml", &text);
    assert_success(&sites.forkyard(&["reload"]));
}

fn idle(sites: &Sites, name: &str) -> BTreeSet<u64> {
    let status = sites.status();
    let all = status["book"]["applications"]
        .as_array()
        .expect("applications")
        .clone();
    let is_it = |app: &&Value| {
        app["name"]
            .as_str()
            .is_some_and(|root| root.ends_with(&format!("/{name}")))
    };
    let app = all.iter().find(is_it).cloned().unwrap_or_default();
    let instances = app["instances"].as_array().cloned().unwrap_or_default();
    let is_idle = |one: &&Value| one["state"] == "idle";
    instances
        .iter()
        .filter(is_idle)
        .filter_map(|one| one["pid"].as_u64())
        .collect()
}

#[test]
fn whatever_is_free_in_a_group_is_lent() {
    let sites = Sites::start("max = 4");
    for name in ["a", "b", "c"] {
        sites.cgi(name, 0, "echo $PPID");
    }
    let of = |all: &[(&str, &[&str])]| {
        format!(
            "max = 6\nmax_per_app = 1\nmin_instances = 1\n{}",
            groups(&sites.daemon.dir, all)
        )
    };
    assert!(take(&sites.daemon, "pair").is_err());
    reload(&sites, &of(&[("pair", &["a", "b"]), ("other", &["c"])]));
    let members = until("an instance of each", || {
        let all: BTreeSet<u64> = ["a", "b"].iter().flat_map(|name| idle(&sites, name)).collect();
        (all.len() == 2).then_some(all)
    });
    let first = take(&sites.daemon, "pair").unwrap_or_else(|said| panic!("{said}"));
    let second = take(&sites.daemon, "pair").unwrap_or_else(|said| panic!("{said}"));
    assert_eq!(BTreeSet::from([first.pid(), second.pid()]), members);
    let refused = take(&sites.daemon, "pair").err().expect("a third one");
    assert_contains(&refused, "none is free");
    let other = take(&sites.daemon, "other").unwrap_or_else(|said| panic!("{said}"));
    assert!(!members.contains(&other.pid()));
    first.end();
    second.end();
    let mut seen = BTreeSet::new();
    wait_until("both to be drawn", || {
        let taken = take(&sites.daemon, "pair").unwrap_or_else(|said| panic!("{said}"));
        seen.insert(taken.pid());
        taken.end();
        seen.is_superset(&members)
    });
    let shown = text_of(&sites.forkyard(&["status", "sites"]).stdout);
    assert_contains(&shown, "/apps/a: restarts 0, group pair\n");
    reload(&sites, &of(&[("pair", &["b"])]));
    let b = idle(&sites, "b");
    let taken = take(&sites.daemon, "pair").unwrap_or_else(|said| panic!("{said}"));
    assert!(b.contains(&taken.pid()), "{b:?}");
    assert!(take(&sites.daemon, "pair").is_err());
    assert_contains(
        &take(&sites.daemon, "other").err().expect("no group"),
        "no such application or group",
    );
    taken.end();
    other.end();
    assert!(sites.body("/a/").trim().parse::<u64>().is_ok());
}

#[test]
fn a_member_that_is_made_later_is_found_when_somebody_takes() {
    let sites = Sites::start("max = 4");
    let of = groups(&sites.daemon.dir, &[("late", &["late"])]);
    reload(&sites, &format!("max = 4\nmin_instances = 1\n{of}"));
    let refused = take(&sites.daemon, "late").err().expect("nothing is there");
    assert_contains(&refused, "no such application or group");
    let root = sites.cgi("late", 0, "echo $PPID");
    let taken = until("it to be found", || take(&sites.daemon, "late").ok());
    taken.end();
    fs::remove_dir_all(root).expect("remove");
    until("it to be missed", || take(&sites.daemon, "late").err());
}

#[test]
fn the_groups_of_pools_that_come_and_go_do_so_with_them() {
    let sites = Sites::start("max = 4");
    let dir = sites.daemon.dir.clone();
    fs::create_dir(dir.join("more")).expect("directory");
    sites.cgi("tool", 0, "echo $PPID");
    fs::rename(sites.apps.join("tool"), dir.join("more/tool")).expect("rename");
    let path = dir.display();
    let pool = |name: &str| {
        let file = format!(
            "[pool.{name}]\nlisten = {{ address = \"{path}/{name}.sock\", mode = \"0666\" }}\nrouting = \"application\"\n\
             [pool.{name}.applications]\ndirectories = [\"{path}/more\"]\nmin_uid = 1\nmin_instances = 1\n\
             groups = {{ tools = [\"{path}/more/tool\"] }}\n"
        );
        sites
            .daemon
            .write(&format!("{name}.toml"), &file)
            .display()
            .to_string()
    };
    let run = |arguments: &[&str]| {
        let output = sites.forkyard(arguments);
        assert!(
            output.status.success(),
            "{arguments:?}: {}",
            String::from_utf8_lossy(&output.stdout)
        );
    };
    assert!(take(&sites.daemon, "tools").is_err());
    run(&["pool", "add", &pool("one")]);
    until("an instance", || take(&sites.daemon, "tools").ok()).end();
    run(&["pool", "add", &pool("two")]);
    let refused = take(&sites.daemon, "tools").err().expect("two groups");
    assert_contains(&refused, "in pool one and in pool two");
    run(&["pool", "remove", "one", "--immediate"]);
    until("the other pool's", || take(&sites.daemon, "tools").ok()).end();
    run(&["pool", "remove", "two", "--immediate"]);
    assert!(take(&sites.daemon, "tools").is_err());
}
