//! Records how jobs and their steps ended.

use super::operation::{Change, Ending, Finished, Operation, Progress, Reply, Selection, StepDone};
use super::sql::{Notice, Present, Result, Row, Value, values};
use super::{QueueEntry, State, Work, entry};
use crate::core::{Becomes, Outcome, TaskStatus};
use forkyard_protocol::jobs::HeldKeys;

const MOST_ENDS: u32 = 20;
const MOST_CHANGED: u32 = 200;
const MOST_LOOKED_AT: u32 = 2_000;
const MOST_CLEANED: u32 = 200;

/// What became of a selected job.
pub(super) enum Changed {
    Yes,
    No,
    /// Its process ends it.
    Runs,
    /// This job has its key.
    HasKeyOf(i64),
}

/// A number of cut bytes, or `None` for zero.
fn left_out(bytes: u64) -> Option<i64> {
    (bytes > 0).then(|| i64::try_from(bytes).unwrap_or(i64::MAX))
}

type Portion = (Vec<(i64, State)>, Option<Selection>);

/// The word of a value in the store and for clients.
pub(crate) fn word(value: impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => String::new(),
    }
}

impl Work<'_> {
    /// Records the end of a job. Only the current start counts: repeated or late ends change nothing.
    pub(super) fn finish(&mut self, finished: &Finished) -> Result<Reply> {
        let ended = self.execute(
            "DELETE FROM running WHERE id = ?1 AND attempt = ?2",
            values![finished.id, finished.attempt],
        )?;
        if ended == 0 {
            return Ok(Reply::Done);
        }
        let verdict = &finished.verdict;
        let again_ms = match verdict.becomes {
            Becomes::Again(at_ms) => Some(at_ms.saturating_sub(self.ahead_ms)),
            _ => None,
        };
        let (state, status) = match verdict.becomes {
            Becomes::Done(status) => (State::Done, Some(word(status))),
            // A later time is set below.
            Becomes::Again(_) => (State::Waiting, None),
            Becomes::Failed => (State::Failed, None),
            Becomes::Quarantined => (State::Quarantined, None),
            Becomes::Cancelled => (State::Cancelled, None),
            Becomes::Discarded => (State::Discarded, None),
        };
        // A returned job keeps no outcome.
        let is_told = verdict.outcome != Outcome::Returned;
        let outcome = is_told.then(|| word(verdict.outcome));
        let duration_ms = i64::try_from(finished.duration_ms).unwrap_or(i64::MAX);
        let entry = self.database.first(
            "UPDATE job SET state = ?2, ended_at = ?3, failures = ?4, crashes = ?5, snoozes = ?6, status = ?7, \
             outcome = ?8, result = ?9, error = ?10, log = ?11, duration_ms = ?12, result_cut = ?13 WHERE id = ?1 \
             RETURNING queue, tenant, priority, serial, sequence",
            values![
                finished.id,
                state,
                state.is_end().then_some(self.now_ms),
                verdict.counters.failures,
                verdict.counters.crashes,
                verdict.counters.snoozes,
                status.as_ref(),
                outcome.as_ref(),
                &finished.output.result,
                &finished.output.error,
                &finished.output.log,
                duration_ms,
                left_out(finished.output.cut),
            ],
            |row| entry(finished.id, row),
        )?;
        let Some(entry) = entry else {
            return Ok(Reply::Done);
        };
        if let Some(payload) = &finished.output.payload {
            self.execute(
                "UPDATE job SET payload = ?2 WHERE id = ?1",
                values![finished.id, payload],
            )?;
        }
        if is_told && !matches!(verdict.becomes, Becomes::Done(_)) {
            self.keep_end(finished)?;
        }
        self.leave_lane(&entry)?;
        match again_ms {
            Some(at_ms) if at_ms > self.now_ms => self.make_later(&entry, at_ms)?,
            Some(_) => self.make_ready(&entry)?,
            None => {}
        }
        Ok(Reply::Done)
    }

    /// Records the end of a start that was not the job's success; the next start overwrites it in the job.
    fn keep_end(&mut self, finished: &Finished) -> Result<()> {
        let now_ms = self.now_ms;
        self.execute(
            "INSERT INTO ended (job, attempt, outcome, error, ended_at) VALUES (?1, ?2, ?3, ?4, ?5) \
             ON CONFLICT (job, attempt) DO UPDATE SET outcome = excluded.outcome, error = excluded.error, \
             ended_at = excluded.ended_at",
            values![
                finished.id,
                finished.attempt,
                &word(finished.verdict.outcome),
                &finished.output.error,
                now_ms
            ],
        )?;
        let Some(last) = finished.attempt.checked_sub(MOST_ENDS) else {
            return Ok(());
        };
        self.run(
            "DELETE FROM ended WHERE job = ?1 AND attempt <= ?2",
            values![finished.id, last],
        )
    }

    pub(super) fn step_done(&mut self, done: &StepDone) -> Result<Reply> {
        if self.running_attempt(done.id)? != Some(done.attempt) {
            return Ok(Reply::Done);
        }
        // A task that does not apply keeps no result.
        let kept = (done.status != TaskStatus::NotApplicable).then_some(&done.output);
        let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        self.execute(
            "INSERT INTO step (job, n, name, status, duration_ms, output, output_cut) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) \
             ON CONFLICT (job, n) DO UPDATE SET name = excluded.name, status = excluded.status, \
             duration_ms = excluded.duration_ms, output = excluded.output, output_cut = excluded.output_cut",
            values![
                done.id,
                number(done.step as u64),
                &done.name,
                &word(done.status),
                number(done.duration_ms),
                kept,
                left_out(done.output_cut),
            ],
        )?;
        Ok(Reply::Done)
    }

    pub(super) fn progress(&mut self, progress: &Progress) -> Result<Reply> {
        let Progress { id, percent, .. } = *progress;
        let is_running = self.running_attempt(id)? == Some(progress.attempt);
        let is_own = match &progress.queues {
            Some(queues) if is_running => queues.contains(&self.queue_entry(id)?.group.queue),
            _ => true,
        };
        if is_running && is_own {
            self.execute(
                "UPDATE job SET progress = ?2, progress_text = ?3 WHERE id = ?1",
                values![id, percent, &progress.text],
            )?;
        }
        Ok(Reply::Done)
    }

    /// Changes each selected job, or a first portion.
    pub(super) fn change(&mut self, change: Change, selection: &Selection) -> Result<Reply> {
        let (mut count, mut running, mut held) = (0, Vec::new(), None);
        let (selected, rest) = self.selected(selection)?;
        for (id, state) in selected {
            let changed = match change {
                Change::Retry => self.retry(id, state)?,
                Change::Cancel => self.cancel(id, state)?,
                Change::Discard if matches!(state, State::Failed | State::Quarantined) => {
                    self.end(id, State::Discarded)?;
                    Changed::Yes
                }
                Change::Purge if state.is_end() => {
                    self.forget_job(id)?;
                    Changed::Yes
                }
                Change::Discard | Change::Purge => Changed::No,
            };
            match changed {
                Changed::Yes => count += 1,
                Changed::No => {}
                Changed::Runs => running.push(id),
                Changed::HasKeyOf(holder) => {
                    let (jobs, job) = (1, id);
                    held = HeldKeys::sum(held, Some(HeldKeys { jobs, job, holder }));
                }
            }
        }
        Ok(Reply::Changed {
            count,
            running,
            held,
            rest: rest.map(|rest| Box::new(Operation::Change(change, rest))),
        })
    }

    /// Puts an ended or scheduled job back into its queue with fresh counters; only its number of starts continues.
    fn retry(&mut self, id: i64, state: State) -> Result<Changed> {
        if !state.is_end() && state != State::Scheduled {
            return Ok(Changed::No);
        }
        let entry = self.queue_entry(id)?;
        let holder = self.database.first(
            "SELECT other.id FROM job JOIN job AS other ON other.queue = job.queue AND other.key = job.key \
             WHERE job.id = ?1 AND other.key IS NOT NULL AND other.state IN (0, 1, 2, 7) AND other.id <> job.id",
            values![id],
            |row| row.number(0),
        )?;
        if let Some(holder) = holder {
            return Ok(Changed::HasKeyOf(holder));
        }
        self.execute(
            "UPDATE job SET failures = 0, crashes = 0, snoozes = 0, ended_at = NULL, error = NULL, expires_at = NULL, \
             status = NULL WHERE id = ?1",
            values![id],
        )?;
        if state == State::Done {
            // All steps are done, so all are repeated.
            self.execute("DELETE FROM step WHERE job = ?1", values![id])?;
        }
        self.leave(&entry, state)?;
        self.make_ready_again(&entry)?;
        Ok(Changed::Yes)
    }

    pub(super) fn cancel(&mut self, id: i64, state: State) -> Result<Changed> {
        match state {
            State::Running => {
                // Another machine or process may have it, and see this later.
                let how = i64::from(Ending::CANCELLED);
                self.execute(
                    "UPDATE running SET ending = ending | ?2 WHERE id = ?1",
                    values![id, how],
                )?;
                self.database.notify(&Notice::Cancel(id))?;
                Ok(Changed::Runs)
            }
            State::Waiting | State::Scheduled | State::Blocked => {
                let entry = self.queue_entry(id)?;
                self.leave(&entry, state)?;
                self.end(id, State::Cancelled)?;
                Ok(Changed::Yes)
            }
            _ => Ok(Changed::No),
        }
    }

    pub(super) fn press(&mut self, id: i64, attempt: u32, is_forced: bool) -> Result<Reply> {
        let how = if is_forced {
            Ending::KILLED
        } else {
            Ending::TERMINATED
        };
        self.execute(
            "UPDATE running SET ending = ending | ?3 WHERE id = ?1 AND attempt = ?2",
            values![id, attempt, i64::from(how)],
        )?;
        self.is_news = true;
        Ok(Reply::Done)
    }

    fn end(&mut self, id: i64, state: State) -> Result<()> {
        let now_ms = self.now_ms;
        self.run(
            "UPDATE job SET state = ?2, ended_at = ?3 WHERE id = ?1",
            values![id, state, now_ms],
        )
    }

    fn leave(&mut self, entry: &QueueEntry, state: State) -> Result<()> {
        match state {
            State::Waiting => {
                let left = self.execute(
                    "DELETE FROM ready WHERE queue = ?1 AND tenant = ?2 AND priority = ?3 AND sequence = ?4 AND id = ?5",
                    values![&entry.group.queue, &entry.group.tenant, entry.priority, entry.sequence, entry.id],
                )?;
                if left > 0 {
                    self.count_ready(entry, -1);
                }
                self.leave_lane(entry)
            }
            State::Scheduled => {
                self.is_due_changed = true;
                self.run(
                    "DELETE FROM later WHERE id = ?1 AND run_at = (SELECT run_at FROM job WHERE id = ?1)",
                    values![entry.id],
                )
            }
            State::Blocked => self.run(
                "DELETE FROM blocked WHERE queue = ?1 AND serial = ?2 AND priority = ?3 AND id = ?4",
                values![&entry.group.queue, &entry.serial, entry.priority, entry.id],
            ),
            _ => Ok(()),
        }
    }

    /// The selected jobs, or the first portion, and the rest.
    fn selected(&mut self, selection: &Selection) -> Result<Portion> {
        let read = |row: &dyn Row| Ok((row.number(0)?, State::of_number(row.number(1)?)));
        let locking = self.database.locking();
        let (filter, after, until) = match selection {
            Selection::One(id, queues) => {
                let select = format!("SELECT id, state, queue FROM job WHERE id = ?1{locking}");
                let found = self
                    .database
                    .first(&select, values![*id], |row| Ok((read(row)?, row.word(2)?)))?;
                let may = |queue: &String| queues.as_ref().is_none_or(|queues| queues.contains(queue));
                let found = found.filter(|(_, queue)| may(queue)).map(|(found, _)| found);
                return Ok((found.into_iter().collect(), None));
            }
            Selection::Ref(queue, reference) => {
                let select = format!(
                    "SELECT id, state FROM job WHERE queue = ?1 AND ref = ?2 AND ref IS NOT NULL{locking}"
                );
                let found = self.database.all(&select, values![queue, reference], read)?;
                return Ok((found, None));
            }
            Selection::All(filter) => {
                // Later pushes are not selected.
                let last = self
                    .database
                    .first("SELECT max(id) FROM job", &[], |row| row.int(0))?;
                (filter, 0, last.flatten().unwrap_or_default())
            }
            Selection::Rest(filter, after, until) => (filter, *after, *until),
        };
        let last = self.database.first(
            "SELECT max(id) FROM (SELECT id FROM job WHERE id > ?1 AND id <= ?2 ORDER BY id LIMIT ?3) AS portion",
            values![after, until, MOST_LOOKED_AT],
            |row| row.int(0),
        )?;
        let Some(mut last) = last.flatten() else {
            return Ok((Vec::new(), None));
        };
        let (condition, mut values) = filter.condition();
        let more: [Value<'_>; 3] = [after.into(), last.into(), MOST_CHANGED.into()];
        values.extend(more);
        let number = values.len();
        let select = format!(
            "SELECT id, state FROM job WHERE {condition} AND id > ?{} AND id <= ?{} ORDER BY id LIMIT ?{number}{locking}",
            number - 2,
            number - 1
        );
        let found = self.database.all(&select, &values, read)?;
        if let Some((id, _)) = found.last().filter(|_| found.len() == MOST_CHANGED as usize) {
            last = *id;
        }
        let rest = (last < until).then(|| Selection::Rest(filter.clone(), last, until));
        Ok((found, rest))
    }

    pub(super) fn clean(&mut self, before_ms: i64, failed_before_ms: i64) -> Result<Reply> {
        let mut is_more = false;
        // Each query uses the words of the partial index.
        for (states, before_ms) in [("3, 6, 8", before_ms), ("4, 5", failed_before_ms)] {
            let old = format!(
                "SELECT id FROM job WHERE state IN ({states}) AND ended_at < ?1 LIMIT ?2{}",
                self.database.skipping_locked()
            );
            let values = [before_ms.into(), MOST_CLEANED.into()];
            let ids = self.database.all(&old, &values, |row| row.number(0))?;
            is_more |= ids.len() == MOST_CLEANED as usize;
            ids.into_iter().try_for_each(|id| self.forget_job(id))?;
        }
        self.clean_sequences(before_ms, failed_before_ms)?;
        is_more |= self.database.shrink()?;
        Ok(Reply::Cleaned { is_more })
    }

    fn forget_job(&mut self, id: i64) -> Result<()> {
        self.execute("DELETE FROM job WHERE id = ?1", values![id])?;
        self.execute("DELETE FROM step WHERE job = ?1", values![id])?;
        self.run("DELETE FROM ended WHERE job = ?1", values![id])
    }
}
