//! `forkyard deploy`, `rollback` and `releases`.

mod display;
mod links;
mod progress;

use super::control::{CommandOutcome, CommandResult, Daemon, EXIT_UNAVAILABLE, answer, tell, unexpected};
use super::table::{self, json};
use super::{EXIT_CONFIG, EXIT_SOFTWARE};
use clap::Args;
use forkyard_config::release::{LAST, beside};
use forkyard_protocol::control::{Answer, Request};
use forkyard_protocol::release::{Deployment, Outcome, PoolReleases, UnderWay};
use forkyard_sys::clock;
use forkyard_sys::signal::Interrupts;
use links::{LinkError, Links};
use std::fmt::Write as _;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

pub(super) use display::of_status;

/// Another deployment replaced this one (EX_TEMPFAIL, sysexits.h).
const EXIT_REPLACED: u8 = 75;
/// The release is in service, but its link could not be created (EX_CANTCREAT, sysexits.h).
const EXIT_NOT_LINKED: u8 = 73;
/// The command waits this long for the next master to answer.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// `forkyard deploy`.
#[derive(Debug, Args)]
pub(super) struct Deploy {
    #[command(flatten)]
    daemon: Daemon,
    /// The pool, its application's root, or its link
    pool: PathBuf,
    /// The directory of the release
    release: PathBuf,
    /// Give it a part of the requests first, and take it back if it is worse
    #[arg(long, conflicts_with = "at_once")]
    gradual: bool,
    /// Give it all requests as soon as it has started
    #[arg(long)]
    at_once: bool,
    /// Return when the last worker of the release before has gone
    #[arg(long)]
    wait: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// `forkyard rollback`.
#[derive(Debug, Args)]
pub(super) struct Rollback {
    #[command(flatten)]
    daemon: Daemon,
    /// The pool, its application's root, or its link
    pool: PathBuf,
    /// Return when the last worker of the other release has gone
    #[arg(long)]
    wait: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// `forkyard releases`.
#[derive(Debug, Args)]
pub(super) struct Releases {
    #[command(flatten)]
    daemon: Daemon,
    /// A pool, its application's root, or its link; all pools if there is none
    pool: Option<PathBuf>,
    /// Print them as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, thiserror::Error)]
enum DeployError {
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error("{}: {}; name the directory of a release", .0.display(), .1)]
    Release(PathBuf, #[source] std::io::Error),
    #[error("{} is no directory; name the directory of a release", .0.display())]
    NoDirectory(PathBuf),
    #[error("{} is not UTF-8; rename it", .0.display())]
    NotUtf8(PathBuf),
    #[error("the release can't be the pool's link {}; name the directory of a release", .0.display())]
    Present(PathBuf),
    #[error("{} contains the pool's link {}; name the directory of a release", .0.display(), .1.display())]
    Around(PathBuf, PathBuf),
    #[error("{0} has no release before the present one; name one: forkyard deploy {1} DIRECTORY")]
    NoLast(String, String),
    #[error("{} belongs to user {owner}, and the pool runs as user {uid}; chown it to {uid} or to root", .path.display())]
    Foreign { path: PathBuf, owner: u32, uid: u32 },
}

impl From<DeployError> for CommandOutcome {
    fn from(error: DeployError) -> CommandOutcome {
        CommandOutcome::failure(EXIT_CONFIG, format!("forkyard: {error}\n"))
    }
}

pub(super) fn deploy(arguments: &Deploy) -> ExitCode {
    tell(deployed(arguments))
}

pub(super) fn rollback(arguments: &Rollback) -> ExitCode {
    tell(rolled_back(arguments))
}

pub(super) fn releases(arguments: &Releases) -> ExitCode {
    tell(shown(arguments))
}

/// Returns the pool's name, or an absolute path with its links kept. `.`, `..` and names with a slash are paths.
fn name(pool: &Path) -> String {
    match pool.to_str() {
        Some(name) if !name.contains('/') && !matches!(name, "." | "..") => name.to_owned(),
        _ => {
            let path = std::path::absolute(pool).unwrap_or_else(|_| pool.to_owned());
            path.display().to_string().trim_end_matches('/').to_owned()
        }
    }
}

fn ask(daemon: &Daemon, pool: Option<String>) -> Result<Vec<PoolReleases>, CommandOutcome> {
    match answer(daemon, &Request::Releases { pool })? {
        Answer::Releases { releases } => Ok(releases),
        other => Err(refused(other)),
    }
}

fn ask_one(daemon: &Daemon, pool: &str) -> Result<PoolReleases, CommandOutcome> {
    let releases = ask(daemon, Some(pool.to_owned()))?;
    let none = || CommandOutcome::failure(EXIT_CONFIG, format!("forkyard: there is no pool {pool}\n"));
    releases.into_iter().next().ok_or_else(none)
}

/// Sets the exit code of a refusal, which is due to the configuration or the release.
fn refused(answer: Answer) -> CommandOutcome {
    match &answer {
        Answer::Error { .. } => CommandOutcome {
            code: EXIT_CONFIG,
            ..unexpected(answer)
        },
        _ => unexpected(answer),
    }
}

fn deployed(arguments: &Deploy) -> CommandResult {
    let pool = ask_one(&arguments.daemon, &name(&arguments.pool))?;
    let release = checked(&arguments.release, &pool)?;
    let order = Order {
        daemon: &arguments.daemon,
        gradual: match (arguments.gradual, arguments.at_once) {
            (true, _) => Some(true),
            (false, true) => Some(false),
            (false, false) => None,
        },
        wait: arguments.wait,
        json: arguments.json,
    };
    order.carry_out(&pool, &release)
}

fn rolled_back(arguments: &Rollback) -> CommandResult {
    let pool = ask_one(&arguments.daemon, &name(&arguments.pool))?;
    let order = Order {
        daemon: &arguments.daemon,
        // It was in service before, so it needs no comparison.
        gradual: Some(false),
        wait: arguments.wait,
        json: arguments.json,
    };
    if let Some(under_way) = &pool.under_way {
        return order.take_back(&pool, &under_way.release);
    }
    let links = Links::open(&pool.link).map_err(DeployError::from)?;
    let last = links.last().map_err(DeployError::from)?;
    let last = last.ok_or_else(|| DeployError::NoLast(display::name(&pool.pool), pool.pool.clone()))?;
    let release = checked(&last, &pool)?;
    order.carry_out(&pool, &release)
}

fn checked(release: &Path, pool: &PoolReleases) -> Result<PathBuf, DeployError> {
    let uid = pool.uid;
    let failed = |error| DeployError::Release(release.to_owned(), error);
    let path = release.canonicalize().map_err(failed)?;
    if path.to_str().is_none() {
        return Err(DeployError::NotUtf8(path));
    }
    let found = path.metadata().map_err(failed)?;
    if !found.is_dir() {
        return Err(DeployError::NoDirectory(path));
    }
    if std::path::absolute(release).is_ok_and(|written| written == pool.link) {
        return Err(DeployError::Present(pool.link.clone()));
    }
    if pool.link.starts_with(&path) {
        return Err(DeployError::Around(release.to_owned(), pool.link.clone()));
    }
    let owner = found.uid();
    // The owner of the link or of its directory may deploy for the pool's user.
    let is_link_s = || {
        let parent = pool.link.parent();
        let owners = [
            pool.link.symlink_metadata().ok(),
            parent.and_then(|it| it.metadata().ok()),
        ];
        owners.into_iter().flatten().any(|it| it.uid() == owner)
    };
    match owner == uid || owner == 0 || is_link_s() {
        true => Ok(path),
        false => Err(DeployError::Foreign { path, owner, uid }),
    }
}

/// Identifies a directory even if it is renamed. `None`: it no longer exists.
fn directory(path: &Path) -> Option<(u64, u64)> {
    let found = path.metadata().ok()?;
    Some((found.dev(), found.ino()))
}

struct Order<'o> {
    daemon: &'o Daemon,
    gradual: Option<bool>,
    wait: bool,
    json: bool,
}

impl Order<'_> {
    fn carry_out(&self, pool: &PoolReleases, release: &Path) -> CommandResult {
        let links = Links::open(&pool.link).map_err(DeployError::from)?;
        let pool = &self.after_other(pool, release)?;
        let begun = directory(release);
        let interrupts = Interrupts::note();
        let announced = links.announce(release).map_err(DeployError::from)?;
        let result = match self.result(pool, release, &interrupts) {
            Ok(result) => result,
            Err(outcome) => {
                links.give_up(release, announced.as_deref());
                return Err(outcome);
            }
        };
        if result.outcome != Outcome::Deployed {
            links.give_up(release, announced.as_deref());
            return Ok(self.shown(&result));
        }
        // If this command was suspended for a while, a newer deployment may have finished.
        let now = ask_one(self.daemon, &pool.pool)?.release;
        if now.is_some_and(|now| now != release) {
            links.give_up(release, announced.as_deref());
            let outcome = Outcome::Replaced;
            return Ok(self.shown(&Deployment { outcome, ..result }));
        }
        if directory(release) != begun {
            links.give_up(release, announced.as_deref());
            return self.go_back(pool, result);
        }
        let before = result.before.as_deref();
        if let Err(error) = links.serve(release, before) {
            let (shown, name) = (release.display(), &pool.pool);
            let text = format!(
                "forkyard: {shown} is in service, but its link could not be moved: {error}; then: forkyard deploy {name} {shown}\n"
            );
            return Err(CommandOutcome::failure(EXIT_NOT_LINKED, text));
        }
        let is_interrupted = interrupts.has_come();
        drop(interrupts);
        if self.wait && !is_interrupted {
            self.await_others(pool, release)?;
        }
        Ok(self.shown(&result))
    }

