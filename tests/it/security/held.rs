//! Resources that a tenant can hold for ever, and root's processes that don't wait for them: the table in
//! docs/explain/security.md.

use crate::skip::needs_fuse;
use crate::support::prelude::*;
use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, connect, listen, socket};
use std::os::fd::OwnedFd;

/// The longest time for one of root's commands while a tenant holds something. A loaded machine needs this much.
pub(super) const SOON: Duration = Duration::from_secs(20);

pub(super) const GAMES: u32 = 5;

struct Fuse {
    server: process::Guard,
    point: process::Mounted,
}

impl Fuse {
    fn mount(dir: &Path) -> Fuse {
        let (source, point) = (dir.join("source"), dir.join("fuse"));
        for path in [&source, &point] {
            make_folder(path);
        }
        let mut command = Command::new("bindfs");
        command.args(["-f", "-o", "allow_other"]).args([&source, &point]);
        let server = command.spawn().expect("Debian package bindfs");
        until("the file system", || {
            let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
            mounts.contains(&*point.to_string_lossy()).then_some(())
        });
        Fuse {
            server: process::Guard::kill(server),
            point: process::Mounted(point),
        }
    }

    fn stop(&self) {
        process::signal(self.server.0.id(), Signal::SIGSTOP);
        wait_until("the file system to stop", || {
            process::state(self.server.0.id()) == Some('T')
        });
    }
}

struct Held {
    daemon: Daemon,
    fuse: Fuse,
    dir: tempfile::TempDir,
}

impl Held {
    fn start(settings: &str, application: &str, source: &str) -> Held {
        let dir = directory();
        let path = dir.path();
        let temporary = path.join("tmp");
        make_folder(&temporary);
        let fuse = Fuse::mount(path);
        let well = path.join("well");
        fs::create_dir(&well).expect("mkdir");
        fs::create_dir(path.join("own")).expect("mkdir");
        fs::write(path.join("own/env"), "A=b\n").expect("write");
        fs::set_permissions(path.join("own/env"), fs::Permissions::from_mode(0o600)).expect("chmod");
        chown(path.join("own"), Some(GAMES), Some(GAMES)).expect("chown");
        chown(path.join("own/env"), Some(GAMES), Some(GAMES)).expect("chown");
        let answer = "def application(environ, start):\n    start('200 OK', [])\n    return [b'well']\n";
        fs::write(well.join("wsgi.py"), answer).expect("write");
        let source = format!(
            "{}\nFUSE = '{}'\n{source}",
            include_str!("held.py"),
            fuse.point.0.display()
        );
        fs::write(path.join("wsgi.py"), source).expect("write");
        let (path_shown, well) = (path.display(), well.display());
        let text = format!(
            "[global]\ncontrol = \"{path_shown}/control.sock\"\n{}{}",
            pool(
                path,
                "www",
                &format!("user = \"games\"\npm = \"ondemand\"\nmax_children = 1\n{settings}")
                    .replace("ROOT", &path_shown.to_string()),
                &match application.is_empty() {
                    true => format!("runtime = \"wsgi\"\nroot = \"{path_shown}\"\n"),
                    false => application.replace("ROOT", &path_shown.to_string()),
                },
            ),
            pool(
                path,
                "quiet",
                "",
                &format!("runtime = \"wsgi\"\nroot = \"{well}\"\n"),
            ),
        );
        fs::write(path.join("forkyard.toml"), text).expect("configuration");
        let mut command = forkyard(&["run"], path);
        command.env("TMPDIR", &temporary);
        let daemon = Daemon::launch(path, command).ready();
        Held { daemon, fuse, dir }
    }

    fn ask(&self) -> Client {
        self.daemon.send("www", &Params::get(self.dir.path(), "x", ""))
    }

    /// Waits until the tenant is ready to hold something, and stops the file system.
    fn hold(&self) {
        wait_until("the tenant", || self.dir.path().join("ready").exists());
        self.fuse.stop();
        fs::write(self.dir.path().join("stopped"), "").expect("write");
    }

    fn is_well(&self) {
        self.answers();
        assert_success(&self.command(&["reload"]));
        self.answers();
    }

