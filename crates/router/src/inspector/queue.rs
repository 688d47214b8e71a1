//! Assigns inspections to child processes. Pure: receives events and times, returns actions.
//!
//! Each child inspects one directory at a time. On a timeout the inspection fails, and its child is killed and
//! replaced. A child blocked by a dead network file system can't be killed, so their number is bounded. Each user, and
//! each name in a pool's directory, may occupy only some children. Users with fewer children go first, so slow or many
//! files of one user don't delay the others. A directory's user is known after its first inspection.

use super::protocol::{InspectReply, InspectRequest, Refusal};
use forkyard_base::tick::Tick;
use forkyard_protocol::reason::Reason;
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub const CHILDREN: usize = 4;
/// Working children per user or per name in a pool's directory.
pub const CHILDREN_PER_SHARE: usize = 2;
/// All children, including killed ones that haven't exited.
pub const MOST_CHILDREN: usize = 12;
/// The maximum of waiting inspections per client. It equals the router's maximum in progress.
pub const MOST_WAITING: usize = 1024;
const MOST_USERS: usize = 8192;
pub const TIMEOUT: Duration = Duration::from_secs(5);

/// The queue's clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asker {
    Router = 0,
    Master = 1,
}

impl Asker {
    pub const ALL: [Asker; 2] = [Asker::Router, Asker::Master];
}

pub type ChildId = u64;

#[allow(clippy::large_enum_variant, reason = "a few are there for a moment")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueueAction {
    /// Start a child. On failure, call [`Queue::gone`].
    Start(ChildId),
    Give(ChildId, InspectRequest),
    /// Kill a child, then call [`Queue::gone`] after its exit.
    Kill(ChildId),
    Answer(Asker, InspectReply),
}

#[derive(Debug)]
struct Task {
    asker: Asker,
    look: InspectRequest,
    site: PathBuf,
    share: Share,
    until: Tick,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Share {
    /// A user known from an earlier inspection.
    User(u32),
    /// A path whose user is unknown.
    Site(PathBuf),
}

#[derive(Debug)]
enum Child {
    Idle,
    Busy(Task),
    Dying(Option<Share>),
}

#[derive(Debug)]
pub struct Queue {
    directories: Vec<PathBuf>,
    children: BTreeMap<ChildId, Child>,
    next: ChildId,
    /// Indexed by [`Asker`].
    waiting: [VecDeque<Task>; 2],
    turn: Asker,
    users: BTreeMap<PathBuf, u32>,
}

impl Queue {
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

    pub fn has_room(&self, asker: Asker) -> bool {
        self.waiting[asker as usize].len() < MOST_WAITING
    }

    /// Adds a question. Requires [`Queue::has_room`].
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
            Child::Dying(_) => {}
            Child::Busy(_) | Child::Idle => self.dismiss(id, "sent an unexpected answer", actions),
        }
        self.assign(now, actions);
    }

    pub fn gone(&mut self, id: ChildId, now: Tick, actions: &mut Vec<QueueAction>) {
        if let Some(Child::Busy(task)) = self.children.remove(&id) {
            actions.push(fail(
                task,
                "the process that looked has ended; the next request tries again",
            ));
        }
        self.assign(now, actions);
    }

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

    /// The first waiting inspection of the share with the fewest children, if below its limit.
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

    /// Children working for a share, including blocked ones.
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
        found: Err(Reason(format!("{}: {why}", task.look.root.display()))),
        is_unknown: true,
        refusal: Some(refusal),
    };
    QueueAction::Answer(task.asker, seen)
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
