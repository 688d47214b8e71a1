//! The daemon at work, with Debian's pool file.

use super::both::{forkyard_fpm, without_time};
use crate::support::prelude::*;
use std::process::ChildStderr;
use std::sync::mpsc::{Receiver, channel};

const DEBIANS_POOL: &str = concat!("/etc/php/", env!("FORKYARD_PHP"), "/fpm/pool.d/www.conf");
/// The deadline for a log line on a loaded machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Site {
    pub(crate) directory: tempfile::TempDir,
}

impl Site {
    pub(crate) fn new() -> Option<Site> {
        use std::os::unix::fs::PermissionsExt;
        if needs_file(DEBIANS_POOL) {
            return None;
        }
        let pool = fs::read_to_string(DEBIANS_POOL).expect("it can be read");
        let directory = tempfile::tempdir().expect("there is room");
        let path = directory.path().to_owned();
        fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
        let pool = pool.replace(
            concat!("/run/php/php", env!("FORKYARD_PHP"), "-fpm.sock"),
            &path.join("fpm.sock").to_string_lossy(),
        );
        let site = Site { directory };
        site.write("pool.d/www.conf", &pool);
        site.write(
            "a.php",
            "<?php echo PHP_SAPI, ' ', ini_get('memory_limit'), ' ', getenv('A');",
        );
        site.write(
            "php-fpm.conf",
            &format!(
                "[global]\npid = {0}/fpm.pid\nerror_log = {0}/fpm.log\ninclude={0}/pool.d/*.conf\n",
                path.display()
            ),
        );
        Some(site)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).expect("writable");
        fs::write(path, text).expect("writable");
    }

    pub(crate) fn append(&self, text: &str) {
        self.write("pool.d/www.conf", &format!("{}\n{text}", self.pool()));
    }

    pub(crate) fn pool(&self) -> String {
        fs::read_to_string(self.path("pool.d/www.conf")).expect("it was written")
    }

    pub(crate) fn ask(&self) -> String {
        self.ask_for("fpm.sock", &self.params("a.php"))
    }

    fn params(&self, script: &str) -> Params {
        Params::get(self.directory.path(), script, "")
    }

    fn ask_for(&self, socket: &str, params: &Params) -> String {
        let mut client = Client::connect(&self.path(socket)).expect("it listens");
        client.request(params, b"").expect("it answers").body()
    }

    fn assert_is_php_fpms_too(&self) {
        if super::both::is_stock_there() {
            let mut command = Command::new(concat!("/usr/sbin/php-fpm", env!("FORKYARD_PHP")));
            let tested = command.args(["-t", "-y"]).arg(self.path("php-fpm.conf")).output();
            assert!(tested.expect("php-fpm").status.success());
        }
    }
}

pub(crate) struct Daemon {
    pub(crate) child: Child,
    pub(crate) lines: Receiver<String>,
}

impl Daemon {
    fn start(site: &Site) -> Daemon {
        Daemon::start_program(site, Path::new(forkyard_fpm()))
    }

    fn start_program(site: &Site, program: &Path) -> Daemon {
        let file = site.path("php-fpm.conf");
        Daemon::run(Command::new(program).args(["-F", "-O", "-y"]).arg(file))
    }

    pub(crate) fn run(command: &mut Command) -> Daemon {
        command.stdin(Stdio::null()).stderr(Stdio::piped());
        let mut child = until("the program to be nobody's to write to", || {
            match command.spawn() {
                // Another thread's forked child inherits the open copy until it executes a program.
                Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => None,
                child => Some(child.expect("it can be run")),
            }
        });
        let lines = lines_of(child.stderr.take().expect("it is piped"));
        Daemon { child, lines }
    }

    pub(crate) fn ready(self) -> Daemon {
        self.expect("ready to handle connections");
        self
    }

    /// Returns the daemon's lines until its regular exit.
    pub(crate) fn stop(&mut self, signal: Signal) -> Vec<String> {
        self.signal(signal);
        let seen = self.expect("exiting, bye-bye!");
        let status = self.child.wait().expect("it is our child");
        assert!(status.success(), "{status}");
        seen
    }

    /// Tells the daemon to reload, which it refuses with `reason`.
    fn assert_refuses_reload(&self, reason: &str) {
        self.signal(Signal::SIGUSR2);
        let seen = self.expect("the old one stays in force");
        assert!(seen.iter().any(|line| line.contains(reason)), "{seen:#?}");
    }

