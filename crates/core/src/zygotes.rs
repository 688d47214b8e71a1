//! Decides which process forks a generation's workers. A preloader serves one generation, or it is a zygote and serves
//! all generations that need PHP started the same way.
//!
//! `S` is everything that a zygote's start depends on. Zygotes with equal sources are interchangeable.

use crate::life::Force;
use crate::master::event::{GenerationId, PoolId};
use crate::master::reload_diff::ReloadScope;
use std::collections::BTreeSet;

const MOST_UNFIT: usize = 64;
const MOST_KINDS: usize = 16;

/// The generations of one preloader.
#[derive(Debug)]
pub struct Members<S> {
    zygote: Option<Zygote<S>>,
    kept: BTreeSet<GenerationId>,
    /// The preloader has not confirmed yet that it forgot these.
    leaving: BTreeSet<GenerationId>,
    is_ending: bool,
}

#[derive(Debug)]
struct Zygote<S> {
    sources: S,
    is_outdated: bool,
}

/// How a preloader stops serving a generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// It leaves at once; no command is needed.
    Leave,
    /// Tell the preloader to forget it. It leaves with the answer.
    Forget,
    /// The answer is still to come.
    Wait,
    /// Cancel the preloader's start.
    Cancel,
    /// Fail the preloader's start now.
    Expire,
    /// Close the preloader's channel, and wait until it exits.
    Close,
    /// Signal the preloader, which serves no other generation or does not answer.
    Signal(Force),
}

/// The members of a zygote that can't serve them.
#[derive(Debug, PartialEq, Eq)]
pub struct Released {
    /// These need another preloader.
    pub kept: BTreeSet<GenerationId>,
    /// These wanted to leave, and have now left.
    pub leaving: BTreeSet<GenerationId>,
}

impl<S> Members<S> {
    /// The members of a preloader for one generation.
    pub fn of_one() -> Members<S> {
        Members {
            zygote: None,
            kept: BTreeSet::new(),
            leaving: BTreeSet::new(),
            is_ending: false,
        }
    }

    /// The members of a zygote made from these sources.
    pub fn of_zygote(sources: S) -> Members<S> {
        Members {
            zygote: Some(Zygote {
                sources,
                is_outdated: false,
            }),
            ..Members::of_one()
        }
    }

    pub fn is_zygote(&self) -> bool {
        self.zygote.is_some()
    }

    /// The sources of a zygote.
    pub fn sources(&self) -> Option<&S> {
        self.zygote.as_ref().map(|zygote| &zygote.sources)
    }

    /// Whether it accepts no more generations and exits.
    pub fn is_ending(&self) -> bool {
        self.is_ending
    }

    pub fn end(&mut self) {
        self.is_ending = true;
    }

    /// All generations, in order, including those that are leaving.
    pub fn all(&self) -> impl Iterator<Item = GenerationId> + '_ {
        self.kept.union(&self.leaving).copied()
    }

    /// The generations that are not leaving.
    pub fn kept(&self) -> impl Iterator<Item = GenerationId> + '_ {
        self.kept.iter().copied()
    }

    pub fn contains(&self, id: GenerationId) -> bool {
        self.kept.contains(&id) || self.leaving.contains(&id)
    }

    pub fn join(&mut self, id: GenerationId) {
        self.kept.insert(id);
    }

    pub fn leave(&mut self, id: GenerationId) {
        self.kept.remove(&id);
        self.leaving.remove(&id);
    }

    /// Removes all members, whose preloader is about to be replaced.
    pub fn release(&mut self) -> Released {
        Released {
            kept: std::mem::take(&mut self.kept),
            leaving: std::mem::take(&mut self.leaving),
        }
    }

    /// Ends a zygote that can't fork workers. `None` if it is no zygote.
    pub fn give_up(&mut self) -> Option<Released> {
        self.zygote.as_ref()?;
        self.is_ending = true;
        Some(self.release())
    }

    /// Handles the request to stop the preloader of a generation. `is_starting`: it is not up yet. `has_unforked`: it
    /// has not answered fork commands for this generation.
    pub fn stop(&mut self, id: GenerationId, force: Force, is_starting: bool, has_unforked: bool) -> Stop {
        // An unused zygote may still be needed.
        let stays = self.is_zygote() && !self.is_ending;
        let is_shared = stays || self.kept.iter().any(|member| *member != id);
        let leaves = self.leaving.contains(&id);
        let stop = match force {
            // A zygote has nothing of a generation except pending commands.
            Force::Ask | Force::Terminate if stays && !leaves && !has_unforked => Stop::Leave,
            Force::Ask | Force::Terminate if is_shared && leaves => Stop::Wait,
            Force::Ask | Force::Terminate if is_shared => Stop::Forget,
            // It has not answered for long. The generations that stay decide whether they keep it.
            Force::Kill if is_shared && leaves => Stop::Leave,
            Force::Ask | Force::Terminate if is_starting => Stop::Cancel,
            Force::Kill if is_starting => Stop::Expire,
            Force::Ask => Stop::Close,
            // A hung zygote fails all its generations.
            Force::Terminate | Force::Kill => Stop::Signal(force),
        };
        match stop {
            Stop::Forget => {
                self.kept.remove(&id);
                self.leaving.insert(id);
            }
            Stop::Cancel | Stop::Close | Stop::Signal(_) => self.is_ending = true,
            Stop::Leave | Stop::Wait | Stop::Expire => {}
        }
        stop
    }

    /// The leaving generation with this number, after the preloader has confirmed that it forgot it.
    pub fn forgotten(&self, number: u64) -> Option<GenerationId> {
        let mut leaving = self.leaving.iter().copied();
        leaving.find(|id| u64::from(id.0) == number)
    }

    /// After a reload: generations that start later use another zygote.
    pub fn outdate(&mut self) {
        if let Some(zygote) = &mut self.zygote {
            zygote.is_outdated = true;
        }
    }

    /// Whether it is a zygote without members.
    pub fn is_unused(&self) -> bool {
        self.is_zygote() && !self.is_ending && self.all().next().is_none()
    }
}

