//! The daemon's inputs besides its files: environment, descriptors, PHP options.

use super::both::{STOCK, forkyard_fpm, is_stock_there};
use super::service::{Daemon, Site, title};
use crate::support::prelude::*;

fn foreground(program: impl AsRef<std::ffi::OsStr>, site: &Site) -> Command {
    let mut command = Command::new(program);
    command.args(["-F", "-O", "-y"]).arg(site.path("php-fpm.conf"));
    command
}

#[test]
fn php_fpm_reloads_into_forkyard() {
    let (true, false, Some(site)) = (is_stock_there(), needs_root(), Site::new()) else {
        return;
    };
    let program = site.path("php-fpm");
    symlink(STOCK, &program).expect("writable");
    let mut daemon = Daemon::run(&mut foreground(&program, &site)).ready();
    assert_eq!(site.ask(), "fpm-fcgi 128M ");
    let inode = |path: &Path| std::os::unix::fs::MetadataExt::ino(&fs::metadata(path).expect("it is there"));
    let before = inode(&site.path("fpm.sock"));

    fs::remove_file(&program).expect("it is ours");
    symlink(forkyard_fpm(), &program).expect("writable");
    daemon.signal(Signal::SIGUSR2);
    let seen = daemon.expect("reloading: execvp");
    assert!(
        seen.iter().any(|line| line.contains("Reloading in progress")),
        "{seen:#?}"
    );
    let socket = site.path("fpm.sock");
    daemon.expect(&format!("\"{}\"", socket.display()));
    daemon.expect(&format!("fpm is running, pid {}", daemon.child.id()));
    daemon.expect("ready to handle connections");
    assert_eq!(site.ask(), "fpm-fcgi 128M ");
    assert_eq!(inode(&socket), before);
    let titles: Vec<String> = daemon.children().into_iter().map(title).collect();
    assert!(
        titles.contains(&"php-fpm: preloader zygote".to_owned()),
        "{titles:?}"
    );

    daemon.stop(Signal::SIGTERM);
    assert!(!socket.exists() && !site.path("fpm.pid").exists());
}

#[test]
fn sockets_that_the_environment_names_are_used_after_a_look() {
    let (false, Some(site)) = (needs_root(), Site::new()) else {
        return;
    };
    let path = site.path("fpm.sock");
    let socket = UnixListener::bind(&path).expect("writable");
    let other = site.path("unwanted.sock");
    let unwanted = UnixListener::bind(&other).expect("writable");
    let mut command = foreground(forkyard_fpm(), &site);
    let value = format!(
        "{}=3,{}=4,/run/x.sock=0,/run/y.sock=99",
        path.display(),
        other.display()
    );
    command
        .env("FPM_SOCKETS", value)
        .env("FPM_SOCKETS_2", "never=read");
    let descriptors = [socket.as_raw_fd(), unwanted.as_raw_fd()];
    // SAFETY: dup2 is async-signal-safe; the descriptors are open in the parent.
    unsafe {
        command.pre_exec(move || {
            let [first, second] = descriptors.map(|fd| nix::libc::fcntl(fd, nix::libc::F_DUPFD, 100));
            if nix::libc::dup2(first, 3) < 0 || nix::libc::dup2(second, 4) < 0 {
                return Err(std::io::Error::last_os_error());
            }
            Ok(())
        });
    }
    let mut daemon = Daemon::run(&mut command);
    let seen = daemon.expect("ready to handle connections").join("\n");
    for text in [
        format!("NOTICE: using inherited socket fd=3, \"{}\"", path.display()),
        "WARNING: FPM_SOCKETS: descriptor 0 is no listening socket".to_owned(),
        "WARNING: FPM_SOCKETS: descriptor 99 is no listening socket".to_owned(),
    ] {
        assert!(seen.contains(&text), "{text}\n{seen}");
    }
    drop((socket, unwanted));
    assert_eq!(site.ask(), "fpm-fcgi 128M ");
    assert!(!other.exists(), "nobody wants it, and php-fpm would remove it");
    daemon.stop(Signal::SIGQUIT);
    assert!(!path.exists());
}

