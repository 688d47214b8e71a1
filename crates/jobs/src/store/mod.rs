//! Keeps the jobs. One thread writes: it takes what is to be done from a bounded channel, does all that is there in one
//! transaction, and answers after the commit. Each operation stands alone: one that fails undoes itself and no other.
//!
//! A commit does not wait for the disk. A push, and what a client changes of jobs, is answered when it is there (unless
//! `durability` says otherwise); by then a job may have started. That a job starts, and how it ended, is with the kernel when it
//! is acted on, and on the disk a moment later: when power fails in that moment, the job is run again, as one that was running is.

mod claim;
mod commit;
mod finish;
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
pub use operation::{
    Claimed, Ending, Filter, Finished, Fired, ForeignJob, Operation, Reply, Selection, SequenceOperation,
    StateCount,
};
pub use sqlite::Sqlite;
pub use thread::{StoreEvent, StoreThread};

use sql::{Database, Present, Result, Value};
use std::collections::BTreeMap;

/// Where a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// It can be claimed.
    Waiting = 0,
    /// It waits for its time.
    Scheduled = 1,
    Running = 2,
    Done = 3,
    Failed = 4,
    Quarantined = 5,
    Cancelled = 6,
    /// Another with its serial key is before it.
    Blocked = 7,
    Discarded = 8,
}

impl State {
    /// All of them.
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

    /// Its word.
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

    /// The one with this word.
    pub fn of_name(name: &str) -> Option<State> {
        State::ALL.into_iter().find(|state| state.name() == name)
    }

    fn of_number(number: i64) -> State {
        let found = State::ALL.into_iter().find(|state| *state as i64 == number);
        found.unwrap_or(State::Failed)
    }

    /// Whether nothing more becomes of it by itself.
    pub fn is_end(self) -> bool {
        !matches!(
            self,
            State::Waiting | State::Scheduled | State::Running | State::Blocked
        )
    }
}

/// How many more jobs of each group can be claimed, by queue and tenant.
pub type Changes = BTreeMap<(String, String), i64>;

/// What an operation works with.
struct Work<'s> {
    database: &'s mut dyn Database,
    changes: Changes,
    /// There may be an earlier time at which a job is due.
    is_due_changed: bool,
    /// What can be claimed is counted anew: other processes change it, too.
    is_recounted: bool,
    /// Other machines have something to look at.
    is_news: bool,
    /// The process' own name among the owners of jobs that are under way.
    owner: &'s str,
    /// How long a machine may be silent.
    lease_ms: i64,
    /// The time by the database's clock, and how far this machine's is ahead of it.
    now_ms: i64,
    ahead_ms: i64,
}

/// A job, as far as its place in its queue goes.
#[derive(Debug, Clone)]
struct Place {
    id: i64,
    queue: String,
    tenant: String,
    priority: i64,
    serial: Option<String>,
}

impl Work<'_> {
    fn execute(&mut self, statement: &str, values: &[Value<'_>]) -> Result<u64> {
        self.database.execute(statement, values)
    }

    /// Notes that so many more jobs of a group can be claimed.
    fn change(&mut self, place: &Place, by: i64) {
        let group = (place.queue.clone(), place.tenant.clone());
        *self.changes.entry(group).or_default() += by;
    }

    /// Lets a job wait for a worker, or for those before it with its serial key. Its row says that it waits already.
    fn make_ready(&mut self, place: &Place) -> Result<()> {
        if let Some(serial) = &place.serial {
            self.database.lock_serial(&place.queue, serial)?;
            let took = self.execute(
                "INSERT INTO lane (queue, serial, id) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING",
                &[(&place.queue).into(), serial.into(), place.id.into()],
            )?;
            if took == 0 {
                self.execute(
                    "INSERT INTO blocked (queue, serial, priority, id) VALUES (?1, ?2, ?3, ?4)",
                    &[
                        (&place.queue).into(),
                        serial.into(),
                        place.priority.into(),
                        place.id.into(),
                    ],
                )?;
                return self.set_state(place.id, State::Blocked);
            }
        }
        self.execute(
            "INSERT INTO ready (queue, tenant, priority, id) VALUES (?1, ?2, ?3, ?4)",
            &[
                (&place.queue).into(),
                (&place.tenant).into(),
                place.priority.into(),
                place.id.into(),
            ],
        )?;
        self.change(place, 1);
        Ok(())
    }

    /// The same, of one that was in another state.
    fn make_ready_again(&mut self, place: &Place) -> Result<()> {
        self.set_state(place.id, State::Waiting)?;
        self.make_ready(place)
    }

    /// Lets a job wait for its time.
    fn make_later(&mut self, place: &Place, at_ms: i64) -> Result<()> {
        self.execute(
            "INSERT INTO later (run_at, id) VALUES (?1, ?2)",
            &[at_ms.into(), place.id.into()],
        )?;
        self.execute(
            "UPDATE job SET state = ?2, run_at = ?3 WHERE id = ?1",
            &[place.id.into(), State::Scheduled.into(), at_ms.into()],
        )?;
        self.is_due_changed = true;
        self.is_news = true;
        Ok(())
    }

    /// Lets the next job with the same serial key come.
    fn leave_lane(&mut self, place: &Place) -> Result<()> {
        let Some(serial) = &place.serial else {
            return Ok(());
        };
        self.database.lock_serial(&place.queue, serial)?;
        let left = self.execute(
            "DELETE FROM lane WHERE queue = ?1 AND serial = ?2 AND id = ?3",
            &[(&place.queue).into(), serial.into(), place.id.into()],
        )?;
        if left == 0 {
            return Ok(());
        }
        let next = self.database.first(
            "DELETE FROM blocked WHERE (queue, serial, priority, id) = (SELECT queue, serial, priority, id FROM blocked \
             WHERE queue = ?1 AND serial = ?2 ORDER BY priority, id LIMIT 1) RETURNING id",
            &[(&place.queue).into(), serial.into()],
            |row| row.number(0),
        )?;
        match next {
            Some(id) => {
                let place = self.place(id)?;
                self.make_ready_again(&place)
            }
            None => Ok(()),
        }
    }

    fn set_state(&mut self, id: i64, state: State) -> Result<()> {
        self.execute(
            "UPDATE job SET state = ?2 WHERE id = ?1",
            &[id.into(), state.into()],
        )
        .map(|_| ())
    }

    fn place(&mut self, id: i64) -> Result<Place> {
        let found = self.database.first(
            "SELECT queue, tenant, priority, serial FROM job WHERE id = ?1",
            &[id.into()],
            |row| {
                Ok(Place {
                    id,
                    queue: row.word(0)?,
                    tenant: row.word(1)?,
                    priority: row.number(2)?,
                    serial: row.text(3)?,
                })
            },
        )?;
        found.ok_or_else(|| sql::SqlError {
            trouble: sql::Trouble::Statement,
            message: format!("job {id} is gone"),
        })
    }
}
