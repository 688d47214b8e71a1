//! Keeps the jobs. One thread writes: it takes operations from a bounded channel, performs all of them in one
//! transaction, and replies after the commit. A failed operation undoes only itself.
//!
//! A commit does not wait for the disk. A push, and a client's change, is answered when it is on the disk (unless
//! `durability` differs); the job may start earlier. The start and end of a job are with the kernel when they take
//! effect, and on the disk a moment later: after a power failure in that moment the job runs again.

mod claim;
mod commit;
mod finish;
mod last;
mod looks;
mod operation;
mod push;
mod query;
mod sequence;
pub mod sql;
mod sqlite;
pub mod tables;
#[cfg(test)]
mod tests;
mod thread;

pub use commit::{Committed, Store, StoreError};
pub(crate) use finish::word;
pub use operation::{
    By, Change, Claimed, Ending, Filter, Finished, Fired, ForeignJob, Operation, Output, Progress, Reply,
    Selection, SequenceChange, StateCount, StepDone,
};
pub use sqlite::{Copied, Sqlite};
pub use thread::{Opener, StoreEvent, StoreThread};

use crate::core::GroupName;
use sql::{Database, Present, Result, Value, values};
use std::collections::{BTreeMap, HashMap};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    Waiting = 0,
    Scheduled = 1,
    Running = 2,
    Done = 3,
    Failed = 4,
    Quarantined = 5,
    Cancelled = 6,
    Blocked = 7,
    Discarded = 8,
}

impl State {
    pub const ALL: [State; 9] = [
        State::Waiting,
        State::Scheduled,
        State::Running,
        State::Done,
        State::Failed,
        State::Quarantined,
        State::Cancelled,
        State::Blocked,
        State::Discarded,
    ];

    pub fn name(self) -> &'static str {
        match self {
            State::Waiting => "waiting",
            State::Scheduled => "scheduled",
            State::Running => "running",
            State::Done => "done",
            State::Failed => "failed",
            State::Quarantined => "quarantined",
            State::Cancelled => "cancelled",
            State::Blocked => "blocked",
            State::Discarded => "discarded",
        }
    }

    pub fn of_name(name: &str) -> Option<State> {
        State::ALL.into_iter().find(|state| state.name() == name)
    }

    fn of_number(number: i64) -> State {
        let found = State::ALL.into_iter().find(|state| *state as i64 == number);
        found.unwrap_or(State::Failed)
    }

    pub fn is_end(self) -> bool {
        !matches!(
            self,
            State::Waiting | State::Scheduled | State::Running | State::Blocked
        )
    }
}

const NO_SEQUENCE: i64 = 0;

/// The sequence of each group that had the last turn.
type Turns = HashMap<GroupName, i64>;

/// The change in each group's claimable jobs.
pub type Changes = BTreeMap<GroupName, i64>;

struct Work<'s> {
    database: &'s mut dyn Database,
    changes: Changes,
    /// An earlier due time is possible.
    is_due_changed: bool,
    turns: &'s mut Turns,
    is_recounted: bool,
    is_news: bool,
    /// This process's name among the owners of running jobs.
    owner: &'s str,
    /// The longest silence of a machine.
    lease_ms: i64,
    /// The database's time, and this machine's clock minus it.
    now_ms: i64,
    ahead_ms: i64,
}

#[derive(Debug, Clone)]
struct QueueEntry {
    id: i64,
    group: GroupName,
    priority: i64,
    serial: Option<String>,
    sequence: i64,
}

