//! Resolves `[jobs]`, its queues and schedules.

mod places;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::addresses;
use super::global::absolute_file;
use super::listen::is_short_enough;
use super::pool::absolute;
use crate::World;
use crate::application::JobScript;
use crate::draft::{JobQueueDraft, JobScheduleDraft, JobsDraft, JobsText, PoolText};
use crate::error::{Kind, Location};
use crate::flat_keys::{Field, FlatKeys, Written};
use crate::jobs::{
    Backoff, Durability, JOBS_USER, JOBS_VARIABLE, Jobs, Missed, Overlap, PUSH_TIMEOUT_VARIABLE, Queue, Rate,
    Schedule, keep_failed,
};
use crate::known::{self, Section};
use crate::model::{Address, Pool};
use crate::report::{Diagnostics, Report, WorldReport};
use crate::source::Source;
use crate::units::{Size, Text, Time, Whole};
use crate::value::quoted;
use places::{store, tcp};

pub(super) const DEFAULT_PUSH_TIMEOUT: Duration = Duration::from_secs(2);
const DEFAULT_MACHINE_TIMEOUT: Duration = Duration::from_secs(60);
/// A disconnected machine stops its jobs after three quarters of this time, and killing them takes 4 s.
const LEAST_MACHINE_TIMEOUT: Duration = Duration::from_secs(20);
const DEFAULT_LISTEN: &str = "/run/forkyard-jobs.sock";
const DEFAULT_KEEP: Duration = Duration::from_secs(24 * 3600);
const DEFAULT_PAYLOAD: u64 = 256 << 10;
const DEFAULT_RESULT: u64 = 64 << 10;
const MOST_BYTES: u64 = 16 << 20;
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);
const DEFAULT_BACKOFF: (Duration, u32, Duration, u32) =
    (Duration::from_secs(10), 4, Duration::from_secs(6 * 3600), 20);
/// The extra time for a job to end after its timeout.
const END_PATIENCE: Duration = Duration::from_secs(5);
/// Names are parts of paths and keys.
const LONGEST_NAME: usize = 64;

pub(super) fn read<'t>(
    location: Location,
    mut table: DeTable<'t>,
    source: &Source<'t>,
    diagnostics: &mut Diagnostics,
) -> JobsText {
    let queues = named_tables(&mut table, "queue", source, diagnostics, JobQueueDraft::read);
    let schedules = named_tables(
        &mut table,
        "schedule",
        source,
        diagnostics,
        JobScheduleDraft::read,
    );
    let mut flat_keys = FlatKeys::new(table, source, None);
    let mut report = Report::table(diagnostics, "jobs");
    let draft = JobsDraft::read(&mut flat_keys, &mut report);
    flat_keys.finish(Section::Jobs, &mut report);
    JobsText {
        location,
        draft,
        queues,
        schedules,
    }
}

/// Takes the tables `[jobs.WORD.NAME]` out of `[jobs]`, in text order.
fn named_tables<'t, D>(
    table: &mut DeTable<'t>,
    word: &str,
    source: &Source<'t>,
    diagnostics: &mut Diagnostics,
    read: fn(&mut FlatKeys<'_>, &mut Report<'_>) -> D,
) -> Vec<(String, Location, D)> {
    let Some((key, value)) = table.remove_entry(word) else {
        return Vec::new();
    };
    let write = format!("[jobs.{word}.NAME]");
    let DeValue::Table(tables) = Spanned::into_inner(value) else {
        let location = source.location(key.span().start);
        super::not_a_table(diagnostics, location, &format!("jobs.{word}"), &write);
        return Vec::new();
    };
    let mut found = Vec::new();
    for (key, value) in tables {
        let offset = key.span().start;
        let location = source.location(offset);
        let name = key.into_inner().into_owned();
        let path = format!("jobs.{word}.{name}");
        let DeValue::Table(table) = Spanned::into_inner(value) else {
            super::not_a_table(diagnostics, location, &path, &write);
            continue;
        };
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || name.len() > LONGEST_NAME || !name.chars().all(is_plain) {
            let problem = format!("{} can't be a name", quoted(&name));
            let remedy = format!("use up to {LONGEST_NAME} letters, digits, \"-\", \"_\" and \".\"");
            let key = format!("jobs.{word}");
            super::loose(diagnostics, location.clone(), &key, Kind::rule(problem, remedy));
        }
        let mut flat_keys = FlatKeys::new(table, source, None);
        let mut report = Report::table(diagnostics, &path);
        let draft = read(&mut flat_keys, &mut report);
        flat_keys.finish(Section::Jobs, &mut report);
        found.push((offset, (name, location, draft)));
    }
    found.sort_by_key(|(offset, _)| *offset);
    found.into_iter().map(|(_, named)| named).collect()
}

