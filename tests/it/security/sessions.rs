//! Sessions: no worker shares one with another user's processes or with the master.

use super::{NOBODY, needs_root};
use crate::skip::skip_unless;
use crate::support::prelude::*;
use nix::unistd::getsid;

const WWW_DATA: u32 = 33;
const ZYGOTES: u32 = 65_533;

/// A tenant can continue and slow down the other processes of its session (sched(7)). The kernel accepts ten new values
/// a second from all users together, so the script sleeps between its tries.
const PROBE: &str = r#"#!/bin/sh
for pid in $(echo "$1" | tr , ' '); do kill -CONT "$pid" 2>/dev/null && echo "$pid heard it"; done
tries=0
[ ! -e /proc/self/autogroup ] ||
until echo 19 >/proc/self/autogroup; do tries=$((tries + 1)); [ $tries -lt 1000 ] || exit 1; sleep 0.03; done 2>/dev/null
echo done
"#;
const PHP: &str = "<?php echo shell_exec(\"sh DIR/probe.sh $_SERVER[QUERY_STRING]\");";
const WSGI: &str = r#"
import subprocess
def application(environ, start_response):
    start_response("200 OK", [])
    return [subprocess.run(["sh", "DIR/probe.sh", environ["QUERY_STRING"]], stdout=subprocess.PIPE).stdout]
"#;
const RACK: &str = r#"run(->(env) { [200, {}, [`sh DIR/probe.sh #{env["QUERY_STRING"]}`]] })"#;
const NODE: &str = r#"
const { execFileSync } = require("child_process");
require("http").createServer((request, response) => {
  response.end(execFileSync("sh", ["DIR/probe.sh", request.url.split("?")[1]]));
}).listen(process.env.PORT);
"#;
const CGI: &str =
    "#!/bin/sh\necho 'Content-Type: text/plain'\necho\nexec sh DIR/probe.sh \"$QUERY_STRING\"\n";

const KINDS: [(&str, &str); 7] = [
    (
        "zygote",
        concat!(
            "runtime = \"php\"\nversion = \"",
            env!("FORKYARD_PHP"),
            "\"\npreloader = \"zygote\"\n"
        ),
    ),
    (
        "own",
        concat!(
            "runtime = \"php\"\nversion = \"",
            env!("FORKYARD_PHP"),
            "\"\npreloader = \"own\"\n"
        ),
    ),
    (
        "wsgi",
        "runtime = \"wsgi\"\ninterpreter = \"/usr/bin/python3\"\nroot = \"DIR\"\n",
    ),
    ("rack", "runtime = \"rack\"\nroot = \"DIR\"\n"),
    (
        "node",
        "runtime = \"node\"\nroot = \"DIR\"\nstart_command = \"node app.js\"\n",
    ),
    ("cgi", "runtime = \"cgi\"\nroot = \"DIR\"\n"),
    (
        "fastcgi",
        concat!(
            "runtime = \"fastcgi\"\nroot = \"DIR\"\nstart_command = \"/usr/bin/php-cgi",
            env!("FORKYARD_PHP"),
            "\"\n"
        ),
    ),
];

fn configuration(dir: &Path) -> String {
    let place = dir.display().to_string();
    let files = [
        ("x.php", PHP),
        ("wsgi.py", WSGI),
        ("config.ru", RACK),
        ("app.js", NODE),
        ("x.cgi", CGI),
        ("probe.sh", PROBE),
    ];
    for (name, text) in files {
        write_program(&dir.join(name), text.replace("DIR", &place));
    }
    let pools = KINDS.iter().flat_map(|(name, table)| {
        ["www-data", "nobody"].map(|user| {
            let settings = format!("user = \"{user}\"\npm = \"static\"\nmax_children = 1\n");
            pool(
                dir,
                &format!("{name}-{user}"),
                &settings,
                &table.replace("DIR", &place),
            )
        })
    });
    pools.collect()
}

fn ask(daemon: &Daemon, pool: &str, pids: &[u32]) -> String {
    let script = match pool {
        _ if pool.starts_with("cgi") => "x.cgi",
        _ => "x.php",
    };
    let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
    let params = Params::get(&daemon.dir, script, &pids.join(","));
    daemon.ask(pool, &params).body()
}

