//! Which clients may connect: lists of users and groups on unix sockets, addresses over TCP.

use super::{needs_root, python_as};
use crate::skip::skip_unless;
use crate::support::prelude::*;

const STATIC: &str = "pm = \"static\"\nmax_children = 1\nstatus_path = \"/status\"\n";

const CONNECT: &str = "
import socket, sys
try:
    socket.socket(socket.AF_UNIX).connect(sys.argv[1])
    print('connected')
except PermissionError:
    print('refused')
";

fn connects(name: &str, socket: &Path) -> bool {
    let uid = nix::unistd::User::from_name(name)
        .expect("users")
        .expect(name)
        .uid
        .as_raw();
    let output = python_as(uid, CONNECT, &[&socket.display().to_string()]);
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    assert!(said == "connected" || said == "refused", "{output:?}");
    said == "connected"
}

fn list(socket: &Path) -> Vec<String> {
    let output = Command::new("getfacl")
        .args(["--absolute-names", "--omit-header"])
        .arg(socket)
        .output()
        .expect("getfacl (Debian package acl)");
    let text = text_of(&output.stdout);
    text.lines()
        .filter(|line| !line.is_empty())
        .map(str::to_owned)
        .collect()
}

#[test]
fn a_list_lets_its_users_and_groups_connect_and_nobody_else() {
    skip_if!(needs_root());
    let dir = directory();
    let socket = dir.path().join("www.sock");
    let configuration = |more: &str| {
        let listen = format!(
            "user = \"www-data\"\nlisten = {{ address = \"{}\", mode = \"0600\"{more} }}\n",
            socket.display()
        );
        pool(dir.path(), "www", &format!("{listen}{STATIC}"), PHP)
    };
    let file = dir.path().join("forkyard.toml");
    write_file(
        &file,
        configuration(", acl_users = [\"nobody\", \"games\"], acl_groups = [\"mail\"]"),
    );
    let daemon = Daemon::start_in(dir.path());
    let wanted = [
        "user::rw-",
        "user:games:rw-",
        "user:nobody:rw-",
        "group::---",
        "group:mail:rw-",
        "mask::rw-",
        "other::---",
    ];
    assert_eq!(list(&socket), wanted);
    for (user, may) in [
        ("nobody", true),
        ("games", true),
        ("mail", true),
        ("www-data", false),
        ("daemon", false),
    ] {
        assert_eq!(connects(user, &socket), may, "{user}");
    }
    fs::write(&file, configuration(", acl_users = [\"daemon\"]")).expect("write");
    daemon.signal(Signal::SIGUSR2);
    wait_until("the other list", || {
        list(&socket).contains(&"user:daemon:rw-".to_owned())
    });
    assert!(connects("daemon", &socket) && !connects("nobody", &socket));
    fs::write(&file, configuration(", owner = \"games\"")).expect("write");
    daemon.signal(Signal::SIGUSR2);
    wait_until("no list", || {
        list(&socket) == ["user::rw-", "group::---", "other::---"]
    });
    assert!(connects("games", &socket) && !connects("daemon", &socket));
}

#[test]
fn an_unknown_user_in_a_list_is_an_error_with_its_place() {
    skip_if!(needs_root());
    let dir = directory();
    let listen = format!(
        "listen = {{ address = \"{}/www.sock\", acl_users = [\"no-such-user\"] }}\n",
        dir.path().display()
    );
    let file = dir.path().join("forkyard.toml");
    fs::write(&file, pool(dir.path(), "www", &format!("{listen}{STATIC}"), PHP)).expect("write");
    let output = forkyard(&["check"], dir.path()).output();
    let said = text_of(&output.expect("forkyard").stdout);
    assert_contains(&said, "listen.acl_users: there is no user \"no-such-user\"");
}

/// A TCP pool with an address list, and the answers to clients from 127.0.0.1 and ::1.
fn served(listen: &str, allowed: &str, port: u16) -> (Daemon, bool, bool) {
    let daemon = Daemon::start(|dir| {
        let listen = format!("listen = {{ address = \"{listen}\", allowed_clients = [{allowed}] }}\n");
        pool(dir, "www", &format!("{listen}{STATIC}"), PHP)
    });
    daemon.write("ok.php", "<?php echo 'fine';");
    let params = Params::get(&daemon.dir, "ok.php", "");
    let asks = |address: String| {
        let Ok(mut client) = Client::connect_tcp(&address) else {
            return false;
        };
        client
            .request(&params, b"")
            .is_ok_and(|answer| answer.body() == "fine")
    };
    let (v4, v6) = (asks(format!("127.0.0.1:{port}")), asks(format!("[::1]:{port}")));
    (daemon, v4, v6)
}

