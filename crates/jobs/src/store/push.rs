//! Adds jobs.

use super::operation::{Fired, Reply};
use super::sql::{Present, Result, values};
use super::{NO_SEQUENCE, QueueEntry, Work};
use crate::core::GroupName;
use crate::core::schedule::LATE_MS;
use forkyard_protocol::jobs::{NewJob, Pushed};

/// The default priority.
const PRIORITY: i64 = 100;
const CONTENT_TYPE: &str = "application/json";

impl Work<'_> {
    pub(super) fn push_all(&mut self, jobs: &[NewJob]) -> Result<Reply> {
        let pushed = jobs
            .iter()
            .map(|job| self.push(job, None))
            .collect::<Result<_>>()?;
        Ok(Reply::Pushed(pushed))
    }

    pub(super) fn push(&mut self, job: &NewJob, sequence: Option<i64>) -> Result<Pushed> {
        if let Some(id) = self.pushed_before(job)? {
            return Ok(Pushed { id, existed: true });
        }
        let delayed = job
            .in_ms
            .map(|millis| self.now_ms.saturating_add_unsigned(millis));
        let at_ms = job.at_ms.max(delayed).filter(|at| *at > self.now_ms);
        let steps = (!job.steps.is_empty()).then(|| serde_json::to_string(&job.steps).unwrap_or_default());
        let priority = job.priority.unwrap_or(PRIORITY);
        let timeout_ms = job
            .timeout_ms
            .map(|millis| i64::try_from(millis).unwrap_or(i64::MAX));
        let id = self.database.first(
            "INSERT INTO job (queue, kind, tenant, state, priority, pushed_at, max_failures, timeout_ms, expires_at, key, \
             serial, payload, content_type, traceparent, steps, sequence, ref) \
             VALUES (?1, ?2, ?3, 0, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16) ON CONFLICT DO NOTHING \
             RETURNING id",
            values![
                &job.queue,
                &job.kind,
                &job.tenant,
                priority,
                self.now_ms,
                job.attempts,
                timeout_ms,
                job.expires_ms,
                &job.key,
                &job.serial,
                &job.payload,
                job.content_type.as_deref().unwrap_or(CONTENT_TYPE),
                &job.traceparent,
                steps.as_ref(),
                sequence,
                &job.reference,
            ],
            |row| row.number(0),
        )?;
        if id.is_none() {
            if let Some(id) = self.pushed_before(job)? {
                return Ok(Pushed { id, existed: true });
            }
        }
        let entry = QueueEntry {
            id: id.unwrap_or_default(),
            group: GroupName::new(&job.queue, &job.tenant),
            priority,
            serial: job.serial.clone(),
            sequence: sequence.unwrap_or(NO_SEQUENCE),
        };
        match at_ms {
            Some(at_ms) => self.make_later(&entry, at_ms)?,
            None => self.make_ready(&entry)?,
        }
        Ok(Pushed {
            id: entry.id,
            existed: false,
        })
    }

    fn pushed_before(&mut self, job: &NewJob) -> Result<Option<i64>> {
        let queue = (&job.queue).into();
        let named = match &job.reference {
            Some(reference) => self.find_ref(&job.queue, reference)?,
            None => None,
        };
        match (&job.key, named) {
            (Some(key), None) => self.database.first(
                "SELECT id FROM job WHERE queue = ?1 AND key = ?2 AND key IS NOT NULL AND state IN (0, 1, 2, 7)",
                &[queue, key.into()],
                |row| row.number(0),
            ),
            (_, named) => Ok(named),
        }
    }

    pub(super) fn find_ref(&mut self, queue: &str, reference: &str) -> Result<Option<i64>> {
        self.database.first(
            "SELECT id FROM job WHERE queue = ?1 AND ref = ?2 AND ref IS NOT NULL",
            values![queue, reference],
            |row| row.number(0),
        )
    }

    pub(super) fn fire(&mut self, fired: &Fired) -> Result<Reply> {
        if is_ahead(fired.due_ms, self.now_ms) {
            // This machine's clock is wrong: its time would delay others.
            return Ok(Reply::Fired {
                name: fired.name.clone(),
                pushed: 0,
            });
        }
        let select = format!(
            "SELECT last_job, spec, next_at, last_at FROM schedule WHERE name = ?1{}",
            self.database.locking()
        );
        let known = self.database.first(&select, values![&fired.name], |row| {
            Ok((row.int(0)?, row.word(1)?, row.int(2)?, row.int(3)?))
        })?;
        // Another machine, or an earlier process, was first.
        let was_done = match &known {
            Some((_, spec, Some(next_ms), written_ms)) if !is_ahead(*written_ms, self.now_ms) => {
                *spec == fired.spec && fired.next_ms.is_some_and(|own_ms| *next_ms >= own_ms)
            }
            _ => false,
        };
        let last = known.and_then(|(last, ..)| last);
        let is_busy = match last {
            Some(last) if fired.skips_overlap => {
                let found = self.database.first(
                    "SELECT id FROM job WHERE id = ?1 AND state IN (0, 1, 2, 7)",
                    values![last],
                    |_| Ok(()),
                )?;
                found.is_some()
            }
            _ => false,
        };
        let jobs: &[NewJob] = match (is_busy || was_done, fired.skips_overlap) {
            (true, _) => &[],
            // The jobs of several times would overlap.
            (false, true) => &fired.jobs[fired.jobs.len().saturating_sub(1)..],
            (false, false) => &fired.jobs,
        };
        let mut newest = None;
        for job in jobs {
            newest = Some(self.push(job, None)?.id);
        }
        if !was_done {
            self.execute(
                "INSERT INTO schedule (name, spec, next_at, last_at, last_job) VALUES (?1, ?2, ?3, ?4, ?5) \
                 ON CONFLICT (name) DO UPDATE SET spec = excluded.spec, next_at = excluded.next_at, \
                 last_at = excluded.last_at, \
                 last_job = coalesce(excluded.last_job, schedule.last_job)",
                values![&fired.name, &fired.spec, fired.next_ms, self.now_ms, newest],
            )?;
        }
        Ok(Reply::Fired {
            name: fired.name.clone(),
            pushed: jobs.len(),
        })
    }
}

/// Whether a time comes from a clock that is wrong or was set back since.
pub(super) fn is_ahead(at_ms: Option<i64>, now_ms: i64) -> bool {
    at_ms.is_some_and(|at_ms| at_ms > now_ms.saturating_add(LATE_MS))
}
