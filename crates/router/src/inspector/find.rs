//! A look at an application's directory. A user who can write there may change it at any moment, and may have put anything
//! there: links to files that the user may not read, FIFOs, devices.
//!
//! The root is opened once; everything is looked up in it, name by name, and no link is followed. What was seen belongs
//! together, and where a link leads can't be told from an answer. A link in the place of a start-up file counts as that
//! file, with its own owner; what it leads to is the application's business, when it runs as its user.

use super::ancestors;
use super::protocol::{FoundApplication, Kind, Refusal, Settings};
use super::signs::{self, OWN_FILE, PASSENGERFILE, PYTHONS};
use crate::config::site;
use crate::origin::{Mark, Origin};
use crate::sys::Error;
use crate::sys::beneath::{self, Content, Entry, FileForm};
use crate::sys::mounts;
use forkyard_base::text::is_control;
use forkyard_protocol::startup::{
    Proof, STARTUP_FILES, StartupFile, files_of, is_django, kind_of_entry, module_file, python_application,
};
use nix::errno::Errno;
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

/// Most bytes of a file that an application describes itself in, but for `forkyard.toml`.
pub const MOST_FILE_BYTES: usize = 512 * 1024;
/// How often a path is tried whose links change while it is looked at.
const TRIES: usize = 4;
/// Where an application of Node.js has its start script.
const PACKAGE: &str = "package.json";
/// Where restart files are by default.
const RESTART_DIR: &str = "tmp";
const RESTART: &str = "restart.txt";
const ALWAYS_RESTART: &str = "always_restart.txt";
/// Where deployments write their version.
const REVISION: &str = "REVISION";
/// The directory that holds deployments, each named by its version.
const RELEASES: &str = "releases";
/// Most characters of a version.
const REVISION_CHARS: usize = 128;
/// Everybody may read.
const OPEN_TO_ALL: u32 = 0o004;
/// Everybody may write.
const WRITABLE_BY_ALL: u32 = 0o002;

/// What a look has to know.
#[derive(Debug, Clone)]
pub struct Terms {
    /// Applications are below one of these.
    pub directories: Vec<PathBuf>,
    /// Where restart files are; relative to the application's root, or absolute. `None`: `tmp`.
    pub restart_dir: Option<PathBuf>,
    /// Applications run as their owners.
    pub switching: bool,
    /// They may be on file systems whose owners a user decides.
    pub user_mounts: bool,
}

/// Why a directory is no application of the pool.
#[derive(Debug, PartialEq)]
pub struct Refused {
    /// Names the path and what would be right.
    pub why: String,
    /// `None`: there is no such directory.
    pub refusal: Option<Refusal>,
}

/// Looks at an application's directory.
///
/// # Errors
/// Why it is no application of the pool.
pub fn inspect(root: &Path, terms: &Terms) -> Result<FoundApplication, Refused> {
    let (root, directory) = enter(root, terms)?;
    let entry = beneath::entry_of(directory.as_fd()).map_err(|error| Refused {
        why: error.to_string(),
        refusal: Some(Refusal::of(&root, None)),
    })?;
    let owner = Some((entry.uid, entry.gid));
    let app_root = AppRoot {
        root,
        directory,
        entry,
    };
    let mut is_no_application = false;
    let looked = look_into(&app_root, terms, &mut is_no_application);
    looked.map_err(|why| Refused {
        why,
        refusal: Some(Refusal {
            is_no_application,
            ..Refusal::of(&app_root.root, owner)
        }),
    })
}

fn look_into(
    app_root: &AppRoot,
    terms: &Terms,
    is_no_application: &mut bool,
) -> Result<FoundApplication, String> {
    app_root.check_sharing(terms)?;
    app_root.check_mount(app_root.directory.as_fd(), terms)?;
    let settings = app_root.settings()?;
    let Some((kind, startup_file, settings)) = app_root.kind(settings)? else {
        *is_no_application = true;
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
        root,
    })
}

