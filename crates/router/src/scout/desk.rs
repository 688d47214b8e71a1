//! Who looks at what, and for how long. A plain value: it is told what happened and what time it is, and says what is to
//! be done.
//!
//! Looks are taken by a few processes, the lookers, one look at a time. One that takes too long is answered with an error,
//! and its looker killed and replaced; a look at a dead network file system can't even be killed, so the number of such
//! processes is bounded. Below one name in a pool's directory only some of the lookers are at work: a site whose files hang
//! delays the others, but can't stop them.

use super::look::{Look, Seen};
use crate::tick::Tick;
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Lookers at work.
pub const LOOKERS: usize = 4;
/// Of those, at work below one name of a pool's directory.
pub const LOOKERS_PER_SITE: usize = 2;
/// Lookers, with those that were killed and are not gone.
pub const MOST_LOOKERS: usize = 12;
/// Looks of one asker that wait.
pub const MOST_WAITING: usize = 64;
/// The most time for a look, and that a look waits for a looker.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asker {
    /// The router.
    Router = 0,
    /// The master.
    Master = 1,
}

impl Asker {
    /// Both.
    pub const ALL: [Asker; 2] = [Asker::Router, Asker::Master];
}

/// A looker's number.
pub type LookerId = u64;

/// What is to be done.
#[allow(clippy::large_enum_variant, reason = "a few are there for a moment")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Start a looker. If that fails, [`Desk::gone`].
    Start(LookerId),
    /// Give a looker something to look at.
    Give(LookerId, Look),
    /// Kill a looker; [`Desk::gone`] when its process is gone.
    Kill(LookerId),
    /// Answer.
    Answer(Asker, Seen),
}

/// A look that was asked for.
#[derive(Debug)]
struct Task {
    asker: Asker,
    look: Look,
    /// Below which name of a pool's directory it is.
    site: PathBuf,
    /// It waits, or may take, until then.
    until: Tick,
}

#[derive(Debug)]
enum Looker {
    Idle,
    Busy(Task),
    /// It was killed during a look below this.
    Dying(PathBuf),
}

/// The desk.
#[derive(Debug)]
pub struct Desk {
    directories: Vec<PathBuf>,
    lookers: BTreeMap<LookerId, Looker>,
    next: LookerId,
    /// By [`Asker`].
    waiting: [VecDeque<Task>; 2],
    /// Whose turn it is.
    turn: Asker,
}

impl Desk {
    /// Nobody asks, nobody looks.
    pub fn new(directories: Vec<PathBuf>) -> Desk {
        Desk {
            directories,
            lookers: BTreeMap::new(),
            next: 0,
            waiting: [VecDeque::new(), VecDeque::new()],
            turn: Asker::Master,
        }
    }

    /// Whether another question can be taken.
    pub fn has_room(&self, asker: Asker) -> bool {
        self.waiting[asker as usize].len() < MOST_WAITING
    }

    /// Somebody asks. Only with [`Desk::has_room`].
    pub fn ask(&mut self, asker: Asker, look: Look, now: Tick, actions: &mut Vec<Action>) {
        let site = self.site(&look.root);
        let task = Task {
            asker,
            look,
            site,
            until: now + PATIENCE,
        };
        self.waiting[asker as usize].push_back(task);
        self.assign(now, actions);
    }

    /// A looker has an answer.
    pub fn answered(&mut self, id: LookerId, seen: Seen, now: Tick, actions: &mut Vec<Action>) {
        let Some(looker) = self.lookers.get_mut(&id) else {
            return;
        };
        match looker {
            Looker::Busy(task) if task.look.number == seen.number => {
                actions.push(Action::Answer(task.asker, seen));
                *looker = Looker::Idle;
            }
            // It was too late.
            Looker::Dying(_) => {}
            Looker::Busy(_) | Looker::Idle => self.dismiss(id, "said something else", actions),
        }
        self.assign(now, actions);
    }

    /// A looker's process is gone, or could not be started.
    pub fn gone(&mut self, id: LookerId, now: Tick, actions: &mut Vec<Action>) {
        if let Some(Looker::Busy(task)) = self.lookers.remove(&id) {
            actions.push(fail(
                task,
                "the process that looked has ended; the next request tries again",
            ));
        }
        self.assign(now, actions);
    }