    fn answers(&self) {
        let well = Params::get(&self.dir.path().join("well"), "x", "");
        let answer = self.daemon.client("quiet").request(&well, b"");
        assert_eq!(answer.expect("an answer").body(), "well");
        for arguments in [&["status"][..], &["check"], &["status", "--json"]] {
            let output = self.command(arguments);
            assert!(output.status.success(), "{arguments:?}: {output:?}");
        }
    }

    fn command(&self, arguments: &[&str]) -> Output {
        let begun = Instant::now();
        let mut command = Command::new("timeout");
        command.args(["--signal=KILL", "60", env!("CARGO_BIN_EXE_forkyard")]);
        command
            .args(arguments)
            .arg("-c")
            .arg(self.dir.path().join("forkyard.toml"));
        let output = command.output().expect("forkyard");
        let took = begun.elapsed();
        assert!(took < SOON, "{arguments:?} took {took:?}: {output:?}");
        output
    }

    fn named_pid(&self) -> u32 {
        let path = self.dir.path().join("tmp/pid");
        until("a process", || fs::read_to_string(&path).ok()?.parse().ok())
    }

    fn ends_while_held(mut self) -> Daemon {
        self.daemon.signal(Signal::SIGTERM);
        let begun = Instant::now();
        assert!(self.daemon.wait().success());
        let took = begun.elapsed();
        assert!(took < SOON, "it took {took:?}");
        self.daemon
    }

    fn ends(mut self) {
        drop(self.fuse);
        self.daemon.end(Signal::SIGTERM);
    }
}

fn wait_until_held(pid: u32) {
    let sleeps = |_| {
        pause();
        process::state(pid) == Some('D')
    };
    wait_until("a process that holds something", || (0..10).all(sleeps));
}

fn full_socket(path: &Path) -> Vec<OwnedFd> {
    let made = |flags| socket(AddressFamily::Unix, SockType::Stream, flags, None).expect("socket");
    let address = UnixAddr::new(path).expect("an address");
    let listener = made(SockFlag::SOCK_CLOEXEC);
    bind(listener.as_raw_fd(), &address).expect("bind");
    listen(&listener, Backlog::new(0).expect("a backlog")).expect("listen");
    let mut held = vec![listener];
    loop {
        let client = made(SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK);
        match connect(client.as_raw_fd(), &address) {
            Ok(()) => held.push(client),
            Err(nix::errno::Errno::EAGAIN) => return held,
            Err(errno) => panic!("connect: {errno}"),
        }
    }
}

#[test]
fn a_private_socket_whose_queue_is_full_does_not_hold_up_the_next_master() {
    let dir = directory();
    let temporary = dir.path().join("tmp");
    let own = temporary.join("forkyard.app.gone.x");
    fs::create_dir_all(&own).expect("mkdir");
    let held = full_socket(&own.join("socket"));
    let configuration = pool(dir.path(), "www", "", PHP);
    fs::write(dir.path().join("forkyard.toml"), configuration).expect("configuration");
    fs::write(dir.path().join("x.php"), "<?php echo 'hello';").expect("write");
    let mut command = forkyard(&["run"], dir.path());
    command.env("TMPDIR", &temporary);
    let daemon = Daemon::launch(dir.path(), command).ready();
    assert_eq!(daemon.get("www", "x.php").body(), "hello");
    assert!(own.join("socket").exists(), "it is in use");
    drop(held);
}

fn fails_and_holds_nobody_up(source: &str) {
    let held = Held::start("", "", source);
    let mut client = held.ask();
    held.hold();
    assert_contains(&client.answer().expect("an answer").text(), "503");
    held.is_well();
    held.ends();
}

#[test]
fn an_orphan_that_holds_its_memory_does_not_hold_up_the_next_failed_start() {
    let source = "pid = apart(hold_memory, FUSE)\nwait_until_held(pid)\nraise RuntimeError('enough')\n";
    skip_if!(needs_fuse());
    fails_and_holds_nobody_up(source);
}

#[test]
fn a_worker_that_holds_its_memory_holds_up_no_command_and_no_end_of_another() {
    let source = "def application(environ, start):\n    hold_memory(FUSE)\n    start('200 OK', [])\n    return [b'']\n";
    skip_if!(needs_fuse());
    let held = Held::start("", "", source);
    let client = held.ask();
    held.hold();
    wait_until_held(held.daemon.wait_for_workers("www", 1)[0]);
    held.is_well();
    drop(client);
    held.ends();
}

