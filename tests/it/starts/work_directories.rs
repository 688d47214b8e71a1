//! Work directories of a killed master, and the process that removes them.

use super::{Broken, below, work_directories};
use crate::support::prelude::*;

const FILLS: &str = "import os, time\nplace = os.environ['FORKYARD_SPAWN_WORK_DIR']\n\
                     for number in range(COUNT): open(f'{place}/{number}', 'w').close()\n\
                     open(f'{place}/full', 'w').close()\nwhile True: time.sleep(1)\n";

fn bases(temporary: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(temporary)
        .expect("the directory")
        .map_while(Result::ok);
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    found.sort();
    found
}

fn wait_until_full(broken: &Broken) -> PathBuf {
    let params = Params::get(&broken.daemon.dir, "x", "");
    let _client = broken.daemon.send("www", &params);
    until("a full work directory", || {
        let found = work_directories(&broken.temporary);
        found.into_iter().find(|path| path.join("full").exists())
    })
}

fn another(temporary: &Path) -> Daemon {
    Daemon::start_by(|dir| php_pool(dir, "", ""), |dir| below(dir, temporary))
}

#[test]
fn what_a_killed_master_has_left_is_removed_by_the_next() {
    let source = FILLS.replace("COUNT", "10000");
    let mut broken = Broken::start("wsgi", "wsgi.py", &source, "", "start_timeout = \"60s\"\n");
    let full = wait_until_full(&broken);
    let base = full.parent().expect("the daemon's directory").to_owned();
    let preloaders = broken.daemon.preloaders("www");
    let other = another(&broken.temporary);
    assert!(full.join("full").exists());
    assert_eq!(bases(&broken.temporary).len(), 2);
    broken.daemon.signal(Signal::SIGKILL);
    broken.daemon.wait();
    for pid in preloaders {
        process::signal(pid, Signal::SIGKILL);
        wait_until("its processes to end", || !process::runs(pid));
    }
    assert!(full.join("full").exists());
    let next = another(&broken.temporary);
    next.write("hello.php", "<?php echo 'hello';");
    assert_eq!(next.get("www", "hello.php").body(), "hello");
    wait_until("the left directory to go", || !base.exists());
    assert_eq!(bases(&broken.temporary).len(), 2, "those of the two that live");
    drop(other);
    drop(next);
    wait_until("nothing to be left", || bases(&broken.temporary).is_empty());
}

#[test]
fn root_s_daemons_have_their_work_directories_in_run() {
    skip_if!(needs_root());
    let dir = directory();
    let application = application_in("wsgi", dir.path(), "");
    write_file(
        dir.path().join("wsgi.py"),
        format!(
            "import os\nopen('where', 'w').write(os.environ['FORKYARD_SPAWN_WORK_DIR'])\n{}",
            FILLS.replace("COUNT", "1")
        ),
    );
    let settings = "pm = \"ondemand\"\nmax_children = 1\n";
    write_file(
        dir.path().join("forkyard.toml"),
        pool(dir.path(), "www", settings, &application),
    );
    let mut command = forkyard(&["run"], dir.path());
    command.env_remove("TMPDIR");
    let daemon = Daemon::launch(dir.path(), command).ready();
    let _client = daemon.send("www", &Params::get(dir.path(), "x", ""));
    let place = until("a work directory", || {
        let place = PathBuf::from(fs::read_to_string(dir.path().join("where")).ok()?);
        place.join("full").exists().then_some(place)
    });
    assert!(place.starts_with("/run/forkyard"), "{}", place.display());
    for path in [Path::new("/run/forkyard"), place.parent().expect("parent")] {
        let data = fs::symlink_metadata(path).expect("stat");
        assert_eq!(
            (data.uid(), data.permissions().mode() & 0o7777),
            (0, 0o711),
            "{}",
            path.display()
        );
    }
    daemon.signal(Signal::SIGTERM);
    until("its directory to go", || {
        (!place.parent()?.exists()).then_some(())
    });
}