fn has_v6() -> bool {
    let has = TcpListener::bind("[::1]:0").is_ok();
    !crate::skip::skip_unless(has, "this machine has no IPv6")
}

#[test]
fn allowed_clients_are_compared_as_addresses_of_both_families() {
    skip_if!(!has_v6());
    let any = free_port();
    let port = any.to_string();
    let (daemon, v4, v6) = served(&port, "\"127.0.0.1\"", any);
    assert_eq!((v4, v6), (true, false));
    daemon.wait_for("ERROR: [pool www] Connection disallowed: IP address '::1' has been dropped.");
    drop(daemon);
    let (daemon, v4, v6) = served(&port, "\"::1\"", any);
    assert_eq!((v4, v6), (false, true));
    daemon.wait_for("ERROR: [pool www] Connection disallowed: IP address '127.0.0.1' has been dropped.");
    drop(daemon);
    let (_daemon, v4, v6) = served(&port, "\"::ffff:127.0.0.1\", \"0:0:0:0:0:0:0:1\"", any);
    assert_eq!((v4, v6), (true, true));
}

#[test]
fn a_refused_client_costs_no_request() {
    skip_if!(!has_v6());
    let port = free_port();
    let (daemon, v4, _) = served(&format!("[::1]:{port}"), "\"::2\"", port);
    assert!(!v4);
    let mut silent: Vec<Client> = (0..5)
        .map(|_| Client::connect_tcp(&format!("[::1]:{port}")).expect("connect"))
        .collect();
    for client in &mut silent {
        assert_eq!(client.read_raw().expect("the end"), b"");
    }
    daemon.wait_for_count("Connection disallowed: IP address '::1' has been dropped.", 5);
    assert_eq!(daemon.workers("www").len(), 1);
}

fn with_status(settings: &str) -> Daemon {
    let daemon = Daemon::start(|dir| {
        let status = "status_listen = \"DIR/status.sock\"\nping.path = \"/ping\"\n";
        pool(dir, "www", &format!("{STATIC}{status}{settings}"), PHP)
    });
    daemon.write("a.php", "<?php echo 'a';");
    daemon
}

#[test]
fn a_record_of_another_version_closes_the_connection() {
    let daemon = with_status("");
    for socket in [daemon.socket("www"), daemon.dir.join("status.sock")] {
        for wire in [&[2, 1, 0, 1, 0, 8, 0, 0][..], &[3, 4, 0, 1, 0, 0, 0, 0]] {
            let mut client = Client::connect(&socket).expect("connect");
            client.send_raw(wire).expect("send");
            assert_eq!(client.read_raw().expect("the end"), b"", "{wire:?}");
        }
    }
    assert_eq!(daemon.get("www", "a.php").body(), "a");
}

#[test]
fn records_that_ask_for_nothing_give_no_more_time() {
    let daemon = with_status("client_timeout = \"1s\"\nkeepalive_timeout = \"2s\"\n");
    let params = Params::get(&daemon.dir, "a.php", "");
    for is_kept in [false, true] {
        let mut client = daemon.client("www").kept();
        if is_kept {
            client.request(&params, b"").expect("an answer");
        }
        until("the connection's end", || {
            client.send_raw(&[1, 6, 0, 7, 0, 0, 0, 0]).err().map(|_| ())
        });
    }
    assert_eq!(daemon.get("www", "a.php").body(), "a");
}

#[test]
fn the_connections_that_were_idle_for_the_longest_go_first() {
    let daemon = with_status("rlimit_files = 64\n");
    let worker = daemon.wait_for_workers("www", 1);
    let params = Params::get(&daemon.dir, "a.php", "");
    let mut clients: Vec<Client> = Vec::new();
    for _ in 0..100 {
        let mut client = daemon.client("www").kept();
        assert_eq!(client.request(&params, b"").expect("an answer").body(), "a");
        clients.push(client);
    }
    assert_eq!(clients[0].read_raw().expect("the end"), b"");
    assert_eq!(clients[99].request(&params, b"").expect("an answer").body(), "a");
    assert_eq!(daemon.workers("www"), worker);
}

