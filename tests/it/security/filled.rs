//! A tenant fills the directories below `/run` that it can write to.

use super::needs_root;
use crate::support::prelude::*;

const PRIVATE: u64 = 256 << 10;
const WORK: u64 = 8 << 20;
const RUN: u64 = 32 << 20;
const PROGRAM: &str = r#"import os, socket, threading
def fill(directory):
    written = 0
    for number in range(100000):
        try:
            with open(f'{directory}/file{number}', 'wb', buffering=0) as file:
                while number == 0:
                    written += file.write(bytes(65536))
        except OSError:
            if number:
                return written, number
path = os.environ['SOCKET']
server = socket.socket(socket.AF_UNIX)
server.bind(path)
own, work = os.path.dirname(path), os.environ.get('FORKYARD_SPAWN_WORK_DIR')
said = [(0, 0), (0, 0)]
if os.getuid() == 33:
    said = [fill(own), fill(work)]
server.listen(8)
def answer(client):
    more = (0, 0)
    if client.recv(65536):
        if os.getuid() == 33:
            try:
                os.unlink(f'{own}/file1')
            except OSError:
                pass
            more = fill(own)
        body = ' '.join(str(number) for pair in [*said, more] for number in pair).encode() + f' {os.getpid()}'.encode()
        client.sendall(b'HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s' % (len(body), body))
    client.close()
while True:
    threading.Thread(target=answer, args=(server.accept()[0],), daemon=True).start()
"#;

fn start() -> (Daemon, tempfile::TempDir) {
    let dir = directory();
    let path = dir.path().to_owned();
    let root = path.join("app");
    fs::create_dir(&root).expect("mkdir");
    fs::set_permissions(&root, fs::Permissions::from_mode(0o755)).expect("chmod");
    fs::write(root.join("app.py"), PROGRAM).expect("write");
    let application = application_in(
        "http",
        root,
        "start_command = \"/usr/bin/python3 app.py\"\nhandshake = \"socket\"\n",
    );
    let settings = "pm = \"ondemand\"\nmax_children = 1\n";
    let text = format!(
        "{}{}",
        pool(&path, "hostile", settings, &application),
        pool(
            &path,
            "other",
            &format!("{settings}user = \"nobody\"\ngroup = \"nogroup\"\n"),
            &application
        )
    );
    fs::write(path.join("forkyard.toml"), text).expect("configuration");
    let script = format!("mount -t tmpfs -o size={RUN},mode=0755 tmpfs /run && exec \"$@\"");
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", &script, "sh"]);
    command.arg(env!("CARGO_BIN_EXE_forkyard")).args(["run", "-c"]);
    command.arg(path.join("forkyard.toml")).env_remove("TMPDIR");
    let daemon = Daemon::launch(&path, command).ready();
    (daemon, dir)
}

fn numbers(daemon: &Daemon, pool: &str) -> Vec<u64> {
    let body = daemon.get(pool, "x").body();
    let numbers = body.split(' ').map(str::parse).collect::<Result<_, _>>();
    numbers.unwrap_or_else(|_| panic!("{body}: {}", daemon.log()))
}

fn mounted(daemon: &Daemon) -> Vec<String> {
    let mounts = read_file(format!("/proc/{}/mounts", daemon.pid()));
    let paths: Vec<&str> = mounts.lines().filter_map(|line| line.split(' ').nth(1)).collect();
    // Below its own /run are the mounts of other daemons, copied with the name space.
    let own = paths.iter().rposition(|path| *path == "/run").expect("a /run");
    let ours = paths[own..]
        .iter()
        .filter(|path| path.starts_with("/run/forkyard/"));
    ours.map(|path| (*path).to_owned()).collect()
}

fn used(daemon: &Daemon) -> u64 {
    let run = format!("/proc/{}/root/run", daemon.pid());
    let about = nix::sys::statvfs::statvfs(Path::new(&run)).expect("statvfs");
    (about.blocks() - about.blocks_free()) * about.fragment_size()
}

#[test]
fn who_fills_the_directories_it_is_given_fills_nothing_else() {
    skip_if!(needs_root());
    let (daemon, _dir) = start();
    let said = numbers(&daemon, "hostile");
    let [own, own_files, work, work_files, more, more_files, pid] = said[..] else {
        panic!("{said:?}");
    };
    assert!(own > 0 && own <= PRIVATE && own_files < 64, "{said:?}");
    assert!(work > 0 && work <= WORK && work_files < 1024, "{said:?}");
    assert!(more <= PRIVATE && more_files < 64, "{said:?}");
    assert!(used(&daemon) < 1 << 20, "{}", used(&daemon));
    wait_until("the work directory to go", || mounted(&daemon).len() == 1);
    assert_eq!(numbers(&daemon, "other")[..6], [0; 6]);
    wait_until("the other's work directory to go", || mounted(&daemon).len() == 2);

    let before = mounted(&daemon);
    process::signal(u32::try_from(pid).expect("a pid"), Signal::SIGKILL);
    let again = until("another program", || {
        let answer = daemon
            .client("hostile")
            .request(&Params::get(&daemon.dir, "x", ""), b"");
        let body = answer.ok()?.body();
        let numbers: Vec<u64> = body.split(' ').map_while(|word| word.parse().ok()).collect();
        (numbers.len() == 7 && numbers[6] != pid).then_some(numbers)
    });
    assert!(again[0] > 0 && again[0] <= PRIVATE, "{again:?}");
    wait_until("the old directories to go", || {
        let now = mounted(&daemon);
        now.len() == 2 && now != before
    });
    assert!(used(&daemon) < 1 << 20, "{}", used(&daemon));
}

#[test]
fn what_a_killed_daemon_has_mounted_goes_with_the_next() {
    skip_if!(needs_root());
    let (daemon, _dir) = start();
    numbers(&daemon, "other");
    wait_until("one directory", || mounted(&daemon).len() == 1);
    let before = mounted(&daemon);
    let pid = daemon.pid();
    let space = fs::File::open(format!("/proc/{pid}/ns/mnt")).expect("its name space");
    let children = process::children(pid);
    process::signal(pid, Signal::SIGKILL);
    process::wait_for_ends(&children);
    let mut command = Command::new("nsenter");
    let held = std::os::fd::AsRawFd::as_raw_fd(&space);
    command.arg(format!("--mount=/proc/{}/fd/{held}", std::process::id()));
    command.arg(env!("CARGO_BIN_EXE_forkyard")).args(["run", "-c"]);
    command.arg(daemon.dir.join("forkyard.toml")).env_remove("TMPDIR");
    let again = Daemon::launch(&daemon.dir, command).ready();
    wait_until("the old mount to go", || !mounted(&again).contains(&before[0]));
}
