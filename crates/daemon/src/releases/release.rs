//! The release that a generation serves.
//!
//! A new generation keeps the release of its predecessor, unless a deployment names another or a restart reads the link.
//! Link and directory belong to a tenant, so a child process with the rights of the pool's user reads them.

use crate::context::Context;
use crate::context::apply_error::{PoolFault, ReleaseFault};
use crate::context::generation::{Generation, with_map};
use crate::context::pools::Pools;
use crate::pools::provenance::is_alike;
use forkyard_config::node_command;
use forkyard_config::release::{LAST, Map, NEXT, Release, beside};
use forkyard_core::master::event::{GenerationId, PoolId};
use forkyard_core::master::reload_diff::ReloadScope;
use forkyard_sys::identity::{self, Identity, become_user};
use forkyard_sys::process::{self, Finding};
use forkyard_worker::Settings;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, VecDeque};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How many former releases a pool's generations know.
const MOST_FORMER: usize = 32;

/// The release that a deployment wants for a pool, set while the pool's settings are prepared.
#[derive(Debug)]
struct Wish {
    pool: PoolId,
    /// `None`: no release, the state before the first deployment.
    release: Option<PathBuf>,
    /// The part of the requests that the new generation gets; `None`: all.
    share: Option<u8>,
}

#[derive(Debug, Default)]
pub(crate) struct Releases {
    wish: Option<Wish>,
    /// By pool name: former releases, the latest first, including some from the previous master.
    former: HashMap<String, VecDeque<PathBuf>>,
    /// By pool name: the release that the previous master served without a running process.
    pub(crate) left: HashMap<String, PathBuf>,
}

impl Releases {
    /// Makes the next preparation of settings use this release in the pool.
    pub(crate) fn want(&mut self, pool: PoolId, release: Option<PathBuf>, share: Option<u8>) {
        self.wish = Some(Wish { pool, release, share });
    }

    pub(crate) fn share(&self, pool: PoolId) -> Option<u8> {
        self.wish.as_ref().filter(|wish| wish.pool == pool)?.share
    }

    pub(crate) fn want_nothing(&mut self) {
        self.wish = None;
    }

    pub(crate) fn note_former(&mut self, pool: &str, release: &Path) {
        let former = self.former.entry(pool.to_owned()).or_default();
        former.retain(|known| known != release);
        former.push_front(release.to_owned());
        former.truncate(MOST_FORMER);
    }
}

/// The child's findings.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Found {
    /// `None`: the link does not exist.
    release: Option<PathBuf>,
    /// The targets of the three links.
    known: Vec<PathBuf>,
    /// The command of the release's program, if its files name it.
    start_command: Option<String>,
}

/// The question for a child.
struct Look<'l> {
    link: &'l Path,
    /// The child's user; `None` keeps the daemon's rights.
    user: Option<&'l Identity>,
    /// The release that a deployment names; `None`: the link's target.
    wanted: Option<&'l Path>,
    by: ChosenBy,
    /// Whether the release is refused if the user can't search it, or if it is empty.
    is_entered: bool,
    /// The directory of a program below the link, if its files name the command.
    program: Option<PathBuf>,
}

impl<'l> Look<'l> {
    fn at(settings: &'l Settings, release: &'l Release) -> Look<'l> {
        let program = settings.pool.application.program();
        let program = program.filter(|program| program.start_command.is_empty());
        Look {
            link: &release.link,
            user: settings.identity.as_ref(),
            wanted: None,
            by: ChosenBy::Link,
            is_entered: false,
            program: program.and_then(|it| Some(it.root.strip_prefix(&release.link).ok()?.to_owned())),
        }
    }
}

/// The rights behind the choice of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChosenBy {
    Root,
    Owner,
    /// The rights of the link's owner.
    Link,
}

impl Releases {
    /// Returns the settings of a pool's next generation with the paths of its release.
    ///
    /// # Errors
    /// A restart finds no release behind the link. Otherwise this is a warning, and the paths stay unchanged.
    pub(crate) fn in_release(
        &self,
        context: &Context,
        settings: Settings,
        extent: ReloadScope,
    ) -> Result<Settings, PoolFault> {
        let Some(release) = settings.pool.release.clone() else {
            return Ok(settings);
        };
        let running = context.pools.pool_listening_as(&settings.pool);
        let is_asked = running.is_some_and(|id| extent == ReloadScope::One(id));
        let wish = self.wish.as_ref();
        if let Some(wish) = wish.filter(|wish| Some(wish.pool) == running) {
            let map = self.map_of(context, &settings, &release, wish.release.as_deref());
            return Ok(with_map(settings, map));
        }
        let known = running
            .filter(|_| !is_asked)
            .and_then(|id| context.pools.by_id.get(&id));
        let known = known.into_iter().flat_map(|pool| [pool.latest, pool.serving]);
        let known: Vec<&Generation> = known
            .flatten()
            // A reload of everything takes back a deployment, so only the serving generation counts.
            .filter(|id| extent != ReloadScope::All || context.pools.serving_generation_of(*id) == Some(*id))
            .filter_map(|id| context.pools.generations.get(&id))
            .filter(|generation| same_link(generation, &release))
            .collect();
        for generation in &known {
            let wanted = with_map(settings.clone(), generation.settings.release.clone());
            if is_alike(&generation.settings, &wanted) {
                return Ok(wanted);
            }
        }
        if let Some(serving) = known.last() {
            return Ok(with_map(settings, serving.settings.release.clone()));
        }
        let name = &settings.pool.name;
        if let Some(left) = self.left.get(name).filter(|_| !is_asked) {
            let map = self.map_of(context, &settings, &release, Some(left));
            return Ok(with_map(settings, map));
        }
        let look = Look {
            is_entered: is_asked,
            ..Look::at(&settings, &release)
        };
        match look.carry_out() {
            Ok(found) => {
                if found.release.is_none() {
                    log::warn!(
                        "[pool {name}] there is no link {}: the pool waits for its first deployment",
                        release.link.display()
                    );
                }
                let map = self.known_map(context, name, &release, found);
                Ok(with_map(settings, map))
            }
            Err(fault) if is_asked => Err(PoolFault::Release(fault)),
            Err(fault) => {
                log::warn!("[pool {name}] release: {fault}; paths stay as they are written");
                Ok(settings)
            }
        }
    }

