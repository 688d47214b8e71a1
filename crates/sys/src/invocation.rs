//! How this process was started: which executable, with which arguments. For starting the same again, or what has
//! taken its place on disk.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// How this process was started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invocation {
    /// The executable's absolute path.
    pub path: PathBuf,
    /// The arguments, the program's name first.
    pub arguments: Vec<OsString>,
    /// Which file it was.
    file: Option<Identity>,
}

/// A file's identity: a package manager or a copy changes one of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

static INVOCATION: OnceLock<Option<Invocation>> = OnceLock::new();

/// Remembers it. Call once, at the start of `main`, before the process title is set, which overwrites the arguments.
pub fn remember() {
    INVOCATION.get_or_init(|| {
        let arguments: Vec<OsString> = std::env::args_os().collect();
        let running = Path::new("/proc/self/exe");
        let file = identity(running);
        let is_same = |path: &PathBuf| identity(path).is_some() && identity(path) == file;
        // As it was called: a symbolic link may be changed to upgrade, and a program has the link's name. The kernel's
        // own answer is the last resort, since it is where the link led.
        let name = arguments.first().map(PathBuf::from).unwrap_or_default();
        let called = if name.components().count() > 1 {
            std::path::absolute(name).ok().filter(|path| is_same(path))
        } else {
            let places = std::env::var_os("PATH").unwrap_or_default();
            std::env::split_paths(&places)
                .map(|place| place.join(&name))
                .find(|path| path.is_absolute() && is_same(path))
        };
        let path = called.or_else(|| std::fs::read_link(running).ok())?;
        Some(Invocation {
            path,
            arguments,
            file,
        })
    });
}

/// What was remembered.
pub fn get() -> Option<&'static Invocation> {
    INVOCATION.get()?.as_ref()
}

impl Invocation {
    /// Whether another file has taken the executable's place.
    pub fn is_replaced(&self) -> bool {
        let now = identity(&self.path);
        now.is_some() && now != self.file
    }
}

fn identity(path: &Path) -> Option<Identity> {
    let data = std::fs::metadata(path).ok()?;
    Some(Identity {
        device: data.dev(),
        inode: data.ino(),
        bytes: data.size(),
        modified: (data.mtime(), data.mtime_nsec()),
    })
}