    /// Deploys the old release again, because the new release's directory was moved or replaced during the deployment.
    fn go_back(&self, pool: &PoolReleases, result: Deployment) -> CommandResult {
        if let Some(before) = &result.before {
            let request = Request::Deploy {
                pool: pool.pool.clone(),
                release: before.clone(),
                gradual: Some(false),
            };
            match answer(self.daemon, &request)? {
                Answer::Deployed(_) => {}
                other => return Err(refused(other)),
            }
        }
        Ok(self.shown(&Deployment {
            outcome: Outcome::RolledBack,
            why: Some("its directory is gone, or another one is in its place".to_owned()),
            ..result
        }))
    }

    /// Waits while another deployment has half of the requests or more: they need its static files. Then returns the pool's
    /// releases.
    fn after_other(&self, pool: &PoolReleases, release: &Path) -> Result<PoolReleases, CommandOutcome> {
        let mut now = pool.clone();
        let mut has_told = false;
        while let Some(other) = now
            .under_way
            .as_ref()
            .filter(|it| progress::is_first(it, release))
        {
            if !has_told {
                eprintln!("forkyard: waiting: {}", progress::in_words(other));
                has_told = true;
            }
            std::thread::sleep(LOOK_AGAIN);
            now = ask_one(self.daemon, &pool.pool)?;
        }
        Ok(now)
    }

