//! Descriptors sent by a tenant: root's processes never do their last close, which can block.

use super::held::{GAMES, SOON};
use super::{NOBODY, needs_root, python_as};
use crate::support::prelude::*;

const SENT: &str = include_str!("sent.py");

/// Sends on request and, if the file `attack` exists, while it is loaded.
const APPLICATION: &str = "
def wait_for(name):
    while not os.path.exists(f'{PLACE}/{name}'):
        time.sleep(0.01)

def say(name):
    open(f'{PLACE}/own/{name}.new', 'w').close()
    os.rename(f'{PLACE}/own/{name}.new', f'{PLACE}/own/{name}')

if os.path.exists(f'{PLACE}/attack'):
    say('loaded')
    wait_for('stopped')
    send_everywhere(PORT)
    say('sent')

def application(environ, start):
    if environ['QUERY_STRING'] == 'hello':
        start('200 OK', [])
        return [b'hello']
    count = send_everywhere(PORT)
    if environ['QUERY_STRING'] == 'end':
        say('ends')
        os._exit(3)
    start('200 OK', [])
    return [str(count).encode()]
";

struct Sent {
    daemon: Daemon,
    dir: tempfile::TempDir,
    port: TcpListener,
}

impl Sent {
    /// `is_old`: the daemon sees a kernel before 6.16.
    fn start(is_old: bool) -> Sent {
        let dir = directory();
        let path = dir.path();
        for name in ["well", "own"] {
            fs::create_dir(path.join(name)).expect("mkdir");
        }
        chown(path.join("own"), Some(GAMES), Some(GAMES)).expect("chown");
        let port = TcpListener::bind("127.0.0.1:0").expect("a port");
        let number = port.local_addr().expect("an address").port();
        let source = format!(
            "{SENT}\nimport time\nPORT = {number}\nPLACE = '{}'\n{APPLICATION}",
            path.display()
        );
        fs::write(path.join("wsgi.py"), source).expect("write");
        let answer = "def application(environ, start):\n    start('200 OK', [])\n    return [b'well']\n";
        fs::write(path.join("well/wsgi.py"), answer).expect("write");
        Sent::configure(path, true);
        let plain = forkyard(&["run"], path);
        let command = match is_old {
            false => plain,
            true => {
                let mut command = Command::new("/usr/bin/python3");
                command.args(["-c", include_str!("../../support/kernel.py")]);
                command.arg(plain.get_program()).args(plain.get_args());
                command
            }
        };
        let daemon = Daemon::launch(path, command).ready();
        Sent { daemon, dir, port }
    }

    fn configure(path: &Path, has_tenant: bool) {
        let shown = path.display();
        let tenant = pool(
            path,
            "www",
            "user = \"games\"\npm = \"static\"\nmax_children = 1\ncatch_workers_output = true\n",
            &format!("runtime = \"wsgi\"\nroot = \"{shown}\"\n"),
        );
        let quiet = pool(
            path,
            "quiet",
            "",
            &format!("runtime = \"wsgi\"\nroot = \"{shown}/well\"\n"),
        );
        let sites = format!(
            "[pool.sites]\nlisten = \"{shown}/sites.sock\"\nrouting = \"application\"\n\
             [pool.sites.applications]\ndirectories = [\"{shown}/own\"]\n"
        );
        let tenant = if has_tenant { &tenant } else { "" };
        let text = format!("[global]\ncontrol = \"{shown}/control.sock\"\n{tenant}{quiet}{sites}");
        fs::write(path.join("forkyard.toml"), text).expect("configuration");
    }

    /// Runs `act` while the master is stopped, so that the sender has closed its descriptors before the master receives
    /// them.
    fn while_stopped<T>(&self, act: impl FnOnce() -> T) -> T {
        self.daemon.signal(Signal::SIGSTOP);
        wait_until("the master to stop", || {
            process::state(self.daemon.pid()) == Some('T')
        });
        let done = act();
        self.daemon.signal(Signal::SIGCONT);
        done
    }

