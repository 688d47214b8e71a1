//! Logs that are links to the daemon's standard streams, as in images of containers.

use super::both::{STOCK, forkyard_fpm, is_stock_there, without_time};
use super::service::{Daemon, install};
use crate::support::prelude::*;
use nix::fcntl::OFlag;
use nix::unistd::{Gid, Uid, chown, fchown, pipe2};
use std::sync::mpsc::{Receiver, channel};

const OTHER: u32 = 1001;
const WWW_DATA: u32 = 33;
const ADM: u32 = 4;

#[derive(Clone, Copy)]
struct Place {
    mode: u32,
    owner: u32,
    group: u32,
    user: u32,
}

const fn place(mode: u32, owner: u32, group: u32, user: u32) -> Place {
    Place {
        mode,
        owner,
        group,
        user,
    }
}

const PLACES: [Place; 9] = [
    place(0o755, 0, 0, 0),
    place(0o775, 0, 0, 0),
    place(0o775, 0, ADM, 0),
    place(0o750, WWW_DATA, ADM, 0),
    place(0o755, WWW_DATA, WWW_DATA, 0),
    place(0o777, 0, 0, 0),
    place(0o775, 0, 0, OTHER),
    place(0o755, OTHER, 0, OTHER),
    place(0o775, OTHER, 0, OTHER),
];
const LINKS: [&str; 4] = ["/dev/stderr", "/dev/stdout", "/proc/self/fd/2", "/proc/self/fd/1"];

struct Site {
    directory: tempfile::TempDir,
    address: String,
    user: u32,
}