    /// Takes back the deployment under way, and waits for its end.
    fn take_back(&self, pool: &PoolReleases, release: &Path) -> CommandResult {
        let request = Request::Rollback {
            pool: pool.pool.clone(),
            release: None,
        };
        match answer(self.daemon, &request)? {
            Answer::Done { .. } => {}
            other => return Err(refused(other)),
        }
        let now = loop {
            let now = ask_one(self.daemon, &pool.pool)?;
            let is_left = |it: &UnderWay| it.release == release;
            match now.under_way.as_ref().is_some_and(is_left) {
                true => std::thread::sleep(LOOK_AGAIN),
                false => break now,
            }
        };
        if let (true, Some(serving)) = (self.wait, &now.release) {
            self.await_others(pool, serving)?;
        }
        let (pool, release) = (display::name(&pool.pool), release.display());
        Ok(CommandOutcome::success(match self.json {
            true => json(&now.last),
            false => format!("{pool}: {release} is taken back\n"),
        }))
    }

    /// Deploys. Asks again if a new master took over before the answer, unless the release is in service.
    fn result(
        &self,
        pool: &PoolReleases,
        release: &Path,
        interrupts: &Interrupts,
    ) -> Result<Deployment, CommandOutcome> {
        let begun = Instant::now();
        let result = |outcome| Deployment {
            pool: pool.pool.clone(),
            release: release.to_owned(),
            before: pool.release.clone(),
            outcome,
            why: None,
            remarks: Vec::new(),
            time: clock::epoch_seconds(),
            took_ms: u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
        };
        loop {
            if interrupts.has_come() {
                return Ok(Deployment {
                    why: Some("the command was interrupted".to_owned()),
                    ..result(Outcome::RolledBack)
                });
            }
            let asked = progress::answer_shown(self.daemon, pool, release, self.gradual, interrupts);
            let lost = match asked {
                Ok(Answer::Deployed(result)) => return Ok(*result),
                Ok(other) => return Err(refused(other)),
                Err(lost) => lost,
            };
            eprintln!("forkyard: the daemon did not answer to the end; asking again");
            let now = self.after_loss(pool, lost)?;
            if now.release.as_deref() == Some(release) && pool.release.as_deref() != Some(release) {
                return Ok(Deployment {
                    remarks: vec!["another master took over before the end".to_owned()],
                    ..result(Outcome::Deployed)
                });
            }
        }
    }

