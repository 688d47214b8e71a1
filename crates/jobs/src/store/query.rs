//! Reads jobs for lists and counts.

use super::operation::{Filter, StateCount};
use super::sql::{Present, Result, Row, Value, values};
use super::{State, Work};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use forkyard_protocol::jobs::{EndView, JobView, StepView};
use std::collections::BTreeMap;

pub(super) const MOST_LISTED: u32 = 10_000;

pub(super) const COLUMNS: &str = "id, queue, kind, tenant, state, priority, attempt, failures, crashes, pushed_at, run_at, \
                       started_at, ended_at, duration_ms, key, progress, progress_text, status, outcome, error, sequence, ref, \
                       result_cut";

impl Work<'_> {
    pub(super) fn list(&mut self, filter: &Filter) -> Result<Vec<JobView>> {
        let (condition, mut values) = filter.condition();
        values.push(filter.limit.min(MOST_LISTED).into());
        let select = format!(
            "SELECT {COLUMNS} FROM job WHERE {condition} ORDER BY id DESC LIMIT ?{}",
            values.len()
        );
        self.database.all(&select, &values, view)
    }

    pub(super) fn count(&mut self, filter: &Filter) -> Result<BTreeMap<String, u64>> {
        let (condition, values) = filter.condition();
        let select = format!("SELECT state, count(*) FROM job WHERE {condition} GROUP BY state");
        let rows = self.database.all(&select, &values, |row| {
            let state = State::of_number(row.number(0)?);
            Ok((state.name().to_owned(), row.number(1)?.unsigned_abs()))
        })?;
        Ok(rows.into_iter().collect())
    }

    pub(super) fn show(&mut self, id: i64) -> Result<Option<JobView>> {
        let select = format!("SELECT {COLUMNS}, result, log, payload, steps FROM job WHERE id = ?1");
        let text = |bytes: Option<Vec<u8>>| {
            let text = bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
            text.filter(|text| !text.is_empty())
        };
        let found = self.database.first(&select, values![id], |row| {
            let payload = row.blob(25)?.unwrap_or_default();
            let is_text = std::str::from_utf8(&payload).is_ok();
            let view = JobView {
                result: text(row.blob(23)?),
                log: text(row.blob(24)?),
                payload_base64: (!is_text).then(|| BASE64_STANDARD.encode(&payload)),
                payload: text(Some(payload).filter(|_| is_text)),
                ..view(row)?
            };
            Ok((view, row.text(26)?))
        })?;
        let Some((mut view, steps)) = found else {
            return Ok(None);
        };
        let names: Vec<String> = steps
            .and_then(|text| serde_json::from_str(&text).ok())
            .unwrap_or_default();
        let mut done: BTreeMap<usize, StepView> = BTreeMap::new();
        if !names.is_empty() {
            let rows = self.database.all(
                "SELECT n, name, status, duration_ms, output, output_cut FROM step WHERE job = ?1",
                values![id],
                |row| {
                    let step = StepView {
                        name: row.word(1)?,
                        status: row.text(2)?,
                        duration_ms: row.int(3)?.map(i64::unsigned_abs),
                        output: text(row.blob(4)?),
                        output_cut: row.int(5)?.map(i64::unsigned_abs),
                    };
                    Ok((usize::try_from(row.number(0)?).unwrap_or(usize::MAX), step))
                },
            )?;
            done = rows.into_iter().collect();
        }
        let step = |(n, name)| {
            done.remove(&n).unwrap_or(StepView {
                name,
                ..StepView::default()
            })
        };
        view.steps = names.into_iter().enumerate().map(step).collect();
        view.ends = self.database.all(
            "SELECT attempt, outcome, error, ended_at FROM ended WHERE job = ?1 ORDER BY attempt",
            values![id],
            |row| {
                Ok(EndView {
                    attempt: row.count(0)?,
                    outcome: row.word(1)?,
                    error: row.text(2)?,
                    ended_ms: row.number(3)?,
                })
            },
        )?;
        Ok(Some(view))
    }

    pub(super) fn counts(&mut self) -> Result<Vec<StateCount>> {
        let mut counts: BTreeMap<String, StateCount> = BTreeMap::new();
        let tallied = self.database.all(
            "SELECT queue, state, CAST(sum(number) AS BIGINT) FROM tally GROUP BY queue, state",
            &[],
            |row| Ok((row.word(0)?, State::of_number(row.number(1)?), row.number(2)?)),
        )?;
        for (queue, state, number) in tallied {
            let number = number.max(0).unsigned_abs();
            let count = counts.entry(queue).or_default();
            match state {
                State::Scheduled => count.scheduled = number,
                State::Blocked => count.blocked = number,
                State::Quarantined => count.quarantined = number,
                _ => count.failed = number,
            }
        }
        // Queue by queue: each may have a million jobs.
        let mut last = String::new();
        while let Some((queue, id)) = self.database.first(
            "SELECT queue, (SELECT min(id) FROM ready AS own WHERE own.queue = next.queue) FROM ready AS next \
             WHERE queue > ?1 ORDER BY queue LIMIT 1",
            values![&last],
            |row| Ok((row.word(0)?, row.number(1)?)),
        )? {
            let since = self.database.first(
                "SELECT pushed_at, run_at FROM job WHERE id = ?1",
                values![id],
                |row| Ok(row.number(0)?.max(row.number(1)?)),
            )?;
            let since_ms = since.map(|since_ms| since_ms.saturating_add(self.ahead_ms));
            counts.entry(queue.clone()).or_default().oldest_waiting_ms = since_ms;
            last = queue;
        }
        let named = counts
            .into_iter()
            .map(|(queue, count)| StateCount { queue, ..count });
        Ok(named.collect())
    }
}

