//! The daemon reads an application's own settings as its user, and reports refusals to the operator alone.

use super::hands::as_user;
use super::{Sites, USERS};
use crate::support::prelude::*;

const SPY: &str = "#include <fcntl.h>\n#include <stdio.h>\n#include <unistd.h>\n\
    __attribute__((constructor)) static void look(void) {\n\
    char line[32]; int n = snprintf(line, sizeof line, \"%d\\n\", (int)geteuid());\n\
    int f = open(NOTES, O_WRONLY | O_APPEND); if (f >= 0) { if (write(f, line, n) < 0) return; close(f); } }\n";

fn compile_spy(dir: &Path, notes: &Path) -> String {
    let (source, library) = (dir.join("spy.c"), dir.join("spy.so"));
    fs::write(&source, SPY).expect("source");
    let name = format!("-DNOTES=\"{}\"", notes.display());
    let mut compiler = Command::new("cc");
    compiler
        .args(["-shared", "-fPIC", &name, "-o"])
        .arg(&library)
        .arg(&source);
    assert!(compiler.status().expect("cc").success());
    library.display().to_string()
}

#[test]
fn a_router_or_inspector_that_is_stopped_is_replaced() {
    let sites = Sites::start("max = 2");
    sites.cgi("app", 0, "echo app");
    assert_eq!(sites.body("/app/"), "app\n");
    for which in ["router", "inspector"] {
        let before = sites.companion(which);
        process::signal(before, Signal::SIGSTOP);
        sites.daemon.wait_for(&format!(
            "the {which} (pid {before}) was stopped by a signal and is replaced"
        ));
        wait_until("another", || !process::runs(before));
        assert_ne!(sites.companion(which), before);
        sites.cgi(&format!("after-{which}"), 0, "echo new");
        wait_until("an answer", || {
            sites.get(&format!("/after-{which}/")) == (200, "new\n".to_owned())
        });
        assert_eq!(sites.body("/app/"), "app\n");
    }
}

#[test]
fn no_application_runs_as_the_user_of_the_router() {
    skip_if!(needs_root());
    let sites = Sites::start("max = 2");
    let root = sites.cgi("app", 0, "id -u");
    let router = process::status_line(sites.companion("router"), "Uid").expect("status");
    let uid: u32 = router
        .split_whitespace()
        .next()
        .and_then(|uid| uid.parse().ok())
        .expect("a user");
    let owned = |uid: u32| {
        for name in ["", "tmp", "run.cgi", "forkyard.toml"] {
            chown(root.join(name), Some(uid), Some(uid)).expect("chown");
        }
    };
    owned(uid);
    let (status, _) = sites.get("/app/");
    assert_ne!(status, 200, "{}", sites.daemon.log());
    sites.daemon.wait_for(&format!(
        "it would run as user {uid}, which the router also runs as"
    ));
    owned(33);
    wait_until("its owner's application", || {
        sites.get("/app/") == (200, "33\n".to_owned())
    });
}

#[test]
fn what_an_application_preloads_never_runs_as_root() {
    skip_if!(needs_root());
    let sites = Sites::start("max = 6");
    let notes = sites.daemon.dir.join("notes");
    fs::write(&notes, "").expect("notes");
    fs::set_permissions(&notes, fs::Permissions::from_mode(0o666)).expect("chmod");
    let spy = compile_spy(&sites.daemon.dir, &notes);
    let own = |more: &str| format!("{more}env = {{ LD_PRELOAD = \"{spy}\", GREETING = \"hello\" }}\n");
    let python = "import os\ndef application(environ, start_response):\n    start_response('200 OK', [])\n    \
                  return [os.environ['GREETING'].encode()]\n";
    let shell = "#!/bin/sh\nprintf 'Content-Type: text/plain\\r\\n\\r\\n'\necho \"$GREETING\"\n";
    let ruby = "run ->(env) { [200, {}, [ENV['GREETING']]] }\n";
    let cgi = own("runtime = \"cgi\"\nentry = \"run.cgi\"\n");
    sites.add(
        "php",
        0,
        &[
            ("index.php", "<?php echo getenv('GREETING');"),
            ("forkyard.toml", &own("")),
        ],
    );
    sites.add(
        "python",
        0,
        &[("passenger_wsgi.py", python), ("forkyard.toml", &own(""))],
    );
    sites.add("ruby", 0, &[("config.ru", ruby), ("forkyard.toml", &own(""))]);
    sites.add("cgi", 0, &[("run.cgi", shell), ("forkyard.toml", &cgi)]);
    let node = "require('http').createServer((request, answer) => answer.end(process.env.GREETING))\
                .listen(process.env.PORT, '127.0.0.1')\n";
    sites.add("node", 0, &[("app.js", node), ("forkyard.toml", &own(""))]);
    for name in ["php", "python", "ruby", "cgi", "node"] {
        assert_eq!(sites.body(&format!("/{name}/")).trim(), "hello", "{name}");
    }
    let user = USERS[0].1.to_string();
    let seen = read_file(&notes);
    assert!(
        seen.lines().count() > 0 && seen.lines().all(|line| line == user),
        "{seen}"
    );
}