    fn after_loss(&self, pool: &PoolReleases, lost: CommandOutcome) -> Result<PoolReleases, CommandOutcome> {
        let end = Instant::now() + PATIENCE;
        loop {
            match ask_one(self.daemon, &pool.pool) {
                Ok(now) => return Ok(now),
                Err(failed) if failed.code != EXIT_UNAVAILABLE && failed.code != EXIT_SOFTWARE => {
                    return Err(failed);
                }
                Err(_) if Instant::now() < end => std::thread::sleep(LOOK_AGAIN),
                Err(_) => return Err(lost),
            }
        }
    }

    fn await_others(&self, pool: &PoolReleases, release: &Path) -> Result<(), CommandOutcome> {
        loop {
            let now = ask_one(self.daemon, &pool.pool)?;
            if now.workers.iter().all(|workers| workers.release == release) {
                return Ok(());
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    fn shown(&self, result: &Deployment) -> CommandOutcome {
        let code = match result.outcome {
            Outcome::Deployed => 0,
            Outcome::Failed | Outcome::RolledBack => EXIT_SOFTWARE,
            Outcome::Replaced => EXIT_REPLACED,
        };
        let text = display::result(result);
        let is_success = code == 0;
        CommandOutcome {
            code,
            output: match (self.json, is_success) {
                (true, _) => json(result),
                (false, true) => text.clone(),
                (false, false) => String::new(),
            },
            errors: match is_success {
                true => String::new(),
                false => format!("forkyard: {text}"),
            },
        }
    }
}

fn shown(arguments: &Releases) -> CommandResult {
    let releases = ask(&arguments.daemon, arguments.pool.as_deref().map(name))?;
    Ok(table::shown(&releases[..], arguments.json, text))
}

fn text(releases: &[PoolReleases]) -> String {
    if releases.is_empty() {
        return "no pool has the key release\n".to_owned();
    }
    let mut text = String::new();
    for pool in releases {
        let _ = writeln!(text, "{}: {}", pool.pool, display::in_service(pool));
        for workers in &pool.workers {
            let noun = if workers.workers == 1 { "worker" } else { "workers" };
            let release = workers.release.display();
            let _ = writeln!(text, "  {} {noun} of {release}", workers.workers);
        }
        if pool.outside > 0 {
            let _ = writeln!(text, "  {} requests had a script in no release", pool.outside);
        }
        text += &display::under_way(pool);
        text += &linked(pool);
        text += &display::last(pool);
    }
    text
}

/// Describes the links that the caller may read.
fn linked(pool: &PoolReleases) -> String {
    let mut text = String::new();
    let last = beside(&pool.link, LAST).canonicalize();
    if let Some(last) = last.ok().filter(|last| Some(last) != pool.release.as_ref()) {
        let _ = writeln!(text, "  before: {}", last.display());
    }
    let named = pool.link.canonicalize().ok();
    if let (Some(named), Some(release)) = (named, &pool.release)
        && named != *release
    {
        let (named, link, name) = (named.display(), pool.link.display(), &pool.pool);
        let release = release.display();
        let _ = writeln!(
            text,
            "  {link} names {named}, and {release} is in service: forkyard deploy {name} with one of them changes that"
        );
    }
    text
}
