//! What PHP was started from holds until a reload, also for processes that are started later.

use crate::support::prelude::*;

const SHOW: &str = "<?php echo json_encode([ini_get('date.timezone'), ini_get('user_agent'), ini_get('precision'), \
                    ini_get('memory_limit'), php_ini_loaded_file(), get_cfg_var('cfg_file_path'), \
                    array_map('trim', explode(',', php_ini_scanned_files())), extension_loaded('calendar')], \
                    JSON_UNESCAPED_SLASHES), \"\\n\";";
const TOLD: &str = "changed since the start or the last reload";

fn configure(dir: &Path) -> String {
    let etc = dir.join("etc");
    fs::create_dir_all(etc.join("conf.d")).expect("directory");
    write_file(
        etc.join("php.ini"),
        "date.timezone = Europe/Paris\n[HOST=other.example]\nuser_agent = section\n",
    );
    write_file(
        etc.join("conf.d/10-a.ini"),
        "user_agent = \"a \\\"of\\\" before\"\nprecision = 9",
    );
    write_file(
        etc.join("conf.d/20-b.ini"),
        "precision = 11\nextension = calendar\n",
    );
    let named = |name: &str, pm: &str| {
        let application = format!(
            concat!(
                "runtime = \"php\"\nversion = \"",
                env!("FORKYARD_PHP"),
                "\"\npreloader = \"own\"\nphp_ini = \"{}\"\nphp_value = {{ memory_limit = \"77M\" }}\n"
            ),
            etc.display()
        );
        pool(dir, name, pm, &application)
    };
    let ondemand = "pm = \"ondemand\"\nmax_children = 1\n";
    named("early", "pm = \"static\"\nmax_children = 1\n")
        + &named("late", ondemand)
        + &named("later", ondemand)
}

fn shown(daemon: &Daemon, pool: &str) -> String {
    daemon.get(pool, "show.php").body()
}

#[test]
fn an_edited_php_ini_waits_for_the_reload() {
    let daemon = Daemon::start(configure);
    daemon.write("show.php", SHOW);
    let old = shown(&daemon, "early");
    let etc = daemon.dir.join("etc");
    let [ini, a, b] =
        ["php.ini", "conf.d/10-a.ini", "conf.d/20-b.ini"].map(|name| etc.join(name).display().to_string());
    assert_eq!(
        old,
        format!(
            "[\"Europe/Paris\",\"a \\\"of\\\" before\",\"11\",\"77M\",\"{ini}\",\"{ini}\",[\"{a}\",\"{b}\"],true]\n"
        )
    );

    daemon.write("etc/php.ini", "date.timezone = Asia/Tokyo\n");
    fs::remove_file(etc.join("conf.d/10-a.ini")).expect("the file is there");
    daemon.write(
        "etc/conf.d/20-b.ini",
        "precision = 13\nextension = is_not_there_yet\n",
    );
    daemon.write("etc/conf.d/30-c.ini", "user_agent = new\n");
    for pool in ["late", "later"] {
        assert_eq!(shown(&daemon, pool), old, "{pool}");
    }
    let pids = daemon
        .preloaders("early")
        .into_iter()
        .chain(daemon.workers("early"));
    for pid in pids {
        kill(Pid::from_raw(pid as i32), Signal::SIGKILL).expect("it runs");
    }
    assert_eq!(shown(&daemon, "early"), old);
    let log = daemon.log();
    assert_eq!(log.matches(TOLD).count(), 1, "{log}");
    let line = log.lines().find(|line| line.contains(TOLD)).expect("the line");
    assert_contains(line, &format!("NOTICE: {a} and 3 other files changed"));
    assert_ends(line, "PHP is started with the settings of before until a reload");

    daemon.write("etc/conf.d/20-b.ini", "precision = 13\n");
    daemon.signal(Signal::SIGUSR2);
    daemon.wait_for_count("reload done", 1);
    let c = etc.join("conf.d/30-c.ini").display().to_string();
    let new =
        format!("[\"Asia/Tokyo\",\"new\",\"13\",\"77M\",\"{ini}\",\"{ini}\",[\"{b}\",\"{c}\"],false]\n");
    for pool in ["early", "late", "later"] {
        wait_until("the new settings", || shown(&daemon, pool) == new);
    }
    assert_eq!(daemon.log().matches(TOLD).count(), 1, "nothing changed since");
}

