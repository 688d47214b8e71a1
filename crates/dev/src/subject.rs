//! Detects the application in a directory, as an application pool does, and checks that this machine can run it.

use forkyard_protocol::inspector::FoundApplication;
use forkyard_protocol::runtimes::{Kind, Paths};
use forkyard_router::inspector::find::{self, Terms};
use forkyard_router::inspector::signs;
use forkyard_sys::identity;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const DOCUMENTS: [&str; 3] = ["php", "html", "htm"];
const PUBLIC: &str = "public";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Subject {
    pub(crate) root: PathBuf,
    pub(crate) documents: Option<PathBuf>,
    pub(crate) what: What,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum What {
    Application {
        kind: Kind,
        file: Option<PathBuf>,
        is_one_program: bool,
    },
    Documents,
}

impl Subject {
    pub(crate) fn is_php(&self) -> bool {
        matches!(
            self.what,
            What::Documents | What::Application { kind: Kind::Php, .. }
        )
    }

    pub(crate) fn describe(&self) -> String {
        match &self.what {
            What::Documents => "PHP and files".to_owned(),
            What::Application { kind, file, .. } => {
                let file = file.as_ref().map(|file| format!(", {}", file.display()));
                format!("{}{}", kind.traits().title, file.unwrap_or_default())
            }
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum SubjectError {
    #[error("{path}: {1}", path = .0.display())]
    Path(PathBuf, io::Error),
    #[error("{} is no directory; name the one that the application is in", .0.display())]
    NoDirectory(PathBuf),
    #[error("/ is no application's directory; name one below it")]
    Top,
    #[error("{0}")]
    Unknown(String),
    #[error(
        "applications don't run as root, and {} belongs to root; run this as the user who develops it, or give the \
         directory to one (chown)",
        .0.display()
    )]
    OfRoot(PathBuf),
    #[error("can't find my program: {0}")]
    NoProgram(io::Error),
    #[error("can't run as the owner of {path}: {1}", path = .0.display())]
    Owner(PathBuf, io::Error),
    #[error("{} is an application in {language}, and {program} is not installed: apt install {packages}", root.display())]
    NotInstalled {
        root: PathBuf,
        language: &'static str,
        program: &'static str,
        packages: &'static str,
    },
    #[error("{} is now {now}, and was {before}; end forkyard dev, and start it again", root.display())]
    Changed {
        root: PathBuf,
        now: String,
        before: String,
    },
}

pub(crate) fn find(directory: &Path) -> Result<Subject, SubjectError> {
    let root = directory
        .canonicalize()
        .map_err(|error| SubjectError::Path(directory.to_owned(), error))?;
    if !root.is_dir() {
        return Err(SubjectError::NoDirectory(root));
    }
    become_owner(&root)?;
    let subject = inspect(&root)?;
    check(&subject)?;
    Ok(subject)
}

pub(crate) fn inspect(root: &Path) -> Result<Subject, SubjectError> {
    let parent = root.parent().ok_or(SubjectError::Top)?;
    let terms = Terms {
        directories: vec![parent.to_owned()],
        restart_dir: None,
        switching: false,
        user_mounts: true,
        releases: None,
    };
    match find::inspect(root, None, &terms) {
        Ok(found) => Ok(application(found)),
        Err(_) if !has_own_word(root) && has_documents(root) => Ok(Subject {
            root: root.to_owned(),
            documents: Some(root.to_owned()),
            what: What::Documents,
        }),
        Err(refused) => Err(SubjectError::Unknown(refused.why.to_string())),
    }
}

fn application(found: FoundApplication) -> Subject {
    let FoundApplication {
        root,
        kind,
        startup_file,
        settings,
        ..
    } = found;
    let file = startup_file.and_then(|file| file.strip_prefix(&root).ok().map(Path::to_owned));
    let public = root.join(PUBLIC);
    let is_in_public = file.as_deref().is_some_and(|file| file.starts_with(PUBLIC));
    let documents = match kind.traits().paths {
        Paths::Scripts if is_in_public => Some(public),
        Paths::Scripts => Some(root.clone()),
        Paths::Programs | Paths::Application => public.is_dir().then_some(public),
    };
    Subject {
        root,
        documents,
        what: What::Application {
            kind,
            file,
            is_one_program: settings.is_some_and(|settings| settings.entry.is_some()),
        },
    }
}

fn has_own_word(root: &Path) -> bool {
    root.join(signs::OWN_FILE).exists() || root.join(signs::PASSENGERFILE).exists()
}

fn has_documents(root: &Path) -> bool {
    let entries = std::fs::read_dir(root).into_iter().flatten().flatten();
    let mut endings = entries.filter_map(|entry| Some(entry.path().extension()?.to_str()?.to_owned()));
    endings.any(|ending| DOCUMENTS.contains(&ending.as_str()))
}

/// Avoids running as root: restarts the program as the directory's owner.
fn become_owner(root: &Path) -> Result<(), SubjectError> {
    if !identity::is_root() {
        return Ok(());
    }
    let owner = std::fs::metadata(root).map_err(|error| SubjectError::Path(root.to_owned(), error))?;
    let uid = owner.uid();
    if uid == 0 {
        return Err(SubjectError::OfRoot(root.to_owned()));
    }
    let own = std::env::current_exe().map_err(SubjectError::NoProgram)?;
    let user = nix::unistd::User::from_uid(uid.into()).ok().flatten();
    let gid = user.as_ref().map_or(owner.gid(), |user| user.gid.as_raw());
    let mut command = Command::new(own);
    command.args(std::env::args_os().skip(1)).uid(uid).gid(gid);
    if let Some(user) = user {
        command.env("HOME", user.dir).env("USER", user.name);
    }
    Err(SubjectError::Owner(root.to_owned(), command.exec()))
}

fn check(subject: &Subject) -> Result<(), SubjectError> {
    let What::Application { kind, .. } = subject.what else {
        return Ok(());
    };
    let has_venv = signs::PYTHONS
        .iter()
        .any(|python| subject.root.join(python).exists());
    let (programs, packages) = kind.traits().programs;
    if programs.is_empty() || (has_venv && matches!(kind, Kind::Wsgi | Kind::Asgi)) {
        return Ok(());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = |program: &&str| match program.starts_with('/') {
        true => Path::new(program).exists(),
        false => std::env::split_paths(&path).any(|directory| directory.join(program).exists()),
    };
    if programs.iter().any(is_there) {
        return Ok(());
    }
    Err(SubjectError::NotInstalled {
        root: subject.root.clone(),
        language: kind.traits().title,
        program: programs[0],
        packages,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_directory_is_what_its_files_show() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap().join("shop");
        fs::create_dir(&root).unwrap();
        let error = inspect(&root).unwrap_err().to_string();
        assert!(
            error.contains("passenger_wsgi.py") && error.contains("index.php"),
            "{error}"
        );
        fs::write(root.join("about.html"), "").unwrap();
        let subject = inspect(&root).unwrap();
        assert_eq!(
            (subject.what, subject.documents),
            (What::Documents, Some(root.clone()))
        );
        fs::create_dir(root.join("public")).unwrap();
        fs::write(root.join("public/index.php"), "").unwrap();
        let subject = inspect(&root).unwrap();
        assert_eq!(subject.documents, Some(root.join("public")));
        assert_eq!(subject.describe(), "PHP, public/index.php");
        fs::write(root.join("wsgi.py"), "").unwrap();
        let subject = inspect(&root).unwrap();
        assert_eq!(subject.describe(), "Python (WSGI), wsgi.py");
        assert_eq!(subject.documents, Some(root.join("public")));
        fs::write(root.join("forkyard.toml"), "runtime = \"wsg\"").unwrap();
        let error = inspect(&root).unwrap_err().to_string();
        assert!(error.contains("did you mean \"wsgi\""), "{error}");
    }
}