/// A connection passed between busy workers keeps its age.
#[test]
fn a_connection_that_is_handed_over_is_given_no_more_time() {
    let settings = "pm = \"static\"\nmax_children = 2\nclient_timeout = \"2s\"\nkeepalive_timeout = \"2s\"\n";
    let daemon = Daemon::start(|dir| pool(dir, "www", settings, PHP));
    daemon.write("a.php", "<?php usleep(3000); echo 'a';");
    // Neither sends a request: one is silent, the other sends records outside of any request.
    let mut silent = UnixStream::connect(daemon.socket("www")).expect("connect");
    silent.set_nonblocking(true).expect("fcntl");
    let mut kept = daemon.client("www").kept();
    let params = Params::get(&daemon.dir, "a.php", "");
    kept.request(&params, b"").expect("an answer");
    let (begun, is_over) = (Instant::now(), AtomicBool::new(false));
    let mut ended = [false, false];
    std::thread::scope(|scope| {
        let _stop = StopAtEnd(&is_over);
        for _ in 0..3 {
            scope.spawn(|| {
                while !is_over.load(Ordering::SeqCst) {
                    assert_eq!(daemon.get("www", "a.php").body(), "a");
                }
            });
        }
        while ended != [true, true] && begun.elapsed() < Duration::from_secs(10) {
            ended[0] |= matches!(silent.read(&mut [0]), Ok(0));
            ended[1] |= kept.send_raw(&[1, 6, 0, 7, 0, 0, 0, 0]).is_err();
            pause();
        }
    });
    assert_eq!(ended, [true, true], "the silent one, the kept one");
}

const SHUT_DOWN: &str = "import os, socket, fcntl\n\
    def shut_down():\n    \
        for fd in map(int, os.listdir('/proc/self/fd')):\n        \
            try:\n            \
                one = socket.socket(fileno=os.dup(fd))\n            \
                if one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):\n                \
                    one.shutdown(socket.SHUT_RDWR if HOW else socket.SHUT_RD)\n            \
                one.detach()\n        \
            except OSError:\n            \
                pass\n";
const WSGI: &str = "def application(environ, start):\n    \
        if environ['QUERY_STRING'] == 'end':\n        \
            shut_down()\n    \
        start('200 OK', [])\n    \
        return [b'well']\n";
const ASGI: &str = "async def application(scope, receive, send):\n    \
        assert scope['type'] == 'http'\n    \
        if scope['query_string'] == b'end':\n        \
            shut_down()\n    \
        await send({'type': 'http.response.start', 'status': 200, 'headers': []})\n    \
        await send({'type': 'http.response.body', 'body': b'well'})\n";

#[test]
fn a_socket_that_was_shut_down_is_seen_and_bound_again() {
    use crate::support::daemon::{Daemon, pool};
    use crate::support::fcgi::Params;
    let pms = [
        "pm = \"static\"\nmax_children = 2\n",
        "pm = \"dynamic\"\nmax_children = 2\nstart_servers = 1\nmin_spare_servers = 1\nmax_spare_servers = 1\n",
        "pm = \"ondemand\"\nmax_children = 2\n",
    ];
    for (runtime, code, both) in [("wsgi", WSGI, true), ("asgi", ASGI, false)] {
        let daemon = Daemon::start(|dir| {
            let file = dir.join("main.py");
            let way = SHUT_DOWN.replace("HOW", if both { "True" } else { "False" });
            fs::write(&file, way + code).expect("write");
            let mut text = with_control(dir);
            for (at, pm) in pms.iter().enumerate() {
                let application = application_in(runtime, dir, "entry = \"main:application\"\n");
                text += &pool(dir, &format!("p{at}"), pm, &application);
            }
            text
        });
        let forkyard = |arguments: &[&str]| {
            let output = daemon.run(arguments);
            let text = [output.stdout, output.stderr].concat();
            (text_of(&text), output.status.code())
        };
        let ask = |name: &str, query: &str| {
            let params = Params::get(&daemon.dir, "x", query);
            daemon.ask(name, &params).body()
        };
        for name in ["p0", "p1", "p2"] {
            let case = format!("{runtime} {name}");
            assert_eq!(ask(name, ""), "well", "{case}");
            assert_eq!(forkyard(&["health", "--ready"]).1, Some(0), "{case}");
            assert_eq!(ask(name, "end"), "well", "{case}");
            let (text, code) = forkyard(&["health", "--ready"]);
            assert!(
                code != Some(0) && text.contains(&format!("{name}: unreachable")),
                "{case}: {text}"
            );
            let (text, _) = forkyard(&["status"]);
            assert!(
                text.contains("a worker has shut the socket down"),
                "{case}: {text}"
            );
            assert!(UnixStream::connect(daemon.socket(name)).is_err(), "{case}");
            let (text, code) = forkyard(&["reload"]);
            assert_eq!(code, Some(0), "{case}: {text}");
            assert!(
                text.contains(&format!("replaced {name}: clients could not reach its socket")),
                "{case}: {text}"
            );
            daemon.wait_for(&format!(
                "[pool {name}] its socket was shut down: it is bound again"
            ));
            assert_eq!(ask(name, ""), "well", "{case}");
            let (text, code) = forkyard(&["health", "--ready"]);
            assert_eq!(code, Some(0), "{case}: {text}");
        }
        let log = daemon.log();
        assert!(
            log.matches("can't accept a connection").count() <= 12,
            "{runtime}: {log}"
        );
        assert!(!log.contains("exited with code"), "{runtime}: {log}");
    }
}

