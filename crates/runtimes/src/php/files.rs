//! The files that PHP loads at its start, and whether they have changed.
//!
//! A reload keeps an unchanged pool. forkyard's configuration does not show changes to forkyard-php, libphp, extensions,
//! php.ini and the files next to it, so these files are compared.

use super::settings::{php_ini_directories, usual_directories};
use forkyard_config::Php;
use forkyard_sys::file::FileState;
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const MOST_FILES: usize = 1000;
const LONGEST_PATH: usize = 4096;

/// The php.ini to use, a file or directory; `None`: libphp's default.
pub fn php_ini(php: &Php) -> Option<PathBuf> {
    if php.no_php_ini {
        return None;
    }
    php.php_ini.clone().or_else(|| {
        php_ini_directories(php)
            .into_iter()
            .find(|path| path.join("php.ini").exists())
    })
}

/// The path of php.ini itself, if [`php_ini`] names its directory.
pub fn in_directory(path: &Path) -> PathBuf {
    if path.is_dir() {
        path.join("php.ini")
    } else {
        path.to_owned()
    }
}

/// The directory with the files read after php.ini.
pub fn conf_d(php: &Php) -> Option<PathBuf> {
    let named = php.php_ini.iter().cloned();
    named
        .chain(php_ini_directories(php))
        .map(|directory| directory.join("conf.d"))
        .find(|path| path.is_dir())
}

/// The php.ini of a pool that names none.
pub fn usual_php_ini(version: &str) -> Option<PathBuf> {
    let mut paths = usual_directories(version)
        .map(|directory| directory.join("php.ini"))
        .into_iter();
    paths.find(|path| path.exists())
}

/// Returns the libphp of a version that a distribution installed.
pub fn library(version: &str) -> Option<PathBuf> {
    let mut paths = library_directories()
        .into_iter()
        .map(|directory| directory.join(format!("libphp{version}.so")));
    paths.find(|path| path.exists())
}

/// The versions with an installed libphp.
pub fn libraries() -> Vec<String> {
    let entries = library_directories()
        .into_iter()
        .filter_map(|directory| std::fs::read_dir(directory).ok());
    let names = entries
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let versions = names.filter_map(|name| {
        let version = name.strip_prefix("libphp")?.strip_suffix(".so")?;
        version.contains('.').then(|| version.to_owned())
    });
    let mut versions: Vec<String> = versions.collect();
    versions.sort();
    versions.dedup();
    versions
}

fn library_directories() -> [PathBuf; 4] {
    let arch = format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    ["/usr/lib", arch.as_str(), "/usr/lib64", "/usr/local/lib"].map(PathBuf::from)
}

/// Returns PHP's command-line program of a version that a distribution installed.
pub fn command_line(version: &str) -> Option<PathBuf> {
    ["/usr/bin", "/usr/local/bin"]
        .iter()
        .map(|directory| Path::new(directory).join(format!("php{version}")))
        .find(|path| path.exists())
}

/// Whether the master may stat a path that a preloader reported. The master is root, so it must be where only root can
/// mount a file system that hangs.
pub fn is_credible(path: &Path) -> bool {
    let is_plain = path
        .components()
        .all(|part| !matches!(part, std::path::Component::ParentDir));
    let prefixes = ["/usr", "/opt", "/lib"];
    is_plain
        && path.as_os_str().len() < LONGEST_PATH
        && prefixes.iter().any(|prefix| path.starts_with(prefix))
}

/// A hash of files' states; it differs if a file was changed, replaced, added or removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint(u64);

impl Fingerprint {
    /// The number, for a hand-over to another master.
    pub fn number(self) -> u64 {
        self.0
    }

    /// Restores a fingerprint from its number.
    pub fn from_number(number: u64) -> Fingerprint {
        Fingerprint(number)
    }
}

/// The files that PHP's start depends on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Origin {
    /// The forkyard-php executable.
    pub program: PathBuf,
    /// libphp, by name or version.
    pub library: Option<PathBuf>,
    /// php.ini or its directory.
    pub php_ini: Option<PathBuf>,
    /// Directories of files read after php.ini.
    pub scanned: Vec<PathBuf>,
}

impl Origin {
    /// Finds the files of a pool. `scan_dir`: PHP_INI_SCAN_DIR of its environment.
    pub fn new(php: &Php, program: PathBuf, scan_dir: Option<&OsStr>) -> Origin {
        let named = php.scan_dir.as_deref().map(OsStr::new);
        let scanned = match named.or(scan_dir) {
            _ if php.no_php_ini => Vec::new(),
            None => conf_d(php).into_iter().collect(),
            Some(list) => {
                let parts = list.as_bytes().split(|byte| *byte == b':');
                // An empty part is the default directory.
                let path = |part: &[u8]| match part {
                    [] => conf_d(php),
                    part => Some(PathBuf::from(OsStr::from_bytes(part))),
                };
                parts.filter_map(path).collect()
            }
        };
        Origin {
            program,
            library: php.library.clone().or_else(|| library(&php.version)),
            php_ini: php_ini(php),
            scanned,
        }
    }
}

