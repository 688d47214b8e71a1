//! What the end-to-end tests stand on: a real daemon, a real nginx, a FastCGI client, strace, and waiting for
//! events.

pub mod daemon;
pub mod fcgi;
pub mod nginx;
pub mod process;
pub mod strace;

use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::Once;
use std::time::{Duration, Instant};

/// How long anything may take before a test gives up: a loaded machine is slow.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The path of forkyard-fpm, which is forkyard by another name: a hard link, as `scripts/build` makes it.
pub fn forkyard_fpm() -> &'static str {
    static LINK: Once = Once::new();
    let program = env!("CARGO_BIN_EXE_forkyard");
    let link = concat!(env!("CARGO_BIN_EXE_forkyard"), "-fpm");
    LINK.call_once(|| {
        let inode = |path: &str| std::fs::metadata(path).ok().map(|data| data.ino());
        if inode(link) != inode(program) {
            // Renamed, so that a second program of tests never finds it missing.
            let new = format!("{link}.{}", std::process::id());
            std::fs::hard_link(program, &new).expect("a link to forkyard");
            std::fs::rename(&new, link).expect("the link's name");
        }
    });
    link
}

/// Looks until `found` finds something. For what no event announces; between looks it gives the processor away.
pub fn until<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = found() {
            return value;
        }
        assert!(Instant::now() < end, "waited {PATIENCE:?} in vain for {what}");
        pause();
    }
}

/// A moment for the processes under test.
pub fn pause() {
    let mut nothing = [];
    let _ = nix::poll::poll(&mut nothing, 10_u8);
}

/// A socket at this path, for [`hear`].
pub fn ear(path: &Path) -> UnixDatagram {
    let socket = UnixDatagram::bind(path).expect("bind");
    socket.set_read_timeout(Some(PATIENCE)).expect("timeout");
    socket
}

/// Receives until a message has this text; says it.
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

/// Whether the tests run as root, in which case pools need a user.
pub fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// Puts the library of the C ABI, which `cargo test` leaves among its intermediate files, beside the daemon.
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
