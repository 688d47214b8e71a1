//! Claims jobs and admits due ones.

use super::operation::{Claimed, Ending, ForeignJob, Operation, Reply};
use super::push::is_ahead;
use super::sql::{Present, Result, Row, values};
use super::{NO_SEQUENCE, State, Work};
use crate::core::schedule::Kept;
use crate::core::{Counters, GroupName, Start};

/// The most jobs admitted in one transaction.
const MOST_PROMOTED: u32 = 250;

impl Work<'_> {
    pub(super) fn perform(&mut self, operation: &Operation) -> Result<Reply> {
        match operation {
            Operation::Push(jobs) => self.push_all(jobs),
            Operation::BeginSequence { queue, name, total } => {
                self.begin_sequence(queue, name.as_deref(), *total)
            }
            Operation::Sequence(id, queues, change) => self.change_sequence(*id, queues.as_deref(), change),
            Operation::Sequences { limit } => self.list_sequences(*limit),
            Operation::Claim(group) => {
                let job = self.claim(group)?;
                Ok(Reply::Claimed(group.clone(), job.map(Box::new)))
            }
            Operation::StepDone(done) => self.step_done(done),
            Operation::Finish(finished) => self.finish(finished),
            Operation::Progress(progress) => self.progress(progress),
            Operation::Press {
                id,
                attempt,
                is_forced,
            } => self.press(*id, *attempt, *is_forced),
            Operation::Promote => self.promote(),
            Operation::Fire(fired) => self.fire(fired),
            Operation::List(filter) => Ok(Reply::List(self.list(filter)?)),
            Operation::Show(id) => Ok(Reply::Show(self.show(*id)?.map(Box::new))),
            Operation::ShowRef(queue, reference) => {
                let id = self.find_ref(queue, reference)?;
                let found = id.map(|id| self.show(id)).transpose()?;
                Ok(Reply::Show(found.flatten().map(Box::new)))
            }
            Operation::Last(by, filter, like) => self.last(*by, filter, like.as_deref()).map(Reply::List),
            Operation::Again(queue, ids) => self.again(queue, ids),
            Operation::Count(filter) => self.count(filter).map(Reply::Count),
            Operation::Counts => Ok(Reply::Counts(self.counts()?)),
            Operation::Change(change, selection) => self.change(*change, selection),
            Operation::Pause {
                queue,
                reason,
                is_paused,
            } => self.pause(queue, reason.as_deref(), *is_paused),
            Operation::Clean {
                before_ms,
                failed_before_ms,
            } => self.clean(*before_ms, *failed_before_ms),
            Operation::Foreign => self.foreign(),
            Operation::Forget(owner) => self.forget(owner),
            Operation::Load => self.load(),
        }
    }

    fn claim(&mut self, group: &GroupName) -> Result<Option<Claimed>> {
        // With "=", the row is looked up once. With IN, PostgreSQL may look it up again for each row and take all of
        // them.
        let skipping = self.database.skipping_locked();
        let take = format!(
            "DELETE FROM ready WHERE (queue, tenant, priority, sequence, id) = (\
             SELECT queue, tenant, priority, sequence, id FROM (SELECT queue, tenant, priority, sequence, id FROM ready \
             WHERE queue = ?1 AND tenant = ?2 AND sequence > ?3 \
             AND priority = (SELECT min(priority) FROM ready WHERE queue = ?1 AND tenant = ?2) \
             ORDER BY sequence, id LIMIT 1{skipping}) AS next UNION ALL \
             SELECT queue, tenant, priority, sequence, id FROM (SELECT queue, tenant, priority, sequence, id FROM ready \
             WHERE queue = ?1 AND tenant = ?2 ORDER BY priority, sequence, id LIMIT 1{skipping}) AS first LIMIT 1) \
             RETURNING id, sequence"
        );
        let last = self.turns.get(group).copied().unwrap_or(NO_SEQUENCE);
        let values = [(&group.queue).into(), (&group.tenant).into(), last.into()];
        let read = |row: &dyn Row| Ok((row.number(0)?, row.number(1)?));
        let taken = self.database.first(&take, &values, read)?;
        let Some((id, sequence)) = taken else {
            // Another machine has it: the scheduler needs new counts.
            self.is_recounted = true;
            return Ok(None);
        };
        // Jobs without a sequence need no turn.
        match sequence {
            NO_SEQUENCE => _ = self.turns.remove(group),
            _ => _ = self.turns.insert(group.clone(), sequence),
        }
        let now_ms = self.now_ms;
        let claimed = self.database.first(
            "UPDATE job SET state = ?2, attempt = attempt + 1, started_at = ?3, progress = NULL, progress_text = NULL \
             WHERE id = ?1 RETURNING id, attempt, failures, crashes, snoozes, max_failures, timeout_ms, expires_at, steps, \
             queue, tenant, kind, payload, content_type, key, traceparent, pushed_at, run_at",
            values![id, State::Running, now_ms],
            |row| claimed(row, now_ms),
        )?;
        let Some(mut claimed) = claimed else {
            return Ok(None);
        };
        if !claimed.steps.is_empty() {
            let decided = self.database.all(
                "SELECT status FROM step WHERE job = ?1 AND status IS NOT NULL AND status <> 'task_error'",
                values![id],
                |row| row.word(0),
            )?;
            claimed.start.step = decided.len();
            let status = |word: String| serde_json::from_value(word.into()).unwrap_or(claimed.start.worst);
            claimed.start.worst = decided
                .into_iter()
                .map(status)
                .max()
                .unwrap_or(claimed.start.worst);
        }
        let owner = self.owner;
        self.execute(
            "INSERT INTO running (id, attempt, owner) VALUES (?1, ?2, ?3)",
            values![id, claimed.start.attempt, owner],
        )?;
        Ok(Some(claimed))
    }

    fn promote(&mut self) -> Result<Reply> {
        // One at a time: PostgreSQL may join each of many rows with the whole table.
        let due = format!(
            "SELECT run_at, id FROM later WHERE run_at <= ?1 ORDER BY run_at, id LIMIT ?2{}",
            self.database.skipping_locked()
        );
        let values = [self.now_ms.into(), MOST_PROMOTED.into()];
        let due = (self.database).all(&due, &values, |row| Ok((row.number(0)?, row.number(1)?)))?;
        for (run_at, id) in due {
            self.execute(
                "DELETE FROM later WHERE run_at = ?1 AND id = ?2",
                values![run_at, id],
            )?;
            let entry = self.queue_entry(id)?;
            self.make_ready_again(&entry)?;
        }
        self.is_due_changed = true;
        Ok(Reply::Promoted)
    }

    /// When the next scheduled job is due, by this machine's clock.
    pub(super) fn due(&mut self) -> Result<Option<i64>> {
        let due = self
            .database
            .first("SELECT min(run_at) FROM later", &[], |row| row.int(0))?;
        Ok(due.flatten().map(|due| due.saturating_add(self.ahead_ms)))
    }

    fn forget(&mut self, owner: &str) -> Result<Reply> {
        self.execute("DELETE FROM owner WHERE name = ?1", values![owner])?;
        Ok(Reply::Done)
    }

    fn foreign(&mut self) -> Result<Reply> {
        self.is_due_changed = true;
        self.is_recounted = true;
        let silent = self.see_nodes()?;
        let own_node = self
            .database
            .node()
            .map(|node| format!("{node} "))
            .unwrap_or_default();
        let mut nodes = vec![own_node];
        nodes.extend(silent.into_iter().map(|node| format!("{node} ")));
        let (mut owners, mut jobs) = (Vec::new(), Vec::new());
        let owner = self.owner;
        for node in &nodes {
            let length = i64::try_from(node.len()).unwrap_or(i64::MAX);
            let values = [owner.into(), length.into(), node.into()];
            owners.extend(self.database.all(
                "SELECT name FROM owner WHERE name <> ?1 AND substr(name, 1, ?2) = ?3",
                &values,
                |row| row.word(0),
            )?);
            jobs.extend(self.database.all(
                "SELECT running.id, running.attempt, job.failures, job.crashes, job.snoozes, job.max_failures, \
                 job.timeout_ms, job.expires_at, job.steps, running.owner, job.queue, job.tenant, job.kind, \
                 running.ending, job.started_at FROM running JOIN job ON job.id = running.id \
                 WHERE running.owner <> ?1 AND substr(running.owner, 1, ?2) = ?3 ORDER BY running.id",
                &values,
                |row| {
                    Ok(ForeignJob {
                        start: start(row, &steps(row)?)?,
                        owner: row.word(9)?,
                        queue: row.word(10)?,
                        tenant: row.word(11)?,
                        kind: row.word(12)?,
                        ending: Ending::from(row.number(13)?),
                        started_ms: row.int(14)?.unwrap_or(i64::MAX),
                    })
                },
            )?);
        }
        let paused = self.paused()?;
        let cancelled = self.database.all(
            "SELECT id FROM running WHERE owner = ?1 AND ending & ?2 <> 0 ORDER BY id",
            values![owner, i64::from(Ending::CANCELLED)],
            |row| row.number(0),
        )?;
        Ok(Reply::Foreign {
            jobs,
            owners,
            paused,
            cancelled,
            ahead_ms: self.ahead_ms,
        })
    }

    fn paused(&mut self) -> Result<Vec<String>> {
        self.database
            .all("SELECT name FROM queue ORDER BY name", &[], |row| row.word(0))
    }

    fn load(&mut self) -> Result<Reply> {
        let owner = self.owner;
        self.execute(
            "INSERT INTO owner (name) VALUES (?1) ON CONFLICT DO NOTHING",
            values![owner],
        )?;
        self.see_nodes()?;
        let paused = self.paused()?;
        let now_ms = self.now_ms;
        let schedules = self.database.all(
            "SELECT name, spec, next_at, last_at FROM schedule WHERE next_at IS NOT NULL",
            &[],
            |row| {
                let (next_ms, is_ahead) = (row.int(2)?, is_ahead(row.int(3)?, now_ms));
                Ok(Kept {
                    name: row.word(0)?,
                    spec: row.word(1)?,
                    next_ms: next_ms.filter(|_| !is_ahead),
                    former_ms: next_ms.filter(|_| is_ahead),
                })
            },
        )?;
        self.is_due_changed = true;
        Ok(Reply::Loaded {
            paused,
            schedules,
            ahead_ms: self.ahead_ms,
        })
    }

    fn pause(&mut self, queue: &str, reason: Option<&str>, is_paused: bool) -> Result<Reply> {
        self.is_news = true;
        match is_paused {
            true => self.execute(
                "INSERT INTO queue (name, reason) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET reason = excluded.reason",
                values![queue, reason],
            )?,
            false => self.execute("DELETE FROM queue WHERE name = ?1", values![queue])?,
        };
        let queue = queue.to_owned();
        Ok(Reply::Paused { queue, is_paused })
    }

    pub(super) fn running_attempt(&mut self, id: i64) -> Result<Option<u32>> {
        self.database
            .first("SELECT attempt FROM running WHERE id = ?1", values![id], |row| {
                row.count(0)
            })
    }

    /// Writes this machine's heartbeat, and returns the machines that were silent for too long: their jobs are started
    /// again. A machine that is cut off aborts its own jobs earlier. Machines that left nothing are forgotten.
    fn see_nodes(&mut self) -> Result<Vec<String>> {
        let Some(node) = self.database.node().map(ToOwned::to_owned) else {
            return Ok(Vec::new());
        };
        self.execute(
            "INSERT INTO node (name, seen_at) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET seen_at = excluded.seen_at",
            values![&node, self.now_ms],
        )?;
        let silent_since = self.now_ms.saturating_sub(self.lease_ms);
        let silent = self.database.all(
            "SELECT name FROM node WHERE seen_at < ?1 ORDER BY name",
            values![silent_since],
            |row| row.word(0),
        )?;
        for node in &silent {
            let prefix = format!("{node} ");
            let length = i64::try_from(prefix.len()).unwrap_or(i64::MAX);
            self.execute(
                "DELETE FROM node WHERE name = ?1 AND seen_at < ?2 AND NOT EXISTS (SELECT 1 FROM owner \
                 WHERE substr(owner.name, 1, ?3) = ?4)",
                values![node, silent_since, length, &prefix],
            )?;
        }
        Ok(silent)
    }
}

