//! Salvages a damaged file: each job by its number, with its steps and ends. The queue tables are rebuilt from the
//! jobs' states.

use super::super::StoreError;
use super::{Copied, Sqlite, copy};
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, params_from_iter};
use std::path::Path;

/// The most unreadable numbers in a row if the last number is unknown.
const MOST_LOST: u64 = 1_000_000;

/// Jobs that ran may still run: they wait again. Serial order is decided again.
const PLACES: &str = "
UPDATE job SET state = 0 WHERE state IN (2, 7);
INSERT INTO lane (queue, serial, id) SELECT queue, serial, id FROM (
  SELECT queue, serial, id, row_number() OVER (PARTITION BY queue, serial ORDER BY priority, id) AS place
  FROM job WHERE serial IS NOT NULL AND state = 0) WHERE place = 1;
INSERT INTO blocked (queue, serial, priority, id) SELECT queue, serial, priority, id FROM job
  WHERE state = 0 AND serial IS NOT NULL AND id NOT IN (SELECT id FROM lane);
UPDATE job SET state = 7 WHERE id IN (SELECT id FROM blocked);
INSERT INTO ready (queue, tenant, priority, sequence, id)
  SELECT queue, tenant, priority, coalesce(sequence, 0), id FROM job WHERE state = 0;
UPDATE job SET run_at = pushed_at WHERE state = 1 AND run_at IS NULL;
INSERT INTO later (run_at, id) SELECT run_at, id FROM job WHERE state = 1;
UPDATE sequence SET running = 0, dropped = max(0, added - done - failed - (
  SELECT count(*) FROM job WHERE job.sequence = sequence.id AND job.state IN (0, 1, 7)));
";

pub(super) fn salvage(store: &Path, part: &Path, why: String) -> Result<Copied, StoreError> {
    let source = |error: rusqlite::Error| StoreError::of_file(store, error);
    let target = |error: rusqlite::Error| StoreError::of_file(part, error);
    let reader = copy::open(store).map_err(source)?;
    // SQLite refuses a file shorter than the size in its header, unless the schema is writable. This writes nothing to it.
    reader
        .pragma_update(None, "writable_schema", true)
        .map_err(source)?;
    let writer = Sqlite::open(part)?.connection;
    let columns = |table: &str| shared_columns(&reader, &writer, table);
    let jobs = columns("job").map_err(source)?;
    writer.execute_batch("BEGIN").map_err(target)?;
    for table in ["sequence", "queue", "schedule"] {
        let names = columns(table).map_err(source)?;
        let select = format!("SELECT {} FROM {table}", names.join(", "));
        let _ = copy_rows(&reader, &writer, table, &names, &select, 0);
    }
    let select = format!(
        "SELECT {} FROM job NOT INDEXED WHERE id >= ?1 ORDER BY id LIMIT 1",
        jobs.join(", ")
    );
    let of_job: Vec<(&str, Vec<String>, String)> = ["step", "ended"]
        .into_iter()
        .map(|table| {
            let names = columns(table)?;
            let select = format!("SELECT {} FROM {table} WHERE job = ?1", names.join(", "));
            Ok((table, names, select))
        })
        .collect::<rusqlite::Result<_>>()
        .map_err(source)?;
    let last: Option<i64> = [
        "SELECT seq FROM sqlite_sequence WHERE name = 'job'",
        "SELECT max(id) FROM job",
    ]
    .iter()
    .filter_map(|question| reader.query_row(question, [], |row| row.get(0)).ok())
    .max();
    let (mut next, mut lost, mut lost_together, mut saved) = (1, 0_u64, 0, 0);
    while last.is_none_or(|last| next <= last) && lost_together < MOST_LOST {
        let read = reader.prepare_cached(&select).and_then(|mut statement| {
            let row = statement.query_row([next], |row| values(row, jobs.len()));
            row.optional()
        });
        let row = match read {
            Ok(Some(row)) => row,
            Ok(None) => break,
            Err(_) => {
                (next, lost, lost_together) = (next + 1, lost + 1, lost_together + 1);
                continue;
            }
        };
        lost_together = 0;
        let Some(Value::Integer(id)) = row.first().cloned() else {
            next += 1;
            continue;
        };
        next = id.max(next) + 1;
        // A damaged row may be refused.
        if insert(&writer, "job", &jobs, &row).is_err() {
            lost += 1;
            continue;
        }
        saved += 1;
        for (table, names, select) in &of_job {
            let _ = copy_rows(&reader, &writer, table, names, select, id);
        }
    }
    let numbers = "INSERT INTO sqlite_sequence (name, seq) SELECT 'job', ?1 WHERE NOT EXISTS \
                   (SELECT 1 FROM sqlite_sequence WHERE name = 'job')";
    writer
        .execute(numbers, [last])
        .and_then(|_| {
            writer.execute(
                "UPDATE sqlite_sequence SET seq = max(seq, ?1) WHERE name = 'job'",
                [last.unwrap_or(0)],
            )
        })
        .and_then(|_| writer.execute_batch(PLACES))
        .and_then(|()| writer.execute_batch("COMMIT"))
        .and_then(|()| writer.pragma_update_and_check(None, "journal_mode", "DELETE", |_| Ok(())))
        .map_err(target)?;
    Ok(Copied::Part {
        jobs: saved,
        lost,
        why,
    })
}

/// The columns that a table has in both files; the key comes first.
fn shared_columns(reader: &Connection, writer: &Connection, table: &str) -> rusqlite::Result<Vec<String>> {
    let names = |connection: &Connection| -> rusqlite::Result<Vec<String>> {
        let mut statement = connection.prepare("SELECT name FROM pragma_table_info(?1) ORDER BY cid")?;
        let names = statement.query_map([table], |row| row.get(0))?;
        names.collect()
    };
    let known = names(writer)?;
    Ok(names(reader)?
        .into_iter()
        .filter(|name| known.contains(name))
        .collect())
}

fn values(row: &rusqlite::Row<'_>, count: usize) -> rusqlite::Result<Vec<Value>> {
    (0..count).map(|column| row.get(column)).collect()
}

fn insert(writer: &Connection, table: &str, names: &[String], row: &[Value]) -> rusqlite::Result<()> {
    let places: Vec<String> = (1..=names.len()).map(|number| format!("?{number}")).collect();
    let insert = format!(
        "INSERT INTO {table} ({}) VALUES ({})",
        names.join(", "),
        places.join(", ")
    );
    writer
        .prepare_cached(&insert)?
        .execute(params_from_iter(row))
        .map(|_| ())
}

fn copy_rows(
    reader: &Connection,
    writer: &Connection,
    table: &str,
    names: &[String],
    select: &str,
    job: i64,
) -> rusqlite::Result<()> {
    let mut statement = reader.prepare_cached(select)?;
    let wanted: &[i64] = if statement.parameter_count() == 0 {
        &[]
    } else {
        &[job]
    };
    let mut rows = statement.query(params_from_iter(wanted))?;
    while let Some(row) = rows.next()? {
        let _ = insert(writer, table, names, &values(row, names.len())?);
    }
    Ok(())
}
