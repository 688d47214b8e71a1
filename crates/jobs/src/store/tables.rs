//! The tables, as each database writes them.

/// The version of the tables that this program writes, and the only one that it reads.
pub const VERSION: i32 = 4;

/// The words that databases have for the same.
#[derive(Debug)]
pub struct Words {
    /// A column with a whole number of 64 bits.
    int: &'static str,
    /// A column with bytes.
    blob: &'static str,
    /// The column of a table whose numbers are given by the database and never twice.
    serial_key: &'static str,
    /// The same where the numbers are given by us.
    own_key: &'static str,
    /// What follows a table that is its own index.
    index_only: &'static str,
    /// What follows a small table whose rows come and go.
    busy: &'static str,
    /// What stands around the statement that counts a job of a sequence when its state has changed.
    trigger: (&'static str, &'static str),
}

/// Those of SQLite.
pub const SQLITE: Words = Words {
    int: "INTEGER",
    blob: "BLOB",
    serial_key: "INTEGER PRIMARY KEY AUTOINCREMENT",
    own_key: "INTEGER PRIMARY KEY",
    index_only: "WITHOUT ROWID",
    busy: "",
    trigger: (
        "CREATE TRIGGER job_counted AFTER UPDATE OF state ON job WHEN NEW.sequence IS NOT NULL AND NEW.state <> OLD.state \
         BEGIN",
        "END;",
    ),
};

/// Those of PostgreSQL. What deleted rows leave in small tables is cleaned up early, else claims would have to read over it.
pub const POSTGRESQL: Words = Words {
    int: "BIGINT",
    blob: "BYTEA",
    serial_key: "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
    own_key: "BIGINT PRIMARY KEY",
    index_only: "WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, \
                 autovacuum_vacuum_cost_delay = 0)",
    busy: "WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, \
           autovacuum_vacuum_cost_delay = 0)",
    trigger: (
        "CREATE FUNCTION count_job() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN",
        "  RETURN NULL; END $$; \
         CREATE TRIGGER job_counted AFTER UPDATE OF state ON job FOR EACH ROW \
         WHEN (NEW.sequence IS NOT NULL AND NEW.state <> OLD.state) EXECUTE FUNCTION count_job();",
    ),
};

const TABLES: &str = "
CREATE TABLE job (
  id {serial_key},
  queue TEXT NOT NULL, kind TEXT NOT NULL, tenant TEXT NOT NULL,
  state {int} NOT NULL,
  priority {int} NOT NULL,
  run_at {int}, pushed_at {int} NOT NULL, started_at {int}, ended_at {int},
  attempt {int} NOT NULL DEFAULT 0,
  failures {int} NOT NULL DEFAULT 0, crashes {int} NOT NULL DEFAULT 0, snoozes {int} NOT NULL DEFAULT 0,
  max_failures {int}, timeout_ms {int}, expires_at {int},
  key TEXT, ref TEXT, serial TEXT,
  payload {blob} NOT NULL, content_type TEXT NOT NULL, traceparent TEXT,
  steps TEXT, sequence {int},
  progress {int}, progress_text TEXT,
  status TEXT, outcome TEXT, result {blob}, error TEXT, log {blob}, duration_ms {int}
);
CREATE UNIQUE INDEX job_key ON job (queue, key) WHERE key IS NOT NULL AND state IN (0, 1, 2, 7);
CREATE UNIQUE INDEX job_ref ON job (queue, ref) WHERE ref IS NOT NULL;
CREATE INDEX job_ended ON job (ended_at) WHERE state IN (3, 6, 8);
CREATE INDEX job_trouble ON job (queue, state) WHERE state IN (4, 5);
CREATE INDEX job_sequence ON job (sequence) WHERE sequence IS NOT NULL AND state IN (0, 1, 2, 7);
CREATE TABLE sequence (
  id {serial_key},
  queue TEXT NOT NULL, name TEXT, state TEXT NOT NULL,
  total {int}, cursor {int} NOT NULL DEFAULT 0, added {int} NOT NULL DEFAULT 0,
  running {int} NOT NULL DEFAULT 0, done {int} NOT NULL DEFAULT 0, failed {int} NOT NULL DEFAULT 0,
  dropped {int} NOT NULL DEFAULT 0,
  begun_at {int} NOT NULL, ended_at {int}
);
CREATE UNIQUE INDEX sequence_name ON sequence (queue, name) WHERE name IS NOT NULL AND state = 'open';
{trigger_begin}
  UPDATE sequence SET
    running = running + CASE WHEN NEW.state = 2 THEN 1 ELSE 0 END - CASE WHEN OLD.state = 2 THEN 1 ELSE 0 END,
    done = done + CASE WHEN NEW.state = 3 THEN 1 ELSE 0 END - CASE WHEN OLD.state = 3 THEN 1 ELSE 0 END,
    failed = failed + CASE WHEN NEW.state IN (4, 5) THEN 1 ELSE 0 END - CASE WHEN OLD.state IN (4, 5) THEN 1 ELSE 0 END,
    dropped = dropped + CASE WHEN NEW.state IN (6, 8) THEN 1 ELSE 0 END - CASE WHEN OLD.state IN (6, 8) THEN 1 ELSE 0 END
  WHERE id = NEW.sequence;
{trigger_end}
CREATE TABLE ended (
  job {int} NOT NULL, attempt {int} NOT NULL, outcome TEXT NOT NULL, error TEXT, ended_at {int} NOT NULL,
  PRIMARY KEY (job, attempt)
) {index_only};
CREATE TABLE ready (
  queue TEXT NOT NULL, tenant TEXT NOT NULL, priority {int} NOT NULL, id {int} NOT NULL,
  PRIMARY KEY (queue, tenant, priority, id)
) {index_only};
CREATE TABLE later (run_at {int} NOT NULL, id {int} NOT NULL, PRIMARY KEY (run_at, id)) {index_only};
CREATE TABLE running (id {own_key}, attempt {int} NOT NULL, owner TEXT NOT NULL, ending {int} NOT NULL DEFAULT 0) {busy};
CREATE TABLE lane (
  queue TEXT NOT NULL, serial TEXT NOT NULL, id {int} NOT NULL, PRIMARY KEY (queue, serial)
) {index_only};
CREATE TABLE blocked (
  queue TEXT NOT NULL, serial TEXT NOT NULL, priority {int} NOT NULL, id {int} NOT NULL,
  PRIMARY KEY (queue, serial, priority, id)
) {index_only};
CREATE TABLE step (
  job {int} NOT NULL, n {int} NOT NULL, name TEXT NOT NULL, status TEXT, duration_ms {int}, output {blob},
  PRIMARY KEY (job, n)
) {index_only};
CREATE TABLE queue (name TEXT PRIMARY KEY, reason TEXT) {index_only};
CREATE TABLE schedule (
  name TEXT PRIMARY KEY, spec TEXT NOT NULL, next_at {int}, last_at {int}, last_job {int}
) {index_only};
CREATE TABLE owner (name TEXT PRIMARY KEY) {index_only};
";

/// The statements that make them.
pub fn statements(words: &Words) -> String {
    let pairs = [
        ("{int}", words.int),
        ("{blob}", words.blob),
        ("{serial_key}", words.serial_key),
        ("{own_key}", words.own_key),
        ("{index_only}", words.index_only),
        ("{busy}", words.busy),
        ("{trigger_begin}", words.trigger.0),
        ("{trigger_end}", words.trigger.1),
    ];
    pairs
        .iter()
        .fold(TABLES.to_owned(), |text, (name, word)| text.replace(name, word))
}