    /// It is late.
    pub fn late(&mut self, now: Tick, actions: &mut Vec<Action>) {
        let is_late = |looker: &Looker| matches!(looker, Looker::Busy(task) if task.until <= now);
        let late: Vec<LookerId> = self
            .lookers
            .iter()
            .filter(|(_, it)| is_late(it))
            .map(|(id, _)| *id)
            .collect();
        for id in late {
            self.dismiss(
                id,
                "the look took longer than 5 s; see whether its file system answers",
                actions,
            );
        }
        for queue in &mut self.waiting {
            while queue.front().is_some_and(|task| task.until <= now) {
                if let Some(task) = queue.pop_front() {
                    actions.push(fail(
                        task,
                        "no process was free to look for 5 s, because looks at other directories hang",
                    ));
                }
            }
        }
        self.assign(now, actions);
    }

    /// When [`Desk::late`] is to be called.
    pub fn next_deadline(&self) -> Option<Tick> {
        let busy = self.lookers.values().filter_map(|looker| match looker {
            Looker::Busy(task) => Some(task.until),
            Looker::Idle | Looker::Dying(_) => None,
        });
        let waiting = self
            .waiting
            .iter()
            .filter_map(|queue| queue.front())
            .map(|task| task.until);
        busy.chain(waiting).min()
    }

    /// Kills a looker and answers in its place.
    fn dismiss(&mut self, id: LookerId, why: &str, actions: &mut Vec<Action>) {
        let Some(looker) = self.lookers.get_mut(&id) else {
            return;
        };
        let site = match looker {
            Looker::Busy(task) => task.site.clone(),
            Looker::Idle | Looker::Dying(_) => PathBuf::new(),
        };
        if let Looker::Busy(task) = std::mem::replace(looker, Looker::Dying(site)) {
            actions.push(fail(task, why));
        }
        actions.push(Action::Kill(id));
    }

    /// Gives what waits to who is free, the askers in turn.
    fn assign(&mut self, now: Tick, actions: &mut Vec<Action>) {
        while let Some((asker, at)) = self.next_task() {
            let Some(id) = self.free_looker(actions) else {
                return;
            };
            let Some(mut task) = self.waiting[asker as usize].remove(at) else {
                return;
            };
            self.turn = match asker {
                Asker::Router => Asker::Master,
                Asker::Master => Asker::Router,
            };
            task.until = now + PATIENCE;
            actions.push(Action::Give(id, task.look.clone()));
            self.lookers.insert(id, Looker::Busy(task));
        }
    }

    /// The first that waits and whose site has not enough lookers already.
    fn next_task(&self) -> Option<(Asker, usize)> {
        let other = Asker::ALL.into_iter().find(|asker| *asker != self.turn)?;
        [self.turn, other].into_iter().find_map(|asker| {
            let mut queue = self.waiting[asker as usize].iter();
            let at = queue.position(|task| self.at_work(&task.site) < LOOKERS_PER_SITE)?;
            Some((asker, at))
        })
    }

    /// Lookers that look below a site, or hang there.
    fn at_work(&self, site: &Path) -> usize {
        let is_there = |looker: &&Looker| match looker {
            Looker::Busy(task) => task.site == site,
            Looker::Dying(at) => at == site,
            Looker::Idle => false,
        };
        self.lookers.values().filter(is_there).count()
    }

    fn free_looker(&mut self, actions: &mut Vec<Action>) -> Option<LookerId> {
        let idle = self
            .lookers
            .iter()
            .find(|(_, looker)| matches!(looker, Looker::Idle));
        if let Some((id, _)) = idle {
            return Some(*id);
        }
        let is_alive = |looker: &&Looker| !matches!(looker, Looker::Dying(_));
        let alive = self.lookers.values().filter(is_alive).count();
        if alive >= LOOKERS || self.lookers.len() >= MOST_LOOKERS {
            return None;
        }
        let id = self.next;
        self.next += 1;
        actions.push(Action::Start(id));
        self.lookers.insert(id, Looker::Idle);
        Some(id)
    }

    /// The first name below a pool's directory.
    fn site(&self, root: &Path) -> PathBuf {
        let below = |directory: &PathBuf| {
            let first = root.strip_prefix(directory).ok()?.components().next()?;
            Some(directory.join(first))
        };
        self.directories
            .iter()
            .find_map(below)
            .unwrap_or_else(|| root.to_owned())
    }
}

fn fail(task: Task, why: &str) -> Action {
    let seen = Seen {
        number: task.look.number,
        found: Err(format!("{}: {why}", task.look.root.display())),
        is_unknown: true,
    };
    Action::Answer(task.asker, seen)
}

#[cfg(test)]
#[path = "desk_tests.rs"]
mod tests;