    /// Returns the settings of an adopted generation.
    pub(crate) fn adopted(&mut self, context: &Context, settings: Settings, left: Option<&Path>) -> Settings {
        let Some(release) = settings.pool.release.clone() else {
            return settings;
        };
        if let Some(left) = left {
            self.note_former(&settings.pool.name, left);
        }
        let map = self.map_of(context, &settings, &release, left);
        with_map(settings, map)
    }

    /// Returns the map to a release that was checked.
    fn map_of(
        &self,
        context: &Context,
        settings: &Settings,
        release: &Release,
        wanted: Option<&Path>,
    ) -> Option<Box<Map>> {
        let look = Look {
            wanted,
            by: ChosenBy::Root,
            ..Look::at(settings, release)
        };
        // A deleted release keeps its paths.
        let mut found = look.carry_out().unwrap_or_default();
        found.release = wanted.map(Path::to_owned);
        self.known_map(context, &settings.pool.name, release, found)
    }

    fn known_map(&self, context: &Context, name: &str, release: &Release, found: Found) -> Option<Box<Map>> {
        let own = found.release?;
        let mut known = found.known;
        for id in context.pools.pools_named(name) {
            let generations = context.pools.generations.of(&id);
            known.extend(generations.filter_map(|(_, generation)| generation.release()));
        }
        known.extend(self.former.get(name).into_iter().flatten().cloned());
        let known = known.iter().map(|path| path.as_os_str().as_bytes());
        let map = Map::new(
            release.link.as_os_str().as_bytes(),
            own.as_os_str().as_bytes(),
            known,
        );
        Some(Box::new(map.with_start_command(found.start_command)))
    }
}

impl Context {
    /// Checks the release that a deployment names for a pool.
    pub(crate) fn check_release(&self, id: PoolId, release: &Path, by: ChosenBy) -> Result<(), ReleaseFault> {
        let serving = self.pools.by_id.get(&id).and_then(|pool| pool.serving);
        let generation = serving.and_then(|id| self.pools.generations.get(&id));
        let pool = self.in_force.pool(self.pools.pool_name(id));
        let Some((generation, pool)) = generation.zip(pool) else {
            return Err(ReleaseFault::System("the pool does not run".to_owned()));
        };
        let Some(written) = &pool.release else {
            return Ok(());
        };
        let mut settings = generation.settings.clone();
        settings.pool = Arc::clone(pool);
        let look = Look {
            wanted: Some(release),
            by,
            is_entered: true,
            ..Look::at(&settings, written)
        };
        look.carry_out().map(|_| ())
    }
}

/// Checks that the user of an application can search its release, and that the release is not empty. `user`: `None` keeps the
/// daemon's rights.
pub(crate) fn check_entry(release: &Path, user: Option<&Identity>) -> Result<(), ReleaseFault> {
    as_user(user, release, |uid| enter(release, uid))
}

/// Checks that this process can search a release, and that the release is not empty. A directory that can be searched but not
/// listed passes.
fn enter(release: &Path, uid: u32) -> Result<(), ReleaseFault> {
    let fault = |directory: &Path| Some(fs::metadata(directory.join(".")).err()?.kind());
    let is_closed = |directory: &&Path| fault(directory) == Some(ErrorKind::PermissionDenied);
    // Everything below a closed directory is closed.
    if let Some(closed) = release.ancestors().take_while(is_closed).last() {
        return Err(ReleaseFault::Closed {
            path: closed.to_owned(),
            uid,
        });
    }
    if fault(release).is_some() {
        return Err(ReleaseFault::NotThere {
            path: release.to_owned(),
            uid,
        });
    }
    match fs::read_dir(release).is_ok_and(|mut entries| entries.next().is_none()) {
        true => Err(ReleaseFault::Empty(release.to_owned())),
        false => Ok(()),
    }
}