impl Origin {
    /// Each file with its current state.
    pub fn states(&self) -> BTreeMap<PathBuf, Option<FileState>> {
        let php_ini = self.php_ini.as_ref().map(|path| in_directory(path));
        let entries = self.scanned.iter().flat_map(|path| Origin::entries(path));
        let single = std::iter::once(self.program.clone())
            .chain(self.library.clone())
            .chain(php_ini);
        single
            .chain(entries)
            .map(|path| {
                let state = FileState::of(&path);
                (path, state)
            })
            .collect()
    }

    /// The files in a directory, sorted.
    pub fn entries(directory: &Path) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(directory).into_iter().flatten();
        let mut files: Vec<PathBuf> = entries
            .take(MOST_FILES)
            .filter_map(|entry| Some(entry.ok()?.path()))
            .collect();
        files.sort_unstable();
        files
    }
}

/// Checks each file once, however many pools depend on it. Use a new cache for each reload.
#[derive(Debug, Default)]
pub struct FingerprintCache {
    origins: HashMap<Origin, Fingerprint>,
    paths: HashMap<PathBuf, Fingerprint>,
}

impl FingerprintCache {
    /// The fingerprint of an origin's files.
    pub fn origin(&mut self, origin: &Origin) -> Fingerprint {
        if let Some(known) = self.origins.get(origin) {
            return *known;
        }
        let mut hasher = DefaultHasher::new();
        origin.hash(&mut hasher);
        hash_file(&origin.program, &mut hasher);
        for path in origin.library.iter() {
            hash_file(path, &mut hasher);
        }
        for path in origin.php_ini.iter() {
            hash_file(&in_directory(path), &mut hasher);
        }
        for directory in &origin.scanned {
            self.path(directory).0.hash(&mut hasher);
        }
        let fingerprint = Fingerprint(hasher.finish());
        self.origins.insert(origin.clone(), fingerprint);
        fingerprint
    }

    /// The fingerprint of a file, or of the files in a directory.
    pub fn path(&mut self, path: &Path) -> Fingerprint {
        if let Some(known) = self.paths.get(path) {
            return *known;
        }
        let mut hasher = DefaultHasher::new();
        hash_file(path, &mut hasher);
        for file in &Origin::entries(path) {
            hash_file(file, &mut hasher);
        }
        let fingerprint = Fingerprint(hasher.finish());
        self.paths.insert(path.to_owned(), fingerprint);
        fingerprint
    }
}

fn hash_file(path: &Path, hasher: &mut DefaultHasher) {
    path.hash(hasher);
    FileState::of(path).hash(hasher);
}

#[cfg(test)]
mod tests {
    use super::{FingerprintCache, Origin, is_credible};
    use std::fs;
    use std::path::{Path, PathBuf};

    fn origin(dir: &Path) -> Origin {
        Origin {
            program: dir.join("program"),
            library: Some(dir.join("library")),
            php_ini: Some(dir.join("etc")),
            scanned: vec![dir.join("etc/conf.d")],
        }
    }

    #[test]
    fn a_change_of_any_file_is_seen_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("etc/conf.d")).unwrap();
        for name in ["program", "library", "etc/php.ini", "etc/conf.d/a.ini"] {
            fs::write(dir.path().join(name), "1").unwrap();
        }
        let look = || FingerprintCache::default().origin(&origin(dir.path()));
        let before = look();
        assert_eq!(look(), before);
        for name in ["program", "library", "etc/php.ini", "etc/conf.d/a.ini"] {
            let before = look();
            fs::write(dir.path().join(name), "longer").unwrap();
            assert_ne!(look(), before, "{name} was changed");
        }
        let before = look();
        fs::write(dir.path().join("etc/conf.d/b.ini"), "").unwrap();
        assert_ne!(look(), before, "b.ini was added");
        let before = look();
        fs::remove_file(dir.path().join("etc/conf.d/a.ini")).unwrap();
        assert_ne!(look(), before, "a.ini was taken away");
        let before = look();
        fs::rename(dir.path().join("etc/php.ini"), dir.path().join("php.ini")).unwrap();
        fs::copy(dir.path().join("php.ini"), dir.path().join("etc/php.ini")).unwrap();
        assert_ne!(look(), before, "php.ini is another file");
    }

    #[test]
    fn a_preloader_can_not_name_just_any_place() {
        assert!(is_credible(Path::new("/usr/lib/php/20220829")));
        assert!(is_credible(Path::new("/opt/php/ext")));
        assert!(!is_credible(Path::new("/usr/../home/eve/fuse")));
        assert!(!is_credible(Path::new("/home/eve/fuse")));
        assert!(!is_credible(Path::new("usr/lib")));
        assert!(!is_credible(&PathBuf::from(format!("/usr/{}", "x".repeat(5000)))));
    }
}