impl Work<'_> {
    fn run(&mut self, statement: &str, values: &[Value<'_>]) -> Result<()> {
        self.database.execute(statement, values).map(|_| ())
    }

    fn execute(&mut self, statement: &str, values: &[Value<'_>]) -> Result<u64> {
        self.database.execute(statement, values)
    }

    fn count_ready(&mut self, entry: &QueueEntry, by: i64) {
        *self.changes.entry(entry.group.clone()).or_default() += by;
    }

    /// Queues a job for a worker, or behind others with its serial key. Its row is already in the waiting state.
    fn make_ready(&mut self, entry: &QueueEntry) -> Result<()> {
        if let Some(serial) = &entry.serial {
            self.database.lock_serial(&entry.group.queue, serial)?;
            let took = self.execute(
                "INSERT INTO lane (queue, serial, id) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING",
                values![&entry.group.queue, serial, entry.id],
            )?;
            if took == 0 {
                self.execute(
                    "INSERT INTO blocked (queue, serial, priority, id) VALUES (?1, ?2, ?3, ?4)",
                    values![&entry.group.queue, serial, entry.priority, entry.id],
                )?;
                return self.set_state(entry.id, State::Blocked);
            }
        }
        self.execute(
            "INSERT INTO ready (queue, tenant, priority, sequence, id) VALUES (?1, ?2, ?3, ?4, ?5)",
            values![
                &entry.group.queue,
                &entry.group.tenant,
                entry.priority,
                entry.sequence,
                entry.id
            ],
        )?;
        self.count_ready(entry, 1);
        Ok(())
    }

    fn make_ready_again(&mut self, entry: &QueueEntry) -> Result<()> {
        self.set_state(entry.id, State::Waiting)?;
        self.make_ready(entry)
    }

    fn make_later(&mut self, entry: &QueueEntry, at_ms: i64) -> Result<()> {
        self.execute(
            "INSERT INTO later (run_at, id) VALUES (?1, ?2)",
            values![at_ms, entry.id],
        )?;
        self.execute(
            "UPDATE job SET state = ?2, run_at = ?3 WHERE id = ?1",
            values![entry.id, State::Scheduled, at_ms],
        )?;
        self.is_due_changed = true;
        self.is_news = true;
        Ok(())
    }

    fn leave_lane(&mut self, entry: &QueueEntry) -> Result<()> {
        let Some(serial) = &entry.serial else {
            return Ok(());
        };
        self.database.lock_serial(&entry.group.queue, serial)?;
        let left = self.execute(
            "DELETE FROM lane WHERE queue = ?1 AND serial = ?2 AND id = ?3",
            values![&entry.group.queue, serial, entry.id],
        )?;
        if left == 0 {
            return Ok(());
        }
        let next = self.database.first(
            "DELETE FROM blocked WHERE (queue, serial, priority, id) = (SELECT queue, serial, priority, id FROM blocked \
             WHERE queue = ?1 AND serial = ?2 ORDER BY priority, id LIMIT 1) RETURNING id",
            values![&entry.group.queue, serial],
            |row| row.number(0),
        )?;
        match next {
            Some(id) => {
                let entry = self.queue_entry(id)?;
                self.make_ready_again(&entry)
            }
            None => Ok(()),
        }
    }

    fn set_state(&mut self, id: i64, state: State) -> Result<()> {
        self.run("UPDATE job SET state = ?2 WHERE id = ?1", values![id, state])
    }

    fn queue_entry(&mut self, id: i64) -> Result<QueueEntry> {
        let found = self.database.first(
            "SELECT queue, tenant, priority, serial, sequence FROM job WHERE id = ?1",
            values![id],
            |row| entry(id, row),
        )?;
        found.ok_or_else(|| sql::SqlError::new(sql::Trouble::Statement, format!("job {id} is gone")))
    }
}

/// Reads the columns `queue, tenant, priority, serial, sequence` of a job.
fn entry(id: i64, row: &dyn sql::Row) -> sql::Result<QueueEntry> {
    Ok(QueueEntry {
        id,
        group: GroupName::new(row.word(0)?, row.word(1)?),
        priority: row.number(2)?,
        serial: row.text(3)?,
        sequence: row.int(4)?.unwrap_or(NO_SEQUENCE),
    })
}