/// Sends a descriptor over a new or inherited socket; prints `sent` or the kernel's error.
const SEND_DESCRIPTOR: &str = "
import array, os, socket, sys
def send(peer):
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [os.open('/dev/null', os.O_RDONLY)]))]
    try:
        peer.sendmsg([b'x'], rights)
        return 'sent'
    except OSError as error:
        return error.strerror
";

#[test]
fn nobody_sends_descriptors_to_the_master() {
    let release = read_file("/proc/sys/kernel/osrelease");
    let mut numbers = release.split('.').map_while(|number| number.parse::<u32>().ok());
    let release = (numbers.next(), numbers.next());
    let is_new = release >= (Some(6), Some(16));
    skip_if!(needs_root() || skip_unless(is_new, "this kernel lets everybody send descriptors"));
    let daemon = Daemon::start(|dir| {
        let application = format!(
            "{SEND_DESCRIPTOR}\ndef application(environ, start):\n    start('200 OK', [])\n    \
             return [' '.join(send(socket.socket(fileno=os.dup(fd))) for fd in (1, 2)).encode()]\n"
        );
        fs::write(dir.join("wsgi.py"), application).expect("write");
        let keys = application_in("wsgi", dir, "");
        let settings = "pm = \"static\"\nmax_children = 1\ncatch_workers_output = true\n";
        let pool = pool(dir, "www", settings, &keys);
        fs::create_dir(dir.join("apps")).expect("mkdir");
        let dir = dir.display();
        let sites = format!(
            "[pool.sites]\nlisten = \"{dir}/sites.sock\"\nrouting = \"application\"\n\
             [pool.sites.applications]\ndirectories = [\"{dir}/apps\"]\n"
        );
        format!("[global]\ncontrol = \"{dir}/control.sock\"\n{pool}{sites}")
    });
    let refused = "Operation not permitted";
    let said = daemon.ask("www", &Params::get(&daemon.dir, "x", "")).body();
    assert_eq!(said, format!("{refused} {refused}"));
    let connect = format!(
        "{SEND_DESCRIPTOR}\npeer = socket.socket(socket.AF_UNIX)\npeer.connect(sys.argv[1])\nprint(send(peer))\n"
    );
    for (name, uid) in [
        ("control.sock", 0),
        ("control.sock.owners", 65534),
        ("www.sock", 65534),
    ] {
        let output = python_as(uid, &connect, &[&daemon.dir.join(name).display().to_string()]);
        let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        assert_eq!(said, refused, "{name}: {output:?}");
    }
}

/// O_NONBLOCK belongs to the socket: a worker blocked in accept(2) neither reports that it is ready nor receives the
/// order to finish.
#[test]
fn code_that_has_accept_block_does_not_hold_up_a_restart() {
    skip_if!(needs_root());
    let code = "import os, socket
def application(environ, start):
    for number in map(int, os.listdir('/proc/self/fd')):
        path = f'/proc/self/fd/{number}'
        if os.path.lexists(path) and os.readlink(path).startswith('socket:'):
            it = socket.socket(fileno=os.dup(number))
            if it.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                os.set_blocking(number, True)
            it.close()
    start('200 OK', [])
    return [b'well']
";
    let daemon = Daemon::start(|dir| {
        fs::write(dir.join("wsgi.py"), code).expect("write");
        let keys = application_in("wsgi", dir, "");
        let timeout = "process_control_timeout = \"300s\"\n";
        let pool = pool(dir, "www", "pm = \"static\"\nmax_children = 1\n", &keys);
        with_control(dir) + timeout + &pool
    });
    let well = || {
        let answer = daemon
            .client("www")
            .request(&Params::get(&daemon.dir, "x", ""), b"");
        assert_eq!(answer.expect("an answer").body(), "well");
    };
    well();
    let mut restart = Command::new("timeout");
    restart.args([
        "20",
        env!("CARGO_BIN_EXE_forkyard"),
        "restart",
        "www",
        "--wait",
        "-c",
    ]);
    let restart = restart.arg(daemon.dir.join("forkyard.toml")).output();
    assert_success(&restart.expect("forkyard"));
    well();
}