#[test]
fn the_background_keeps_no_stream_open() {
    let (true, false, Some(site)) = (is_stock_there(), needs_root(), Site::new()) else {
        return;
    };
    let logs = [STOCK, forkyard_fpm()].map(|program| {
        let mut command = Command::new(program);
        command.args(["-D", "-y"]).arg(site.path("php-fpm.conf"));
        let output = command.stdin(Stdio::null()).output().expect("it can be run");
        assert!(output.status.success(), "{program}: {output:?}");
        let pid = fs::read_to_string(site.path("fpm.pid")).expect("it has written it");
        assert_eq!(site.ask(), "fpm-fcgi 128M ");
        let pid = nix::unistd::Pid::from_raw(pid.parse().expect("a number"));
        assert_eq!(nix::unistd::getsid(Some(pid)), Ok(pid), "{program}");
        nix::sys::signal::kill(pid, Signal::SIGTERM).expect("it runs");
        wait_until("its end", || !site.path("fpm.pid").exists());
        let read = || fs::read_to_string(site.path("fpm.log")).unwrap_or_default();
        let log = until("its last line", || {
            Some(read()).filter(|log| log.contains("bye-bye"))
        });
        let _ = fs::remove_file(site.path("fpm.log"));
        let text = log.replace(&format!("pid {pid}"), "pid N");
        let lines = text
            .lines()
            .map(|line| super::both::without_time(line).to_owned());
        lines.filter(|line| !line.contains("systemd")).collect::<Vec<_>>()
    });
    assert_eq!(logs[0], logs[1]);
    assert_eq!(logs[0].len(), 4, "{logs:#?}");
}

#[test]
fn php_gets_its_options_and_its_places_from_the_environment() {
    let (true, false, Some(site)) = (is_stock_there(), needs_root(), Site::new()) else {
        return;
    };
    site.write("rc/php.ini", "memory_limit = 40M\n");
    site.write("scanned/one.ini", "memory_limit = 50M\n");
    let file = site.path("php-fpm.conf");
    site.write("scanned/two.ini", &format!("fpm.config = {}\n", file.display()));
    let rc = site.path("rc");
    let scanned = format!(":{}", site.path("scanned").display());
    for program in [STOCK, forkyard_fpm()] {
        let mut first = foreground(program, &site);
        first.env("PHPRC", &rc);
        let mut second = Command::new(program);
        second.args(["-F", "-O"]).env("PHP_INI_SCAN_DIR", &scanned);
        let mut third = foreground(program, &site);
        third.args(["-d", "memory_limit=60M"]);
        for (mut command, limit) in [(first, "40M"), (second, "50M"), (third, "60M")] {
            let mut daemon = Daemon::run(&mut command).ready();
            assert_eq!(site.ask(), format!("fpm-fcgi {limit} "), "{program}");
            daemon.stop(Signal::SIGTERM);
        }
    }
}

#[test]
fn extended_information_is_compiled_in_when_it_is_asked_for() {
    let (false, Some(site)) = (needs_root(), Site::new()) else {
        return;
    };
    site.append("catch_workers_output = yes\n");
    for asked in [false, true] {
        let mut command = foreground(forkyard_fpm(), &site);
        command.args(["-d", "opcache.opt_debug_level=0x10000"]);
        command.args(["-d", "opcache.file_update_protection=0"]);
        if asked {
            command.arg("-e");
        }
        let mut daemon = Daemon::run(&mut command).ready();
        assert_eq!(site.ask(), "fpm-fcgi 128M ");
        let mut seen = daemon.expect("RETURN");
        daemon.signal(Signal::SIGTERM);
        seen.extend(daemon.expect("exiting, bye-bye!"));
        let is_there = seen.iter().any(|line| line.contains("EXT_STMT"));
        assert_eq!(is_there, asked, "{seen:#?}");
        assert!(daemon.child.wait().expect("it is our child").success());
    }
}
