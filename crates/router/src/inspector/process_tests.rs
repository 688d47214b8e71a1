use super::*;
use crate::inspector::protocol::Kind;
use crate::inspector::sample;
use forkyard_sys::socket::Readiness;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

const MOST_HELD: u64 = 10_000;
const LONG: Duration = Duration::from_secs(60);
const NOBODY: u32 = 65534;

fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

fn nobody() -> Option<Identity> {
    is_root().then(|| Identity {
        uid: NOBODY,
        gid: NOBODY,
        groups: vec![NOBODY],
        name: None,
        home: None,
        shell: None,
    })
}

struct Process {
    _place: tempfile::TempDir,
    base: PathBuf,
    pid: i32,
    exit: OwnedFd,
    router: Option<OwnedFd>,
    master: Option<OwnedFd>,
}

impl Process {
    fn start() -> Process {
        let place = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(place.path()).unwrap();
        let (router, router_end) = socket_pair(SockType::SeqPacket).unwrap();
        let (master, master_end) = socket_pair(SockType::SeqPacket).unwrap();
        let applications = sample::applications(&base);
        let keep = [router_end.as_raw_fd(), master_end.as_raw_fd()];
        let pid = process::fork_child(&keep, || {
            run(router_end, master_end, None, &applications, nobody().as_ref())
        });
        let pid = pid.unwrap();
        Process {
            _place: place,
            base,
            pid,
            exit: pidfd::open(pid).unwrap(),
            router: Some(router),
            master: Some(master),
        }
    }

    fn with_shop() -> (Process, PathBuf) {
        let process = Process::start();
        let root = process.application("shop");
        (process, root)
    }

    fn application(&self, name: &str) -> PathBuf {
        let root = self.base.join(name);
        fs::create_dir_all(&root).unwrap();
        fs::write(root.join("index.php"), "").unwrap();
        fs::set_permissions(&root, Permissions::from_mode(0o700)).unwrap();
        root
    }

    fn children(&self) -> Vec<i32> {
        let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", self.pid)).unwrap();
        children
            .split_whitespace()
            .map(|pid| pid.parse().unwrap())
            .collect()
    }

    fn wait_for_end(&self) {
        assert_eq!(
            socket::wait(self.exit.as_fd(), Readiness::Readable, LONG),
            Ok(true)
        );
        pidfd::reap(self.exit.as_fd()).unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = pidfd::send_signal(self.exit.as_fd(), Signal::SIGKILL);
        let _ = process::reap_pid(self.pid);
    }
}

fn ask(socket: &Option<OwnedFd>, number: u64, root: &Path) {
    let message = protocol::encode(&InspectRequest {
        number,
        root: root.to_owned(),
        link: None,
    });
    let sent = socket::send(socket.as_ref().unwrap().as_fd(), &message.unwrap());
    assert!(matches!(sent, Ok(Progress::Done(_))), "{sent:?}");
}

fn answer(socket: &Option<OwnedFd>) -> InspectReply {
    loop {
        let seen = told(socket);
        if seen.number != UNASKED || seen.refusal.is_none() {
            return seen;
        }
    }
}

fn look(socket: &Option<OwnedFd>, number: u64, root: &Path) -> InspectReply {
    ask(socket, number, root);
    answer(socket)
}

fn told(socket: &Option<OwnedFd>) -> InspectReply {
    let socket = socket.as_ref().unwrap();
    assert_eq!(socket::wait(socket.as_fd(), Readiness::Readable, LONG), Ok(true));
    let mut buffer = vec![0; MOST_BYTES];
    let Ok(Progress::Done(count)) = socket::receive(socket.as_fd(), &mut buffer) else {
        panic!("no answer");
    };
    protocol::decode(&buffer[..count]).expect("an answer")
}

fn wait_until_gone(pids: &[i32]) {
    for pid in pids {
        // They are not our children, so their pids could be reused during the check.
        if let Ok(process) = pidfd::open(*pid) {
            assert_eq!(socket::wait(process.as_fd(), Readiness::Readable, LONG), Ok(true));
        }
    }
}

fn status(pid: i32, field: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.unwrap_or_default().trim().to_owned()
}