impl<S: PartialEq> Members<S> {
    /// Whether its workers suit a generation with these sources.
    pub fn serves(&self, sources: &S) -> bool {
        let fits = |zygote: &Zygote<S>| !zygote.is_outdated && zygote.sources == *sources;
        self.zygote.as_ref().is_some_and(fits)
    }

    /// Whether a generation with these sources may join.
    pub fn accepts(&self, sources: &S) -> bool {
        !self.is_ending && self.serves(sources)
    }
}

/// Where the workers of a generation come from. `K` names a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice<'a, K> {
    /// A present zygote.
    Join(K),
    StartZygote,
    /// An own preloader, because no zygote can be made for this reason.
    Unfit(&'a str),
}

/// Chooses the youngest zygote that accepts a generation with these sources. `reload` is the number of reloads so far.
pub fn choose<'a, K: Ord, S: PartialEq + 'a>(
    zygotes: impl Iterator<Item = (K, &'a Members<S>)>,
    unfit: &'a Unfit<S>,
    reload: u64,
    sources: &S,
) -> Choice<'a, K> {
    if let Some(reason) = unfit.reason(sources, reload) {
        return Choice::Unfit(reason);
    }
    let fitting = zygotes.filter(|(_, members)| members.accepts(sources));
    match fitting.map(|(zygote, _)| zygote).max() {
        Some(zygote) => Choice::Join(zygote),
        None => Choice::StartZygote,
    }
}

/// What happens to zygotes when a configuration is applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewal {
    /// Shared zygotes start ahead of the first request.
    Start,
    /// All present ones become outdated, and shared ones start.
    All,
    /// Those whose files have changed become outdated, and shared ones start.
    Changed,
    Nothing,
}

/// Decides the renewal. `is_first`: no configuration was applied before. `replaces_always`: a pool wants new processes
/// with every reload.
pub fn renewal(scope: ReloadScope, is_first: bool, replaces_always: bool) -> Renewal {
    match scope {
        ReloadScope::All if is_first => Renewal::Start,
        ReloadScope::All => Renewal::All,
        ReloadScope::Changed if replaces_always => Renewal::All,
        ReloadScope::Changed => Renewal::Changed,
        ReloadScope::Settings | ReloadScope::One(_) => Renewal::Nothing,
    }
}

/// Whether an unused zygote stays, by the generations that it would serve: each one's pool, and whether it stands for
/// many applications. A single pool starts a zygote again when it needs one.
pub fn is_needed(served: impl Iterator<Item = (PoolId, bool)>) -> bool {
    let mut first = None;
    for (pool, is_many) in served {
        if is_many || *first.get_or_insert(pool) != pool {
            return true;
        }
    }
    false
}

/// The sources that several pools have in common, up to `most`: their zygotes start ahead of the first request.
/// `pools`: each pool's sources, and whether it stands for many applications.
pub fn shared_sources<S: PartialEq>(pools: impl Iterator<Item = (S, bool)>, most: usize) -> Vec<S> {
    let (mut single, mut shared): (Vec<S>, Vec<S>) = (Vec::new(), Vec::new());
    for (sources, is_many) in pools {
        if shared.len() >= most {
            break;
        }
        if shared.contains(&sources) {
            continue;
        }
        if is_many || single.contains(&sources) {
            shared.push(sources);
        } else if single.len() < MOST_KINDS {
            single.push(sources);
        }
    }
    shared
}

/// The zygotes that could not be made since the last reload. Each of their pools has its own preloader.
#[derive(Debug)]
pub struct Unfit<S> {
    reload: u64,
    known: Vec<(S, String)>,
}

impl<S> Default for Unfit<S> {
    fn default() -> Unfit<S> {
        Unfit {
            reload: 0,
            known: Vec::new(),
        }
    }
}

impl<S: PartialEq> Unfit<S> {
    /// Notes a reason, and drops those noted before this reload. `reload` is the number of reloads so far.
    pub fn note(&mut self, sources: S, reload: u64, reason: &str) {
        if self.reload != reload {
            self.known.clear();
            self.reload = reload;
        }
        if self.known.len() < MOST_UNFIT {
            self.known.push((sources, reason.to_owned()));
        }
    }

    /// Why no zygote can be made from these sources before the next reload.
    pub fn reason(&self, sources: &S, reload: u64) -> Option<&str> {
        let mut known = self.known.iter().filter(|_| self.reload == reload);
        known
            .find(|(unfit, _)| unfit == sources)
            .map(|(_, reason)| reason.as_str())
    }
}
