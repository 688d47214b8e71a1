//! Tenants that lie in every message of every channel while others serve under load: `liar.py` is their preloader,
//! workers, instances and program.

use super::needs_root;
use crate::random::number;
use crate::support::prelude::*;

const PHP: &str = "runtime = \"php\"\nversion = \"8.2\"\nstart_timeout = \"3s\"\n";
const SECONDS: u64 = 8;
/// The longest answer of other pools, on a busy machine: a PHP script takes a millisecond.
const LONGEST: Duration = Duration::from_secs(5);
/// The master's memory growth: its allocator's caches, and four reports of failed starts for each pool.
const MORE_MEMORY_KIB: u64 = 16 * 1024;
const LIAR: (&str, u32) = ("backup", 34);
const SITES: usize = 4;

fn liar(dir: &Path, name: &str, kind: &str, settings: &str) -> String {
    let (user, _) = LIAR;
    let settings = format!(
        "user = \"{user}\"\ncatch_workers_output = true\nclear_env = true\n{settings}env = {{ {} }}\n",
        variables(dir, kind, name)
    );
    let program = match kind {
        "program" => format!(
            "runtime = \"http\"\nroot = \"{0}\"\nstart_command = \"/usr/bin/python3 {0}/forkyard-php program\"\nhandshake = true\n\
             start_timeout = \"1s\"\n",
            dir.display()
        ),
        _ => PHP.to_owned(),
    };
    pool(dir, name, &settings, &program)
}

fn variables(dir: &Path, kind: &str, name: &str) -> String {
    let dir = dir.display();
    let seed = number("FORKYARD_SEED").unwrap_or(1);
    let pairs = [
        ("LIAR", kind.to_owned()),
        ("NAME", name.to_owned()),
        ("SEED", seed.to_string()),
        ("DIRECTORY", format!("{dir}/lives")),
        ("GOOD", format!("{dir}/apps/good")),
        ("PATH", "/usr/bin:/bin".to_owned()),
    ];
    let pairs = pairs.map(|(name, value)| format!("{name} = {value:?}"));
    pairs.join(", ")
}

fn good_pools(dir: &Path) -> String {
    let path = dir.display();
    let quiet = pool(
        dir,
        "quiet",
        "pm = \"static\"\nmax_children = 2\nstatus_path = \"/status\"\n",
        PHP,
    );
    format!(
        "[global]\ncontrol = \"{path}/control.sock\"\nprocess_control_timeout = \"5s\"\n{quiet}\n[pool.sites]\n\
         listen = {{ address = \"{path}/sites.sock\", mode = \"0666\" }}\nrouting = \"application\"\ncatch_workers_output = true\n\
         [pool.sites.application]\npreloader = \"own\"\npreloader_idle_timeout = \"1s\"\n[pool.sites.applications]\ndirectories = [\"{path}/apps\"]\nmin_uid = 1\nmax = 12\nmax_per_app = 2\nstart_timeout = \"3s\"\n\
         stat_throttle_rate = 0\n"
    )
}

fn start(dir: &Path) -> Daemon {
    for name in ["apps", "lives"] {
        fs::create_dir(dir.join(name)).expect("directory");
    }
    make_writable(&dir.join("lives"));
    let ours = Path::new(env!("CARGO_BIN_EXE_forkyard"));
    let program = dir.join("forkyard");
    if fs::hard_link(ours, &program).is_err() {
        crate::support::copy_program(ours, &program);
    }
    let script = format!("#!/usr/bin/python3\n{}", include_str!("liar.py"));
    write_program(&dir.join("forkyard-php"), script);
    symlink(env!("CARGO_BIN_EXE_forkyard-php"), dir.join("forkyard-php.real")).expect("symlink");
    fs::write(dir.join("ok.php"), "<?php echo 'fine';").expect("write");
    application(dir, "good", 33, "<?php echo 'good';", "runtime = \"php\"\n");
    fs::write(dir.join("forkyard.toml"), good_pools(dir)).expect("write");
    let mut command = Command::new(program);
    command.args(["run", "-c"]).arg(dir.join("forkyard.toml"));
    Daemon::launch(dir, command).ready()
}