#[test]
fn both_are_answered_and_its_end_is_theirs() {
    let (mut inspector, root) = Process::with_shop();
    ask(&inspector.router, 1, &root);
    ask(&inspector.master, 1, &inspector.base.join("missing"));
    let found = answer(&inspector.router);
    assert_eq!(found.number, 1);
    assert_eq!(found.found.unwrap().kind, Kind::Php);
    assert!(
        answer(&inspector.master)
            .found
            .unwrap_err()
            .0
            .contains("is no directory below")
    );
    let children = inspector.children();
    assert!(matches!(children.len(), 1 | 2), "{children:?}");
    inspector.router = None;
    assert_eq!(look(&inspector.master, 2, &root).found.unwrap().root, root);
    inspector.master = None;
    inspector.wait_for_end();
    wait_until_gone(&children);
}

#[test]
fn it_can_read_and_has_no_other_right() {
    if crate::skip::needs_root() {
        return;
    }
    let (inspector, root) = Process::with_shop();
    fs::write(root.join("forkyard.toml"), "max_requests = 3\n").unwrap();
    fs::set_permissions(root.join("forkyard.toml"), Permissions::from_mode(0o600)).unwrap();
    assert_eq!(
        look(&inspector.router, 1, &root)
            .found
            .unwrap()
            .settings
            .unwrap()
            .max_requests,
        Some(3)
    );
    let mut processes = inspector.children();
    processes.push(inspector.pid);
    for pid in processes {
        let only = format!("{:016x}", 1_u64 << 2);
        let none = format!("{:016x}", 0);
        for (set, right) in [
            ("CapPrm", &only),
            ("CapEff", &only),
            ("CapInh", &none),
            ("CapBnd", &none),
            ("CapAmb", &none),
        ] {
            assert_eq!(&status(pid, set), right, "{set}");
        }
        let ids = [NOBODY; 4].map(|id| id.to_string()).join("\t");
        assert_eq!([status(pid, "Uid"), status(pid, "Gid")], [ids.clone(), ids]);
        assert_eq!(status(pid, "Groups"), NOBODY.to_string());
        assert_eq!([status(pid, "NoNewPrivs"), status(pid, "Seccomp")], ["1", "2"]);
        // A dumpable process's files in /proc belong to its user (proc(5)).
        assert_eq!(fs::metadata(format!("/proc/{pid}/mem")).unwrap().uid(), 0);
    }
}

#[test]
fn it_can_change_nothing() {
    let place = tempfile::tempdir().unwrap();
    let base = place.path().to_owned();
    fs::set_permissions(&base, Permissions::from_mode(0o777)).unwrap();
    let file = base.join("file");
    fs::write(&file, "x").unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o666)).unwrap();
    let victim = std::process::Command::new("/bin/cat")
        .stdin(std::process::Stdio::piped())
        .spawn();
    let mut victim = victim.unwrap();
    let pid = nix::unistd::Pid::from_raw(victim.id() as i32);
    let privileged = is_root();
    let child = process::fork_child(&[], || {
        if become_inspector(nobody().as_ref()).is_err() {
            return 100;
        }
        let tried = [
            fs::read(&file).is_err(),
            fs::write(base.join("new"), "").is_ok(),
            fs::create_dir(base.join("directory")).is_ok(),
            std::os::unix::fs::symlink("/", base.join("link")).is_ok(),
            fs::rename(&file, base.join("moved")).is_ok(),
            fs::remove_file(&file).is_ok(),
            privileged && nix::sys::signal::kill(pid, Signal::SIGKILL).is_ok(),
            privileged && nix::unistd::setuid(nix::unistd::Uid::from_raw(0)).is_ok(),
            privileged && fs::set_permissions(&file, Permissions::from_mode(0o600)).is_ok(),
            privileged && fs::File::open(format!("/proc/{pid}/mem")).is_ok(),
            privileged && fs::read(format!("/proc/{pid}/environ")).is_ok(),
            nix::unistd::chroot("/").is_ok(),
            privileged && fs::read("/etc/shadow").is_err(),
            std::fs::File::options()
                .append(true)
                .open(&file)
                .is_ok_and(|mut file| std::io::Write::write(&mut file, b"y").is_ok()),
        ];
        let wrong = tried.iter().position(|wrong| *wrong);
        wrong.map_or(0, |at| at as i32 + 1)
    });
    let ended = process::reap_pid(child.unwrap()).unwrap();
    victim.kill().unwrap();
    victim.wait().unwrap();
    assert_eq!(ended, process::Ended::Code(0));
    assert_eq!(fs::read_to_string(&file).unwrap(), "x");
}