/// Resolves the table. `texts`: all pools; `pools`: the valid ones.
pub(super) fn resolve(
    text: &JobsText,
    texts: &[PoolText],
    pools: &[(&PoolText, Pool)],
    world: &dyn World,
    diagnostics: &mut Diagnostics,
) -> Option<Jobs> {
    let draft = &text.draft;
    let mut queues = Vec::new();
    for (name, location, queue) in &text.queues {
        let mut report = Report::table(diagnostics, &format!("jobs.queue.{name}")).with(world);
        queues.extend(self::queue(name, location, queue, texts, pools, &mut report));
    }
    let names: BTreeSet<&str> = text.queues.iter().map(|(name, ..)| name.as_str()).collect();
    let mut schedules = Vec::new();
    for (name, location, schedule) in &text.schedules {
        let mut report = Report::table(diagnostics, &format!("jobs.schedule.{name}"));
        schedules.extend(self::schedule(name, location, schedule, &names, &mut report));
    }
    // Schedules of a skipped pool's queue are skipped too.
    schedules.retain(|schedule| queues.iter().any(|queue| queue.name == schedule.queue));
    let report = &mut Report::table(diagnostics, "jobs").with(world);
    if text.queues.is_empty() {
        let write = "a table [jobs.queue.NAME] with pool".to_owned();
        report.error(&text.location, "queue", Kind::Missing { write });
    }
    let store = store(&draft.store, report)?;
    let listen = socket(draft, report)?;
    if let Some(written) = draft.listen.written() {
        let address = Address::Unix(listen.clone());
        if !is_short_enough(&written.value.0) {
            report.rule(
                written,
                "the path is too long for a socket",
                "give one of at most 107 bytes",
            );
        }
        if let Some(pool) = addresses::user_of(pools, &address, report.world) {
            let problem = format!("pool {} listens on it", pool.name);
            report.rule(written, problem, "give the jobs their own socket");
        }
    }
    let tcp = tcp(draft, &text.location, pools, report);
    let user = user(&draft.user, &text.location, report);
    let max_payload = size(&draft.max_payload, DEFAULT_PAYLOAD, report);
    Some(Jobs {
        store,
        push_timeout: time(&draft.push_timeout, DEFAULT_PUSH_TIMEOUT, report),
        machine_timeout: machine_timeout(&draft.machine_timeout, report),
        durability: one_of(
            &draft.durability,
            &[("full", Durability::Full), ("normal", Durability::Normal)],
            report,
        ),
        user,
        listen,
        tcp,
        keep_done: time(&draft.keep_done, DEFAULT_KEEP, report),
        keep_failed: time(&draft.keep_failed, keep_failed(), report),
        max_payload,
        max_result: size(&draft.max_result, DEFAULT_RESULT, report),
        queues,
        schedules,
    })
}

