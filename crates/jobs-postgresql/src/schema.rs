//! The database objects in addition to every store's tables.

use crate::session::Session;
use forkyard_jobs::store::sql::SqlError;
use forkyard_jobs::store::tables;

const LOCK: i64 = 0x6679_6A62;

const NODES: &str = "CREATE TABLE node (name TEXT PRIMARY KEY, seen_at BIGINT NOT NULL);
CREATE TABLE store (version INTEGER NOT NULL);";

/// `push` only schedules the job; a daemon that gets the notice queues it. The application's transaction holds no lock
/// that a daemon waits for, except on the job's key.
const PUSH: &str = "
CREATE OR REPLACE FUNCTION push(
  queue text, kind text, payload jsonb DEFAULT 'null', key text DEFAULT NULL, tenant text DEFAULT '',
  serial text DEFAULT NULL, priority bigint DEFAULT 100, run_at timestamptz DEFAULT NULL,
  expires_at timestamptz DEFAULT NULL, attempts bigint DEFAULT NULL, timeout interval DEFAULT NULL,
  steps text[] DEFAULT NULL
) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path = forkyard, pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
  now_ms bigint := extract(epoch FROM clock_timestamp()) * 1000;
  due_ms bigint := greatest(now_ms, (extract(epoch FROM push.run_at) * 1000)::bigint);
  found bigint;
BEGIN
  IF push.queue !~ '^[^[:space:]/]{1,64}$' THEN
    RAISE EXCEPTION 'queue has 1 to 64 characters without blanks and slashes';
  END IF;
  IF octet_length(push.kind) NOT BETWEEN 1 AND 255 OR push.kind ~ '[[:cntrl:]]' THEN
    RAISE EXCEPTION 'kind has 1 to 255 bytes that can be seen';
  END IF;
  IF push.attempts < 1 OR push.timeout <= interval '0' THEN
    RAISE EXCEPTION 'attempts and timeout are at least 1';
  END IF;
  LOOP
    INSERT INTO job (queue, kind, tenant, state, priority, run_at, pushed_at, max_failures, timeout_ms, expires_at, key,
                     serial, payload, content_type, steps)
    VALUES (push.queue, push.kind, coalesce(push.tenant, ''), 1, push.priority, due_ms, now_ms, push.attempts,
            extract(epoch FROM push.timeout) * 1000, extract(epoch FROM push.expires_at) * 1000, push.key, push.serial,
            convert_to(coalesce(push.payload, 'null')::text, 'UTF8'), 'application/json',
            to_json(nullif(push.steps, '{}'))::text)
    ON CONFLICT (queue, key) WHERE key IS NOT NULL AND state IN (0, 1, 2, 7) DO NOTHING
    RETURNING id INTO found;
    IF found IS NOT NULL THEN
      INSERT INTO later (run_at, id) VALUES (due_ms, found);
      PERFORM pg_notify('forkyard_jobs', '');
      RETURN found;
    END IF;
    SELECT id INTO found FROM job WHERE job.queue = push.queue AND job.key = push.key AND state IN (0, 1, 2, 7);
    -- It may have ended meanwhile: then there is room.
    IF found IS NOT NULL THEN
      RETURN found;
    END IF;
  END LOOP;
END
$$;
REVOKE ALL ON FUNCTION push FROM PUBLIC;
";

pub(crate) fn prepare(session: &Session) -> Result<i32, SqlError> {
    session.batch(&format!("BEGIN; SELECT pg_advisory_xact_lock({LOCK})"))?;
    let is = |question: &str| -> Result<bool, SqlError> { Ok(session.one(question, &[])?.get(0)) };
    if !is("SELECT to_regclass('forkyard.store') IS NOT NULL")? {
        // A schema made by an administrator needs no right to create one.
        if !is("SELECT to_regnamespace('forkyard') IS NOT NULL")? {
            session.batch("CREATE SCHEMA forkyard")?;
        }
        session.batch(&tables::statements(&tables::POSTGRESQL))?;
        session.batch(NODES)?;
        session.batch(PUSH)?;
        session.batch(&format!("INSERT INTO store VALUES ({})", tables::VERSION))?;
    }
    let mut version = session.one("SELECT version FROM forkyard.store", &[])?.get(0);
    if let Some(statements) = tables::migration(version, &tables::POSTGRESQL) {
        session.batch(&statements)?;
        session.batch(PUSH)?;
        session.batch(&format!("UPDATE store SET version = {}", tables::VERSION))?;
        log::warn!(
            "jobs: the tables had version {version}, and have version {} from now on",
            tables::VERSION
        );
        version = tables::VERSION;
    }
    session.batch("COMMIT")?;
    Ok(version)
}
