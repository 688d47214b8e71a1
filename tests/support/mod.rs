//! Helpers of the end-to-end tests: daemon, nginx, FastCGI client, strace, and polling.

pub mod daemon;
pub mod fcgi;
pub mod load;
pub mod mariadb;
pub mod nginx;
pub mod prelude;
pub mod process;
pub mod strace;

use std::io::Write;
use std::ops::Deref;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub const PHP_VERSION: &str = env!("FORKYARD_PHP");

/// The deadline of every wait: a loaded machine is slow.
pub const PATIENCE: Duration = Duration::from_secs(30);

const SHORTEST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(60);

/// The path of forkyard-fpm: a hard link to forkyard, as `scripts/build` makes it.
pub fn forkyard_fpm() -> &'static str {
    static LINK: Once = Once::new();
    let program = env!("CARGO_BIN_EXE_forkyard");
    let link = concat!(env!("CARGO_BIN_EXE_forkyard"), "-fpm");
    LINK.call_once(|| {
        let inode = |path: &str| std::fs::metadata(path).ok().map(|data| data.ino());
        if inode(link) != inode(program) {
            // Renamed into place, so that a parallel test program never finds it missing.
            let new = format!("{link}.{}", std::process::id());
            std::fs::hard_link(program, &new).expect("a link to forkyard");
            std::fs::rename(&new, link).expect("the link's name");
        }
    });
    link
}

/// Polls until `found` returns a value, for changes without an event. It polls less often the longer it
/// waits: many polls run a program.
pub fn until<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(value) = found() {
            return value;
        }
        let waited = begin.elapsed();
        assert!(waited < PATIENCE, "waited {PATIENCE:?} in vain for {what}");
        pause_for((waited / 20).clamp(SHORTEST_PAUSE, LONGEST_PAUSE));
    }
}

pub fn once_in(attempts: u32, mut attempt: impl FnMut() -> Result<(), String>) {
    let mut spoilt = Vec::new();
    for _ in 0..attempts {
        match attempt() {
            Ok(()) => return,
            Err(why) => spoilt.push(why),
        }
    }
    panic!("none of {attempts} attempts came out well: {spoilt:#?}");
}

/// Stops threads on drop: after a failed assertion a scope would wait for them for ever.
pub struct StopAtEnd<T: Deref<Target = AtomicBool>>(pub T);

impl<T: Deref<Target = AtomicBool>> Drop for StopAtEnd<T> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Writes an executable file, from a separate process: a file that this process has open for writing would be inherited
/// by children of other threads, and the kernel executes no file that is open for writing (`ETXTBSY`).
pub fn write_program(path: &Path, content: impl AsRef<[u8]>) {
    let content = content.as_ref();
    if !content.starts_with(b"#!") && !content.starts_with(b"\x7fELF") {
        std::fs::write(path, content).expect("write");
        return std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).expect("chmod");
    }
    let mut install = Command::new("install");
    install
        .args(["-m", "755", "/dev/stdin"])
        .arg(path)
        .stdin(Stdio::piped());
    let mut install = install.spawn().expect("install");
    install
        .stdin
        .take()
        .expect("a pipe")
        .write_all(content)
        .expect("write");
    assert!(install.wait().expect("install").success(), "{path:?}");
}

pub fn copy_program(from: &Path, to: &Path) {
    let status = Command::new("install")
        .args(["-m", "755"])
        .args([from, to])
        .status();
    assert!(status.expect("install").success(), "{from:?} to {to:?}");
}

pub fn pause() {
    pause_for(SHORTEST_PAUSE);
}

pub fn pause_for(time: Duration) {
    let time = nix::poll::PollTimeout::try_from(time).expect("a short time");
    let _ = nix::poll::poll(&mut [], time);
}

pub fn ear(path: &Path) -> UnixDatagram {
    let socket = UnixDatagram::bind(path).expect("bind");
    socket.set_read_timeout(Some(PATIENCE)).expect("timeout");
    socket
}

pub fn hear(socket: &UnixDatagram, text: &str) -> String {
    let mut buffer = [0; 4096];
    loop {
        let count = socket
            .recv(&mut buffer)
            .unwrap_or_else(|error| panic!("waited in vain for {text}: {error}"));
        let message = String::from_utf8_lossy(&buffer[..count]).into_owned();
        if message.contains(text) {
            return message;
        }
    }
}