/// Lets the job process connect to pools that run jobs, and allows their workers a job's time. All applications get the
/// job socket; access is checked per queue.
pub(super) fn prepare_pools(jobs: &Jobs, pools: &mut [(&PoolText, Pool)]) {
    for (text, pool) in pools.iter_mut() {
        let own = text.draft.push_timeout.above_zero();
        let limit = own.unwrap_or(jobs.push_timeout).as_millis();
        for (variable, value) in [
            (JOBS_VARIABLE, jobs.listen.to_string_lossy().into_owned()),
            (PUSH_TIMEOUT_VARIABLE, limit.to_string()),
        ] {
            // The operator's value wins.
            if pool.environment.env.iter().all(|(name, _)| name != variable) {
                pool.environment.env.push((variable.to_owned(), value));
            }
        }
    }
    for queue in &jobs.queues {
        let Some((_, pool)) = pools.iter_mut().find(|(_, pool)| pool.name == queue.pool) else {
            continue;
        };
        let drain_timeout = &mut pool.replacement.drain_timeout;
        *drain_timeout = (*drain_timeout).max(Some(queue.timeout + END_PATIENCE));
        let is_open = pool.listen.mode & 0o006 == 0o006 || !matches!(pool.listen.address, Address::Unix(_));
        let is_owner = pool.listen.owner == jobs.user;
        if let (Some(user), false, false) = (&jobs.user, is_open, is_owner) {
            if !pool.listen.acl_users.contains(user) {
                pool.listen.acl_users.push(user.clone());
            }
        }
    }
}

/// Rejects a time too short for a disconnected machine to end its jobs.
fn machine_timeout(field: &Field<Time>, report: &mut Report<'_>) -> Duration {
    let timeout = time(field, DEFAULT_MACHINE_TIMEOUT, report);
    if timeout < LEAST_MACHINE_TIMEOUT {
        let problem = "a machine that is cut off could not end its jobs in that time";
        report.refuse(field, problem, "write at least \"20s\"");
    }
    timeout.max(LEAST_MACHINE_TIMEOUT)
}

pub(super) fn socket(draft: &JobsDraft, report: &mut WorldReport<'_>) -> Option<PathBuf> {
    path(&draft.listen, DEFAULT_LISTEN, report)
}

fn path(field: &Field<Text>, default: &str, report: &mut WorldReport<'_>) -> Option<PathBuf> {
    match field.written() {
        Some(written) => absolute_file(written, report),
        None => Some(PathBuf::from(default)),
    }
}

fn user(field: &Field<Text>, location: &Location, report: &mut WorldReport<'_>) -> Option<String> {
    if !report.world.is_root() {
        report.ignored_without_root(field);
        return None;
    }
    let name = field.or(JOBS_USER.to_owned());
    let is_known = report.world.uid(&name).is_some();
    let problem = format!("there is no user {}", quoted(&name));
    let remedy = format!("make it: adduser --system --group --no-create-home {name}; or name another");
    match field.written() {
        _ if is_known => {}
        Some(written) => report.rule(written, problem, remedy),
        None => report.error(location, "user", Kind::rule(problem, remedy)),
    }
    Some(name)
}

