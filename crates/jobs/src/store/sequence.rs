//! Sequences: jobs that come from one source, in order. The source's position is stored with the jobs, so the feeding
//! command and the jobs process may be killed and continue. A trigger counts the waiting, running and ended jobs.

use super::finish::Changed;
use super::operation::{Reply, SequenceChange};
use super::sql::{Present, Result, Row, values};
use super::{State, Work};
use forkyard_protocol::jobs::{NewJob, SequenceView};

const MOST_LISTED: u32 = 1_000;

const COLUMNS: &str =
    "id, queue, name, state, total, cursor, added, running, done, failed, dropped, begun_at, ended_at";

impl Work<'_> {
    pub(super) fn change_sequence(
        &mut self,
        id: i64,
        queues: Option<&[String]>,
        change: &SequenceChange,
    ) -> Result<Reply> {
        let found = self.find_sequence(id)?;
        let may = |view: &SequenceView| queues.is_none_or(|queues| queues.contains(&view.queue));
        let Some(view) = found.filter(may) else {
            return Ok(Reply::NoSequence);
        };
        let mut running = Vec::new();
        match change {
            SequenceChange::Add { from, jobs } if view.state == "open" && view.given == *from => {
                self.add_to_sequence(&view, jobs)?;
            }
            SequenceChange::End if view.state == "open" => self.close_sequence(id, "complete")?,
            SequenceChange::Cancel if view.state != "cancelled" => running = self.cancel_sequence(id)?,
            // A repeated operation changes nothing.
            _ => {}
        }
        self.show_sequence(id, running)
    }

    pub(super) fn begin_sequence(
        &mut self,
        queue: &str,
        name: Option<&str>,
        total: Option<u64>,
    ) -> Result<Reply> {
        if let Some(name) = name {
            let found = self.database.first(
                "SELECT id FROM sequence WHERE queue = ?1 AND name = ?2 AND state = 'open'",
                values![queue, name],
                |row| row.number(0),
            )?;
            if let Some(id) = found {
                return self.show_sequence(id, Vec::new());
            }
        }
        let total = total.map(|total| i64::try_from(total).unwrap_or(i64::MAX));
        let now_ms = self.now_ms;
        let id = self.database.first(
            "INSERT INTO sequence (queue, name, state, total, begun_at) VALUES (?1, ?2, 'open', ?3, ?4) RETURNING id",
            values![queue, name, total, now_ms],
            |row| row.number(0),
        )?;
        self.show_sequence(id.unwrap_or_default(), Vec::new())
    }

    fn add_to_sequence(&mut self, view: &SequenceView, jobs: &[NewJob]) -> Result<()> {
        let mut added = 0_i64;
        for job in jobs {
            // All jobs go to the sequence's queue, so its users may see them.
            let queue = view.queue.clone();
            let pushed = self.push(&NewJob { queue, ..job.clone() }, Some(view.id))?;
            added += i64::from(!pushed.existed);
        }
        let given = i64::try_from(jobs.len()).unwrap_or(i64::MAX);
        self.run(
            "UPDATE sequence SET cursor = cursor + ?2, added = added + ?3 WHERE id = ?1",
            values![view.id, given, added],
        )
    }

    pub(super) fn again(&mut self, queue: &str, ids: &[i64]) -> Result<Reply> {
        let mut jobs = Vec::new();
        for id in ids {
            jobs.extend(self.pushed_job(*id)?);
        }
        let begun = self.begin_sequence(queue, None, Some(jobs.len() as u64))?;
        let Reply::Sequence(view, _) = begun else {
            return Ok(begun);
        };
        self.add_to_sequence(&view, &jobs)?;
        self.close_sequence(view.id, "complete")?;
        self.show_sequence(view.id, Vec::new())
    }

    fn pushed_job(&mut self, id: i64) -> Result<Option<NewJob>> {
        self.database.first(
            "SELECT kind, tenant, payload, content_type, key, serial, priority, steps, max_failures, timeout_ms FROM job \
             WHERE id = ?1",
            values![id],
            |row| {
                let steps = row.text(7)?;
                let steps = steps.and_then(|text| serde_json::from_str(&text).ok());
                Ok(NewJob {
                    kind: row.word(0)?,
                    tenant: row.word(1)?,
                    payload: row.bytes(2)?,
                    content_type: row.text(3)?,
                    key: row.text(4)?,
                    serial: row.text(5)?,
                    priority: row.int(6)?,
                    steps: steps.unwrap_or_default(),
                    attempts: row.int(8)?.and_then(|most| u32::try_from(most).ok()),
                    timeout_ms: row.int(9)?.and_then(|millis| u64::try_from(millis).ok()),
                    ..NewJob::default()
                })
            },
        )
    }

    fn close_sequence(&mut self, id: i64, state: &str) -> Result<()> {
        let now_ms = self.now_ms;
        self.run(
            "UPDATE sequence SET state = ?2, ended_at = ?3 WHERE id = ?1",
            values![id, state, now_ms],
        )
    }

    fn cancel_sequence(&mut self, id: i64) -> Result<Vec<i64>> {
        self.close_sequence(id, "cancelled")?;
        let jobs = self.database.all(
            "SELECT id, state FROM job WHERE sequence = ?1 AND sequence IS NOT NULL AND state IN (0, 1, 2, 7)",
            values![id],
            |row| Ok((row.number(0)?, State::of_number(row.number(1)?))),
        )?;
        let mut running = Vec::new();
        for (job, state) in jobs {
            if let Changed::Runs = self.cancel(job, state)? {
                running.push(job);
            }
        }
        Ok(running)
    }

    fn find_sequence(&mut self, id: i64) -> Result<Option<SequenceView>> {
        let select = format!(
            "SELECT {COLUMNS} FROM sequence WHERE id = ?1{}",
            self.database.locking()
        );
        self.database.first(&select, values![id], view)
    }

    fn show_sequence(&mut self, id: i64, running: Vec<i64>) -> Result<Reply> {
        Ok(match self.find_sequence(id)? {
            Some(view) => Reply::Sequence(Box::new(view), running),
            None => Reply::NoSequence,
        })
    }

    pub(super) fn list_sequences(&mut self, limit: u32) -> Result<Reply> {
        let select = format!("SELECT {COLUMNS} FROM sequence ORDER BY id DESC LIMIT ?1");
        let values = [limit.min(MOST_LISTED).into()];
        Ok(Reply::Sequences(self.database.all(&select, &values, view)?))
    }

    pub(super) fn clean_sequences(&mut self, before_ms: i64, failed_before_ms: i64) -> Result<()> {
        self.run(
            "DELETE FROM sequence WHERE state <> 'open' AND ended_at < ?1 AND added = done + dropped + failed \
             AND (failed = 0 OR ended_at < ?2)",
            values![before_ms, failed_before_ms],
        )
    }
}

fn view(row: &dyn Row) -> Result<SequenceView> {
    let count = |at: usize| row.number(at).map(|count| count.max(0).unsigned_abs());
    let (given, added) = (count(5)?, count(6)?);
    let (running, done, failed, cancelled) = (count(7)?, count(8)?, count(9)?, count(10)?);
    Ok(SequenceView {
        id: row.number(0)?,
        queue: row.word(1)?,
        name: row.text(2)?,
        state: row.word(3)?,
        total: row.int(4)?.map(i64::unsigned_abs),
        given,
        existed: given.saturating_sub(added),
        waiting: added.saturating_sub(running + done + failed + cancelled),
        running,
        done,
        failed,
        cancelled,
        begun_ms: row.number(11)?,
        ended_ms: row.int(12)?,
    })
}