/// Opens the root by its real path, which is below one of the directories. What goes wrong on the way is not told: the
/// links may lead where only this process can look.
fn enter(root: &Path, terms: &Terms) -> Result<(PathBuf, OwnedFd), Refused> {
    let shown = root.display();
    let absent = |why| Refused { why, refusal: None };
    if !root.is_absolute() {
        return Err(absent(format!(
            "{shown}: an application's root is an absolute path; let the web server send one that begins with /"
        )));
    }
    for _ in 0..TRIES {
        let Some(real) = real_below(root, &terms.directories) else {
            break;
        };
        if real.to_str().is_none() {
            return Err(Refused {
                why: format!("{shown}: the directory's name is not UTF-8; rename it"),
                refusal: root.to_str().map(|_| Refusal::of(root, None)),
            });
        }
        // Fails if something on the way has become a link since.
        if let Ok(directory) = beneath::open_exactly(&real) {
            return Ok((real, directory));
        }
    }
    let directories: Vec<String> = terms
        .directories
        .iter()
        .map(|one| one.display().to_string())
        .collect();
    Err(absent(format!(
        "{shown} is no directory below {}, links followed; applications are directories there",
        directories.join(" or ")
    )))
}

/// A path without links, if it is below one of the directories.
fn real_below(path: &Path, directories: &[PathBuf]) -> Option<PathBuf> {
    let real = std::fs::canonicalize(path).ok()?;
    let holds = |directory: &PathBuf| {
        let directory = std::fs::canonicalize(directory).unwrap_or_default();
        directory.is_absolute() && real != directory && real.starts_with(&directory)
    };
    directories.iter().any(holds).then_some(real)
}

/// An application's root.
struct AppRoot {
    root: PathBuf,
    directory: OwnedFd,
    entry: Entry,
}

