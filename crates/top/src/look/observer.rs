//! Looks at busy processes in a thread. A process can hold the kernel's lock for files such as proc(5)'s `syscall` for any
//! time, and this program does not wait for it.

use super::evidence;
use crate::readings::{Look, Sight};
use crate::why;
use forkyard_sys::process;
use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

/// The most processes to look at in a frame.
pub(crate) const MOST_LOOKS: usize = 3;
/// How long a frame waits for the answers.
pub(crate) const PATIENCE: Duration = Duration::from_millis(200);
/// The most time of a frame for the memory of processes. The kernel walks their page tables to sum it.
const FOR_MEMORY: Duration = Duration::from_millis(30);
/// The most threads that may be late.
const MOST_LOST: usize = 4;

/// A busy process, and the address of its pool.
#[derive(Debug, Clone)]
pub(crate) struct Subject {
    pub(crate) pool: String,
    pub(crate) pid: i32,
    pub(crate) listen: String,
}

#[derive(Debug)]
struct Task {
    subjects: Vec<Subject>,
    /// Processes that need a reading of their memory, the most urgent first.
    memory_of: Vec<i32>,
    time: Duration,
}

#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) looks: Vec<Look>,
    pub(crate) memory: BTreeMap<i32, Option<u64>>,
}

#[derive(Debug)]
struct Thread {
    tasks: Sender<Task>,
    seen: Receiver<Seen>,
}

/// The thread that looks, and its late answers.
#[derive(Debug, Default)]
pub(crate) struct Observer {
    thread: Option<Thread>,
    lost: usize,
}

impl Observer {
    /// Looks at processes. Drops the answer of a thread that is late.
    pub(crate) fn look(&mut self, subjects: Vec<Subject>, memory_of: Vec<i32>, is_first: bool) -> Seen {
        let late = subjects.clone();
        // The first frame of all, or the only one, shows the memory of every process.
        let time = if is_first { PATIENCE } else { FOR_MEMORY };
        let task = Task {
            subjects,
            memory_of,
            time,
        };
        if self.lost > MOST_LOST {
            return all_late(&late);
        }
        let Some(thread) = self.thread.take().or_else(begin) else {
            return all_late(&late);
        };
        let seen = thread.tasks.send(task).ok().and_then(|()| {
            let limit = PATIENCE + time;
            thread.seen.recv_timeout(limit).ok()
        });
        match seen {
            Some(seen) => {
                self.thread = Some(thread);
                seen
            }
            None => {
                self.lost += 1;
                all_late(&late)
            }
        }
    }
}

fn all_late(subjects: &[Subject]) -> Seen {
    let looks = subjects.iter().map(|subject| Look {
        pool: subject.pool.clone(),
        pid: subject.pid,
        sight: Sight::Late,
    });
    Seen {
        looks: looks.collect(),
        memory: BTreeMap::new(),
    }
}

fn begin() -> Option<Thread> {
    let (tasks, received) = mpsc::channel::<Task>();
    let (sender, seen) = mpsc::channel();
    let run = move || {
        for task in received {
            if sender.send(carry_out(task)).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new().spawn(run).ok()?;
    Some(Thread { tasks, seen })
}

fn carry_out(task: Task) -> Seen {
    let looks = task.subjects.into_iter().filter_map(|subject| {
        let sight = match evidence::of(subject.pid) {
            Ok(evidence) => Sight::Seen(why::find(&evidence, &subject.listen)),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Sight::Denied,
            // It is gone.
            Err(_) => return None,
        };
        Some(Look {
            pool: subject.pool,
            pid: subject.pid,
            sight,
        })
    });
    let looks = looks.collect();
    let end = Instant::now() + task.time;
    let in_time = task.memory_of.into_iter().take_while(|_| Instant::now() < end);
    let memory = in_time.map(|pid| (pid, process::proportional_memory_bytes(Some(pid))));
    Seen {
        looks,
        memory: memory.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::why::Cause;

    #[test]
    fn this_process_is_seen_with_its_memory() {
        let pid = i32::try_from(std::process::id()).unwrap();
        let subject = Subject {
            pool: "www".to_owned(),
            pid,
            listen: String::new(),
        };
        let mut observer = Observer::default();
        let seen = observer.look(vec![subject], vec![pid, 0x3fff_fff0], true);
        assert!(seen.memory[&pid].is_some_and(|bytes| bytes > 0));
        assert_eq!(seen.memory.get(&0x3fff_fff0), Some(&None));
        // The first thread of this process waits for the others.
        let finding = match &seen.looks[0].sight {
            Sight::Seen(finding) => finding,
            other => panic!("{other:?}"),
        };
        assert!(
            [Cause::Lock, Cause::Other, Cause::Computing].contains(&finding.cause),
            "{finding:?}"
        );
        assert_eq!(observer.lost, 0);
    }
}