/// Looks at files with the rights of a user, in a child process with a timeout. `release`: the directory that a late answer names.
fn as_user<T: Serialize + DeserializeOwned>(
    user: Option<&Identity>,
    release: &Path,
    look: impl FnOnce(u32) -> Result<T, ReleaseFault>,
) -> Result<T, ReleaseFault> {
    let uid = user.map_or_else(identity::own_user, |user| user.uid);
    let found = process::within_a_moment(&format!("user {uid}"), || {
        let found = match user.filter(|_| identity::is_root()).map(become_user) {
            Some(Err(error)) => Err(ReleaseFault::System(error.to_string())),
            Some(Ok(())) | None => look(uid),
        };
        Finding::from(serde_json::to_vec(&found).unwrap_or_default())
    });
    let late = |_| ReleaseFault::Late(release.to_owned());
    let bytes = found.map(|found| found.bytes).unwrap_or_default();
    serde_json::from_slice::<Result<T, ReleaseFault>>(&bytes).map_err(late)?
}

fn same_link(generation: &Generation, release: &Release) -> bool {
    let own = generation.settings.pool.release.as_ref();
    own.is_some_and(|own| own.link == release.link)
}

impl Pools {
    pub(crate) fn serving_generation(&self, id: PoolId) -> Option<GenerationId> {
        self.by_id.get(&id)?.serving
    }

    /// Returns the serving generation of this generation's pool.
    fn serving_generation_of(&self, id: GenerationId) -> Option<GenerationId> {
        self.serving_generation(self.generations.get(&id)?.pool)
    }

    /// Returns the release that a pool serves.
    pub(crate) fn serving_release(&self, id: PoolId) -> Option<PathBuf> {
        let serving = self.by_id.get(&id)?.serving?;
        self.generations.get(&serving)?.release()
    }
}

impl Generation {
    /// Returns the release that the generation serves.
    pub(crate) fn release(&self) -> Option<PathBuf> {
        self.settings.release.as_ref().map(|map| map.release().to_owned())
    }
}

impl Look<'_> {
    /// Looks at the wanted release or the link, in a child process with a timeout.
    fn carry_out(&self) -> Result<Found, ReleaseFault> {
        as_user(self.user, self.wanted.unwrap_or(self.link), |uid| {
            self.look_now(uid)
        })
    }

    fn look_now(&self, uid: u32) -> Result<Found, ReleaseFault> {
        let Look { link, wanted, by, .. } = *self;
        let not_there = |path: &Path| ReleaseFault::NotThere {
            path: path.to_owned(),
            uid,
        };
        let links = [link.to_owned(), beside(link, NEXT), beside(link, LAST)];
        let known = links.iter().filter_map(|link| link.canonicalize().ok());
        let known: Vec<PathBuf> = known.filter(|path| path.to_str().is_some()).collect();
        let named = match (wanted, fs::symlink_metadata(link)) {
            (Some(wanted), _) => wanted,
            (None, Ok(_)) => link,
            (None, Err(error)) if error.kind() == ErrorKind::NotFound => {
                return Ok(Found {
                    known,
                    ..Found::default()
                });
            }
            (None, Err(_)) => return Err(not_there(link)),
        };
        let release = named.canonicalize().map_err(|_| match named.read_link() {
            Ok(target) => ReleaseFault::Dangling {
                link: named.to_owned(),
                target,
                uid,
            },
            Err(_) => not_there(named),
        })?;
        if wanted.is_some_and(|wanted| wanted != release) {
            return Err(ReleaseFault::Linked(named.to_owned(), release));
        }
        if release.to_str().is_none() {
            return Err(ReleaseFault::NotUtf8(release));
        }
        if !release.is_dir() {
            return Err(ReleaseFault::NoDirectory(release));
        }
        if release.parent().is_none() {
            return Err(ReleaseFault::Root(release));
        }
        if release.as_os_str().as_bytes().contains(&b':') {
            return Err(ReleaseFault::Colon(release));
        }
        let whole = known
            .iter()
            .find(|whole| release != **whole && release.starts_with(whole));
        if let Some(whole) = whole.filter(|_| wanted.is_some()) {
            return Err(ReleaseFault::Part(release, whole.clone()));
        }
        let is_roots = match by {
            ChosenBy::Root => true,
            ChosenBy::Owner => false,
            ChosenBy::Link => fs::symlink_metadata(link).is_ok_and(|link| link.uid() == 0),
        };
        let parent = link.parent().and_then(|parent| parent.canonicalize().ok());
        if let Some(parent) = parent.filter(|parent| !is_roots && !release.starts_with(parent)) {
            return Err(ReleaseFault::Elsewhere(release, parent));
        }
        if self.is_entered {
            enter(&release, uid)?;
        }
        let start_command = match &self.program {
            Some(below) => {
                let root = release.join(below);
                let found = node_command(&root);
                Some(found.map_err(|error| ReleaseFault::NoCommand {
                    problem: error.to_string(),
                    root,
                })?)
            }
            None => None,
        };
        Ok(Found {
            release: Some(release),
            known,
            start_command,
        })
    }
}