impl Filter {
    pub(super) fn condition(&self) -> (String, Vec<Value<'_>>) {
        let mut values: Vec<Value<'_>> = Vec::new();
        let mut parts: Vec<String> = Vec::new();
        let conditions: [(&str, Value<'_>, &str); 9] = [
            ("state = ", self.state.into(), ""),
            ("tenant = ", (&self.tenant).into(), ""),
            ("kind = ", (&self.kind).into(), ""),
            ("key = ", (&self.key).into(), ""),
            ("status = ", (&self.status).into(), ""),
            ("pushed_at >= ", self.since_ms.into(), ""),
            ("pushed_at < ", self.until_ms.into(), ""),
            ("id < ", self.before.into(), ""),
            (
                "EXISTS (SELECT 1 FROM step WHERE step.job = job.id AND step.name = ",
                (&self.step).into(),
                ")",
            ),
        ];
        for (begin, value, end) in conditions {
            if !matches!(value, Value::Null) {
                values.push(value);
                parts.push(format!("{begin}?{}{end}", values.len()));
            }
        }
        if let Some(queues) = &self.queues {
            let names = queues.iter().map(|queue| {
                values.push(queue.into());
                format!("?{}", values.len())
            });
            let names: Vec<String> = names.collect();
            parts.push(match names.is_empty() {
                true => "1 = 0".to_owned(),
                false => format!("queue IN ({})", names.join(", ")),
            });
        }
        if parts.is_empty() {
            parts.push("1 = 1".to_owned());
        }
        (parts.join(" AND "), values)
    }
}

pub(super) fn view(row: &dyn Row) -> Result<JobView> {
    let state = State::of_number(row.number(4)?);
    Ok(JobView {
        id: row.number(0)?,
        queue: row.word(1)?,
        kind: row.word(2)?,
        tenant: row.word(3)?,
        state: state.name().to_owned(),
        priority: row.number(5)?,
        attempt: row.count(6)?,
        failures: row.count(7)?,
        crashes: row.count(8)?,
        pushed_ms: row.number(9)?,
        run_at_ms: row.int(10)?.filter(|_| state == State::Scheduled),
        started_ms: row.int(11)?,
        ended_ms: row.int(12)?,
        duration_ms: row.int(13)?.map(i64::unsigned_abs),
        key: row.text(14)?,
        progress: row.int(15)?.map(|percent| u32::try_from(percent).unwrap_or(0)),
        progress_text: row.text(16)?,
        status: row.text(17)?,
        outcome: row.text(18)?,
        error: row.text(19)?,
        sequence: row.int(20)?,
        reference: row.text(21)?,
        result_cut: row.int(22)?.map(i64::unsigned_abs),
        ..JobView::default()
    })
}
