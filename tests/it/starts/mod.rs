//! Applications that fail to start: log, clients' answers, report, leftovers and recovery.

mod causes;
mod clients;
mod failing;
mod faults;
mod limits;
mod memory;
mod orphans;
mod over;
mod programs;
mod work_directories;
mod workers;

use crate::support::prelude::*;

const WELL_WSGI: &str = "def application(environ, start):\n    start('200 OK', [])\n    return [b'well']\n";
const WELL_RACK: &str = "run ->(env) { [200, {}, ['well']] }\n";

pub fn work_directories(temporary: &Path) -> Vec<PathBuf> {
    let entries = |path: &Path| fs::read_dir(path).into_iter().flatten().map_while(Result::ok);
    let mut found = Vec::new();
    for entry in entries(temporary) {
        let name = entry.file_name().to_string_lossy().into_owned();
        match name.starts_with("forkyard.work.") {
            true => found.extend(entries(&entry.path()).map(|inner| inner.path())),
            false => found.push(entry.path()),
        }
    }
    found.retain(|path| path.file_name().is_none_or(|name| name != "lock"));
    found
}

/// The command of a daemon that has another temporary directory.
fn below(dir: &Path, temporary: &Path) -> Command {
    let mut command = forkyard(&["run"], dir);
    command.env("TMPDIR", temporary);
    command
}

struct Broken {
    daemon: Daemon,
    root: tempfile::TempDir,
    temporary: PathBuf,
    descriptors: usize,
}

impl Broken {
    fn start(runtime: &str, file: &str, source: &str, settings: &str, application: &str) -> Broken {
        let root = directory();
        let source = source.replace("ROOT", &root.path().display().to_string());
        fs::write(root.path().join(file), source).expect("the application");
        let place = root.path().display();
        let application = application.replace("ROOT", &place.to_string());
        let application = format!("runtime = \"{runtime}\"\nroot = \"{place}\"\n{application}");
        let settings = match settings.contains("pm =") {
            true => settings.to_owned(),
            false => format!("pm = \"ondemand\"\nmax_children = 2\n{settings}"),
        };
        let configure = |dir: &Path| with_control(dir) + &pool(dir, "www", &settings, &application);
        Broken::start_by(root, configure, below)
    }

    /// Starts a daemon by a command that has a temporary directory, the second argument.
    fn start_by(
        root: TempDir,
        configure: impl FnOnce(&Path) -> String,
        command: impl FnOnce(&Path, &Path) -> Command,
    ) -> Broken {
        let daemon = Daemon::start_by(configure, |dir| {
            make_folder(&dir.join("tmp"));
            command(dir, &dir.join("tmp"))
        });
        Broken {
            root,
            temporary: daemon.dir.join("tmp"),
            descriptors: descriptors(daemon.pid()),
            daemon,
        }
    }

    fn ask(&self) -> Answer {
        self.daemon.get("www", "x")
    }

    fn refused(&self) -> String {
        id_of(&self.ask())
    }

    fn report(&self, id: &str) -> Value {
        let text = text_of(&error(&self.daemon, id).stdout);
        parsed(&text)
    }

    fn heals(&self, file: &str, source: &str) {
        self.heals_unchecked(file, source);
        self.is_clean();
    }

    fn heals_unchecked(&self, file: &str, source: &str) {
        fs::write(self.root.path().join(file), source).expect("the application");
        until("the pool to heal", || {
            let answer = self.ask();
            match answer.text().contains("503 Service Unavailable") {
                true => None,
                false => (answer.body() == "well").then_some(()),
            }
        });
    }

    fn is_clean(&self) {
        wait_until("no work directory", || {
            work_directories(&self.temporary).is_empty()
        });
        wait_until("no other process", || {
            let children = process::children(self.daemon.pid());
            let is_known = |pid: &u32| {
                let title = process::title(*pid);
                title.contains("preloader www") || title.contains("pool www")
            };
            children.iter().all(is_known)
        });
        const OF_A_POOL_THAT_RUNS: usize = 20;
        let now = descriptors(self.daemon.pid());
        assert!(
            now <= self.descriptors + OF_A_POOL_THAT_RUNS,
            "{} descriptors became {now}",
            self.descriptors
        );
    }
}

fn error(daemon: &Daemon, id: &str) -> Output {
    forkyard_at(daemon, &["error", id, "--json"])
}

/// By its socket: the configuration may be broken, too.
fn forkyard_at(daemon: &Daemon, arguments: &[&str]) -> Output {
    daemon.at_socket(arguments).output().expect("forkyard")
}

fn descriptors(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).expect("/proc").count()
}

fn id_of(answer: &Answer) -> String {
    let text = answer.text();
    assert_starts(&text, "Status: 503 Service Unavailable\r\n");
    assert_contains(&text, "\r\nRetry-After: ");
    answer.error_id()
}