#[test]
fn the_master_learns_of_what_the_router_is_refused() {
    let (inspector, root) = Process::with_shop();
    fs::write(root.join("forkyard.toml"), "no_such_key = 1\n").unwrap();
    ask(&inspector.router, 1, &root);
    let (seen, heard) = (answer(&inspector.router), told(&inspector.master));
    assert_eq!((seen.number, heard.number), (1, UNASKED));
    assert_eq!((&seen.found, &seen.refusal), (&heard.found, &heard.refusal));
    let refusal = seen.refusal.expect("it is there");
    assert_eq!((&refusal.root, refusal.is_no_application), (&root, false));
    // The same error has the same id for both clients; a missing directory has none.
    assert_eq!(look(&inspector.master, 2, &root).refusal.as_ref(), Some(&refusal));
    fs::write(root.join("forkyard.toml"), "no_other_key = 1\n").unwrap();
    let other = look(&inspector.router, 3, &root).refusal.expect("it is there");
    assert_ne!(other.id, refusal.id);
    let missing = look(&inspector.router, 4, &inspector.base.join("missing"));
    assert!(missing.found.is_err() && missing.refusal.is_none());
}

#[test]
fn a_look_that_hangs_is_given_up_and_stops_no_other() {
    let (inspector, root) = Process::with_shop();
    assert!(look(&inspector.router, 1, &root).found.is_ok());
    let hanging = inspector.children();
    assert_eq!(hanging.len(), 1);
    process::send_signal(hanging[0], Signal::SIGSTOP).unwrap();
    ask(&inspector.router, 2, &root);
    for number in 3..20 {
        assert_eq!(look(&inspector.router, number, &root).number, number);
    }
    let late = answer(&inspector.router);
    assert_eq!(late.number, 2);
    assert!(
        late.found
            .unwrap_err()
            .0
            .contains("the look took longer than 5 s")
    );
    wait_until_gone(&hanging);
    for pid in inspector.children() {
        process::send_signal(pid, Signal::SIGKILL).unwrap();
    }
    ask(&inspector.master, 20, &root);
    ask(&inspector.master, 21, &root);
    let mut numbers = [answer(&inspector.master).number, answer(&inspector.master).number];
    numbers.sort_unstable();
    assert_eq!(numbers, [20, 21]);
}

#[test]
fn a_hostile_router_is_held_back_and_the_master_answered() {
    let (inspector, root) = Process::with_shop();
    let router = inspector.router.as_ref().unwrap();
    let question = |number| {
        protocol::encode(&InspectRequest {
            number,
            root: root.clone(),
            link: None,
        })
        .unwrap()
    };
    let noise: [&[u8]; 5] = [
        b"",
        b"{}",
        b"\0\xff",
        b"{\"number\":-1,\"root\":1}",
        &[b'['; 60_000],
    ];
    for message in noise {
        assert!(matches!(
            socket::send(router.as_fd(), message),
            Ok(Progress::Done(_))
        ));
    }
    let mut asked = 0_u64;
    for _ in 0..3 {
        let mut full = 0;
        while full < 100 && asked < MOST_HELD {
            match socket::send(router.as_fd(), &question(asked)) {
                Ok(Progress::Done(_)) => (asked, full) = (asked + 1, 0),
                Ok(Progress::WouldBlock) => {
                    full += 1;
                    std::thread::sleep(Duration::from_millis(2));
                }
                Err(error) => panic!("{error}"),
            }
        }
        assert!(look(&inspector.master, 1, &root).found.is_ok());
    }
    assert!(asked < MOST_HELD, "it is listened to although it takes no answer");
    let mut answers: Vec<u64> = (0..asked).map(|_| answer(&inspector.router).number).collect();
    answers.sort_unstable();
    assert_eq!(answers, (0..asked).collect::<Vec<u64>>());
}

#[test]
fn an_answer_that_does_not_fit_is_an_error() {
    let (inspector, root) = Process::with_shop();
    let own = format!("env = {{ A = \"{}\" }}\n", "x".repeat(MOST_BYTES));
    fs::write(root.join("forkyard.toml"), own).unwrap();
    let error = look(&inspector.router, 1, &root).found.unwrap_err();
    assert!(
        error.0.ends_with("is longer than 65536 bytes; shorten it"),
        "{error}"
    );
}

#[test]
fn when_it_is_killed_those_that_look_for_it_are_gone() {
    let (inspector, root) = Process::with_shop();
    look(&inspector.router, 1, &root);
    let children = inspector.children();
    assert!(!children.is_empty());
    pidfd::send_signal(inspector.exit.as_fd(), Signal::SIGKILL).unwrap();
    inspector.wait_for_end();
    wait_until_gone(&children);
}