#[test]
fn a_start_that_holds_its_work_directory_does_not_hold_up_the_master() {
    let source = "place = os.environ['FORKYARD_SPAWN_WORK_DIR']\n\
                  pid = apart(hold_directory, FUSE, place)\nwait_until_held(pid)\n\
                  raise RuntimeError('enough')\n";
    skip_if!(needs_fuse());
    fails_and_holds_nobody_up(source);
}

#[test]
fn who_holds_what_a_process_writes_to_does_not_hold_up_the_master() {
    let request = "def application(environ, start):\n    hold_and_end()\n";
    for (descriptor, end) in [
        (1, request),
        (2, request),
        (1, "hold_and_end()\n"),
        (2, "hold_and_end()\n"),
    ] {
        let source = format!(
            "def hold_and_end():\n    wait_until_held(apart(hold_pipe, FUSE, {descriptor}))\n    os._exit(3)\n\n{end}"
        );
        let settings = "catch_workers_output = true\n";
        skip_if!(needs_fuse());
        let held = Held::start(settings, "", &source);
        let client = held.ask();
        held.hold();
        held.daemon.wait_for(if end == request {
            "exited with code 3"
        } else {
            "can't start"
        });
        held.is_well();
        drop(client);
        held.ends();
    }
}

#[test]
fn a_worker_that_holds_what_it_tells_the_master_by_does_not_hold_it_up() {
    let source = "def application(environ, start):\n    hold_all_but_standard_streams()\n    os._exit(3)\n";
    skip_if!(needs_fuse());
    let held = Held::start("", "", source);
    let client = held.ask();
    held.hold();
    held.daemon.wait_for("exited with code 3");
    held.is_well();
    drop(client);
    held.ends();
}

#[test]
fn files_on_the_way_to_which_nothing_answers_do_not_hold_up_the_master() {
    let source = "def application(environ, start):\n    start('200 OK', [])\n    return [b'here']\n";
    let settings = "env_file = \"ROOT/own/env\"\napp_log = \"ROOT/own/app.log\"\n";
    skip_if!(needs_fuse());
    let held = Held::start(settings, "", source);
    let own = held.dir.path().join("own");
    let mut command = Command::new("mount");
    let mounted = command.arg("--bind").args([&held.fuse.point.0, &own]).status();
    assert!(mounted.expect("mount").success());
    let _mount = process::Mounted(own);
    held.fuse.stop();
    let mut client = held.ask();
    assert_contains(&client.answer().expect("an answer").text(), "503");
    held.daemon.wait_for("can't be read in time");
    held.daemon.signal(Signal::SIGUSR1);
    held.daemon.wait_for("can't be opened in time");
    held.is_well();
    held.ends();
}

#[test]
fn an_application_that_holds_its_log_is_held_itself_and_nobody_else() {
    let source = "def application(environ, start):\n    print('before', flush=True)\n    \
                  open(os.path.dirname(FUSE) + '/pid', 'w').write(str(os.getpid()))\n    \
                  wait_until_held(apart(hold_file, FUSE, os.path.dirname(FUSE) + '/own/app.log'))\n    \
                  for number in range(60000):\n        print('line', number, 'x' * 60, flush=True)\n    \
                  start('200 OK', [])\n    return [b'said']\n";
    let settings = "app_log = \"ROOT/own/app.log\"\n";
    skip_if!(needs_fuse());
    let held = Held::start(settings, "", source);
    let mut client = held.ask();
    held.hold();
    let worker = read_file(held.dir.path().join("pid"));
    until("the worker to wait", || {
        let path = format!("/proc/{worker}/wchan");
        fs::read_to_string(path)
            .ok()?
            .contains("sock_alloc")
            .then_some(())
    });
    held.is_well();
    held.daemon.signal(Signal::SIGUSR1);
    held.daemon.wait_for("application log file re-opened");
    process::signal(held.fuse.server.0.id(), Signal::SIGCONT);
    assert_eq!(client.answer().expect("an answer").body(), "said");
    let path = held.dir.path().join("own/app.log");
    let log = until("the last line", || {
        let log = fs::read(&path).ok()?;
        let log = text_of(&log);
        let last = log.trim_end().lines().next_back()?;
        (last.starts_with("line 59999 ") && last.ends_with(&"x".repeat(60))).then_some(log)
    });
    let number = |line: &str| {
        let (_, rest) = line.rsplit_once("line ")?;
        rest.split(' ').next()?.parse::<u32>().ok()
    };
    assert!(log.lines().filter_map(number).eq(0..60_000));
    held.ends();
}