impl Site {
    fn new(place: Place, link: &str, directive: &str) -> Site {
        let directory = tempfile::tempdir().expect("there is room");
        let port = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
        let site = Site {
            address: port.expect("there are ports").to_string(),
            user: place.user,
            directory,
        };
        let logs = site.path("logs");
        fs::create_dir(&logs).expect("writable");
        symlink(link, logs.join("x")).expect("writable");
        let (owner, group) = (Uid::from_raw(place.owner), Gid::from_raw(place.group));
        chown(&logs, Some(owner), Some(group)).expect("root may");
        fs::set_permissions(&logs, Permissions::from_mode(place.mode)).expect("it is ours");
        let base = site.directory.path();
        fs::set_permissions(base, Permissions::from_mode(0o755)).expect("it is ours");
        chown(base, Some(Uid::from_raw(place.user)), None).expect("root may");
        let text = "<?php usleep((int)($_SERVER['QUERY_STRING'])); echo 'fine';";
        fs::write(site.path("a.php"), text).expect("writable");
        let link = logs.join("x").display().to_string();
        let (own, pool) = match directive {
            "error_log" => (link, String::new()),
            "slowlog" => (
                format!("{}/error", base.display()),
                format!("slowlog = {link}\nrequest_slowlog_timeout = 1"),
            ),
            other => (
                format!("{}/error", base.display()),
                format!("{other} = {link}\naccess.format = 'line %q'"),
            ),
        };
        let text = format!(
            "[global]\nerror_log = {own}\npid = {}/pid\n[www]\nuser = www-data\nlisten = {}\npm = static\n\
             pm.max_children = 1\n{pool}\n",
            base.display(),
            site.address
        );
        fs::write(site.path("fpm.conf"), text).expect("writable");
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn ask(&self, query: &str) -> Option<String> {
        let mut client = Client::connect_tcp(&self.address).ok()?;
        let params = Params::get(self.directory.path(), "a.php", query);
        Some(client.request(&params, b"").ok()?.body())
    }

    fn start(&self, program: &str, option: &str, owner: u32) -> Daemon {
        let mut ends = Vec::new();
        let mut pipe = || {
            let (reader, writer) = pipe2(OFlag::O_CLOEXEC).expect("there are descriptors");
            fchown(&writer, Some(Uid::from_raw(owner)), None).expect("root may");
            ends.push(File::from(reader));
            writer
        };
        let (output, error) = (pipe(), pipe());
        let mut command = Command::new(program);
        command.args([option, "-n", "-y"]).arg(self.path("fpm.conf"));
        command.stdin(Stdio::null()).stdout(output).stderr(error);
        if self.user != 0 {
            command.uid(self.user).gid(0);
        }
        Daemon {
            child: command.spawn().expect("it can be run"),
            lines: lines_of(ends),
        }
    }
}

fn lines_of(ends: Vec<File>) -> Receiver<String> {
    let (sender, receiver) = channel();
    for end in ends {
        let sender = sender.clone();
        std::thread::spawn(move || {
            let mut lines = BufReader::new(end).lines().map_while(Result::ok);
            lines.all(|line| sender.send(without_time(&line).to_owned()).is_ok())
        });
    }
    receiver
}

fn is_possible() -> bool {
    is_stock_there() && !needs_root()
}

#[test]
fn a_link_to_a_standard_stream_is_a_log_in_any_directory() {
    skip_if!(!is_possible());
    for (number, place) in PLACES.into_iter().enumerate() {
        let link = LINKS[number % LINKS.len()];
        let site = Site::new(place, link, "error_log");
        let mut daemon = site.start(forkyard_fpm(), "-F", place.user);
        let seen = daemon.expect("ready to handle connections");
        let is_output = ["/dev/stdout", "/proc/self/fd/1"].contains(&link);
        assert!(seen.len() <= if is_output { 4 } else { 3 }, "{number}: {seen:#?}");
        assert_eq!(site.ask("0").as_deref(), Some("fine"), "{number}");
        daemon.signal(Signal::SIGUSR1);
        daemon.expect("error log file re-opened");
        daemon.signal(Signal::SIGUSR2);
        daemon.expect("Reloading in progress");
        daemon.expect("ready to handle connections");
        daemon.stop(Signal::SIGQUIT);
    }
}

#[test]
fn php_fpm_starts_with_such_links() {
    skip_if!(!is_possible());
    for place in PLACES.into_iter().filter(|place| place.user == 0) {
        let site = Site::new(place, "/dev/stderr", "error_log");
        let _daemon = site.start(STOCK, "-F", 0).ready();
    }
}

#[test]
fn the_logs_of_a_pool_can_be_such_links() {
    skip_if!(!is_possible());
    for (directive, query, line) in [
        ("access.log", "7", "line 7"),
        ("slowlog", "1500000", "script_filename = "),
    ] {
        // php-fpm's slow log is in its error_log, which has replaced standard error.
        for program in [STOCK, forkyard_fpm()]
            .into_iter()
            .skip(usize::from(directive == "slowlog"))
        {
            let site = Site::new(place(0o755, WWW_DATA, WWW_DATA, 0), "/dev/stderr", directive);
            let daemon = site.start(program, "-F", 0);
            let answered = || site.ask(query);
            assert_eq!(until("an answer", answered), "fine");
            daemon.expect(line);
            if program != STOCK {
                daemon.signal(Signal::SIGUSR1);
                wait_until("the logs to be opened anew", || {
                    let log = fs::read_to_string(site.path("error")).unwrap_or_default();
                    log.contains("error log file re-opened")
                });
                assert_eq!(until("an answer", answered), "fine");
                daemon.expect(line);
            }
        }
    }
}

#[test]
fn a_stream_of_another_user_is_a_log() {
    skip_if!(!is_possible());
    for directive in ["error_log", "access.log"] {
        let site = Site::new(place(0o755, 0, 0, OTHER), "/dev/stderr", directive);
        let daemon = site.start(forkyard_fpm(), "-F", 0);
        assert_eq!(until("an answer", || site.ask("7")), "fine");
        daemon.expect(if directive == "error_log" {
            "ready to handle"
        } else {
            "line 7"
        });
    }
}

#[test]
fn a_daemon_in_the_background_keeps_the_stream_that_a_log_goes_to() {
    skip_if!(!is_possible());
    for program in [STOCK, forkyard_fpm()] {
        let site = Site::new(place(0o777, 0, 0, 0), "/dev/stderr", "error_log");
        let mut launcher = site.start(program, "-D", 0);
        assert!(launcher.child.wait().expect("it is our child").success());
        launcher.expect("ready to handle connections");
        let text = fs::read_to_string(site.path("pid")).expect("there is a pid file");
        let pid = Pid::from_raw(text.parse().expect("a number"));
        kill(pid, Signal::SIGUSR1).expect("it runs");
        launcher.expect("error log file re-opened");
        kill(pid, Signal::SIGTERM).expect("it runs");
        launcher.expect("exiting, bye-bye!");
        wait_until("the daemon to end", || kill(pid, None).is_err());
    }
}

#[test]
fn the_next_program_goes_on_with_the_stream() {
    skip_if!(!is_possible());
    let site = Site::new(place(0o777, 0, 0, 0), "/dev/stderr", "error_log");
    let own = site.directory.path();
    install(own, "forkyard-php");
    let program = install(own, "forkyard-fpm").display().to_string();
    let daemon = site.start(&program, "-F", 0).ready();
    install(own, "forkyard-fpm");
    daemon.signal(Signal::SIGUSR2);
    daemon.expect("taking over from process");
    daemon.expect("ready to handle connections");
    assert_eq!(site.ask("0").as_deref(), Some("fine"));
    daemon.signal(Signal::SIGUSR1);
    daemon.expect("error log file re-opened");
}

#[test]
fn a_closed_standard_error_stops_no_start() {
    skip_if!(!is_possible());
    let site = Site::new(place(0o777, 0, 0, 0), "/dev/stderr", "error_log");
    let script = format!("exec {} -F -n -y \"$1\" 2>&- >&-", forkyard_fpm());
    let child = Command::new("sh")
        .args(["-c", &script, "sh"])
        .arg(site.path("fpm.conf"))
        .spawn();
    let _daemon = Daemon {
        child: child.expect("sh"),
        lines: lines_of(Vec::new()),
    };
    assert_eq!(until("an answer", || site.ask("0")), "fine");
}

#[test]
fn another_link_is_refused_with_the_reason() {
    skip_if!(!is_possible());
    for (directive, start) in [
        ("error_log", "failed to open error_log"),
        ("access.log", "failed to open access log"),
        ("slowlog", "Unable to create or open slowlog"),
    ] {
        for link in ["/dev/null", "/dev/./stderr", "/proc/1/fd/2", "missing"] {
            let site = Site::new(place(0o777, 0, 0, 0), link, directive);
            let mut daemon = site.start(forkyard_fpm(), "-F", 0);
            let status = daemon.child.wait().expect("it is our child");
            let seen: Vec<String> = daemon.lines.iter().collect();
            let text = seen.join("\n");
            assert_eq!(status.code(), Some(78), "{text}");
            assert!(text.contains(start), "{directive} {link}: {text}");
            let path = site.path("logs/x").display().to_string();
            let reason = format!("{path} is a symbolic link in a directory that others can write to");
            assert!(text.contains(&reason), "{directive} {link}: {text}");
            assert_lacks(&text, "(0)");
            assert_lacks(&text, "errno");
        }
    }
}
