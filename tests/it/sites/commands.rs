//! Commands for application pools, and who may give which.

use super::{Sites, USERS, visitors};
use crate::support::prelude::*;

fn is_ok(output: &Output) {
    assert!(output.status.success(), "{}", told(output));
}

fn instance(sites: &Sites) -> u32 {
    let all = sites.instances();
    assert_eq!(all.len(), 1, "{all:?}");
    all.into_iter().next().expect("one")
}

#[test]
fn instances_are_restarted_disabled_enabled_and_detached_by_command() {
    let sites = Sites::start("max = 3\nmax_per_app = 1");
    let root = sites.cgi("app", 0, "echo $PPID");
    let root = root.to_str().expect("path").to_owned();
    let first: u32 = sites.body("/app/").trim().parse().expect("pid");
    assert_eq!(instance(&sites), first);
    let status = sites.status();
    let known = &status["book"]["applications"][0];
    assert_eq!(known["name"], root.as_str());
    assert_has(&known["instances"][0], json!({"pid": first, "processed": 1}));
    is_ok(&sites.forkyard(&["restart", "--blocking", &root]));
    let second: u32 = sites.body("/app/").trim().parse().expect("pid");
    assert_ne!(second, first);
    is_ok(&sites.forkyard(&["detach", &second.to_string()]));
    let third: u32 = sites.body("/app/").trim().parse().expect("pid");
    assert_ne!(third, second);
    let refused = sites.forkyard(&["detach", &second.to_string()]);
    assert!(
        !refused.status.success() && told(&refused).contains("no instance"),
        "{}",
        told(&refused)
    );
    let refused = sites.forkyard(&["restart", "/srv/nowhere"]);
    assert!(!refused.status.success(), "{}", told(&refused));
}

#[test]
fn a_disabled_instance_lives_and_gets_nothing() {
    let sites = Sites::start("max = 3\nmin_instances = 2");
    sites.cgi("app", 0, "echo $PPID");
    sites.body("/app/");
    wait_until("two instances", || sites.instances().len() == 2);
    let first = sites.body("/app/").trim().to_owned();
    is_ok(&sites.forkyard(&["disable", &first]));
    is_ok(&sites.forkyard(&["disable", &first]));
    for _ in 0..5 {
        assert_ne!(sites.body("/app/").trim(), first);
    }
    assert!(process::runs(first.parse().expect("pid")));
    is_ok(&sites.forkyard(&["enable", &first]));
    is_ok(&sites.forkyard(&["enable", &first]));
}

#[test]
fn the_total_can_be_changed() {
    let sites = Sites::start("max = 1");
    sites.cgi("a", 0, "sleep 0.1; echo a");
    let load = visitors(sites.nginx.port, &["/a/"], 4);
    load.wait_for(4);
    assert_eq!(sites.instances().len(), 1);
    is_ok(&sites.forkyard(&["resize", "sites", "3"]));
    wait_until("three instances", || sites.instances().len() == 3);
    is_ok(&sites.forkyard(&["resize", "sites", "2"]));
    wait_until("two instances", || sites.instances().len() == 2);
    assert!(load.end().iter().all(|(status, _)| *status == 200));
    assert!(!sites.forkyard(&["resize", "shop", "2"]).status.success());
}

#[test]
fn an_instance_can_be_taken_and_a_taker_that_crashes_costs_it() {
    let sites = Sites::start("max = 1");
    let root = sites.cgi("app", 0, "echo $PPID");
    sites.body("/app/");
    let pid = instance(&sites);
    let take = |input: Stdio| {
        let mut child = Command::new(env!("CARGO_BIN_EXE_forkyard"))
            .args(["take", "--wait", "10s", "--socket"])
            .arg(sites.daemon.dir.join("control.sock"))
            .arg(&root)
            .stdin(input)
            .stdout(Stdio::piped())
            .spawn()
            .expect("forkyard take");
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().expect("output"));
        output.read_line(&mut line).expect("a line");
        let lent: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line:?}"));
        (child, lent)
    };
    let (mut child, lent) = take(Stdio::null());
    assert_eq!(lent["pid"], pid);
    assert!(child.wait().expect("wait").success());
    assert_eq!(sites.body("/app/").trim(), pid.to_string());
    let (mut child, lent) = take(Stdio::piped());
    is_ok(&sites.forkyard(&["return", &lent["lease"].to_string()]));
    let again = sites.forkyard(&["return", &lent["lease"].to_string()]);
    assert!(!again.status.success() && told(&again).contains("no lease"));
    drop(child.stdin.take());
    assert!(child.wait().expect("wait").success());
    assert_eq!(sites.body("/app/").trim(), pid.to_string());
    let (mut child, _) = take(Stdio::piped());
    child.kill().expect("kill");
    child.wait().expect("wait");
    assert_ne!(sites.body("/app/").trim(), pid.to_string());
    wait_until("its end", || !process::runs(pid));
}