fn claimed(row: &dyn Row, now_ms: i64) -> Result<Claimed> {
    let steps = steps(row)?;
    let since = row.number(16)?.max(row.number(17)?);
    Ok(Claimed {
        start: start(row, &steps)?,
        steps,
        queue: row.word(9)?,
        tenant: row.word(10)?,
        kind: row.word(11)?,
        payload: row.bytes(12)?,
        content_type: row.word(13)?,
        key: row.text(14)?,
        traceparent: row.text(15)?,
        waited_ms: now_ms.saturating_sub(since).max(0).unsigned_abs(),
    })
}

/// Reads a start from the first columns of a row.
fn start(row: &dyn Row, steps: &[String]) -> Result<Start> {
    Ok(Start {
        id: row.number(0)?,
        attempt: row.count(1)?,
        counters: Counters {
            failures: row.count(2)?,
            crashes: row.count(3)?,
            snoozes: row.count(4)?,
        },
        most_failures: row.int(5)?.map(|most| u32::try_from(most).unwrap_or(u32::MAX)),
        timeout_ms: row.int(6)?.and_then(|millis| u64::try_from(millis).ok()),
        expires_ms: row.int(7)?,
        steps: steps.len(),
        ..Start::default()
    })
}

/// The names of the steps, in the column after a start's others.
fn steps(row: &dyn Row) -> Result<Vec<String>> {
    let steps = row.text(8)?;
    Ok(steps
        .and_then(|text| serde_json::from_str(&text).ok())
        .unwrap_or_default())
}
