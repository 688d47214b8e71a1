//! `watch = true`: files of pools that appear, change and go.

use super::member;
use crate::support::prelude::*;

struct Site {
    daemon: Daemon,
    pools: PathBuf,
}

impl Site {
    fn start(count: usize) -> Site {
        let daemon = Daemon::start(|dir| {
            let pools = dir.join("pools");
            fs::create_dir(&pools).expect("a directory");
            for number in 0..count {
                fs::write(file(&pools, number), member(dir, number, "")).expect("a pool");
            }
            let control = dir.join("control.sock");
            let control = format!("[global]\ncontrol = \"{}\"\n", control.display());
            control + "watch = true\ninclude = [\"pools/*.toml\"]\n"
        });
        daemon.wait_for("reload done");
        daemon.write("hello.php", "<?php echo 'hello';");
        let pools = daemon.dir.join("pools");
        Site { daemon, pools }
    }

    fn text(&self, number: usize) -> String {
        member(&self.daemon.dir, number, "")
    }

    fn is_open(&self, number: usize) -> bool {
        UnixStream::connect(self.daemon.socket(&format!("p{number}"))).is_ok()
    }

    fn serves(&self, number: usize) {
        wait_until("the pool listens", || self.is_open(number));
        assert_eq!(
            self.daemon.get(&format!("p{number}"), "hello.php").body(),
            "hello"
        );
    }

    fn ends(&self, number: usize) {
        wait_until("the pool ends", || !self.is_open(number));
    }

    fn reloads(&self) -> usize {
        self.daemon.log().matches("Reloading in progress").count()
    }
}

fn file(pools: &Path, number: usize) -> PathBuf {
    pools.join(format!("p{number}.toml"))
}

#[test]
fn a_file_that_appears_is_a_pool_and_one_that_goes_ends_it() {
    let site = Site::start(0);
    fs::write(file(&site.pools, 1), site.text(1)).expect("a pool");
    site.serves(1);
    let half = site.pools.join(".p2.toml.swp");
    fs::write(&half, site.text(2)).expect("a pool");
    fs::rename(&half, file(&site.pools, 2)).expect("rename");
    site.serves(2);
    let elsewhere = site.daemon.dir.join("elsewhere");
    fs::write(&elsewhere, site.text(3)).expect("a pool");
    symlink(&elsewhere, file(&site.pools, 3)).expect("a link");
    site.serves(3);
    assert_eq!(site.daemon.get("p2", "hello.php").body(), "hello");
    fs::remove_file(file(&site.pools, 1)).expect("unlink");
    site.ends(1);
    site.serves(2);
    fs::remove_file(file(&site.pools, 3)).expect("unlink");
    fs::rename(file(&site.pools, 2), site.daemon.dir.join("p2.off")).expect("rename");
    site.ends(2);
    site.ends(3);
    fs::write(file(&site.pools, 2), site.text(2)).expect("a pool");
    site.serves(2);
}

#[test]
fn a_file_that_is_wrong_is_told_and_hurts_no_other() {
    let site = Site::start(2);
    let wrong = site.text(0).replace("max_children = 2", "max_children = 0");
    fs::write(file(&site.pools, 0), wrong).expect("a pool");
    let line = site.daemon.wait_for("max_children");
    assert!(
        line.contains("p0.toml:") && line.contains("[pool p0]") && line.contains('0'),
        "{line}"
    );
    site.serves(0);
    site.serves(1);
    fs::write(file(&site.pools, 2), "[pool.p2").expect("no pool");
    assert_contains(&site.daemon.wait_for("p2.toml:1"), "ERROR");
    fs::write(file(&site.pools, 3), site.text(3)).expect("a pool");
    site.serves(3);
    fs::write(file(&site.pools, 2), site.text(2)).expect("a pool");
    site.serves(2);
}

#[test]
fn a_thousand_files_at_once_are_one_reload_or_few() {
    let site = Site::start(1);
    let before = site.reloads();
    let texts: Vec<String> = (1..=1000).map(|number| site.text(number)).collect();
    let aside = site.daemon.dir.join("aside");
    fs::create_dir(&aside).expect("a directory");
    for (at, text) in texts.iter().enumerate() {
        fs::write(file(&aside, at + 1), text).expect("a pool");
    }
    for number in 1..=1000 {
        fs::rename(file(&aside, number), file(&site.pools, number)).expect("rename");
    }
    for number in [1, 500, 1000] {
        site.serves(number);
    }
    let made = site.reloads() - before;
    assert!(
        made <= 3,
        "{made} reloads, where a busy machine may need more than one"
    );
}

#[test]
fn another_directory_may_take_the_place_of_the_one_that_is_watched() {
    let site = Site::start(1);
    let next = site.daemon.dir.join("next");
    fs::create_dir(&next).expect("a directory");
    fs::write(file(&next, 5), site.text(5)).expect("a pool");
    fs::rename(&site.pools, site.daemon.dir.join("before")).expect("rename");
    site.daemon.wait_for("is gone: its pools go on");
    site.serves(0);
    fs::rename(&next, &site.pools).expect("rename");
    site.serves(5);
    site.ends(0);
    fs::write(file(&site.pools, 6), site.text(6)).expect("a pool");
    site.serves(6);
}

#[test]
fn what_is_no_regular_file_is_skipped_and_blocks_nobody() {
    let site = Site::start(1);
    let place = site.pools.join("odd.toml");
    let socket = || drop(UnixListener::bind(&place).expect("bind"));
    let rows: [(&str, &dyn Fn()); 3] = [
        ("a FIFO", &|| make_fifo(&place)),
        ("a socket", &socket),
        ("a device", &|| symlink("/dev/zero", &place).expect("link")),
    ];
    for (kind, make) in rows {
        make();
        let of_place = |log: &str| log.matches("odd.toml").count();
        let before = of_place(&site.daemon.log());
        let said = exited(Some(78), site.daemon.said(&["reload"]));
        assert_contains(&said, "odd.toml");
        assert!(of_place(&site.daemon.log()) > before, "{kind}");
        let said = exited(Some(78), site.daemon.said(&["check"]));
        assert_contains(&said, "odd.toml");
        site.serves(0);
        fs::remove_file(&place).expect("remove");
        exited(Some(0), site.daemon.said(&["reload"]));
    }
}