fn queue(
    name: &str,
    location: &Location,
    draft: &JobQueueDraft,
    texts: &[PoolText],
    pools: &[(&PoolText, Pool)],
    report: &mut WorldReport<'_>,
) -> Option<Queue> {
    let write = "pool = followed by the name of a pool";
    let written = report.require(&draft.pool, location, "pool", write)?;
    let pool_name = &written.value.0;
    let Some((_, pool)) = pools.iter().find(|(_, pool)| pool.name == *pool_name) else {
        // The errors of a written pool are already reported.
        if texts.iter().all(|text| text.name != *pool_name) {
            let names: Vec<&str> = texts.iter().map(|text| text.name.as_str()).collect();
            let remedy = known::suggestion(pool_name, &names, "name one that is there");
            report.rule(written, format!("there is no pool {}", quoted(pool_name)), remedy);
        }
        return None;
    };
    let workers = workers(pool, written, report)?;
    let timeout = time(&draft.timeout, DEFAULT_TIMEOUT, report);
    limited_by_pool(draft, timeout, pool, written, report);
    let (first, factor, most, jitter) = DEFAULT_BACKOFF;
    let mut may_push: Vec<u32> = pool
        .account
        .user
        .iter()
        .filter_map(|user| report.world.uid(user))
        .collect();
    for user in draft.push_users.written().into_iter().flat_map(Written::each) {
        let problem = format!("there is no user {}", quoted(&user.value.0));
        match report.world.uid(&user.value.0) {
            Some(uid) => may_push.push(uid),
            None => report.rule(&user, problem, "name one that exists"),
        }
    }
    let rate_jobs: u32 = report
        .range(&draft.rate_jobs, 0, i64::from(u32::MAX))
        .unwrap_or(0);
    let rate_per = time(&draft.rate_per, Duration::from_secs(1), report);
    Some(Queue {
        name: name.to_owned(),
        pool: pool_name.clone(),
        address: pool.listen.address.clone(),
        workers,
        users: may_push,
        kinds: (draft.kinds.iter())
            .map(|entry| (entry.name.join("."), entry.value.0.clone()))
            .collect(),
        script: script(draft, pool, location, report),
        max_running: number(&draft.max_running, workers, i64::from(u32::MAX), report),
        weight: number(&draft.weight, 1, 1000, report),
        reserve: draft.reserve.or(true),
        timeout,
        attempts: number(&draft.attempts, 5, 1000, report),
        crashes: number(&draft.crashes, 2, 100, report),
        backoff: Backoff {
            first: draft.backoff_first.or(first),
            factor: number(&draft.backoff_factor, factor, 100, report),
            most: draft.backoff_most.or(most),
            jitter_percent: report.range(&draft.backoff_jitter, 0, 100).unwrap_or(jitter),
        },
        rate: (rate_jobs > 0).then_some(Rate {
            jobs: rate_jobs,
            per: rate_per,
        }),
    })
}

/// A pool's concurrent requests. Reports pools that can't run jobs and returns `None`.
fn workers(pool: &Pool, written: &Written<Text>, report: &mut Report<'_>) -> Option<u32> {
    let mut refuse = |problem: &str| {
        let remedy = "name a pool of one application with runtime php, cgi, fastcgi, wsgi, rack or rust";
        report.rule(written, problem, remedy);
        None
    };
    if pool.applications.is_some() {
        return refuse("a job does not name one of the pool's applications");
    }
    if pool.application.traits().serves_http() {
        return refuse("its application can't tell a job from a client's request");
    }
    let at_once = pool.application.concurrency();
    Some(pool.pm.max_children().saturating_mul(at_once))
}

/// Reports a queue timeout that exceeds the pool's request timeout.
fn limited_by_pool(
    draft: &JobQueueDraft,
    timeout: Duration,
    pool: &Pool,
    named: &Written<Text>,
    report: &mut Report<'_>,
) {
    let limit = pool.serving.request_terminate_timeout;
    let Some(limit) = limit.filter(|limit| *limit < timeout) else {
        return;
    };
    let problem = format!(
        "jobs may take {} s, and pool {} ends requests after {} s (request_terminate_timeout)",
        timeout.as_secs_f64(),
        pool.name,
        limit.as_secs_f64()
    );
    let remedy = "give the pool a longer time, or the queue a shorter one";
    match draft.timeout.written() {
        Some(written) => report.rule(written, problem, remedy),
        None => report.rule(named, problem, remedy),
    }
}

fn script(
    draft: &JobQueueDraft,
    pool: &Pool,
    location: &Location,
    report: &mut WorldReport<'_>,
) -> Option<PathBuf> {
    let rule = pool.application.job_script();
    let Some(written) = draft.script.written() else {
        if rule == JobScript::Required && draft.script.is_absent() {
            report.missing(
                location,
                "script",
                "script = followed by the path of the script that runs the jobs",
            );
        }
        return None;
    };
    if rule == JobScript::Refused {
        let problem = format!(
            "the application of pool {} answers every request itself",
            pool.name
        );
        report.rule(
            written,
            problem,
            "leave it out: jobs are requests for /jobs/QUEUE/KIND",
        );
        return None;
    }
    let path = absolute(written, report)?;
    // The path refers to another file inside a chroot.
    if pool.setup.chroot.is_none() && !report.world.exists(&path) {
        let problem = format!("{} does not exist", path.display());
        report.warn(written, problem, "jobs fail until it does");
    }
    Some(path)
}

