//! Inspects an application's directory. Its users may change it at any moment, and it may contain links to unreadable
//! files, FIFOs and devices.
//!
//! The root is opened once, and each name is resolved from there without following links. All findings therefore come
//! from one directory, and answers don't reveal link targets. A link named like a startup file counts as that file,
//! with the link's owner; the application follows it later as its own user.

use super::ancestors;
use super::find_error::FindError;
use super::protocol::{FoundApplication, Kind, Refusal, Settings};
use super::releases::{self, ReleaseLink};
use super::signs::{OWN_FILE, PASSENGERFILE, PYTHONS};
use forkyard_base::origin::{Mark, Origin};
use forkyard_base::text::is_control;
use forkyard_config::site;
use forkyard_protocol::startup::{
    Proof, STARTUP_FILES, StartupFile, files_of, is_django, kind_of_entry, module_file, python_application,
};
use forkyard_sys::beneath::{self, Content, Entry, FileForm};
use forkyard_sys::{Error, mounts};
use nix::errno::Errno;
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

pub const MOST_FILE_BYTES: usize = 512 * 1024;
const TRIES: usize = 4;
const PACKAGE: &str = "package.json";
const RESTART_DIR: &str = "tmp";
const RESTART: &str = "restart.txt";
const ALWAYS_RESTART: &str = "always_restart.txt";
const REVISION: &str = "REVISION";
/// Contains deployments, each named by its version.
const RELEASES: &str = "releases";
const REVISION_CHARS: usize = 128;
const OPEN_TO_ALL: u32 = 0o004;
const WRITABLE_BY_ALL: u32 = 0o002;

/// The pool settings used by an inspection.
#[derive(Debug, Clone)]
pub struct Terms {
    pub directories: Vec<PathBuf>,
    /// The directory of restart files, absolute or relative to the application's root. `None`: `tmp`.
    pub restart_dir: Option<PathBuf>,
    pub switching: bool,
    /// Allows file systems mounted by users, which can fake owners.
    pub user_mounts: bool,
    /// The name of links to releases in service.
    pub releases: Option<PathBuf>,
}

#[derive(Debug, PartialEq)]
pub struct Refused {
    pub why: FindError,
    /// `None` if the directory does not exist.
    pub refusal: Option<Refusal>,
}

/// Inspects an application's directory. `link`: the link that named it once; `None`: look for one.
///
/// # Errors
/// The directory is not an application of the pool.
pub fn inspect(root: &Path, link: Option<&Path>, terms: &Terms) -> Result<FoundApplication, Refused> {
    let found = match link {
        Some(link) => Some(ReleaseLink {
            link: link.to_owned(),
            release: root.to_owned(),
        }),
        None => releases::find(root, terms),
    };
    let root = found.as_ref().map_or(root, |found| &found.release);
    let (root, directory) = enter(root, terms)?;
    let entry = beneath::entry_of(directory.as_fd()).map_err(|error| Refused {
        why: FindError::System(error),
        refusal: Some(Refusal::of(&root, None)),
    })?;
    let owner = Some((entry.uid, entry.gid));
    let app_root = AppRoot {
        root,
        directory,
        entry,
        link: found.map(|found| found.link),
    };
    look_into(&app_root, terms).map_err(|why| Refused {
        refusal: Some(Refusal {
            is_no_application: why.is_no_application(),
            ..Refusal::of(&app_root.root, owner)
        }),
        why,
    })
}