fn processes(daemon: &Daemon, user: u32) -> Vec<u32> {
    let mut all = process::children(daemon.pid());
    let below: Vec<u32> = all.iter().flat_map(|pid| process::children(*pid)).collect();
    all.extend(below);
    all.retain(|pid| process::status_line(*pid, "Uid").is_some_and(|line| is_of(&line, user)));
    all
}

fn is_of(line: &str, user: u32) -> bool {
    line.split_whitespace().next() == Some(user.to_string().as_str())
}

fn session(pid: u32) -> i32 {
    getsid(Some(Pid::from_raw(pid as i32)))
        .expect("a session")
        .as_raw()
}

fn autogroup(pid: u32) -> Option<String> {
    fs::read_to_string(format!("/proc/{pid}/autogroup")).ok()
}

#[test]
fn no_worker_is_in_a_session_with_another_users_or_with_the_masters() {
    skip_if!(needs_root());
    let daemon = Daemon::start(configuration);
    let master = daemon.pid();
    let names = |user: &str| KINDS.map(|(kind, _)| format!("{kind}-{user}"));
    for pool in ["www-data", "nobody"].iter().flat_map(|user| names(user)) {
        assert_eq!(ask(&daemon, &pool, &[]), "done\n", "{pool}\n{}", daemon.log());
    }
    let (ones, others) = (processes(&daemon, WWW_DATA), processes(&daemon, NOBODY));
    for pools in [&ones, &others] {
        assert!(
            pools.len() >= KINDS.len() + 4,
            "with a preloader or a program: {pools:?}"
        );
    }
    let sessions = |pids: &[u32]| -> BTreeSet<i32> { pids.iter().copied().map(session).collect() };
    let all = [sessions(&ones), sessions(&others), sessions(&[master])];
    for (one, other) in [(0, 1), (0, 2), (1, 2)] {
        let both: Vec<&i32> = all[one].intersection(&all[other]).collect();
        assert!(both.is_empty(), "{both:?}");
    }
    for (user, targets) in [("www-data", &others), ("nobody", &ones)] {
        let targets: Vec<u32> = targets.iter().copied().chain([master]).collect();
        for pool in names(user) {
            assert_eq!(ask(&daemon, &pool, &targets), "done\n", "{pool}");
        }
    }
    assert!(autogroup(ones[0]).is_none_or(|said| said.ends_with("nice 19\n")));
    for pid in processes(&daemon, ZYGOTES).iter().chain([&master]) {
        let said = autogroup(*pid).unwrap_or_default();
        assert!(
            said.is_empty() || said.ends_with("nice 0\n"),
            "{} {said:?}",
            process::title(*pid)
        );
    }
}

#[test]
fn who_makes_its_session_slow_slows_nobody_else() {
    if needs_root()
        || skip_unless(
            autogroup(std::process::id()).is_some(),
            "the kernel has no autogroup",
        )
    {
        return;
    }
    each(KINDS, |(kind, _)| {
        let daemon = Daemon::start(|dir| {
            let all = configuration(dir);
            let tables = all.split("[pool.").filter(|table| table.starts_with(kind));
            tables.map(|table| format!("[pool.{table}")).collect()
        });
        assert_eq!(ask(&daemon, &format!("{kind}-www-data"), &[]), "done\n");
        let slow = processes(&daemon, WWW_DATA);
        assert!(
            slow.iter()
                .any(|pid| autogroup(*pid).is_some_and(|said| said.ends_with("nice 19\n")))
        );
        // A worker that is starting is still root's, and one that has ended has no group.
        let others = until(&format!("{kind}: the other user's processes"), || {
            let all = processes(&daemon, NOBODY).into_iter();
            let all: Vec<(u32, String)> = all.filter_map(|pid| Some((pid, autogroup(pid)?))).collect();
            (!all.is_empty()).then_some(all)
        });
        for (pid, said) in others {
            assert!(
                said.ends_with("nice 0\n"),
                "{kind} {} {said}",
                process::title(pid)
            );
        }
    });
}
