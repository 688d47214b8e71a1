//! The spawning kit with real processes.

mod cases;
mod command;
mod documentation;
mod faults;
mod setupper;

use crate::support::prelude::*;
use forkyard_spawn::action::{SpawnOutcome, Up};
use forkyard_spawn::driver::{self, Driver};
use forkyard_spawn::effects::{self, Process};
use forkyard_spawn::event::Event;
use forkyard_spawn::plan::{Account, Kind, Plan};
use forkyard_spawn::report::Report;
use std::cell::RefCell;
use std::rc::Rc;

/// A shell script's ready message; the script then runs until its standard input closes.
const UP: &str = r#"
work=$FORKYARD_SPAWN_WORK_DIR
printf '{"sockets":[{"address":"tcp://127.0.0.1:9","protocol":"http","concurrency":1,"accept_http_requests":true}]}' \
    > "$work/response/properties.json"
printf 1 > "$work/response/finish"
cat > /dev/null
"#;

struct Kit {
    driver: Driver,
    scratch: tempfile::TempDir,
    logged: Rc<RefCell<Vec<u8>>>,
    processes: Vec<Process>,
}

impl Kit {
    fn new() -> Kit {
        let scratch = tempfile::Builder::new()
            .prefix("forkyard-it-spawn")
            .tempdir()
            .expect("a directory");
        for directory in ["", "work", "app", "sockets"] {
            let path = scratch.path().join(directory);
            fs::create_dir_all(&path).expect("a directory");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a mode");
        }
        let mut context = driver::context(PathBuf::from(env!("CARGO_BIN_EXE_forkyard")));
        context.spawn_dir = scratch.path().join("work");
        let logged = Rc::new(RefCell::new(Vec::new()));
        let sink = Rc::clone(&logged);
        let sink = Box::new(move |_, bytes: &[u8]| sink.borrow_mut().extend_from_slice(bytes));
        Kit {
            driver: Driver::new(context, sink).expect("a kit"),
            scratch,
            logged,
            processes: Vec::new(),
        }
    }

    fn root(&self) -> PathBuf {
        self.scratch.path().join("app")
    }

    fn native(&self, script: &str) -> Plan {
        fs::write(self.root().join("app.sh"), script).expect("a script");
        let mut plan = Plan::new("app", self.root(), "/bin/sh ./app.sh", effects::own_account());
        (plan.kind, plan.app_type) = (Kind::Native, "sh".to_owned());
        plan.start_timeout = PATIENCE;
        plan
    }

    fn generic(&self, command: &str) -> Plan {
        let mut plan = Plan::new("app", self.root(), command, effects::own_account());
        plan.start_timeout = PATIENCE;
        plan
    }

    fn spawn(&mut self, plan: Plan) -> Result<Box<Up>, Arc<Report>> {
        self.driver.spawn(plan);
        self.answer()
    }

    fn answer(&mut self) -> Result<Box<Up>, Arc<Report>> {
        match self.driver.wait().expect("an answer").1 {
            SpawnOutcome::Up(up) => {
                self.processes.extend(self.driver.take(up.id));
                Ok(up)
            }
            SpawnOutcome::Failed(report) => Err(report),
        }
    }

    fn up(&mut self, plan: Plan) -> Box<Up> {
        match self.spawn(plan) {
            Ok(up) => up,
            Err(report) => panic!("{}", report.text()),
        }
    }

    fn failure(&mut self, plan: Plan) -> Arc<Report> {
        let Err(report) = self.spawn(plan) else {
            panic!("it came up");
        };
        assert_eq!(report.left, 0, "{}", report.text());
        self.assert_clean();
        report
    }

    fn stop(&mut self) {
        for mut process in std::mem::take(&mut self.processes) {
            process.input = None;
            let ended = forkyard_sys::socket::wait(
                std::os::fd::AsFd::as_fd(&process.handle),
                forkyard_sys::socket::Readiness::Readable,
                PATIENCE,
            );
            assert_eq!(ended, Ok(true), "process {} does not go", process.pid);
            let _ = forkyard_sys::pidfd::reap(std::os::fd::AsFd::as_fd(&process.handle));
        }
        self.driver.tell(Event::Shutdown);
        self.driver.finish().expect("an end");
    }

    fn assert_clean(&self) {
        let left: Vec<PathBuf> = fs::read_dir(self.scratch.path().join("work"))
            .expect("the directory")
            .map(|entry| entry.expect("an entry").path())
            .collect();
        assert!(left.is_empty(), "{left:?} is left");
        let mark = self.scratch.path().to_string_lossy().into_owned();
        let processes = all_processes().filter(|pid| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            String::from_utf8_lossy(&environment).contains(&mark)
        });
        let processes: Vec<u32> = processes.collect();
        assert!(processes.is_empty(), "processes {processes:?} are left");
        let descriptors = fs::read_dir("/proc/self/fd").expect("our descriptors");
        for entry in descriptors.map_while(Result::ok) {
            let link = fs::read_link(entry.path()).unwrap_or_default();
            assert!(!link.starts_with(&mark), "{} is open", link.display());
        }
    }
}

impl Drop for Kit {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.stop();
        }
    }
}

fn all_processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").expect("/proc").map_while(Result::ok);
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn other_user() -> Option<Account> {
    is_root().then(|| effects::account("www-data", None).expect("a user"))
}

fn text(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

const SHORT: Duration = Duration::from_millis(1500);