    fn says(&self, name: &str) {
        let said = self.dir.path().join("own").join(name);
        wait_until(name, || said.exists());
        fs::remove_file(said).expect("unlink");
    }

    fn is_well(&self) {
        let well = Params::get(&self.dir.path().join("well"), "x", "");
        let answer = self.daemon.client("quiet").request(&well, b"");
        assert_eq!(answer.expect("an answer").body(), "well");
        for arguments in [&["status"][..], &["reload"]] {
            let begun = Instant::now();
            let mut command = Command::new("timeout");
            command.args(["--signal=KILL", "60", env!("CARGO_BIN_EXE_forkyard")]);
            command.args(arguments).arg("-c");
            let output = command.arg(self.dir.path().join("forkyard.toml")).output();
            let took = begun.elapsed();
            let output = output.expect("forkyard");
            assert!(
                output.status.success() && took < SOON,
                "{arguments:?} took {took:?}: {output:?}"
            );
        }
    }

    fn ask(&self, query: &str) -> Client {
        let params = Params::get(self.dir.path(), "x", query);
        self.daemon.send("www", &params)
    }
}

fn no_last_close_is_the_masters(is_old: bool) {
    skip_if!(needs_root());
    let mut sent = Sent::start(is_old);
    let path = sent.dir.path().to_owned();
    let hello = || sent.ask("hello").answer().expect("an answer").body();
    assert_eq!(hello(), "hello");
    let count = sent.while_stopped(|| sent.ask("").answer().expect("an answer").body());
    let count: u32 = count.parse().expect("a number");
    assert!(count > if is_old { 2 } else { 0 }, "{count}: nothing was tried");
    sent.is_well();
    let client = sent.while_stopped(|| {
        let client = sent.ask("end");
        sent.says("ends");
        client
    });
    drop(client);
    sent.daemon.wait_for("exited with code 3");
    sent.is_well();
    let number = sent.port.local_addr().expect("an address").port();
    for (name, uid) in [("control.sock.owners", NOBODY), ("control.sock", 0)] {
        let socket = path.join(name);
        let script = format!(
            "{SENT}\nfor flags in (0, socket.MSG_OOB):\n    to = socket.socket(socket.AF_UNIX)\n    \
             to.connect('{}')\n    send(to, {number}, flags)\n",
            socket.display()
        );
        assert_success(&sent.while_stopped(|| python_as(uid, &script, &[])));
        sent.is_well();
    }
    fs::write(path.join("attack"), "").expect("write");
    let mut command = Command::new(env!("CARGO_BIN_EXE_forkyard"));
    command
        .args(["restart", "www", "-c"])
        .arg(path.join("forkyard.toml"));
    let mut restart = command.stdout(Stdio::null()).spawn().expect("forkyard");
    sent.says("loaded");
    sent.while_stopped(|| {
        fs::write(path.join("stopped"), "").expect("write");
        sent.says("sent");
        fs::remove_file(path.join("attack")).expect("unlink");
    });
    if is_old {
        let killed = sent
            .daemon
            .wait_for("is killed because it does not keep to the protocol");
        assert!(killed.ends_with("descriptors that nobody wants"), "{killed}");
    }
    sent.is_well();
    process::wait(&mut restart, "the restart");
    let worker = sent.while_stopped(|| sent.ask(""));
    Sent::configure(&path, false);
    sent.is_well();
    drop(worker);
    wait_until("the pool's end", || {
        let workers = sent.daemon.workers("www");
        workers
            .iter()
            .for_each(|worker| process::signal(*worker, Signal::SIGKILL));
        workers.is_empty()
    });
    sent.is_well();
    sent.daemon.end(Signal::SIGTERM);
}

tests! {
    fn no_last_close_of_what_a_tenant_sends_is_the_masters() => no_last_close_is_the_masters(false);
    fn nor_with_a_kernel_that_refuses_no_descriptors() => no_last_close_is_the_masters(true);
}