#[test]
fn pools_come_and_go_while_the_daemon_runs() {
    let sites = Sites::start("max = 2");
    sites.cgi("app", 0, "echo $PPID");
    let before = sites.body("/app/");
    let program = sites.daemon.dir.join("more.cgi");
    write_program(
        &program,
        "#!/bin/sh\nprintf 'Content-Type: text/plain\\r\\n\\r\\nmore'\n",
    );
    let settings = "pm = \"ondemand\"\nmax_children = 2\n";
    let script = format!("runtime = \"cgi\"\nscript = \"{}\"\n", program.display());
    let file = sites
        .daemon
        .write("more.toml", &pool(&sites.daemon.dir, "more", settings, &script));
    let file = file.to_str().expect("path").to_owned();
    let added = sites.forkyard(&["pool", "add", &file]);
    is_ok(&added);
    assert_contains(&told(&added), "added more");
    assert_eq!(sites.daemon.get("more", "more.cgi").body(), "more");
    let again = sites.forkyard(&["pool", "add", &file]);
    assert!(
        !again.status.success() && told(&again).contains("already"),
        "{}",
        told(&again)
    );
    is_ok(&sites.forkyard(&["pool", "remove", "more", "--immediate"]));
    assert!(!sites.daemon.socket("more").exists());
    assert!(!sites.forkyard(&["pool", "remove", "more"]).status.success());
    assert_eq!(sites.body("/app/"), before);
    let was = instance(&sites);
    is_ok(&sites.forkyard(&["pool", "remove", "sites", "--deadline", "5s"]));
    wait_until("its instance to end", || !process::runs(was));
    wait_until("its router to end", || {
        let children = process::children(sites.daemon.pid());
        children.iter().all(|pid| !process::title(*pid).contains("sites"))
    });
}

fn as_user(sites: &Sites, uid: u32, arguments: &[&str]) -> Output {
    let program = sites.daemon.dir.join("forkyard");
    if !program.exists() {
        let built = Path::new(env!("CARGO_BIN_EXE_forkyard"));
        for name in ["forkyard-top", "forkyard"] {
            crate::support::copy_program(&built.with_file_name(name), &program.with_file_name(name));
        }
    }
    Command::new(program)
        .args([arguments[0], "--socket"])
        .arg(sites.daemon.dir.join("control.sock"))
        .args(&arguments[1..])
        .uid(uid)
        .gid(uid)
        .output()
        .expect("forkyard")
}

#[test]
fn an_application_that_does_not_run_is_started_by_a_command() {
    let sites = Sites::start("max = 4");
    let start = |root: &Path| sites.forkyard(&["restart", "--wait", root.to_str().expect("path")]);
    let good = sites.wsgi("good", 0, "str(os.getpid())");
    let output = start(&good);
    is_ok(&output);
    assert_contains(&told(&output), "is started: a new instance serves");
    let first = instance(&sites);
    assert_eq!(sites.body("/good/"), first.to_string());
    let output = start(&good);
    is_ok(&output);
    assert_contains(&told(&output), "is restarted: 1 new");
    assert_ne!(sites.body("/good/"), first.to_string());
    let broken = sites.add("broken", 0, &[("wsgi.py", "import a_module_that_is_missing\n")]);
    let output = start(&broken);
    assert_eq!(output.status.code(), Some(70), "{}", told(&output));
    assert_contains(&told(&output), "could not be started (error ID ");
    assert_contains(&told(&output), "broken: ");
    let empty = sites.add("empty", 0, &[]);
    let output = start(&empty);
    assert_eq!(output.status.code(), Some(70), "{}", told(&output));
    assert_contains(&told(&output), "is not run by pool sites (error ID ");
    // Once corrected, it starts at once, without its backoff.
    fs::remove_file(broken.join("wsgi.py")).expect("remove");
    let corrected = sites.wsgi("corrected", 0, "'corrected'");
    fs::rename(corrected.join("passenger_wsgi.py"), broken.join("wsgi.py")).expect("rename");
    is_ok(&start(&broken));
    assert_eq!(sites.body("/broken/"), "corrected");
}

#[test]
fn owners_start_their_own_applications_and_no_others() {
    skip_if!(needs_root());
    let sites = Sites::start("max = 4");
    let mine = sites.wsgi("mine", 0, "'mine'");
    let theirs = sites.wsgi("theirs", 1, "'theirs'");
    let start = |root: &Path| {
        as_user(
            &sites,
            USERS[0].1,
            &["restart", "--wait", root.to_str().expect("path")],
        )
    };
    is_ok(&start(&mine));
    assert_eq!(sites.instances().len(), 1);
    let output = start(&theirs);
    assert!(
        !output.status.success() && told(&output).contains("permission denied"),
        "{}",
        told(&output)
    );
    assert_eq!(sites.instances().len(), 1);
}

