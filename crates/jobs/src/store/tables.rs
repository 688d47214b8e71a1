pub const VERSION: i32 = 4;
pub const OLDEST: i32 = 3;

#[derive(Debug)]
pub struct Words {
    /// A 64-bit integer column.
    int: &'static str,
    blob: &'static str,
    /// A key that the database assigns and never reuses.
    serial_key: &'static str,
    own_key: &'static str,
    index_only: &'static str,
    busy: &'static str,
    trigger: (&'static str, &'static str),
    tally: &'static str,
}

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
    tally: "
CREATE TABLE tally (queue TEXT NOT NULL, state INTEGER NOT NULL, number INTEGER NOT NULL, PRIMARY KEY (queue, state)) WITHOUT ROWID;
CREATE TRIGGER job_added AFTER INSERT ON job WHEN NEW.state IN (1, 4, 5, 7) BEGIN
  INSERT INTO tally VALUES (NEW.queue, NEW.state, 1) ON CONFLICT (queue, state) DO UPDATE SET number = number + 1;
END;
CREATE TRIGGER job_moved AFTER UPDATE OF state ON job
WHEN NEW.state <> OLD.state AND (NEW.state IN (1, 4, 5, 7) OR OLD.state IN (1, 4, 5, 7)) BEGIN
  UPDATE tally SET number = number - 1 WHERE queue = OLD.queue AND state = OLD.state;
  INSERT INTO tally SELECT NEW.queue, NEW.state, 1 WHERE NEW.state IN (1, 4, 5, 7)
  ON CONFLICT (queue, state) DO UPDATE SET number = number + 1;
END;
CREATE TRIGGER job_removed AFTER DELETE ON job WHEN OLD.state IN (1, 4, 5, 7) BEGIN
  UPDATE tally SET number = number - 1 WHERE queue = OLD.queue AND state = OLD.state;
END;",
};

/// PostgreSQL's words. Deleted rows of small tables are vacuumed early, because claims would read over them.
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
    // Each change is its own row, so that no transaction waits for another; they are added up from time to time.
    tally: "
CREATE TABLE tally (queue TEXT NOT NULL, state BIGINT NOT NULL, number BIGINT NOT NULL);
CREATE FUNCTION tally_job() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  IF TG_OP <> 'INSERT' AND OLD.state IN (1, 4, 5, 7) THEN INSERT INTO tally VALUES (OLD.queue, OLD.state, -1); END IF;
  IF TG_OP <> 'DELETE' AND NEW.state IN (1, 4, 5, 7) THEN INSERT INTO tally VALUES (NEW.queue, NEW.state, 1); END IF;
  RETURN NULL; END $$;
CREATE TRIGGER job_added AFTER INSERT ON job FOR EACH ROW WHEN (NEW.state IN (1, 4, 5, 7)) EXECUTE FUNCTION tally_job();
CREATE TRIGGER job_moved AFTER UPDATE OF state ON job FOR EACH ROW
WHEN (NEW.state <> OLD.state AND (NEW.state IN (1, 4, 5, 7) OR OLD.state IN (1, 4, 5, 7))) EXECUTE FUNCTION tally_job();
CREATE TRIGGER job_removed AFTER DELETE ON job FOR EACH ROW WHEN (OLD.state IN (1, 4, 5, 7)) EXECUTE FUNCTION tally_job();",
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
  status TEXT, outcome TEXT, result {blob}, error TEXT, log {blob}, duration_ms {int}, result_cut {int}
);
CREATE UNIQUE INDEX job_key ON job (queue, key) WHERE key IS NOT NULL AND state IN (0, 1, 2, 7);
CREATE UNIQUE INDEX job_ref ON job (queue, ref) WHERE ref IS NOT NULL;
CREATE INDEX job_ended ON job (ended_at) WHERE state IN (3, 6, 8);
CREATE INDEX job_trouble_ended ON job (ended_at) WHERE state IN (4, 5);
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
  queue TEXT NOT NULL, tenant TEXT NOT NULL, priority {int} NOT NULL, sequence {int} NOT NULL DEFAULT 0, id {int} NOT NULL,
  PRIMARY KEY (queue, tenant, priority, sequence, id)
) {index_only};
CREATE INDEX ready_oldest ON ready (queue, id);
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
  job {int} NOT NULL, n {int} NOT NULL, name TEXT NOT NULL, status TEXT, duration_ms {int}, output {blob}, output_cut {int},
  PRIMARY KEY (job, n)
) {index_only};
CREATE TABLE queue (name TEXT PRIMARY KEY, reason TEXT) {index_only};
CREATE TABLE schedule (
  name TEXT PRIMARY KEY, spec TEXT NOT NULL, next_at {int}, last_at {int}, last_job {int}
) {index_only};
CREATE TABLE owner (name TEXT PRIMARY KEY) {index_only};
{tally}
";

/// From version 3: turns of sequences, and counters. A program of version 3 may still end its jobs.
const FROM_3: &str = "
ALTER TABLE job ADD COLUMN ref TEXT;
ALTER TABLE job ADD COLUMN result_cut {int};
CREATE UNIQUE INDEX job_ref ON job (queue, ref) WHERE ref IS NOT NULL;
ALTER TABLE step ADD COLUMN output_cut {int};
DROP INDEX job_trouble;
CREATE INDEX job_trouble_ended ON job (ended_at) WHERE state IN (4, 5);
ALTER TABLE ready RENAME TO ready_before;
CREATE TABLE ready (
  queue TEXT NOT NULL, tenant TEXT NOT NULL, priority {int} NOT NULL, sequence {int} NOT NULL DEFAULT 0, id {int} NOT NULL,
  PRIMARY KEY (queue, tenant, priority, sequence, id)
) {index_only};
INSERT INTO ready (queue, tenant, priority, sequence, id)
  SELECT before.queue, before.tenant, before.priority, coalesce(job.sequence, 0), before.id
  FROM ready_before AS before JOIN job ON job.id = before.id;
DROP TABLE ready_before;
CREATE INDEX ready_oldest ON ready (queue, id);
{tally}
INSERT INTO tally SELECT queue, state, count(*) FROM job WHERE state IN (1, 4, 5, 7) GROUP BY queue, state;
";

pub fn statements(words: &Words) -> String {
    in_words(TABLES, words)
}

/// The statements that migrate tables to this version, or `None` if that is impossible.
pub fn migration(version: i32, words: &Words) -> Option<String> {
    (version == OLDEST).then(|| in_words(FROM_3, words))
}

fn in_words(text: &str, words: &Words) -> String {
    let pairs = [
        ("{tally}", words.tally),
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
        .fold(text.to_owned(), |text, (name, word)| text.replace(name, word))
}