#[test]
fn a_mistake_is_told_to_the_operator_and_serves_once_it_is_corrected() {
    let sites = Sites::start("max = 2");
    let file = sites.php("shop", 0, "echo 'shop';").join("forkyard.toml");
    let write = |text: &str| {
        fs::write(&file, text).expect("write");
        if is_root() {
            chown(&file, Some(USERS[0].1), Some(USERS[0].1)).expect("chown");
        }
    };
    write("max_instance = 1\n");
    let (status, body) = sites.get("/shop/");
    assert_ne!(status, 200);
    assert_lacks(&body, "forkyard.toml");
    assert_lacks(&body, "apps");
    let wanted = format!(
        "{}:1:1: error: max_instance: unknown key; did you mean min_instances?",
        file.display()
    );
    wait_until("the reason", || sites.daemon.log().contains(&wanted));
    write("max_per_app = 1\n");
    wait_until("the application", || {
        sites.get("/shop/") == (200, "shop".to_owned())
    });
}

/// Bodies of two requests on one connection; `None` if it closed early.
fn twice(sites: &Sites, name: &str) -> [Option<String>; 2] {
    let root = sites.daemon.dir.join("apps").join(name);
    let params = Params::get(&root, "index.php", "").with("FORKYARD_APP_ROOT", &root.display().to_string());
    let mut client = sites.daemon.client("sites").kept();
    [(); 2].map(|()| {
        let answer = client.request(&params, b"").ok()?;
        answer.ended.then(|| answer.body())
    })
}

#[test]
fn where_users_are_not_switched_all_run_as_one_and_connections_are_kept() {
    skip_if!(needs_root());
    let keys = format!("max = 4\ndefault_user = \"{}\"", USERS[0].0);
    let sites = Sites::start(&format!("{keys}\nuser_switching = false"));
    let owner = USERS[1].1.to_string();
    let stand_in = USERS[0].1.to_string();
    assert_ne!(owner, stand_in);
    sites.php("shop", 1, "echo posix_geteuid();");
    assert_eq!(twice(&sites, "shop"), [Some(stand_in.clone()), Some(stand_in)]);
    super::changes::reload(&sites, &keys, "");
    wait_until("the owner", || {
        twice(&sites, "shop") == [Some(owner.clone()), None]
    });
}

#[test]
fn an_application_of_roots_is_refused_or_runs_as_the_default_user() {
    skip_if!(needs_root());
    let code = "<?php echo posix_geteuid();";
    let of_root = |sites: &Sites| {
        let root = sites.add("rooted", 0, &[("index.php", code)]);
        for path in [root.clone(), root.join("index.php")] {
            chown(path, Some(0), Some(0)).expect("chown");
        }
        root
    };
    let sites = Sites::start("max = 2");
    let root = of_root(&sites);
    let (status, body) = sites.get("/rooted/");
    assert!(status >= 400 && !body.contains("user 0"), "{status} {body}");
    let reason = format!(
        "{} belongs to root (user 0), whom applications do not run as",
        root.display()
    );
    wait_until("the reason", || sites.daemon.log().contains(&reason));
    drop(sites);
    let sites = Sites::start("max = 2\ndefault_user = \"www-data\"");
    of_root(&sites);
    assert_eq!(sites.body("/rooted/"), USERS[0].1.to_string());
}

#[test]
fn an_interpreter_of_another_member_of_the_group_is_not_run() {
    skip_if!(needs_root());
    let sites = Sites::start("max = 2");
    let root = sites.wsgi("shop", 0, "str(os.geteuid())");
    chown(&root, Some(USERS[0].1), Some(USERS[1].1)).expect("chown");
    fs::set_permissions(&root, fs::Permissions::from_mode(0o775)).expect("chmod");
    let mark = sites.daemon.dir.join("mark");
    let interpreter = format!("#!/bin/sh\nid -u >{}\n", mark.display());
    let made = sites.daemon.dir.join("python");
    write_program(&made, &interpreter);
    fs::set_permissions(&sites.daemon.dir, fs::Permissions::from_mode(0o777)).expect("chmod");
    let (root, made) = (root.display(), made.display());
    as_user(
        1,
        &format!("mkdir -p {root}/venv/bin; cp {made} {root}/venv/bin/python"),
    );
    let (status, body) = sites.get("/shop/");
    assert_ne!(status, 200, "{body}");
    let reason = format!("{root}/venv belongs to user {}", USERS[1].1);
    wait_until("the reason", || sites.daemon.log().contains(&reason));
    assert!(
        !mark.exists(),
        "it was run as {}",
        fs::read_to_string(&mark).unwrap_or_default()
    );
    fs::remove_dir_all(format!("{root}/venv")).expect("rm");
    wait_until("the application", || {
        sites.get("/shop/") == (200, USERS[0].1.to_string())
    });
}

#[test]
fn a_look_for_which_there_is_no_process_is_no_refusal() {
    skip_if!(needs_root());
    let sites = Sites::start("max = 2");
    sites.php("shop", 0, "echo 'shop';");
    let inspector = sites.companion("inspector");
    let [uid, gid] = until("its user", || {
        Some(process::user_and_group(inspector)).filter(|[uid, _]| uid != "0")
    });
    let limit = |processes: &str| {
        let mut prlimit = Command::new("setpriv");
        prlimit
            .args(["--reuid", &uid, "--regid", &gid, "--clear-groups", "prlimit"])
            .args(["--pid", &inspector.to_string(), &format!("--nproc={processes}")]);
        assert!(prlimit.status().expect("prlimit").success());
    };
    limit("0:");
    exited(503, sites.get("/shop/"));
    limit("4000:");
    assert_eq!(sites.body("/shop/"), "shop");
}