    pub(crate) fn expect(&self, text: &str) -> Vec<String> {
        let mut seen = Vec::new();
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => seen.push(line),
                Err(error) => panic!("no line with {text:?} ({error}), only {seen:#?}"),
            }
            if seen.last().is_some_and(|line| line.contains(text)) {
                return seen;
            }
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).expect("it runs");
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }

    pub(crate) fn children(&self) -> Vec<i32> {
        let path = format!("/proc/{0}/task/{0}/children", self.child.id());
        let text = fs::read_to_string(path).unwrap_or_default();
        text.split_whitespace()
            .filter_map(|pid| pid.parse().ok())
            .collect()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let children = self.children();
        let _ = self.child.kill();
        let _ = self.child.wait();
        for pid in children {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}

fn lines_of(stream: ChildStderr) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            if sender.send(without_time(&line).to_owned()).is_err() {
                return;
            }
        }
    });
    receiver
}

pub(crate) fn title(pid: i32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    text.trim_end_matches(['\0', ' ']).to_owned()
}

#[test]
fn debians_pool_serves_reloads_and_stops() {
    let (false, Some(site)) = (needs_root(), Site::new()) else {
        return;
    };
    site.append("php_admin_value[memory_limit] = 33M\nenv[A] = one\nrequest_slowlog_timeout = 0\n");
    let mut daemon = Daemon::start(&site);
    let seen = daemon.expect("ready to handle connections");
    let pid = daemon.child.id();
    assert_eq!(
        seen,
        [
            format!("NOTICE: fpm is running, pid {pid}"),
            "NOTICE: ready to handle connections".to_owned(),
        ]
    );
    let written = fs::read_to_string(site.path("fpm.pid")).expect("there is a pid file");
    assert_eq!(written, pid.to_string());
    let expected = format!(
        "php-fpm: master process ({})",
        site.path("php-fpm.conf").display()
    );
    assert_eq!(title(daemon.pid().as_raw()), expected);
    assert_eq!(site.ask(), "fpm-fcgi 33M one");
    let titles: Vec<String> = daemon.children().into_iter().map(title).collect();
    assert!(titles.contains(&"php-fpm: pool www".to_owned()), "{titles:?}");

    let good = site.pool();
    site.append("nonsense = 1\n");
    daemon.assert_refuses_reload("unknown entry 'nonsense'");
    assert_eq!(site.ask(), "fpm-fcgi 33M one");

    site.write(
        "pool.d/www.conf",
        &good.replace("33M", "44M").replace("= one", "= two"),
    );
    daemon.signal(Signal::SIGUSR2);
    daemon.expect("Reloading in progress");
    let end = Instant::now() + PATIENCE;
    while site.ask() != "fpm-fcgi 44M two" {
        assert!(Instant::now() < end, "the new settings never came");
    }

    daemon.stop(Signal::SIGQUIT);
    assert!(!site.path("fpm.sock").exists() && !site.path("fpm.pid").exists());
}

#[test]
fn a_list_of_users_may_connect() {
    let (false, Some(site)) = (needs_root(), Site::new()) else {
        return;
    };
    site.append("listen.acl_users = nobody,games\nlisten.acl_groups = mail\n");
    let daemon = Daemon::start(&site);
    let seen = daemon.expect("ready to handle connections");
    for name in ["owner", "group"] {
        let wanted = format!("WARNING: [pool www] ACL set, listen.{name} = 'www-data' is ignored");
        assert!(seen.contains(&wanted), "{seen:#?}");
    }
    let list = Command::new("getfacl")
        .args(["--absolute-names", "--omit-header"])
        .arg(site.path("fpm.sock"))
        .output()
        .expect("getfacl (Debian package acl)");
    let list = text_of(&list.stdout);
    let lines: Vec<&str> = list.lines().filter(|line| !line.is_empty()).collect();
    let wanted = [
        "user::rw-",
        "user:games:rw-",
        "user:nobody:rw-",
        "group::rw-",
        "group:mail:rw-",
        "mask::rw-",
        "other::---",
    ];
    assert_eq!(lines, wanted);
}

#[test]
fn settings_that_come_with_requests_can_be_closed_without_a_new_directive() {
    let (false, Some(site)) = (needs_root(), Site::new()) else {
        return;
    };
    let ask = |value: &str| site.ask_for("fpm.sock", &site.params("a.php").with("PHP_VALUE", value));
    {
        let _daemon = Daemon::start(&site).ready();
        assert_eq!(
            ask("memory_limit = 77M"),
            "fpm-fcgi 77M ",
            "php-fpm's way unless told otherwise"
        );
    }
    let pool = site.pool();
    let rule = |rule: &str| {
        let line = format!("php_admin_value[forkyard.request_settings] = {rule}\n");
        site.write("pool.d/www.conf", &format!("{pool}\n{line}"));
    };
    rule("none");
    {
        let _daemon = Daemon::start(&site).ready();
        assert_eq!(ask("memory_limit = 77M"), "fpm-fcgi 128M ");
    }
    rule("precision,display_errors");
    site.assert_is_php_fpms_too();
    let daemon = Daemon::start(&site).ready();
    assert_eq!(ask("memory_limit = 77M"), "fpm-fcgi 128M ");
    daemon.expect("[pool www] refused the setting 'memory_limit' that came with a request");
    rule(",");
    daemon.assert_refuses_reload(
        "[pool www] forkyard.request_settings: write all, harmless, none, or names with commas between them",
    );
}

