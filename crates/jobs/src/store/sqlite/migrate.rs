//! Migrates a file of an earlier version, after a copy.

use super::super::sql::SqlError;
use super::super::{StoreError, tables};
use super::{beside, remove_if_there};
use rusqlite::{Connection, OpenFlags};
use std::path::Path;

pub(super) fn migrate(connection: &Connection, path: &Path, version: i32) -> Result<(), StoreError> {
    let unknown = || StoreError::Version(path.display().to_string(), version);
    let statements = tables::migration(version, &tables::SQLITE).ok_or_else(unknown)?;
    let copy = beside(path, &format!(".version-{version}"));
    copied(path, &copy).map_err(|error| {
        let message = format!(
            "it can't be copied to {} before it is changed: {error}",
            copy.display()
        );
        StoreError::of_file(path, SqlError::of_database(message))
    })?;
    connection
        .execute_batch(&statements)
        .and_then(|()| connection.pragma_update(None, "user_version", tables::VERSION))
        .map_err(|error| StoreError::of_file(path, error))?;
    log::warn!(
        "jobs: {} had version {version}, and has version {} from now on; {} is a copy of it as it was",
        path.display(),
        tables::VERSION,
        copy.display()
    );
    Ok(())
}

fn copied(path: &Path, copy: &Path) -> Result<(), SqlError> {
    let io = |error: std::io::Error| SqlError::of_database(error);
    let part = beside(copy, ".part");
    remove_if_there(&part)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let reader = Connection::open_with_flags(path, flags)?;
    reader.execute("VACUUM INTO ?1", [part.to_string_lossy()])?;
    let file = std::fs::File::open(&part).map_err(io)?;
    file.sync_all().map_err(io)?;
    std::fs::rename(&part, copy).map_err(io)
}

/// Rewrites the whole file, so that free pages can be returned later. If the disk has no room for a second copy, the
/// file stays as it is.
pub(super) fn rewrite(connection: &Connection, path: &Path) {
    if let Err(error) = connection.execute_batch("VACUUM") {
        log::warn!(
            "jobs: {} does not shrink: it can't be written anew: {error}",
            path.display()
        );
    }
}