/// What an application says of itself: what, in which file, and what that file is.
type OwnFile = (Settings, &'static str, Entry);

/// What an application is, its start-up file, and what it says of itself.
type Shown = (Kind, Option<PathBuf>, Option<OwnFile>);

impl AppRoot {
    /// A user who can put files into a directory can make them look like another user's application.
    fn check_sharing(&self, terms: &Terms) -> Result<(), String> {
        if terms.switching && self.entry.mode & WRITABLE_BY_ALL != 0 {
            return Err(format!(
                "{}: everybody may write to this directory, so its owner can't be known; chmod o-w it",
                self.root.display()
            ));
        }
        Ok(())
    }

    /// The owner of a file says something only where no user can say it in his place.
    fn check_mount(&self, directory: BorrowedFd<'_>, terms: &Terms) -> Result<(), String> {
        if !terms.switching || terms.user_mounts {
            return Ok(());
        }
        let shown = self.root.display();
        match mounts::is_users_own(directory) {
            Ok(false) => Ok(()),
            Ok(true) => Err(format!(
                "{shown} is on a file system that a user may have mounted (FUSE, or nosuid at a user's wish), and whose owners he \
                 decides; move it, or set applications.user_mounts = true"
            )),
            Err(error) => Err(format!("{shown}: its file system can't be looked at: {error}")),
        }
    }

    /// The application runs as the owner of its start-up file. So no user may put another user's file there: not
    /// by a hard link, and not by a file that the other user has left in the directory.
    fn check_owner(&self, startup: &Entry, name: Option<&Path>, terms: &Terms) -> Result<(), String> {
        let Some(name) = name.filter(|_| terms.switching) else {
            return Ok(());
        };
        let shown = self.root.join(name);
        let shown = shown.display();
        let (owner, own) = (startup.uid, self.entry.uid);
        if startup.names != 1 {
            return Err(format!(
                "{shown} has {} names, and may be another user's file; copy it",
                startup.names
            ));
        }
        if owner != own && own != 0 {
            return Err(format!(
                "{shown} belongs to user {owner} and {} to user {own}; both have to belong to whom the application is to run \
                 as",
                self.root.display()
            ));
        }
        Ok(())
    }

    /// What an application says of itself has to come from its owner.
    fn check_author(&self, name: &str, file: &Entry, owner: u32) -> Result<(), String> {
        if file.uid == owner || file.uid == 0 {
            return Ok(());
        }
        let shown = self.root.join(name);
        Err(format!(
            "{} belongs to user {}, the application to user {owner}; give it to user {owner}, or to root",
            shown.display(),
            file.uid
        ))
    }

    /// Reads what an application says of itself in one file; `None`: there is no such file.
    fn read_own(&self, name: &str) -> Result<Option<Content>, String> {
        let shown = self.root.join(name);
        let shown = shown.display();
        let most = match name {
            OWN_FILE => site::MOST_BYTES,
            _ => MOST_FILE_BYTES,
        };
        let read = || beneath::read_in(self.directory.as_fd(), OsStr::new(name), most);
        // One without a name has just been replaced.
        let whole = (0..TRIES).find_map(|_| read().ok().filter(|content| content.entry.names > 0));
        let content = match whole.map_or_else(read, Ok) {
            Ok(content) => content,
            Err(Error {
                errno: Errno::ENOENT, ..
            }) => return Ok(None),
            Err(Error {
                errno: Errno::EINVAL, ..
            }) => {
                return Err(format!(
                    "{shown} is no regular file; a link is not followed: copy the file here"
                ));
            }
            Err(error) => return Err(format!("{shown}: {}", error.errno.desc())),
        };
        let entry = &content.entry;
        if entry.names != 1 {
            return Err(format!(
                "{shown} has {} names, and may be another user's file; copy it",
                entry.names
            ));
        }
        if entry.mode & WRITABLE_BY_ALL != 0 {
            return Err(format!("{shown}: everybody may write to it; chmod o-w it"));
        }
        // Messages say what is in it, and this process can read what its owner's neighbours can't.
        if entry.uid != self.entry.uid && entry.mode & OPEN_TO_ALL == 0 {
            return Err(format!(
                "{shown} belongs to user {}, and not everybody may read it; give it to user {}, or chmod o+r it",
                entry.uid, self.entry.uid
            ));
        }
        if content.more {
            return Err(format!("{shown} is longer than {most} bytes; shorten it"));
        }
        Ok(Some(content))
    }

    /// What the application says of itself, in the first file that does.
    fn settings(&self) -> Result<Option<OwnFile>, String> {
        if let Some(content) = self.read_own(OWN_FILE)? {
            let path = self.root.join(OWN_FILE);
            let settings = site::parse(&content.bytes, &path).map_err(|errors| errors.to_string())?;
            return Ok(Some((settings, OWN_FILE, content.entry)));
        }
        let Some(content) = self.read_own(PASSENGERFILE)? else {
            return Ok(None);
        };
        let said = site::passengerfile(&content.bytes, &self.root.join(PASSENGERFILE))?;
        Ok(said.map(|settings| (settings, PASSENGERFILE, content.entry)))
    }

    /// What the application is, by which file, and what it says of itself. `None`: nothing shows that it is one.
    fn kind(&self, said: Option<OwnFile>) -> Result<Option<Shown>, String> {
        let wanted = said.as_ref().and_then(|(settings, ..)| settings.runtime);
        let entry = said.as_ref().and_then(|(settings, ..)| settings.entry.as_deref());
        let named = entry.and_then(|entry| self.named(entry));
        if let Some(kind) = wanted {
            let usual = || {
                let mut files = files_of(kind).filter(|file| *file != PACKAGE || self.has_start_script());
                files.find_map(|file| self.is_there(Path::new(file)))
            };
            let startup = named.or_else(usual);
            return match (kind, said) {
                (Kind::Node, Some((settings, from, entry))) if settings.start_command.is_none() => {
                    let start_command = self.start_script()?.map(|(command, _)| command);
                    let settings = Settings {
                        start_command,
                        ..settings
                    };
                    Ok(Some((kind, startup, Some((settings, from, entry)))))
                }
                (_, said) => Ok(Some((kind, startup, said))),
            };
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
                (Some((settings, from, entry)), script) => {
                    let start_command = settings.start_command.or(script.map(|(command, _)| command));
                    let settings = Settings {
                        start_command,
                        ..settings
                    };
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
                None => Err(format!(
                    "{}: entry = {entry:?} does not show what the application is; add a runtime, for example runtime = \"asgi\"",
                    self.root.join(OWN_FILE).display()
                )),
            },
            None => Ok(None),
        }
    }

    /// Whether the file, which is there, shows what the application is. What an application says to be loaded is not looked for.
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

    /// What the source of the module shows that an `entry` names.
    fn kind_of_module(&self, entry: &str) -> Option<Kind> {
        let file = self.named(&module_file(entry)?)?;
        python_application(&self.source(&file)?)
    }

    /// The text of a file below the root. Nothing of it leaves this process.
    fn source(&self, file: &Path) -> Option<String> {
        let parent = descend(self.directory.as_fd(), file.parent()?)?;
        let content = beneath::read_in(parent.as_fd(), file.file_name()?, MOST_FILE_BYTES).ok()?;
        Some(String::from_utf8_lossy(&content.bytes).into_owned())
    }

    /// What is missing in a directory that is no application.
    fn unknown(&self) -> String {
        let unclear = STARTUP_FILES
            .iter()
            .filter(|one| matches!(one.proof, Proof::Package | Proof::Source));
        let there = unclear
            .map(|one| one.file)
            .find(|file| self.is_there(Path::new(file)).is_some());
        let shown = self.root.display();
        match there {
            Some(file) => format!(
                "{shown} is no application: {file} alone does not show what it is; say it in {OWN_FILE} there: runtime = {}",
                match file.ends_with(".js") {
                    true => "\"node\"",
                    false => "\"asgi\" (FastAPI, Starlette) or \"wsgi\" (Flask, Django)",
                }
            ),
            None => format!(
                "{shown} is no application: it has none of {}; or say in {OWN_FILE} there what it is, for example runtime = \
                 \"php\"",
                signs::all()
            ),
        }
    }

    fn has_start_script(&self) -> bool {
        self.start_script().is_ok_and(|script| script.is_some())
    }

    /// The start script of `package.json`.
    fn start_script(&self) -> Result<Option<(String, Entry)>, String> {
        if self.is_there(Path::new(PACKAGE)).is_none() {
            return Ok(None);
        }
        let content = self.read_own(PACKAGE)?;
        Ok(content.and_then(|content| Some((site::start_script(&content.bytes)?, content.entry))))
    }

    /// The file that an `entry` names, if it names one: relative, below the root, and there.
    fn named(&self, entry: &str) -> Option<PathBuf> {
        let is_plain = |component| matches!(component, Component::Normal(_));
        let path = Path::new(entry);
        path.components().all(is_plain).then(|| self.is_there(path))?
    }

    /// The name, if there is a file of that name, or a link.
    fn is_there(&self, name: &Path) -> Option<PathBuf> {
        let form = self.entry_below(name)?.form;
        matches!(form, FileForm::File | FileForm::Link).then(|| name.to_owned())
    }

    /// What is below the root under a name of several parts.
    fn entry_below(&self, name: &Path) -> Option<Entry> {
        let Some(parent) = name.parent().filter(|parent| *parent != Path::new("")) else {
            return beneath::entry_in(self.directory.as_fd(), name.as_os_str());
        };
        let parent = descend(self.directory.as_fd(), parent)?;
        beneath::entry_in(parent.as_fd(), name.file_name()?)
    }

    /// The interpreter of a virtual environment. It is a link, or the environment is one.
    fn python(&self, owner: u32, terms: &Terms) -> Result<Option<PathBuf>, String> {
        let is_there = |app_root: &&&str| {
            let environment = app_root.split('/').next().unwrap_or_default();
            let entry = beneath::entry_in(self.directory.as_fd(), OsStr::new(environment));
            entry.is_some_and(|entry| entry.form == FileForm::Link)
                || self.is_there(Path::new(app_root)).is_some()
        };
        let Some(app_root) = PYTHONS.iter().find(is_there) else {
            return Ok(None);
        };
        // It runs as the owner, and others may be able to make files here, such as members of the root's group.
        let mut name = PathBuf::new();
        for part in Path::new(app_root).components().filter(|_| terms.switching) {
            name.push(part);
            let Some(entry) = self.entry_below(&name) else {
                break;
            };
            if entry.uid != owner && entry.uid != 0 {
                return Err(format!(
                    "{} belongs to user {}, the application to user {owner}; give it to user {owner}, or to root",
                    self.root.join(&name).display(),
                    entry.uid
                ));
            }
            if entry.mode & WRITABLE_BY_ALL != 0 && entry.form == FileForm::Directory {
                let shown = self.root.join(&name);
                return Err(format!(
                    "{}: everybody may write to it; chmod o-w it",
                    shown.display()
                ));
            }
        }
        Ok(Some(self.root.join(app_root)))
    }

    /// `restart.txt` and `always_restart.txt`.
    fn restart_files(&self, terms: &Terms) -> (Option<(i128, u64)>, bool) {
        let name = terms.restart_dir.as_deref().unwrap_or(Path::new(RESTART_DIR));
        let linked = || {
            let real = real_below(&self.root.join(name), &terms.directories)?;
            beneath::open_exactly(&real).ok()
        };
        let directory = if name.is_absolute() {
            // The operator's own word.
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

    /// The version that is deployed. What can't be read is none.
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

    fn changed(&self) -> String {
        format!(
            "{} was changed while it was looked at; try again",
            self.root.display()
        )
    }
}

/// Opens a directory of several names; `None`: one of them is none, or a link.
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
