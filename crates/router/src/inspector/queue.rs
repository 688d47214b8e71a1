//! Which child looks at what, and for how long. A plain value: it is told what happened and what time it is, and says
//! what is to be done.
//!
//! Looks are taken by a few processes, the children, one look at a time. One that takes too long is answered with an error,
//! and its child killed and replaced; a look at a dead network file system can't even be killed, so the number of such
//! processes is bounded. Below one name in a pool's directory, and for all applications of one user, only some of the children
//! are at work, and whoever has fewer of them goes first: a user whose files hang, or who has many, delays the others by
//! nothing. Whose a directory is, is known once a look has said it.

use super::protocol::{InspectReply, InspectRequest, Refusal};
use crate::tick::Tick;
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Childs at work.
pub const CHILDREN: usize = 4;
/// Of those, at work for one user, or below one name of a pool's directory.
pub const CHILDREN_PER_SHARE: usize = 2;
/// Childs, with those that were killed and are not gone.
pub const MOST_CHILDREN: usize = 12;
/// Looks of one asker that wait: as many as a router has under way, so that none waits unseen behind those of one user.
pub const MOST_WAITING: usize = 1024;
/// Names below a pool's directory whose user is remembered.
const MOST_USERS: usize = 8192;
/// The most time for a look, and that a look waits for a child.
pub const TIMEOUT: Duration = Duration::from_secs(5);

/// Which of the two asks.
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

/// A child's number.
pub type ChildId = u64;

/// What is to be done.
#[allow(clippy::large_enum_variant, reason = "a few are there for a moment")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueueAction {
    /// Start a child. If that fails, [`Queue::gone`].
    Start(ChildId),
    /// Give a child something to look at.
    Give(ChildId, InspectRequest),
    /// Kill a child; [`Queue::gone`] when its process is gone.
    Kill(ChildId),
    /// Answer.
    Answer(Asker, InspectReply),
}

/// A look that was asked for.
#[derive(Debug)]
struct Task {
    asker: Asker,
    look: InspectRequest,
    /// Below which name of a pool's directory it is.
    site: PathBuf,
    share: Share,
    /// It waits, or may take, until then.
    until: Tick,
}

/// Who has a share of the children.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Share {
    /// A user, as a look has said.
    User(u32),
    /// What is below this, as long as nobody knows whose it is.
    Site(PathBuf),
}

#[derive(Debug)]
enum Child {
    Idle,
    Busy(Task),
    /// It was killed during a look for this one; `None`: during none.
    Dying(Option<Share>),
}

/// The queue.
#[derive(Debug)]
pub struct Queue {
    directories: Vec<PathBuf>,
    children: BTreeMap<ChildId, Child>,
    next: ChildId,
    /// By [`Asker`].
    waiting: [VecDeque<Task>; 2],
    /// The asker that is served next.
    turn: Asker,
    /// Whose is what is below a name.
    users: BTreeMap<PathBuf, u32>,
}

impl Queue {
    /// A queue without tasks and children.
    pub fn new(directories: Vec<PathBuf>) -> Queue {
        Queue {
            directories,
            children: BTreeMap::new(),
            next: 0,
            waiting: [VecDeque::new(), VecDeque::new()],
            turn: Asker::Master,
            users: BTreeMap::new(),
        }
    }

    /// Whether another question can be taken.
    pub fn has_room(&self, asker: Asker) -> bool {
        self.waiting[asker as usize].len() < MOST_WAITING
    }

    /// Takes in a question. Only with [`Queue::has_room`].
    pub fn ask(&mut self, asker: Asker, look: InspectRequest, now: Tick, actions: &mut Vec<QueueAction>) {
        let site = self.site(&look.root);
        let share = self.share(&site);
        let task = Task {
            asker,
            look,
            site,
            share,
            until: now + TIMEOUT,
        };
        self.waiting[asker as usize].push_back(task);
        self.assign(now, actions);
    }

    /// A child has an answer.
    pub fn answered(&mut self, id: ChildId, seen: InspectReply, now: Tick, actions: &mut Vec<QueueAction>) {
        let Some(child) = self.children.get_mut(&id) else {
            return;
        };
        match child {
            Child::Busy(task) if task.look.number == seen.number => {
                if let Ok(found) = &seen.found {
                    if self.users.len() >= MOST_USERS {
                        self.users.clear();
                    }
                    self.users.insert(std::mem::take(&mut task.site), found.owner.0);
                }
                actions.push(QueueAction::Answer(task.asker, seen));
                *child = Child::Idle;
            }
            // It was too late.
            Child::Dying(_) => {}
            Child::Busy(_) | Child::Idle => self.dismiss(id, "sent an unexpected answer", actions),
        }
        self.assign(now, actions);
    }

