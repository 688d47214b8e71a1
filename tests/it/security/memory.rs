//! A pool's configuration is in the memory of the daemon and of that pool's processes only.

use super::needs_root;
use crate::support::prelude::*;

const SECRET: &str = "Lq7-of-the-first-pool-alone";
const ONE: &str = "pm = \"static\"\nmax_children = 1\n";

/// Every kind of pool: its name, its lines, its application's lines, and a part of its process titles.
fn kinds(dir: &Path) -> Vec<(&'static str, String, String)> {
    let root = dir.display();
    vec![
        (
            "php",
            String::new(),
            concat!("runtime = \"php\"\nversion = \"", env!("FORKYARD_PHP"), "\"").into(),
        ),
        (
            "cgi",
            String::new(),
            format!("runtime = \"cgi\"\nroot = \"{root}\""),
        ),
        (
            "wsgi",
            String::new(),
            format!("runtime = \"wsgi\"\nroot = \"{root}\""),
        ),
        (
            "http",
            String::new(),
            format!(
                "runtime = \"http\"\nroot = \"{root}\"\nstart_command = \"python3 -m http.server $PORT\""
            ),
        ),
        (
            "fastcgi",
            String::new(),
            concat!(
                "runtime = \"fastcgi\"\nprogram = \"/usr/bin/php-cgi",
                env!("FORKYARD_PHP"),
                "\""
            )
            .into(),
        ),
        (
            "reported",
            format!("status_listen = \"{root}/reported-status.sock\"\nstatus_path = \"/status\"\n"),
            concat!("runtime = \"php\"\nversion = \"", env!("FORKYARD_PHP"), "\"").into(),
        ),
        (
            "broken",
            String::new(),
            format!("runtime = \"wsgi\"\nroot = \"{root}\"\nentry = \"nothing.py\""),
        ),
    ]
}

fn configuration(dir: &Path) -> String {
    let php = PHP;
    let own = format!("user = \"nobody\"\n{ONE}env = {{ SECRET = \"{SECRET}\" }}\n");
    let mut text = pool(dir, "first", &own, php);
    for (name, settings, application) in kinds(dir) {
        text += &pool(dir, name, &format!("{ONE}{settings}"), &application);
    }
    text + &format!(
        "[pool.sites]\nlisten = {{ address = \"{0}/sites.sock\", mode = \"0666\" }}\nrouting = \"application\"\n\
         [pool.sites.applications]\ndirectories = [\"{0}/sites\"]\nmin_uid = 1\nmax = 4\n",
        dir.display()
    )
}

const SEARCH: &str = r#"
import sys
secret = sys.argv[1].encode()
for pid in sys.argv[2:]:
    found = 0
    try:
        memory = open(f"/proc/{pid}/mem", "rb", 0)
        for line in open(f"/proc/{pid}/maps"):
            where, rights = line.split()[:2]
            start, end = (int(part, 16) for part in where.split("-"))
            if rights[0] == "r":
                try:
                    memory.seek(start)
                    found += memory.read(end - start).count(secret)
                except (OSError, OverflowError, ValueError):
                    pass  # a page of the kernel's
    except (FileNotFoundError, ProcessLookupError):
        print(pid, "gone")
        continue
    print(pid, "knows" if found else "ignorant")
"#;

fn search(pids: &[u32]) -> BTreeMap<u32, bool> {
    let pids = pids.iter().map(u32::to_string);
    let output = Command::new("/usr/bin/python3")
        .args(["-c", SEARCH, SECRET])
        .args(pids)
        .output()
        .expect("python");
    assert_success(&output);
    let text = String::from_utf8(output.stdout).expect("text");
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    lines
        .filter(|(_, word)| *word != "gone")
        .map(|(pid, word)| (pid.parse().expect("a pid"), word == "knows"))
        .collect()
}

fn descendants(pid: u32) -> Vec<u32> {
    let children = process::children(pid);
    let below = children.iter().flat_map(|child| descendants(*child));
    below.chain(children.iter().copied()).collect()
}

#[test]
fn what_belongs_to_one_pool_is_in_no_process_of_another() {
    skip_if!(needs_root());
    let dir = directory();
    let site = dir.path().join("sites/shop");
    fs::create_dir_all(&site).expect("mkdir");
    for (file, text) in [
        ("pid.php", "<?php echo getmypid();"),
        (
            "app.cgi",
            "#!/bin/sh\nprintf 'Content-Type: text/plain\\r\\n\\r\\ncgi'\n",
        ),
        (
            "wsgi.py",
            "def application(e, start):\n    start('200 OK', [])\n    return [b'wsgi']\n",
        ),
        ("sites/shop/index.php", "<?php echo 'shop';"),
    ] {
        write_program(&dir.path().join(file), text);
    }
    chown(&site, Some(33), Some(33)).expect("chown");
    chown(site.join("index.php"), Some(33), Some(33)).expect("chown");
    fs::write(dir.path().join("forkyard.toml"), configuration(dir.path())).expect("write");
    let daemon = Daemon::start_in(dir.path()).keeping(dir);
    for (name, script) in [
        ("first", "pid.php"),
        ("php", "pid.php"),
        ("cgi", "app.cgi"),
        ("wsgi", "app"),
        ("http", "pid.php"),
        ("fastcgi", "pid.php"),
        ("broken", "app"),
    ] {
        let answer = daemon.get(name, script);
        assert!(!answer.text().is_empty(), "{name}: {}", daemon.log());
    }
    let status = Params::get(&daemon.dir, "status", "").with("SCRIPT_NAME", "/status");
    let mut reporter = Client::connect(&daemon.dir.join("reported-status.sock"))
        .expect("connect")
        .kept();
    reporter.request(&status, b"").expect("the status");
    let shop = Params::get(&daemon.dir, "sites/shop/index.php", "").with(
        "FORKYARD_APP_ROOT",
        &daemon.dir.join("sites/shop").display().to_string(),
    );
    assert_eq!(daemon.ask("sites", &shop).body(), "shop", "{}", daemon.log());

    let wanted = [
        // It forks the workers of `first`, too, and must not know the secret.
        "preloader zygote",
        "pool first",
        "pool php",
        "pool cgi",
        "pool wsgi",
        "pool http",
        "http.server",
        "pool fastcgi",
        "php-cgi",
        "reporter",
        "router sites",
        "inspector sites",
        "broken",
        "shop",
    ];
    let found: BTreeMap<u32, String> = until("every kind of process", || {
        let all: BTreeMap<u32, String> = descendants(daemon.pid())
            .into_iter()
            .map(|pid| (pid, process::title(pid)))
            .collect();
        let is_there = |kind: &str| all.values().any(|title| title.contains(kind));
        wanted.iter().all(|kind| is_there(kind)).then_some(all)
    });
    let mut pids: Vec<u32> = found.keys().copied().collect();
    pids.push(daemon.pid());
    let known = search(&pids);
    assert_eq!(known.get(&daemon.pid()), Some(&true), "the daemon itself");
    let seen = found.keys().filter(|pid| known.contains_key(pid)).count();
    assert!(seen >= wanted.len() - 2, "{found:?}");
    for (pid, title) in &found {
        if let Some(knows) = known.get(pid) {
            assert_eq!(*knows, title.contains("first"), "{pid} {title}");
        }
    }
}