#[test]
fn who_holds_the_log_of_slow_requests_holds_up_no_master() {
    let source = "import http.server\n\
                  class Slow(http.server.BaseHTTPRequestHandler):\n    def do_GET(self):\n        \
                  wait_until_held(apart(hold_file, FUSE, os.path.dirname(FUSE) + '/own/slow.log'))\n        \
                  open(os.path.dirname(FUSE) + '/held', 'w').close()\n        time.sleep(1000)\n\
                  http.server.ThreadingHTTPServer(('127.0.0.1', int(os.environ['PORT'])), Slow).serve_forever()\n";
    let settings = "request_slowlog_timeout = \"4s\"\nslowlog = \"ROOT/own/slow.log\"\n";
    skip_if!(needs_fuse());
    let application = "runtime = \"http\"\nroot = \"ROOT\"\nstart_command = \"/usr/bin/python3 wsgi.py\"\n";
    let held = Held::start(settings, application, source);
    chown(held.dir.path(), Some(GAMES), Some(GAMES)).expect("chown");
    chown(held.dir.path().join("own/slow.log"), Some(GAMES), Some(GAMES)).expect("chown");
    let client = held.ask();
    held.hold();
    wait_until("the log to be held", || held.dir.path().join("held").exists());
    held.daemon.wait_for("executing too slow");
    held.is_well();
    drop(client);
    held.ends();
}

#[test]
fn a_worker_that_can_not_be_killed_does_not_hold_up_the_end_of_the_daemon() {
    let source = "\
def application(environ, start):
    name_pid(os.getpid())
    path = os.path.dirname(FUSE) + '/tmp/file'
    open(path, 'w').close()
    wait_until_held(apart(hold_file, FUSE, path))
    os.write(os.open(path, os.O_WRONLY), b'x')
";
    skip_if!(needs_fuse());
    let held = Held::start("", "", source);
    let client = held.ask();
    held.hold();
    let worker = held.named_pid();
    wait_until_held(worker);
    held.is_well();
    let daemon = held.ends_while_held();
    daemon.wait_for(&format!("[pool www] the daemon ends without child {worker}: "));
    drop(client);
}

#[test]
fn who_holds_a_listening_socket_does_not_hold_up_the_master() {
    let source = "\
def application(environ, start):
    name_pid(apart(hold_socket, FUSE, listening_sockets()[0]))
    start('200 OK', [])
    return [b'']
";
    skip_if!(needs_fuse());
    let port = free_port();
    let listen =
        |backlog: u32| format!("listen = {{ address = \"127.0.0.1:{port}\", backlog = {backlog} }}\n");
    let held = Held::start(&listen(100), "", source);
    let mut client = Client::connect_tcp(&format!("127.0.0.1:{port}")).expect("connect");
    let params = Params::get(held.dir.path(), "x", "");
    client.send(&params, b"").expect("send");
    held.hold();
    wait_until_held(held.named_pid());
    let path = held.dir.path().join("forkyard.toml");
    let text = read_file(&path);
    fs::write(&path, text.replace(&listen(100), &listen(200))).expect("write");
    held.daemon.signal(Signal::SIGUSR2);
    held.daemon
        .wait_for("the socket keeps its old attributes: listen 127.0.0.1");
    held.answers();
    let mut upgrade = Command::new(env!("CARGO_BIN_EXE_forkyard"));
    upgrade.args(["upgrade", "-c"]).arg(&path).stdout(Stdio::null());
    let mut upgrade = upgrade.spawn().expect("forkyard");
    held.daemon.wait_for("taking over from process");
    held.daemon.wait_for("is unchanged: listen 127.0.0.1");
    held.answers();
    held.ends_while_held();
    process::wait(&mut upgrade, "the upgrade's client");
}