fn application(dir: &Path, name: &str, uid: u32, script: &str, settings: &str) {
    let made = dir.join(format!(".{name}"));
    fs::create_dir(&made).expect("application");
    fs::write(made.join("index.php"), script).expect("write");
    fs::write(made.join("forkyard.toml"), settings).expect("write");
    for path in [made.clone(), made.join("index.php"), made.join("forkyard.toml")] {
        chown(path, Some(uid), Some(uid)).expect("chown");
    }
    fs::rename(made, dir.join("apps").join(name)).expect("rename");
}

fn of_application(dir: &Path, name: &str) -> Params {
    let root = dir.join("apps").join(name);
    Params::get(&root, "index.php", "").with("FORKYARD_APP_ROOT", &root.display().to_string())
}

/// Asks for a page again and again. `body`: of each answer; `None` accepts any, or none.
fn ask(load: &mut Load<Option<Duration>>, socket: PathBuf, params: Params, body: Option<&'static str>) {
    load.add(move || {
        let begun = Instant::now();
        let answer = Client::connect(&socket).and_then(|mut client| client.request(&params, b""));
        let Some(body) = body else {
            pause();
            return None;
        };
        assert_eq!(answer.expect("an answer").body(), body);
        Some(begun.elapsed())
    });
}

#[derive(Debug, Clone, Copy)]
struct Size {
    descriptors: usize,
    memory: u64,
}

fn size(pid: u32) -> Size {
    let memory = process::status_line(pid, "VmRSS").unwrap_or_default();
    Size {
        descriptors: fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count),
        memory: memory.trim_end_matches(" kB").parse().unwrap_or(0),
    }
}

fn router(daemon: &Daemon) -> u32 {
    until("the router", || {
        let mut children = process::children(daemon.pid()).into_iter();
        children.find(|pid| process::title(*pid) == "forkyard: router sites")
    })
}

fn ask_for_good(daemon: &Daemon) {
    let mut client = daemon.client("sites");
    let answer = client.request(&of_application(&daemon.dir, "good"), b"");
    assert_eq!(answer.expect("an answer").body(), "good", "{}", daemon.log());
}

const OF_AN_INSTANCE: usize = 4;

/// Whether descriptors and memory have returned to the earlier size. `more`: further instances of the good application,
/// which may have got one while the first was busy.
fn settles(what: &str, pid: u32, before: Size, more: usize) -> Size {
    wait_until(&format!("the {what} to have closed what it was given"), || {
        let now = size(pid);
        now.descriptors <= before.descriptors + more * OF_AN_INSTANCE
    });
    let now = size(pid);
    eprintln!("the {what}: {before:?} before, {now:?} after");
    assert!(
        now.memory <= before.memory + MORE_MEMORY_KIB,
        "the {what} had {before:?} and has {now:?}"
    );
    now
}

fn lives(dir: &Path) -> String {
    let mut text = String::new();
    for entry in fs::read_dir(dir.join("lives"))
        .expect("lives")
        .map_while(Result::ok)
    {
        let count = entry.metadata().map_or(0, |metadata| metadata.len());
        let name = entry.file_name();
        if let Some(name) = name.to_string_lossy().strip_prefix("lives-") {
            let _ = write!(text, "{name} {count}, ");
        }
    }
    text
}