#[test]
fn a_directory_of_settings_that_is_gone_is_missed_by_none() {
    let daemon = Daemon::start(configure);
    daemon.write("show.php", SHOW);
    let old = shown(&daemon, "early");
    fs::rename(daemon.dir.join("etc"), daemon.dir.join("gone")).expect("the directory is ours");
    assert_eq!(shown(&daemon, "late"), old);
    assert_contains(&daemon.wait_for(TOLD), "etc/conf.d/10-a.ini and ");
    fs::rename(daemon.dir.join("gone"), daemon.dir.join("etc")).expect("the directory is ours");
    assert_eq!(shown(&daemon, "later"), old);
}

struct LibraryDirectory(PathBuf);

impl LibraryDirectory {
    fn new() -> LibraryDirectory {
        let path = PathBuf::from(format!("/opt/forkyard-test-{}", std::process::id()));
        fs::create_dir_all(&path).expect("root can");
        LibraryDirectory(path)
    }

    fn put(&self, name: &str, from: &Path) -> PathBuf {
        let (unpacked, path) = (self.0.join("unpacked"), self.0.join(name));
        crate::support::copy_program(from, &unpacked);
        fs::rename(&unpacked, &path).expect("rename");
        path
    }
}

impl Drop for LibraryDirectory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_replaced_extension_is_named_once_and_the_reload_takes_it_in() {
    skip_if!(needs_root());
    let directory = LibraryDirectory::new();
    let original = Path::new("/usr/lib/php/20220829/calendar.so");
    let library = directory.put("calendar.so", original);
    let daemon = Daemon::start(|dir| {
        let application = format!(
            concat!(
                "runtime = \"php\"\nversion = \"",
                env!("FORKYARD_PHP"),
                "\"\npreloader = \"own\"\nphp_ini = \"{}\"\nphp_admin_value = {{ extension = \"{}\" }}\n"
            ),
            dir.join("etc").display(),
            library.display()
        );
        fs::create_dir_all(dir.join("etc/conf.d")).expect("directory");
        let ondemand = "pm = \"ondemand\"\nmax_children = 1\n";
        pool(dir, "early", "", &application)
            + &pool(dir, "late", ondemand, &application)
            + &pool(dir, "later", ondemand, &application)
            + &pool(dir, "last", ondemand, &application)
    });
    let script = "<?php preg_match('~ (\\d+) +/opt/\\S+/calendar.so~', file_get_contents('/proc/self/maps'), $m); \
                  echo $m[1] ?? 'none';";
    daemon.write("show.php", script);
    let inode = |path: &Path| fs::metadata(path).expect("it is there").ino().to_string();
    let old = inode(&library);
    assert_eq!(shown(&daemon, "early"), old);

    directory.put("calendar.so", original);
    let new = inode(&library);
    assert_ne!(new, old);
    assert_eq!(
        [shown(&daemon, "late"), shown(&daemon, "later")],
        [new.clone(), new.clone()]
    );
    assert_eq!(shown(&daemon, "early"), old);
    let line = daemon.wait_for(TOLD);
    let path = library.display();
    assert_contains(&line, &format!("NOTICE: {path} {TOLD}"));
    assert_ends(
        &line,
        "PHP starts with the present files; running workers continue until a reload",
    );
    assert_eq!(daemon.log().matches(TOLD).count(), 1, "{}", daemon.log());
    directory.put("calendar.so", original);
    assert_eq!(shown(&daemon, "last"), inode(&library));
    assert_eq!(daemon.log().matches(TOLD).count(), 2, "{}", daemon.log());

    daemon.signal(Signal::SIGUSR2);
    daemon.wait_for_count("reload done", 1);
    let now = inode(&library);
    for pool in ["early", "late", "later", "last"] {
        wait_until("the new extension", || shown(&daemon, pool) == now);
    }
    directory.put("calendar.so", original);
    for pid in daemon
        .preloaders("last")
        .into_iter()
        .chain(daemon.workers("last"))
    {
        kill(Pid::from_raw(pid as i32), Signal::SIGKILL).expect("it runs");
    }
    assert_eq!(shown(&daemon, "last"), inode(&library));
    assert_eq!(daemon.log().matches(TOLD).count(), 3, "{}", daemon.log());
}
