//! The report names applications that the kernel kills for lack of memory.

use super::{Broken, WELL_WSGI, id_of};
use crate::support::prelude::*;

const SOLUTION: &str = "Give the service or container more memory";
const EATS: &str =
    "import time\nprint('about to', flush=True)\nx = []\nwhile True: x.append(bytearray(1 << 20))\n";
const MEMORY_BYTES: u64 = 192 << 20;

struct Group(PathBuf);

impl Group {
    fn make() -> Option<Group> {
        let made = || {
            let v1 = Path::new("/sys/fs/cgroup/memory");
            let (parent, limit) = match v1.join("memory.limit_in_bytes").exists() {
                true => (v1, "memory.limit_in_bytes"),
                false => (Path::new("/sys/fs/cgroup"), "memory.max"),
            };
            let group = Group(parent.join(format!("forkyard-test-{}-{}", std::process::id(), number())));
            fs::create_dir(&group.0)?;
            fs::write(group.0.join(limit), MEMORY_BYTES.to_string())?;
            for (file, value) in [("memory.swap.max", "0"), ("memory.swappiness", "0")] {
                let _ = fs::write(group.0.join(file), value);
            }
            Ok::<Group, std::io::Error>(group)
        };
        made()
            .map_err(|error| {
                crate::skip::skip(&format!(
                    "no control group with a limit on memory can be made here: {error}"
                ))
            })
            .ok()
    }

    fn joining(&self, command: &str) -> String {
        format!("echo $$ > {}/cgroup.procs && exec {command}", self.0.display())
    }
}

fn number() -> u32 {
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Drop for Group {
    fn drop(&mut self) {
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            pause();
        }
    }
}

fn start(group: &Group, application: &str, files: &[(&str, &str)]) -> Broken {
    let root = folder(files);
    let application = format!("root = \"{}\"\n{application}", root.path().display());
    let settings = "pm = \"ondemand\"\nmax_children = 1\n";
    let configure = |dir: &Path| with_control(dir) + &pool(dir, "www", settings, &application);
    Broken::start_by(root, configure, |dir, temporary| {
        let daemon = env!("CARGO_BIN_EXE_forkyard");
        let run = format!("{daemon} run -c {}/forkyard.toml", dir.display());
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", &group.joining(&run)])
            .env("TMPDIR", temporary);
        command
    })
}

fn assert_told(broken: &Broken, id: &str) {
    let report = broken.report(id);
    let error = report["error"].to_string();
    assert!(
        error.contains("because its memory limit was reached or the machine was out of memory")
            && error.contains(SOLUTION),
        "{report:#}"
    );
    let subprocess = &report["diagnostics"]["subprocess"];
    assert_eq!(
        subprocess["exit"], "was killed by signal 9 (SIGKILL)",
        "{report:#}"
    );
    assert!(
        subprocess["stdout_and_err"].to_string().contains("about to"),
        "{report:#}"
    );
    assert!(process::runs(broken.daemon.pid()));
}

#[test]
fn an_application_in_a_preloader() {
    let Some(group) = Group::make() else { return };
    let broken = start(&group, "runtime = \"wsgi\"", &[("wsgi.py", EATS)]);
    assert_told(&broken, &broken.refused());
    broken.heals("wsgi.py", WELL_WSGI);
}

#[test]
fn a_program_that_speaks_http() {
    let Some(group) = Group::make() else { return };
    let application = "runtime = \"http\"\nstart_command = \"python3 app.py\"";
    let broken = start(&group, application, &[("app.py", EATS)]);
    assert_told(&broken, &broken.refused());
    broken.heals_unchecked("app.py", super::faults::WELL);
}

#[test]
fn a_program_that_speaks_fastcgi() {
    let Some(group) = Group::make() else { return };
    let application = "runtime = \"fastcgi\"\nstart_command = \"python3 app.py\"";
    let broken = start(&group, application, &[("app.py", EATS)]);
    let id = broken.ask().error_id();
    until("the report", || {
        let output = super::error(&broken.daemon, &id);
        output.status.success().then_some(())
    });
    assert_told(&broken, &id);
}

#[test]
fn a_pool_with_a_group_of_its_own() {
    let controllers = fs::read_to_string("/sys/fs/cgroup/cgroup.controllers").unwrap_or_default();
    if !controllers.split_whitespace().any(|name| name == "memory") {
        return crate::skip::skip("cgroup v2 has no memory controller here");
    }
    let parent = Path::new("/sys/fs/cgroup").join(format!("forkyard-test-{}-own", std::process::id()));
    fs::create_dir(&parent).expect("a group");
    let pool = Group(parent.join("www"));
    let parent = Group(parent);
    let settings = format!(
        "cgroup.parent = \"{}\"\ncgroup.memory_max = \"192M\"\n",
        parent.0.display()
    );
    let broken = Broken::start("wsgi", "wsgi.py", WELL_WSGI, &settings, "");
    fs::write(pool.0.join("memory.oom.group"), "1").expect("memory.oom.group");
    let _ = fs::write(pool.0.join("memory.swap.max"), "0");
    fs::write(broken.root.path().join("wsgi.py"), EATS).expect("write");
    assert_told(&broken, &id_of(&broken.ask()));
    broken.heals("wsgi.py", WELL_WSGI);
    drop(broken);
    drop(pool);
    drop(parent);
}