#[test]
fn pools_of_two_users_can_have_workers_of_one_zygote() {
    let (false, Some(site)) = (needs_root(), Site::new()) else {
        return;
    };
    site.append(
        "php_admin_value[forkyard.preloader] = zygote\nphp_admin_value[opcache.file_update_protection] = 0\n",
    );
    let pool = site.pool();
    let other = pool.replace("[www]", "[other]").replace("fpm.sock", "other.sock");
    let other = other.replace("user = www-data", "user = nobody");
    site.write("pool.d/other.conf", &other);
    site.assert_is_php_fpms_too();
    site.write("code.php", "<?php echo 'code';");
    site.write(
        "cached.php",
        "<?php echo opcache_is_script_cached(__DIR__ . '/code.php') ? 'cached' : 'not';",
    );
    let ask = |socket: &str, script: &str| site.ask_for(socket, &site.params(script));
    let daemon = Daemon::start(&site).ready();
    assert_eq!(ask("fpm.sock", "code.php"), "code");
    assert_eq!(ask("fpm.sock", "cached.php"), "cached");
    assert_eq!(ask("other.sock", "cached.php"), "not", "its OPcache is its own");
    until("one zygote and no other preloader", || {
        let titles = daemon.children().into_iter().map(title);
        let preloaders: Vec<String> = titles.filter(|title| title.contains("preloader")).collect();
        (preloaders == ["php-fpm: preloader zygote"]).then_some(())
    });
    site.write(
        "pool.d/other.conf",
        &other.replace("forkyard.preloader] = zygote", "forkyard.preloader] = shared"),
    );
    daemon.assert_refuses_reload(
        "[pool other] forkyard.preloader: write own, or zygote, which has taken the place of shared",
    );
}

#[test]
fn a_pool_of_root_is_refused_at_the_start() {
    let (false, Some(site)) = (needs_root(), Site::new()) else {
        return;
    };
    site.append("user = root\ngroup = root\n");
    let mut daemon = Daemon::start(&site);
    let seen = daemon.expect("FPM initialization failed");
    assert_eq!(
        seen[0],
        "ERROR: [pool www] please specify user and group other than root"
    );
    assert_eq!(daemon.child.wait().expect("it is our child").code(), Some(78));
}

/// As package managers do: renames the new file over the old one.
pub(crate) fn install(directory: &Path, name: &str) -> PathBuf {
    let target = directory.join(name);
    let new = target.with_extension("new");
    crate::support::copy_program(&Path::new(forkyard_fpm()).with_file_name(name), &new);
    fs::rename(&new, &target).expect("writable");
    target
}

#[test]
fn another_program_takes_over_with_the_same_options() {
    let (false, Some(site)) = (needs_root(), Site::new()) else {
        return;
    };
    site.append("php_admin_value[memory_limit] = 33M\nenv[A] = one\n");
    install(site.directory.path(), "forkyard-php");
    let mut daemon = Daemon::start_program(&site, &install(site.directory.path(), "forkyard-fpm")).ready();
    assert_eq!(site.ask(), "fpm-fcgi 33M one");
    let old: Vec<i32> = daemon.children();
    install(site.directory.path(), "forkyard-fpm");
    daemon.signal(Signal::SIGUSR2);
    let seen = daemon.expect("ready to handle connections");
    let pid = daemon.child.id();
    assert!(
        seen.iter()
            .any(|line| line.contains(&format!("taking over from process {pid} "))),
        "{seen:#?}"
    );
    assert!(
        seen.iter()
            .any(|line| line.ends_with("1 pools and 2 workers go on")),
        "{seen:#?}"
    );
    daemon.expect("the new workers serve");
    assert_eq!(site.ask(), "fpm-fcgi 33M one");
    assert!(title(daemon.pid().as_raw()).starts_with("php-fpm: master process ("));
    let end = Instant::now() + PATIENCE;
    while daemon.children().iter().any(|pid| old.contains(pid)) {
        assert!(Instant::now() < end, "the old workers never left");
    }
    daemon.stop(Signal::SIGQUIT);
}