    /// A child's process is gone, or could not be started.
    pub fn gone(&mut self, id: ChildId, now: Tick, actions: &mut Vec<QueueAction>) {
        if let Some(Child::Busy(task)) = self.children.remove(&id) {
            actions.push(fail(
                task,
                "the process that looked has ended; the next request tries again",
            ));
        }
        self.assign(now, actions);
    }

    /// It is late.
    pub fn late(&mut self, now: Tick, actions: &mut Vec<QueueAction>) {
        let is_late = |child: &Child| matches!(child, Child::Busy(task) if task.until <= now);
        let late: Vec<ChildId> = self
            .children
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

    /// When [`Queue::late`] is to be called.
    pub fn next_deadline(&self) -> Option<Tick> {
        let busy = self.children.values().filter_map(|child| match child {
            Child::Busy(task) => Some(task.until),
            Child::Idle | Child::Dying(_) => None,
        });
        let waiting = self
            .waiting
            .iter()
            .filter_map(|queue| queue.front())
            .map(|task| task.until);
        busy.chain(waiting).min()
    }

    /// Kills a child and answers in its place.
    fn dismiss(&mut self, id: ChildId, why: &str, actions: &mut Vec<QueueAction>) {
        let Some(child) = self.children.get_mut(&id) else {
            return;
        };
        let share = match child {
            Child::Busy(task) => Some(task.share.clone()),
            Child::Idle | Child::Dying(_) => None,
        };
        if let Child::Busy(task) = std::mem::replace(child, Child::Dying(share)) {
            actions.push(fail(task, why));
        }
        actions.push(QueueAction::Kill(id));
    }

    /// Gives what waits to children that are free, the askers in turn.
    fn assign(&mut self, now: Tick, actions: &mut Vec<QueueAction>) {
        while let Some((asker, at)) = self.next_task() {
            let Some(id) = self.free_child(actions) else {
                return;
            };
            let Some(mut task) = self.waiting[asker as usize].remove(at) else {
                return;
            };
            self.turn = match asker {
                Asker::Router => Asker::Master,
                Asker::Master => Asker::Router,
            };
            task.until = now + TIMEOUT;
            actions.push(QueueAction::Give(id, task.look.clone()));
            self.children.insert(id, Child::Busy(task));
        }
    }

    /// The first that waits and for whom the fewest children are at work, if those are not enough already.
    fn next_task(&self) -> Option<(Asker, usize)> {
        let other = Asker::ALL.into_iter().find(|asker| *asker != self.turn)?;
        [self.turn, other].into_iter().find_map(|asker| {
            let queue = self.waiting[asker as usize].iter();
            let at_work = queue
                .enumerate()
                .map(|(at, task)| (self.at_work(&task.share), at));
            let (fewest, at) = at_work.min()?;
            (fewest < CHILDREN_PER_SHARE).then_some((asker, at))
        })
    }

    /// Childs that look for one, or hang in such a look.
    fn at_work(&self, share: &Share) -> usize {
        let is_there = |child: &&Child| match child {
            Child::Busy(task) => task.share == *share,
            Child::Dying(of) => of.as_ref() == Some(share),
            Child::Idle => false,
        };
        self.children.values().filter(is_there).count()
    }

    fn free_child(&mut self, actions: &mut Vec<QueueAction>) -> Option<ChildId> {
        let idle = self
            .children
            .iter()
            .find(|(_, child)| matches!(child, Child::Idle));
        if let Some((id, _)) = idle {
            return Some(*id);
        }
        let is_alive = |child: &&Child| !matches!(child, Child::Dying(_));
        let alive = self.children.values().filter(is_alive).count();
        if alive >= CHILDREN || self.children.len() >= MOST_CHILDREN {
            return None;
        }
        let id = self.next;
        self.next += 1;
        actions.push(QueueAction::Start(id));
        self.children.insert(id, Child::Idle);
        Some(id)
    }

    fn share(&self, site: &Path) -> Share {
        match self.users.get(site) {
            Some(user) => Share::User(*user),
            None => Share::Site(site.to_owned()),
        }
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

fn fail(task: Task, why: &str) -> QueueAction {
    let refusal = Refusal::of(&task.look.root, None);
    let seen = InspectReply {
        number: task.look.number,
        found: Err(format!("{}: {why}", task.look.root.display())),
        is_unknown: true,
        refusal: Some(refusal),
    };
    QueueAction::Answer(task.asker, seen)
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