#[test]
fn owners_may_ask_about_their_own_applications_and_nothing_else() {
    skip_if!(needs_root());
    let sites = Sites::start("max = 4");
    let (mine, theirs) = (
        sites.cgi("mine", 0, "echo $PPID"),
        sites.cgi("theirs", 1, "echo $PPID"),
    );
    let pids = ["/mine/", "/theirs/"].map(|path| sites.body(path).trim().to_owned());
    let (owner, mine, theirs) = (
        USERS[0].1,
        mine.to_str().expect("path"),
        theirs.to_str().expect("path"),
    );
    let output = as_user(&sites, owner, &["status", "--json"]);
    is_ok(&output);
    assert_contains(&told(&output), mine);
    assert_lacks(&told(&output), theirs);
    for view in ["pools", "workers", "applications", "failures"] {
        let output = as_user(
            &sites,
            owner,
            &["top", "--once", "--interval", "1ms", "--view", view],
        );
        is_ok(&output);
        assert_lacks(&told(&output), theirs);
        let shows = told(&output).contains(mine);
        assert_eq!(
            shows,
            view == "workers" || view == "applications",
            "{}",
            told(&output)
        );
    }
    is_ok(&as_user(&sites, owner, &["restart", "--blocking", mine]));
    let next = sites.body("/mine/").trim().to_owned();
    assert_ne!(next, pids[0]);
    is_ok(&as_user(&sites, owner, &["detach", &next]));
    let rows = [
        &["restart", theirs][..],
        &["detach", &pids[1]],
        &["disable", &pids[1]],
        &["reload"],
        &["upgrade"],
        &["resize", "sites", "1"],
        &["take", mine],
    ];
    each(rows, |refused| {
        let output = as_user(&sites, owner, refused);
        assert!(!output.status.success(), "{refused:?}: {}", told(&output));
        assert_contains(&told(&output), "permission denied");
    });
    assert_eq!(sites.body("/theirs/").trim(), pids[1]);
}

#[test]
fn a_restart_is_one_of_all_pools_that_have_the_application() {
    let sites = Sites::start("max = 3");
    let path = sites.daemon.dir.display();
    let other = format!(
        "max = 3\n[pool.other]\nlisten = {{ address = \"{path}/other.sock\", mode = \"0666\" }}\nrouting = \"application\"\n\
             [pool.other.applications]\ndirectories = [\"{path}/apps\"]\nmin_uid = 1\nstat_throttle_rate = 0\n"
    );
    super::changes::reload(&sites, &other, "");
    let root = sites.cgi("app", 0, "echo $PPID");
    let params = || Params::get(&root, "run.cgi", "").with("FORKYARD_APP_ROOT", root.to_str().expect("path"));
    let pids = || {
        ["sites", "other"].map(|pool| {
            let answer = sites.daemon.client(pool).request(&params(), b"");
            answer.expect("an answer").body().trim().to_owned()
        })
    };
    let name = root.to_str().expect("path");
    for arguments in [&["restart", "--blocking", name][..], &["restart", "--wait", name]] {
        let before = pids();
        assert_eq!(before, pids(), "they stay");
        is_ok(&sites.forkyard(arguments));
        let after = pids();
        assert!(
            before.iter().zip(&after).all(|(before, after)| before != after),
            "{arguments:?}: {before:?} {after:?}"
        );
    }
}

const STUCK: &str = r#"
import asyncio, os

async def application(scope, receive, send):
    if scope["type"] == "lifespan":
        while True:
            await send({"type": (await receive())["type"] + ".complete"})
    if scope["query_string"] == b"stuck":
        open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "tmp/begun"), "w").close()
        await asyncio.sleep(600)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": str(os.getpid()).encode()})
"#;

#[test]
fn owners_end_requests_of_their_own_instances() {
    skip_if!(needs_root());
    let sites = Sites::start("max = 4");
    let code = "if ($_GET) { touch(__DIR__ . '/tmp/begun'); sleep(600); } echo getmypid();";
    let slow = sites.php("slow", 0, code);
    let many = sites.add("many", 0, &[("asgi.py", STUCK)]);
    for (path, mark) in [
        ("/slow/", slow.join("tmp/begun")),
        ("/many/", many.join("tmp/begun")),
    ] {
        let pid = sites.body(path).trim().to_owned();
        std::thread::scope(|scope| {
            let answer = scope.spawn(|| sites.get(&format!("{path}?stuck")).0);
            wait_until("the request to run", || mark.exists());
            let refused = as_user(&sites, USERS[1].1, &["terminate", &pid]);
            assert_contains(&told(&refused), "permission denied");
            is_ok(&as_user(&sites, USERS[0].1, &["terminate", &pid]));
            assert_eq!(answer.join().expect("answer"), 504, "{path}");
        });
        let next = sites.body(path).trim().to_owned();
        assert_eq!(next == pid, path == "/many/", "{path}");
    }
}
