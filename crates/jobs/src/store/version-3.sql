-- A store of version 3, with a job that waits, one of a sequence, one for later, one that waits for another, and one that failed.
CREATE TABLE job (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  queue TEXT NOT NULL, kind TEXT NOT NULL, tenant TEXT NOT NULL,
  state INTEGER NOT NULL,
  priority INTEGER NOT NULL,
  run_at INTEGER, pushed_at INTEGER NOT NULL, started_at INTEGER, ended_at INTEGER,
  attempt INTEGER NOT NULL DEFAULT 0,
  failures INTEGER NOT NULL DEFAULT 0, crashes INTEGER NOT NULL DEFAULT 0, snoozes INTEGER NOT NULL DEFAULT 0,
  max_failures INTEGER, timeout_ms INTEGER, expires_at INTEGER,
  key TEXT, serial TEXT,
  payload BLOB NOT NULL, content_type TEXT NOT NULL, traceparent TEXT,
  steps TEXT, sequence INTEGER,
  progress INTEGER, progress_text TEXT,
  status TEXT, outcome TEXT, result BLOB, error TEXT, log BLOB, duration_ms INTEGER
);
CREATE UNIQUE INDEX job_key ON job (queue, key) WHERE key IS NOT NULL AND state IN (0, 1, 2, 7);
CREATE INDEX job_ended ON job (ended_at) WHERE state IN (3, 6, 8);
CREATE INDEX job_trouble ON job (queue, state) WHERE state IN (4, 5);
CREATE INDEX job_sequence ON job (sequence) WHERE sequence IS NOT NULL AND state IN (0, 1, 2, 7);
CREATE TABLE sequence (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  queue TEXT NOT NULL, name TEXT, state TEXT NOT NULL,
  total INTEGER, cursor INTEGER NOT NULL DEFAULT 0, added INTEGER NOT NULL DEFAULT 0,
  running INTEGER NOT NULL DEFAULT 0, done INTEGER NOT NULL DEFAULT 0, failed INTEGER NOT NULL DEFAULT 0,
  dropped INTEGER NOT NULL DEFAULT 0,
  begun_at INTEGER NOT NULL, ended_at INTEGER
);
CREATE UNIQUE INDEX sequence_name ON sequence (queue, name) WHERE name IS NOT NULL AND state = 'open';
CREATE TRIGGER job_counted AFTER UPDATE OF state ON job WHEN NEW.sequence IS NOT NULL AND NEW.state <> OLD.state BEGIN
  UPDATE sequence SET
    running = running + CASE WHEN NEW.state = 2 THEN 1 ELSE 0 END - CASE WHEN OLD.state = 2 THEN 1 ELSE 0 END,
    done = done + CASE WHEN NEW.state = 3 THEN 1 ELSE 0 END - CASE WHEN OLD.state = 3 THEN 1 ELSE 0 END,
    failed = failed + CASE WHEN NEW.state IN (4, 5) THEN 1 ELSE 0 END - CASE WHEN OLD.state IN (4, 5) THEN 1 ELSE 0 END,
    dropped = dropped + CASE WHEN NEW.state IN (6, 8) THEN 1 ELSE 0 END - CASE WHEN OLD.state IN (6, 8) THEN 1 ELSE 0 END
  WHERE id = NEW.sequence;
END;
CREATE TABLE ended (
  job INTEGER NOT NULL, attempt INTEGER NOT NULL, outcome TEXT NOT NULL, error TEXT, ended_at INTEGER NOT NULL,
  PRIMARY KEY (job, attempt)
) WITHOUT ROWID;
CREATE TABLE ready (
  queue TEXT NOT NULL, tenant TEXT NOT NULL, priority INTEGER NOT NULL, id INTEGER NOT NULL,
  PRIMARY KEY (queue, tenant, priority, id)
) WITHOUT ROWID;
CREATE TABLE later (run_at INTEGER NOT NULL, id INTEGER NOT NULL, PRIMARY KEY (run_at, id)) WITHOUT ROWID;
CREATE TABLE running (id INTEGER PRIMARY KEY, attempt INTEGER NOT NULL, owner TEXT NOT NULL, ending INTEGER NOT NULL DEFAULT 0) ;
CREATE TABLE lane (
  queue TEXT NOT NULL, serial TEXT NOT NULL, id INTEGER NOT NULL, PRIMARY KEY (queue, serial)
) WITHOUT ROWID;
CREATE TABLE blocked (
  queue TEXT NOT NULL, serial TEXT NOT NULL, priority INTEGER NOT NULL, id INTEGER NOT NULL,
  PRIMARY KEY (queue, serial, priority, id)
) WITHOUT ROWID;
CREATE TABLE step (
  job INTEGER NOT NULL, n INTEGER NOT NULL, name TEXT NOT NULL, status TEXT, duration_ms INTEGER, output BLOB,
  PRIMARY KEY (job, n)
) WITHOUT ROWID;
CREATE TABLE queue (name TEXT PRIMARY KEY, reason TEXT) WITHOUT ROWID;
CREATE TABLE schedule (
  name TEXT PRIMARY KEY, spec TEXT NOT NULL, next_at INTEGER, last_at INTEGER, last_job INTEGER
) WITHOUT ROWID;
CREATE TABLE owner (name TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE synced (count INTEGER NOT NULL);
INSERT INTO synced VALUES (0);
INSERT INTO sequence (queue, state, total, added, begun_at) VALUES ('q', 'open', 1, 1, 1);
INSERT INTO job (queue, kind, tenant, state, priority, run_at, pushed_at, payload, content_type, serial, sequence) VALUES
  ('q', 'k', '', 0, 100, NULL, 1, CAST('one' AS BLOB), 'text/plain', 's', NULL),
  ('q', 'k', '', 0, 100, NULL, 1, CAST('two' AS BLOB), 'text/plain', NULL, 1),
  ('q', 'k', '', 1, 100, 99, 1, CAST('three' AS BLOB), 'text/plain', NULL, NULL),
  ('q', 'k', '', 7, 100, NULL, 1, CAST('four' AS BLOB), 'text/plain', 's', NULL),
  ('q', 'k', '', 4, 100, NULL, 1, CAST('five' AS BLOB), 'text/plain', NULL, NULL);
INSERT INTO ready VALUES ('q', '', 100, 1), ('q', '', 100, 2);
INSERT INTO later VALUES (99, 3);
INSERT INTO lane VALUES ('q', 's', 1);
INSERT INTO blocked VALUES ('q', 's', 100, 4);
PRAGMA application_id = 1719233122;
PRAGMA user_version = 3;
