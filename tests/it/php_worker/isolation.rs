//! State that could leak from one request to the next.

use super::connections::beside_a_server;
use super::states::{POOLS, twice};
use super::{ONE, ask, both, case, say, worker_pool, write_script};
use crate::support::prelude::*;

const SESSIONS: &str = "\"session.save_path\" = \"DIR\", \"session.gc_probability\" = \"0\", \"session.use_strict_mode\" = \"0\"";

#[test]
fn what_php_forgets_with_a_request_is_forgotten() {
    let daemon = both(
        "",
        "php_value = { max_execution_time = \"30\", register_argc_argv = \"1\" }\n",
    );
    assert_eq!(
        twice(&daemon, "leftovers", "a"),
        r#"[false,0,0,"30",0,true,true,["case=leftovers&a"]]"#
    );
    for pool in POOLS {
        let said = say(&daemon, pool, "rewritten", "left=secret");
        assert!(said.contains("secret") && said.contains("own"), "{pool}: {said}");
        let said = say(&daemon, pool, "rewritten", "");
        assert!(!said.contains("secret") && said.contains("own"), "{pool}: {said}");
    }
}

#[test]
fn the_environment_of_a_request_is_its_own() {
    let daemon = both(
        "env = { OWN = \"pool\" }\n",
        "php_admin_value = { variables_order = \"EGPCS\" }\n",
    );
    let with = case(&daemon, "environment", "").with("HTTP_COOKIE", "a=1");
    let without = case(&daemon, "environment", "");
    for _ in 0..2 {
        let said = ask(&daemon, "loop", &with, b"").body();
        assert_eq!(said, r#"["a=1","a=1",null,"pool","pool"]"#);
        let said = ask(&daemon, "www", &with, b"").body();
        assert_eq!(said, r#"["a=1","a=1","a=1","pool","pool"]"#);
        for pool in POOLS {
            let said = ask(&daemon, pool, &without, b"").body();
            assert_eq!(said, r#"[false,null,null,"pool","pool"]"#, "{pool}");
        }
    }
}

#[test]
fn sessions_of_a_handler_of_the_applications_are_their_users() {
    let daemon = both("", &format!("php_admin_value = {{ {SESSIONS} }}\n"));
    for pool in POOLS {
        let hold = |id: &str, token: &str| {
            say(
                &daemon,
                pool,
                "save handler",
                &format!("id={pool}{id}&token={token}"),
            )
        };
        assert_eq!(hold("a", "x"), "[]", "{pool}");
        assert_eq!(hold("b", "y"), "[]", "{pool}");
        assert_eq!(hold("a", "z"), r#"{"x":1}"#, "{pool}");
        for fails in ["exit", "throw"] {
            let query = format!("id={pool}a&token=lost&fails={fails}");
            let answer = ask(&daemon, pool, &case(&daemon, "save handler", &query), b"");
            assert!(answer.ended, "{pool} {fails}");
            assert_eq!(hold("b", "y"), r#"{"y":1}"#, "{pool} {fails}");
            assert_eq!(hold("a", "x"), r#"{"x":1,"z":1}"#, "{pool} {fails}");
        }
    }
}

#[test]
fn a_session_that_begins_by_itself_is_the_users() {
    let application = format!("php_admin_value = {{ {SESSIONS}, \"session.auto_start\" = \"1\" }}\n");
    let daemon = both("", &application);
    for pool in POOLS {
        let of = |user: &str| {
            let params = case(&daemon, "auto session", &format!("token={user}"));
            let params = match user {
                "none" => params,
                _ => params.with("HTTP_COOKIE", &format!("PHPSESSID={pool}{user}")),
            };
            ask(&daemon, pool, &params, b"")
        };
        for data in ["[]", "{\"alice\":1}"] {
            assert_eq!(of("alice").body(), format!("{data} {pool}alice"));
            let answer = of("none");
            assert_starts(&answer.body(), "[] ");
            assert_lacks(&answer.body(), "alice");
            assert_contains(&answer.text(), "Set-Cookie: PHPSESSID=");
        }
    }
}

/// `GHSA-r3xh-3r3w-47gp`: the previous session's data was readable before `session_start()`. `GHSA-v3ph-cgqh-r8p5`: the
/// previous session's id replaced the cookie's.
#[test]
fn ghsa_r3xh_3r3w_47gp_and_ghsa_v3ph_cgqh_r8p5_no_session_of_another_user() {
    let daemon = both("", &format!("php_admin_value = {{ {SESSIONS} }}\n"));
    let of = |pool: &str, user: &str| {
        let params = case(&daemon, "own session", &format!("token={user}token"));
        let cookie = format!("PHPSESSID={pool}{user}");
        ask(&daemon, pool, &params.with("HTTP_COOKIE", &cookie), b"").body()
    };
    for pool in POOLS {
        for round in 0..2 {
            for user in ["alice", "bob"] {
                let data = match round {
                    0 => "[]".to_owned(),
                    _ => format!(r#"{{"secret":"{user}token"}}"#),
                };
                assert_eq!(of(pool, user), format!(r#"[null,"",{data},"{pool}{user}"]"#));
            }
        }
        let said = ask(&daemon, pool, &case(&daemon, "own session", "token=x"), b"").body();
        assert_starts(&said, r#"[null,"",[],""#);
        assert_lacks(&said, "secret");
        assert_lacks(&said, "token");
    }
}

/// `GHSA-g966-83w7-6w38` (CVE-2026-24895): letters that are longer in lower case moved the end of the script's name.
/// `GHSA-3g8v-8r37-cgjm` (CVE-2026-45062): letters that look like `.php` were taken for it.
#[test]
fn ghsa_g966_83w7_6w38_and_ghsa_3g8v_8r37_cgjm_no_other_file_is_run() {
    let daemon = both("", "");
    for name in [
        "upload\u{fe52}php",
        "upload.\u{24df}\u{24d7}\u{24df}",
        "\u{23a}\u{23a}\u{23a}\u{23a}shell.txt",
    ] {
        daemon.write(name, "<?php echo 'EXECUTED';");
        for rest in ["", ".php", "/x.php", "/.php"] {
            let script = format!("{name}{rest}");
            let params = Params::get(&daemon.dir, &script, "token=t");
            assert_eq!(ask(&daemon, "loop", &params, b"").body(), "hello t", "{script}");
            let answer = ask(&daemon, "www", &params, b"").text();
            assert!(answer.starts_with("Status: 40"), "{script}: {answer}");
        }
    }
}

#[test]
fn output_of_one_answer_is_not_in_the_next_however_it_is_buffered() {
    let daemon = both(
        "",
        "php_admin_value = { output_buffering = \"16\", implicit_flush = \"1\" }\n",
    );
    for pool in POOLS {
        for token in ["one", "two"] {
            let params = case(&daemon, "response", &format!("token={token}"));
            let text = ask(&daemon, pool, &params, b"").text();
            assert_contains(&text, &format!("X-Left: {token}"));
            let answer = ask(&daemon, pool, &case(&daemon, "", "token=next"), b"");
            assert_eq!(answer.body(), "hello next");
            assert_lacks(&answer.text(), "X-Left");
        }
    }
}

const BETWEEN: &str = r#"<?php require __DIR__ . '/state.php';
while (forkyard_handle_request('handle')) {
    $seen = [getenv('HTTP_COOKIE'), isset(getenv()['HTTP_COOKIE']), getallheaders(), file_get_contents('php://input'),
        fastcgi_finish_request(), frankenphp_response_headers(), forkyard_worker()['requests'] > 0, filter_input(INPUT_GET, 'token')];
    file_put_contents(__DIR__ . '/between', json_encode($seen));
    echo 'printed between';
    header('X-Between: 1');
    setcookie('between', '1');
    http_response_code(500);
    ob_start();
    echo 'buffered between';
    session_save_path(__DIR__ . '/sessions');
    @session_start();
    $_SESSION['between'] = 1;
    error_log('logged between');
    register_shutdown_function(fn () => print('late'));
}
"#;

#[test]
fn what_the_script_does_between_two_requests_is_in_no_answer() {
    let daemon = Daemon::start(|dir| {
        write_script(dir, BETWEEN);
        fs::write(dir.join("between"), "").expect("write");
        fs::create_dir(dir.join("sessions")).expect("mkdir");
        for path in ["between", "sessions"] {
            make_writable(&dir.join(path));
        }
        let settings = format!("{ONE}catch_workers_output = true\n");
        worker_pool(dir, "www", "worker.php", &settings, "")
    });
    let params = case(&daemon, "session before", "token=one").with("HTTP_COOKIE", "a=1");
    let first = say(&daemon, "www", "pid", "");
    for _ in 0..3 {
        let answer = ask(&daemon, "www", &params, b"");
        assert_eq!(answer.body(), r#"[true,"",null]"#);
        assert_lacks(&answer.text().to_lowercase(), "between");
        assert_lacks(&answer.text(), "Status");
        until("what was seen", || {
            let seen = fs::read_to_string(daemon.dir.join("between")).ok()?;
            (seen == r#"[false,false,[],"",false,[],true,null]"#).then_some(())
        });
    }
    assert_eq!(
        say(&daemon, "www", "pid", ""),
        first,
        "the worker has not crashed"
    );
    daemon.wait_for("printed between");
}

#[test]
fn in_a_chroot_the_script_boots_inside() {
    skip_if!(needs_root());
    let daemon = Daemon::start(|dir| {
        let root = dir.join("root");
        fs::create_dir_all(root.join("app")).expect("mkdir");
        let script = "<?php $found = [__FILE__, file_exists('/etc/passwd')]; require '/app/state.php';\n\
                      while (forkyard_handle_request(function () use ($found) {\n\
                      if (($_GET['case'] ?? '') !== 'root') { return handle(); }\n\
                      echo json_encode([...$found, getcwd(), is_dir('/app')]); }));";
        write_script(dir, script);
        for name in ["worker.php", "state.php"] {
            fs::rename(dir.join(name), root.join("app").join(name)).expect("rename");
        }
        let settings = format!("{ONE}chroot = \"{}\"\nchdir = \"/app\"\n", root.display());
        let application = "watch = [\"/app/*.php\"]\nwarm_up_requests = [\"/\"]\n";
        worker_pool(dir, "www", "worker.php", &settings, application)
            .replace(&format!("{}/worker.php", dir.display()), "/app/worker.php")
    });
    let expected = json!(["/app/worker.php", false, "/app", true]);
    for _ in 0..2 {
        let said = say(&daemon, "www", "root", "");
        let said: Value = serde_json::from_str(&said).unwrap_or_else(|_| panic!("{said}"));
        assert_eq!(said, expected);
    }
    assert_eq!(say(&daemon, "www", "", "token=t"), "hello t");
    daemon.write(
        "root/app/state.php",
        "<?php function handle() { echo 'another'; }",
    );
    until("another boot", || {
        (say(&daemon, "www", "", "") == "another").then_some(())
    });
}

#[test]
fn connections_of_the_boot_are_shared_where_that_is_wished() {
    let script = "<?php $boot = stream_socket_client('unix://' . __DIR__ . '/server.sock');\n\
                  while (forkyard_handle_request(function () use ($boot) {\n\
                  fwrite($boot, \"ask\\n\"); echo fgets($boot); }));";
    let (daemon, listener) = beside_a_server(script, |dir| {
        worker_pool(dir, "www", "worker.php", ONE, "boot_connections = \"keep\"\n")
    });
    let (of_boot, _) = listener.accept().expect("accept");
    std::thread::spawn(move || {
        let mut write = of_boot.try_clone().expect("dup");
        for (count, _) in BufReader::new(of_boot).lines().map_while(Result::ok).enumerate() {
            writeln!(write, "answer {count}").expect("write");
        }
    });
    for count in 0..3 {
        assert_eq!(daemon.get("www", "any.php").body(), format!("answer {count}\n"));
    }
    assert_lacks(&daemon.log(), "left connections open");
}