fn look_into(app_root: &AppRoot, terms: &Terms) -> Result<FoundApplication, FindError> {
    app_root.check_sharing(terms)?;
    app_root.check_mount(app_root.directory.as_fd(), terms)?;
    let settings = app_root.settings()?;
    let Some((kind, startup_file, settings)) = app_root.kind(settings)? else {
        return Err(app_root.unknown());
    };
    let startup = match &startup_file {
        Some(name) => app_root.entry_below(name).ok_or_else(|| app_root.changed())?,
        None => app_root.entry,
    };
    if let Some(name) = startup_file
        .as_deref()
        .filter(|_| startup.device != app_root.entry.device)
    {
        let parent = name
            .parent()
            .and_then(|parent| descend(app_root.directory.as_fd(), parent));
        let parent = parent.ok_or_else(|| app_root.changed())?;
        app_root.check_mount(parent.as_fd(), terms)?;
    }
    app_root.check_owner(&startup, startup_file.as_deref(), terms)?;
    if terms.switching {
        ancestors::check(
            &app_root.root,
            &Mark::from(&app_root.entry),
            &terms.directories,
            startup.uid,
        )?;
    }
    if let Some(link) = &app_root.link {
        releases::check(link, startup.uid, terms)?;
    }
    if let Some((_, from, entry)) = &settings {
        app_root.check_author(from, entry, startup.uid)?;
    }
    let (restart, always_restart) = app_root.restart_files(terms);
    let root = app_root.root.clone();
    let origin = Origin {
        path: root.clone(),
        root: Mark::from(&app_root.entry),
        startup: startup_file.clone().map(|name| (name, startup.uid)),
    };
    Ok(FoundApplication {
        kind,
        startup_file: startup_file.map(|name| root.join(name)),
        owner: (startup.uid, startup.gid),
        origin: terms.switching.then_some(origin),
        settings: settings.map(|(settings, ..)| settings),
        python: app_root.python(startup.uid, terms)?,
        restart,
        always_restart,
        revision: app_root.revision(),
        link: app_root.link.clone(),
        root,
    })
}

/// Opens the root by its real path. Errors give no reason, because links may lead to places that only this process can
/// see.
fn enter(root: &Path, terms: &Terms) -> Result<(PathBuf, OwnedFd), Refused> {
    let absent = |why| Refused { why, refusal: None };
    if !root.is_absolute() {
        return Err(absent(FindError::Relative(root.to_owned())));
    }
    for _ in 0..TRIES {
        let Some(real) = real_below(root, &terms.directories) else {
            break;
        };
        if real.to_str().is_none() {
            return Err(Refused {
                why: FindError::NotUtf8(root.to_owned()),
                refusal: root.to_str().map(|_| Refusal::of(root, None)),
            });
        }
        // Fails if a part of the path has become a link.
        if let Ok(directory) = beneath::open_exactly(&real) {
            return Ok((real, directory));
        }
    }
    let directories: Vec<String> = terms
        .directories
        .iter()
        .map(|one| one.display().to_string())
        .collect();
    Err(absent(FindError::Outside {
        root: root.to_owned(),
        directories: directories.join(" or "),
    }))
}

pub(super) fn real_below(path: &Path, directories: &[PathBuf]) -> Option<PathBuf> {
    let real = std::fs::canonicalize(path).ok()?;
    let holds = |directory: &PathBuf| {
        let directory = std::fs::canonicalize(directory).unwrap_or_default();
        directory.is_absolute() && real != directory && real.starts_with(&directory)
    };
    directories.iter().any(holds).then_some(real)
}

struct AppRoot {
    root: PathBuf,
    directory: OwnedFd,
    entry: Entry,
    link: Option<PathBuf>,
}

