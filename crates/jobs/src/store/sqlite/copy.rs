//! Copies a store while others use it.

use super::super::StoreError;
use super::super::sql::SqlError;
use super::{APPLICATION_ID, BUSY, Sqlite, beside, remove_if_there, salvage};
use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// The pages of a portion, and the least time until the next; otherwise it is as long as the portion took.
const PORTION: i32 = 256;
const LEAST_REST: Duration = Duration::from_millis(1);

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Copied {
    Whole {
        jobs: u64,
    },
    Part {
        jobs: u64,
        /// Job numbers that could not be read; some may never have existed.
        lost: u64,
        why: String,
    },
}

impl Sqlite {
    /// Copies a store's jobs to a new file, as of one moment, while others read and write.
    ///
    /// # Errors
    /// There is no copy; states why.
    pub fn copy(store: &Path, to: &Path) -> Result<Copied, StoreError> {
        let part = beside(to, ".part");
        let copied = write(store, to, &part);
        // An unfinished copy is removed.
        let _ = std::fs::remove_file(&part);
        copied
    }
}

fn write(store: &Path, to: &Path, part: &Path) -> Result<Copied, StoreError> {
    let io = |error: io::Error| StoreError::of_file(to, SqlError::of_database(error));
    if to.symlink_metadata().is_ok() {
        let message = "it is there already; name another file";
        return Err(StoreError::of_file(to, SqlError::of_database(message)));
    }
    remove_if_there(part).map_err(|error| StoreError::of_file(to, error))?;
    std::fs::metadata(store).map_err(|error| StoreError::of_file(store, SqlError::of_database(error)))?;
    let copied = match whole(store, part) {
        Ok(jobs) => Copied::Whole { jobs },
        Err(CopyFailure::Foreign) => return Err(StoreError::Foreign(store.display().to_string())),
        Err(CopyFailure::Target(error)) => return Err(StoreError::of_file(to, error)),
        Err(CopyFailure::Source(why)) => {
            let _ = std::fs::remove_file(part);
            salvage::salvage(store, part, why + &missing(store).unwrap_or_default())?
        }
    };
    let file = std::fs::File::open(part).map_err(io)?;
    file.sync_all().map_err(io)?;
    // Never overwrites a file that appeared in the meantime.
    std::fs::hard_link(part, to).map_err(io)?;
    Ok(copied)
}

enum CopyFailure {
    Foreign,
    Source(String),
    Target(SqlError),
}

fn whole(store: &Path, part: &Path) -> Result<u64, CopyFailure> {
    let source = |error: rusqlite::Error| CopyFailure::Source(error.to_string());
    let reader = open(store).map_err(source)?;
    let application: i32 = reader
        .pragma_query_value(None, "application_id", |row| row.get(0))
        .map_err(source)?;
    if application != APPLICATION_ID {
        return Err(CopyFailure::Foreign);
    }
    let target = |error: rusqlite::Error| CopyFailure::Target(error.into());
    let mut copy = Connection::open(part).map_err(target)?;
    // Unfinished, it is removed; whole, it is synced below.
    copy.pragma_update(None, "synchronous", "OFF").map_err(target)?;
    copy_pages(&reader, &mut copy, part)?;
    // One file, without a log next to it.
    copy.pragma_update_and_check(None, "journal_mode", "DELETE", |_| Ok(()))
        .map_err(target)?;
    let mut report: Vec<String> = Vec::new();
    let checked = copy.pragma_query(None, "quick_check", |row| {
        report.push(row.get(0)?);
        Ok(())
    });
    checked.map_err(source)?;
    if report != ["ok"] {
        return Err(CopyFailure::Source(first_lines(&report.join("\n"))));
    }
    let jobs: i64 = copy
        .query_row("SELECT count(*) FROM job", [], |row| row.get(0))
        .map_err(source)?;
    Ok(jobs.unsigned_abs())
}

/// Copies all pages as of one moment, in portions. A portion that is not on the disk yet makes the commits of others
/// wait for it, so the next one comes later.
fn copy_pages(reader: &Connection, copy: &mut Connection, part: &Path) -> Result<(), CopyFailure> {
    let source = |error: rusqlite::Error| CopyFailure::Source(error.to_string());
    let target = |error: io::Error| CopyFailure::Target(SqlError::of_database(error));
    let file = std::fs::File::open(part).map_err(target)?;
    // In a transaction; otherwise each write of another process would restart the copy.
    reader
        .execute_batch("BEGIN; SELECT count(*) FROM sqlite_schema")
        .map_err(source)?;
    let backup = Backup::new(reader, copy).map_err(|error| CopyFailure::Target(error.into()))?;
    loop {
        let begun = Instant::now();
        if backup.step(PORTION).map_err(source)? == StepResult::Done {
            return Ok(());
        }
        file.sync_data().map_err(target)?;
        std::thread::sleep(begun.elapsed().max(LEAST_REST));
    }
}

fn missing(store: &Path) -> Option<String> {
    let file = std::fs::File::open(store).ok()?;
    let mut header = [0; 100];
    file.read_exact_at(&mut header, 0).ok()?;
    // https://sqlite.org/fileformat2.html: the page size is 1 for 65,536; the page count counts if offsets 24 and 92 are equal.
    let page = match u64::from(u16::from_be_bytes([header[16], header[17]])) {
        1 => 65_536,
        bytes => bytes,
    };
    let pages = u32::from_be_bytes([header[28], header[29], header[30], header[31]]);
    let whole = page * u64::from(pages);
    let missing = whole
        .checked_sub(file.metadata().ok()?.len())
        .filter(|missing| *missing > 0)?;
    (header[24..28] == header[92..96]).then(|| format!("; {missing} of {whole} bytes are missing at the end"))
}

/// The first lines of a damage report, as one line.
fn first_lines(report: &str) -> String {
    const MOST: usize = 5;
    let lines: Vec<&str> = report
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    let first = lines[..lines.len().min(MOST)].join("; ");
    match lines.len().saturating_sub(MOST) {
        0 => first,
        more => format!("{first}; and {more} more"),
    }
}

/// Opens a store for reading. Readers share its log with writers, so the connection can't be read-only.
pub(super) fn open(store: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let reader = Connection::open_with_flags(store, flags)?;
    reader.busy_timeout(BUSY)?;
    Ok(reader)
}

#[cfg(test)]
mod tests {
    use super::first_lines;

    #[test]
    fn a_report_is_five_lines_and_the_number_of_the_others() {
        assert_eq!(first_lines("1\n\n 2"), "1; 2");
        assert_eq!(first_lines("1\n2\n3\n4\n5"), "1; 2; 3; 4; 5");
        assert_eq!(first_lines("1\n2\n3\n4\n5\n6\n7"), "1; 2; 3; 4; 5; and 2 more");
    }
}