fn schedule(
    name: &str,
    location: &Location,
    draft: &JobScheduleDraft,
    queues: &BTreeSet<&str>,
    report: &mut Report<'_>,
) -> Option<Schedule> {
    let write = "queue = followed by the name of a queue";
    let queue = report.require(&draft.queue, location, "queue", write);
    let write = "cron = \"MINUTE HOUR DAY MONTH WEEKDAY\"";
    let cron = report.require(&draft.cron, location, "cron", write);
    let (queue, cron) = (queue?, cron?);
    if !queues.contains(queue.value.0.as_str()) {
        let names: Vec<&str> = queues.iter().copied().collect();
        let remedy = known::suggestion(&queue.value.0, &names, "name one that is there");
        let problem = format!("there is no queue {}", quoted(&queue.value.0));
        report.rule(queue, problem, remedy);
    }
    if let Err(reason) = crate::cron::check(&cron.value.0) {
        let remedy = "write five fields: minute, hour, day of month, month, day of week";
        report.rule(cron, reason.to_string(), remedy);
    }
    let timezone = draft.timezone.or("UTC".to_owned());
    if !crate::cron::is_zone(&timezone) {
        let problem = format!("there is no time zone {}", quoted(&timezone));
        let remedy = "name one of /usr/share/zoneinfo, such as \"Europe/Berlin\"";
        report.refuse(&draft.timezone, &problem, remedy);
    }
    Some(Schedule {
        name: name.to_owned(),
        queue: queue.value.0.clone(),
        kind: draft.kind.or(name.to_owned()),
        cron: cron.value.0.clone(),
        timezone,
        missed: one_of(
            &draft.missed,
            &[
                ("once", Missed::Once),
                ("skip", Missed::Skip),
                ("all", Missed::All),
            ],
            report,
        ),
        overlap: one_of(
            &draft.overlap,
            &[
                ("skip", Overlap::Skip),
                ("queue", Overlap::Queue),
                ("allow", Overlap::Allow),
            ],
            report,
        ),
        payload: draft.payload.or(String::new()),
    })
}

fn one_of<T: Copy>(field: &Field<Text>, words: &[(&str, T)], report: &mut Report<'_>) -> T {
    let default = words[0].1;
    let Some(written) = field.written() else {
        return default;
    };
    let found = words.iter().find(|(word, _)| *word == written.value.0);
    if found.is_none() {
        let known: Vec<String> = words.iter().map(|(word, _)| quoted(word)).collect();
        let problem = format!("{} is not known", quoted(&written.value.0));
        report.rule(written, problem, format!("write one of {}", known.join(", ")));
    }
    found.map_or(default, |(_, value)| *value)
}

fn number(field: &Field<Whole>, default: u32, most: i64, report: &mut Report<'_>) -> u32 {
    report.range(field, 1, most).unwrap_or(default)
}

fn time(field: &Field<Time>, default: Duration, report: &mut Report<'_>) -> Duration {
    if field.get().is_some_and(|time| time.is_zero()) {
        let problem = "is 0, which is no time at all";
        report.refuse(field, problem, "give a time such as \"30s\"");
        return default;
    }
    field.or(default)
}

fn size(field: &Field<Size>, default: u64, report: &mut Report<'_>) -> u64 {
    let bytes = field.or(default);
    if !(1..=MOST_BYTES).contains(&bytes) {
        let problem = "is not from 1 byte to 16M";
        report.refuse(field, problem, "give a size such as \"256K\"");
    }
    bytes
}