type OwnFile = (Settings, &'static str, Entry);

type Shown = (Kind, Option<PathBuf>, Option<OwnFile>);

impl AppRoot {
    /// Rejects directories in which other users can create files, because they could fake an application.
    fn check_sharing(&self, terms: &Terms) -> Result<(), FindError> {
        if terms.switching && self.entry.mode & WRITABLE_BY_ALL != 0 {
            return Err(FindError::Shared(self.root.clone()));
        }
        Ok(())
    }

    /// Rejects mounts where a user decides who owns files.
    fn check_mount(&self, directory: BorrowedFd<'_>, terms: &Terms) -> Result<(), FindError> {
        if !terms.switching || terms.user_mounts {
            return Ok(());
        }
        let root = self.root.clone();
        match mounts::is_users_own(directory) {
            Ok(false) => Ok(()),
            Ok(true) => Err(FindError::UserMount(root)),
            Err(error) => Err(FindError::NoMount { root, error }),
        }
    }

    /// Rejects startup files that another user could have placed there, such as hard links or leftovers: the
    /// application runs as their owner.
    fn check_owner(&self, startup: &Entry, name: Option<&Path>, terms: &Terms) -> Result<(), FindError> {
        let Some(name) = name.filter(|_| terms.switching) else {
            return Ok(());
        };
        let file = self.root.join(name);
        let (of, own) = (startup.uid, self.entry.uid);
        if startup.names != 1 {
            let names = startup.names;
            return Err(FindError::Names { file, names });
        }
        if of != own && own != 0 {
            let root = self.root.clone();
            return Err(FindError::TwoOwners { file, of, root, own });
        }
        Ok(())
    }

    /// Rejects settings that the application's owner did not write.
    fn check_author(&self, name: &str, file: &Entry, owner: u32) -> Result<(), FindError> {
        if file.uid == owner || file.uid == 0 {
            return Ok(());
        }
        Err(FindError::Foreign {
            file: self.root.join(name),
            of: file.uid,
            owner,
        })
    }

    /// Reads a self-description file. Returns `None` if it does not exist.
    fn read_own(&self, name: &str) -> Result<Option<Content>, FindError> {
        let file = self.root.join(name);
        let most = match name {
            OWN_FILE => site::MOST_BYTES,
            _ => MOST_FILE_BYTES,
        };
        let read = || beneath::read_in(self.directory.as_fd(), OsStr::new(name), most);
        // A file without names has just been replaced.
        let whole = (0..TRIES).find_map(|_| read().ok().filter(|content| content.entry.names > 0));
        let content = match whole.map_or_else(read, Ok) {
            Ok(content) => content,
            Err(error) if error.errno == Errno::ENOENT => return Ok(None),
            Err(error) if error.errno == Errno::EINVAL => return Err(FindError::Special(file)),
            Err(Error { errno, .. }) => return Err(FindError::NotRead { file, errno }),
        };
        let entry = &content.entry;
        if entry.names != 1 {
            let names = entry.names;
            return Err(FindError::Names { file, names });
        }
        if entry.mode & WRITABLE_BY_ALL != 0 {
            return Err(FindError::Writable(file));
        }
        // Error messages quote the file, and this process can read more than the application's owner.
        if entry.uid != self.entry.uid && entry.mode & OPEN_TO_ALL == 0 {
            let (of, own) = (entry.uid, self.entry.uid);
            return Err(FindError::Private { file, of, own });
        }
        if content.more {
            return Err(FindError::TooLong { file, most });
        }
        Ok(Some(content))
    }

    fn settings(&self) -> Result<Option<OwnFile>, FindError> {
        if let Some(content) = self.read_own(OWN_FILE)? {
            let path = self.root.join(OWN_FILE);
            let settings = site::parse(&content.bytes, &path)
                .map_err(|errors| FindError::Settings(errors.to_string()))?;
            return Ok(Some((settings, OWN_FILE, content.entry)));
        }
        let Some(content) = self.read_own(PASSENGERFILE)? else {
            return Ok(None);
        };
        let said = site::passengerfile(&content.bytes, &self.root.join(PASSENGERFILE))
            .map_err(|error| FindError::Settings(error.to_string()))?;
        Ok(said.map(|settings| (settings, PASSENGERFILE, content.entry)))
    }

    /// Determines kind and startup file. Returns `None` if there is no evidence of an application.
    fn kind(&self, said: Option<OwnFile>) -> Result<Option<Shown>, FindError> {
        let wanted = said.as_ref().and_then(|(settings, ..)| settings.runtime);
        let entry = said.as_ref().and_then(|(settings, ..)| settings.entry.as_deref());
        let named = entry.and_then(|entry| self.named(entry));
        if let Some(kind) = wanted {
            let usual = || {
                let mut files = files_of(kind).filter(|file| *file != PACKAGE || self.has_start_script());
                files.find_map(|file| self.is_there(Path::new(file)))
            };
            let startup = named.or_else(usual);
            let mut said = said;
            if let (Kind::Node, Some((settings, ..))) = (kind, &mut said) {
                if settings.start_command.is_none() {
                    settings.start_command = self.start_script()?.map(|(command, _)| command);
                }
            }
            return Ok(Some((kind, startup, said)));
        }
        for sign in &STARTUP_FILES {
            let name = Path::new(sign.file);
            if self.is_there(name).is_none() || !self.shows(sign, entry.is_some()) {
                continue;
            }
            let startup = named.clone().or_else(|| Some(name.to_owned()));
            if sign.kind != Kind::Node {
                return Ok(Some((sign.kind, startup, said)));
            }
            let script = self.start_script()?;
            if script.is_none() && sign.proof == Proof::StartScript {
                continue;
            }
            let said = match (said, script) {
                (Some((mut settings, from, entry)), script) => {
                    let of_script = script.map(|(command, _)| command);
                    settings.start_command = settings.start_command.or(of_script);
                    Some((settings, from, entry))
                }
                (None, Some((command, entry))) => {
                    let settings = Settings {
                        start_command: Some(command),
                        ..Settings::default()
                    };
                    Some((settings, PACKAGE, entry))
                }
                (None, None) => None,
            };
            return Ok(Some((Kind::Node, startup, said)));
        }
        match entry {
            Some(entry) => match kind_of_entry(entry).or_else(|| self.kind_of_module(entry)) {
                Some(kind) => Ok(Some((kind, named, said))),
                None => Err(FindError::Entry {
                    file: self.root.join(OWN_FILE),
                    entry: entry.to_owned(),
                }),
            },
            None => Ok(None),
        }
    }

    /// Returns whether an existing file proves its application's kind. With a configured `entry`, a file's contents and
    /// neighbours prove nothing.
    fn shows(&self, sign: &StartupFile, is_entry_said: bool) -> bool {
        let file = Path::new(sign.file);
        match sign.proof {
            Proof::Itself | Proof::StartScript => true,
            Proof::Runtime => false,
            _ if is_entry_said => false,
            Proof::Package => self.is_there(Path::new(PACKAGE)).is_some(),
            Proof::Django => self.source(file).is_some_and(|source| is_django(&source)),
            Proof::Source => {
                let kind = self.source(file).and_then(|source| python_application(&source));
                kind == Some(sign.kind)
            }
        }
    }

    /// Guesses the kind from the source of an entry's module.
    fn kind_of_module(&self, entry: &str) -> Option<Kind> {
        let file = self.named(&module_file(entry)?)?;
        python_application(&self.source(&file)?)
    }

    fn source(&self, file: &Path) -> Option<String> {
        let parent = descend(self.directory.as_fd(), file.parent()?)?;
        let content = beneath::read_in(parent.as_fd(), file.file_name()?, MOST_FILE_BYTES).ok()?;
        Some(String::from_utf8_lossy(&content.bytes).into_owned())
    }

    fn unknown(&self) -> FindError {
        let unclear = STARTUP_FILES
            .iter()
            .filter(|one| matches!(one.proof, Proof::Package | Proof::Source));
        let there = unclear
            .map(|one| one.file)
            .find(|file| self.is_there(Path::new(file)).is_some());
        let root = self.root.clone();
        match there {
            Some(file) => FindError::Unclear { root, file },
            None => FindError::NoSign(root),
        }
    }

    fn has_start_script(&self) -> bool {
        self.start_script().is_ok_and(|script| script.is_some())
    }

    fn start_script(&self) -> Result<Option<(String, Entry)>, FindError> {
        if self.is_there(Path::new(PACKAGE)).is_none() {
            return Ok(None);
        }
        let content = self.read_own(PACKAGE)?;
        Ok(content.and_then(|content| Some((site::start_script(&content.bytes)?, content.entry))))
    }

    fn named(&self, entry: &str) -> Option<PathBuf> {
        let is_plain = |component| matches!(component, Component::Normal(_));
        let path = Path::new(entry);
        path.components().all(is_plain).then(|| self.is_there(path))?
    }

    fn is_there(&self, name: &Path) -> Option<PathBuf> {
        let form = self.entry_below(name)?.form;
        matches!(form, FileForm::File | FileForm::Link).then(|| name.to_owned())
    }

    fn entry_below(&self, name: &Path) -> Option<Entry> {
        let Some(parent) = name.parent().filter(|parent| *parent != Path::new("")) else {
            return beneath::entry_in(self.directory.as_fd(), name.as_os_str());
        };
        let parent = descend(self.directory.as_fd(), parent)?;
        beneath::entry_in(parent.as_fd(), name.file_name()?)
    }

    /// The interpreter of a virtual environment. The interpreter or its directory may be a link.
    fn python(&self, owner: u32, terms: &Terms) -> Result<Option<PathBuf>, FindError> {
        let is_there = |app_root: &&&str| {
            let environment = app_root.split('/').next().unwrap_or_default();
            let entry = beneath::entry_in(self.directory.as_fd(), OsStr::new(environment));
            entry.is_some_and(|entry| entry.form == FileForm::Link)
                || self.is_there(Path::new(app_root)).is_some()
        };
        let Some(app_root) = PYTHONS.iter().find(is_there) else {
            return Ok(None);
        };
        // The interpreter runs as the owner, so other users, such as the root's group, must not be able to create it.
        let mut name = PathBuf::new();
        for part in Path::new(app_root).components().filter(|_| terms.switching) {
            name.push(part);
            let Some(entry) = self.entry_below(&name) else {
                break;
            };
            if entry.uid != owner && entry.uid != 0 {
                return Err(FindError::Foreign {
                    file: self.root.join(&name),
                    of: entry.uid,
                    owner,
                });
            }
            if entry.mode & WRITABLE_BY_ALL != 0 && entry.form == FileForm::Directory {
                return Err(FindError::Writable(self.root.join(&name)));
            }
        }
        Ok(Some(self.root.join(app_root)))
    }

    /// Reads `restart.txt` and `always_restart.txt`.
    fn restart_files(&self, terms: &Terms) -> (Option<(i128, u64)>, bool) {
        let name = terms.restart_dir.as_deref().unwrap_or(Path::new(RESTART_DIR));
        let linked = || {
            let real = real_below(&self.root.join(name), &terms.directories)?;
            beneath::open_exactly(&real).ok()
        };
        let directory = if name.is_absolute() {
            std::fs::canonicalize(name)
                .ok()
                .and_then(|real| beneath::open_exactly(&real).ok())
        } else {
            descend(self.directory.as_fd(), name).or_else(linked)
        };
        let Some(directory) = directory else {
            return (None, false);
        };
        let entry = |name| beneath::entry_in(directory.as_fd(), OsStr::new(name));
        let restart = entry(RESTART).map(|entry| (entry.modified, entry.inode));
        (restart, entry(ALWAYS_RESTART).is_some())
    }

    fn revision(&self) -> Option<String> {
        let content = self.read_own(REVISION).ok().flatten();
        let written = content.and_then(|content| {
            let text = String::from_utf8_lossy(&content.bytes).into_owned();
            let line = text.lines().next()?.trim();
            let line: String = line
                .chars()
                .filter(|c| !is_control(*c))
                .take(REVISION_CHARS)
                .collect();
            (!line.is_empty()).then_some(line)
        });
        let is_release = || self.root.parent()?.file_name().filter(|name| *name == RELEASES);
        written.or_else(|| {
            is_release()?;
            Some(self.root.file_name()?.to_string_lossy().into_owned())
        })
    }

    fn changed(&self) -> FindError {
        FindError::Changed(self.root.clone())
    }
}

fn descend(directory: BorrowedFd<'_>, path: &Path) -> Option<OwnedFd> {
    let mut at = directory.try_clone_to_owned().ok()?;
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::Normal(name) => at = beneath::directory_in(at.as_fd(), name)?,
            Component::RootDir | Component::ParentDir | Component::Prefix(_) => return None,
        }
    }
    Some(at)
}

#[cfg(test)]
#[path = "find_tests.rs"]
mod tests;