#[test]
fn tenants_that_lie_in_every_message_cost_nobody_anything() {
    skip_if!(needs_root());
    let seconds = number("FORKYARD_HOSTILE").unwrap_or(SECONDS);
    let dir = directory();
    let path = dir.path();
    let mut daemon = start(path);
    let victims = daemon.wait_for_workers("quiet", 2);
    fs::write(path.join("lives/victim"), victims[0].to_string()).expect("write");
    fs::write(path.join("lives/orphan"), router(&daemon).to_string()).expect("write");
    ask_for_good(&daemon);
    let (master, routing) = (daemon.pid(), router(&daemon));
    let before = [size(master), size(routing)];
    let instances = daemon.workers("sites:good").len();

    let mut load = Load::start(0, |_| || None);
    for _ in 0..2 {
        let params = Params::get(path, "ok.php", "");
        ask(&mut load, daemon.socket("quiet"), params, Some("fine"));
    }
    ask(
        &mut load,
        daemon.socket("sites"),
        of_application(path, "good"),
        Some("good"),
    );

    let mut all = good_pools(path);
    for number in 0..3 {
        let settings = "pm = \"static\"\nmax_children = 4\nrequest_slowlog_timeout = \"1s\"\n";
        let settings = format!("{settings}slowlog = \"{}/slow{number}.log\"\n", path.display());
        all += &liar(path, &format!("preloader{number}"), "preloader", &settings);
        let settings = "pm = \"dynamic\"\nmax_children = 4\nstart_servers = 2\nmin_spare_servers = 1\nmax_spare_servers = 3\n\
                        process_idle_timeout = \"100ms\"\nrequest_terminate_timeout = \"1s\"\nstatus_path = \"/status\"\n";
        all += &liar(path, &format!("workers{number}"), "workers", settings);
        all += &liar(
            path,
            &format!("program{number}"),
            "program",
            "pm = \"static\"\nmax_children = 1\n",
        );
    }
    fs::write(path.join("forkyard.toml"), all).expect("write");
    daemon.signal(Signal::SIGUSR2);
    for number in 0..SITES {
        let name = format!("bad{number}");
        let kind = if number % 2 == 0 { "workers" } else { "preloader" };
        let settings = format!(
            "runtime = \"php\"\nenv = {{ {} }}\n",
            variables(path, kind, &name)
        );
        application(path, &name, LIAR.1, "<?php echo 'bad';", &settings);
        ask(
            &mut load,
            daemon.socket("sites"),
            of_application(path, &name),
            None,
        );
    }
    let end = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < end {
        let status = Command::new(env!("CARGO_BIN_EXE_forkyard"))
            .args(["status", "--json", "--socket"])
            .arg(path.join("control.sock"))
            .output()
            .expect("forkyard");
        assert_success(&status);
        let status: serde_json::Result<Value> = serde_json::from_slice(&status.stdout);
        assert!(status.is_ok(), "{status:?}");
        std::thread::sleep(Duration::from_millis(200));
    }
    let mut times: Vec<Duration> = load.end().into_iter().flatten().collect();
    times.sort();
    let [half, most] = [times[times.len() / 2], times[times.len() - 1]];
    eprintln!("lives: {}", lives(path));
    eprintln!(
        "{} answers, half of them within {half:?}, all within {most:?}",
        times.len()
    );
    assert!(most < LONGEST, "an answer took {most:?}");

    assert_eq!(daemon.workers("quiet"), victims, "its workers are the same");
    assert_eq!(router(&daemon), routing, "the router is the same");
    for number in 0..SITES {
        fs::remove_dir_all(path.join(format!("apps/bad{number}"))).expect("remove");
    }
    fs::write(path.join("forkyard.toml"), good_pools(path)).expect("write");
    daemon.signal(Signal::SIGUSR2);
    let is_honest = |title: &String| {
        let ours = ["quiet", "sites", "sites:good"]
            .map(|name| [format!("pool {name}"), format!("preloader {name}")]);
        let known = ["router sites", "inspector sites", "preloader zygote"].map(str::to_owned);
        let mut known = ours.iter().flatten().chain(&known);
        known.any(|name| *title == format!("forkyard: {name}"))
    };
    let mut left = Vec::new();
    for _ in 0..3_000 {
        let children = process::children(master).into_iter().map(process::title);
        left = children.filter(|title| !is_honest(title)).collect();
        if left.is_empty() {
            break;
        }
        pause();
    }
    assert!(left.is_empty(), "{left:?} are left");
    ask_for_good(&daemon);
    assert_eq!(daemon.get("quiet", "ok.php").body(), "fine");
    let more = daemon.workers("sites:good").len().saturating_sub(instances);
    settles("master", master, before[0], more);
    settles("router", routing, before[1], more);
    assert_eq!(daemon.workers("quiet"), victims, "its workers are the same");
    let log = daemon.log();
    assert_lacks(&log, "panicked");
    let mut entry = "";
    for line in log.lines() {
        match line.starts_with('[') {
            true => entry = line,
            false => assert!(line.starts_with('\t'), "{line}"),
        }
        let pool = entry.split("[pool ").nth(1).unwrap_or_default();
        assert!(
            !line.contains("forged") || !pool.starts_with("quiet"),
            "{entry}\n{line}"
        );
    }
    daemon.end(Signal::SIGTERM);
}