pub fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

pub fn place_library() {
    static PLACED: std::sync::Once = std::sync::Once::new();
    PLACED.call_once(|| {
        let beside = Path::new(env!("CARGO_BIN_EXE_forkyard")).with_file_name("libforkyard.so");
        let made = beside.with_file_name("deps").join("libforkyard.so");
        let own = beside.with_extension(format!("so.{}", std::process::id()));
        std::fs::copy(made, &own).expect("the library");
        std::fs::rename(own, beside).expect("rename");
    });
}

pub fn cgroup2(controllers: &[&str]) -> Option<(PathBuf, bool)> {
    let mounts = std::fs::read_to_string("/proc/mounts").expect("mounts");
    let place = mounts.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(' ').collect();
        (fields[2] == "cgroup2").then(|| PathBuf::from(fields[1]))
    })?;
    let all = std::fs::read_to_string(place.join("cgroup.controllers")).unwrap_or_default();
    let has = controllers
        .iter()
        .all(|name| all.split_whitespace().any(|one| one == *name));
    Some((place, has))
}

/// Polls until a condition holds.
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    until(what, || holds().then_some(()));
}

#[track_caller]
pub fn assert_contains(text: &str, part: &str) {
    assert!(text.contains(part), "{part:?} is missing in: {text}");
}

#[track_caller]
pub fn assert_lacks(text: &str, part: &str) {
    assert!(!text.contains(part), "{part:?} is in: {text}");
}

#[track_caller]
pub fn assert_starts(text: &str, beginning: &str) {
    assert!(
        text.starts_with(beginning),
        "{beginning:?} does not begin: {text}"
    );
}

#[track_caller]
pub fn assert_success(output: &std::process::Output) {
    assert!(output.status.success(), "{output:?}");
}

#[track_caller]
pub fn assert_ends(text: &str, end: &str) {
    assert!(text.ends_with(end), "{end:?} does not end: {text}");
}

/// A table of tests that each are one call.
macro_rules! tests {
    ($($(#[$note:meta])* fn $name:ident() => $call:expr;)+) => {
        $($(#[$note])* #[test] fn $name() { $call; })+
    };
}
pub(crate) use tests;

/// Checks every row of a table; at the end, names all that failed.
#[track_caller]
pub fn each<R: std::fmt::Debug>(rows: impl IntoIterator<Item = R>, mut check: impl FnMut(R)) {
    let mut failed = Vec::new();
    for row in rows {
        let name: String = format!("{row:?}").chars().take(100).collect();
        let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(row)));
        if let Err(why) = checked {
            let text = why.downcast_ref::<String>().map(String::as_str);
            let text = text.or(why.downcast_ref::<&str>().copied()).unwrap_or_default();
            failed.push(format!("{name}: {text}"));
        }
    }
    assert!(
        failed.is_empty(),
        "{} rows fail:\n{}",
        failed.len(),
        failed.join("\n")
    );
}

/// Checks the exit code of a command; returns its output.
#[track_caller]
pub fn exited<C: PartialEq + std::fmt::Debug>(wanted: C, (code, output): (C, String)) -> String {
    assert_eq!(code, wanted, "{output}");
    output
}

pub fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Makes a FIFO that every user may open.
pub fn make_fifo(path: &Path) {
    let mode = nix::sys::stat::Mode::from_bits_truncate(0o666);
    nix::unistd::mkfifo(path, mode).expect("a FIFO");
    let _ = std::fs::set_permissions(path, PermissionsExt::from_mode(0o666));
}

#[track_caller]
pub fn write_file(path: impl AsRef<Path>, content: impl AsRef<[u8]>) {
    let path = path.as_ref();
    std::fs::write(path, content).unwrap_or_else(|error| panic!("{path:?}: {error}"));
}

#[track_caller]
pub fn read_file(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{path:?}: {error}"))
}

/// Checks these fields of a JSON object.
#[track_caller]
pub fn assert_has(object: &serde_json::Value, wanted: serde_json::Value) {
    for (name, value) in wanted.as_object().expect("fields") {
        assert_eq!(&object[name], value, "{name}: {object}");
    }
}

#[track_caller]
pub fn parsed(json: &str) -> serde_json::Value {
    serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {json}"))
}
