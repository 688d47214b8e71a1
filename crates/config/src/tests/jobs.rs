use super::*;
use crate::jobs::{Durability, JobsStore, Missed, Overlap};
use crate::postgresql::PostgresqlServer;

/// A pool, a queue with more lines from line 13, and `more` at the end.
fn jobs(queue: &str, more: &str) -> String {
    format!(
        "[pool.www]\nlisten = \"/run/a.sock\"\nuser = \"www-data\"\npm = \"static\"\nmax_children = 4\n\
         request_terminate_timeout = \"5m\"\n[pool.www.application]\nruntime = \"php\"\nversion = \"8.2\"\n\
         [jobs]\n\n[jobs.queue.mail]\n{queue}\n{more}"
    )
}

const QUEUE: &str = "pool = \"www\"\nscript = \"/srv/jobs.php\"\n";

#[test]
fn a_queue_has_what_its_pool_gives_it() {
    let config = valid(&jobs(
        &format!("{QUEUE}timeout = \"2m\"\nrate = {{ jobs = 5 }}\n"),
        "",
    ));
    let jobs = config.jobs.expect("jobs");
    assert_eq!(
        (jobs.durability, jobs.user.as_deref()),
        (Durability::Full, Some("forkyard-jobs"))
    );
    let queue = &jobs.queues[0];
    assert_eq!((queue.workers, queue.max_running, queue.crashes), (4, 4, 2));
    assert_eq!(queue.users, [33]);
    assert_eq!(
        queue.rate.map(|rate| (rate.jobs, rate.per.as_secs())),
        Some((5, 1))
    );
    // The job process may connect, and a retiring worker may finish its job.
    let pool = &config.pools[0];
    assert_eq!(pool.listen.acl_users, ["forkyard-jobs"]);
    assert_eq!(
        pool.replacement.drain_timeout.map(|time| time.as_secs()),
        Some(125)
    );
    let plain = parsed(&self::jobs(QUEUE, ""), &USER).expect("valid").config;
    assert_eq!(plain.jobs.expect("jobs").user, None);
    assert!(plain.pools[0].listen.acl_users.is_empty());
}

#[test]
fn a_store_may_be_a_server_of_several_machines_which_have_time_to_end_their_jobs() {
    let url = "postgresql:///shop?host=/run/postgresql";
    let with = |lines: &str| jobs(QUEUE, "").replace("[jobs]\n", &format!("[jobs]\n{lines}"));
    let jobs = valid(&with(&format!("store = \"{url}\"\nmachine_timeout = \"20s\"\n"))).jobs;
    let jobs = jobs.expect("jobs");
    let server = PostgresqlServer::parse(url).expect("a URL");
    assert_eq!(server.url, url);
    assert_eq!(jobs.store, JobsStore::Postgresql(server));
    assert_eq!(
        (jobs.store.program(), jobs.machine_timeout.as_secs()),
        ("forkyard-jobs-postgresql", 20)
    );
    let jobs = valid(&with("store = \"/srv/jobs.db\"\n")).jobs.expect("jobs");
    assert_eq!(
        (jobs.store.program(), jobs.machine_timeout.as_secs()),
        ("forkyard-jobs", 60)
    );
    let found = self::found(&with(&format!("store = \"{url}&sslmode=requier\"\n")), &ROOT).join("\n");
    assert_eq!(
        found,
        "11:1: error: jobs.store: sslmode=requier is not known; write one of disable, allow, prefer, require, verify-ca, verify-full"
    );
    let found = self::found(&with("machine_timeout = \"19s\"\n"), &ROOT).join("\n");
    assert!(found.contains("write at least \"20s\""), "{found}");
    let found = self::found(&with("store = \"mysql://localhost\"\n"), &ROOT).join("\n");
    assert!(found.contains("jobs.store"), "{found}");
}

#[test]
fn a_tcp_socket_is_this_machine_s_alone_and_has_a_secret() {
    let with = |lines: &str| jobs(QUEUE, "").replace("[jobs]\n", &format!("[jobs]\n{lines}"));
    let secret = "secret_file = \"/etc/jobs.secret\"\n";
    for address in ["127.0.0.1:4422", "[::1]:4422"] {
        let jobs = valid(&with(&format!("listen_tcp = \"{address}\"\n{secret}")))
            .jobs
            .expect("jobs");
        let tcp = jobs.tcp.expect("a socket");
        assert_eq!(
            (tcp.address.to_string(), tcp.secret_file.to_str()),
            (address.to_owned(), Some("/etc/jobs.secret"))
        );
    }
    for address in [
        "0.0.0.0:4422",
        "192.0.2.1:4422",
        "[::]:4422",
        "127.0.0.1",
        "127.0.0.1:0",
        "localhost:4422",
        "4422",
    ] {
        let found = found(&with(&format!("listen_tcp = \"{address}\"\n{secret}")), &ROOT).join("\n");
        assert!(
            found.contains("jobs.listen_tcp") && found.contains("is no address of this machine alone"),
            "{found}"
        );
    }
    let found = |lines: &str| self::found(&with(lines), &ROOT).join("\n");
    assert!(found("listen_tcp = \"127.0.0.1:4422\"\n").contains("jobs.secret_file: missing"));
    assert!(found(secret).contains("it has no effect without listen_tcp"));
    let pool =
        with(&format!("listen_tcp = \"127.0.0.1:4422\"\n{secret}")).replace("/run/a.sock", "127.0.0.1:4422");
    assert!(
        self::found(&pool, &ROOT)
            .join("\n")
            .contains("pool www listens on it")
    );
}

#[test]
fn a_schedule_says_when_and_what() {
    let schedule = "[jobs.schedule.nightly]\nqueue = \"mail\"\ncron = \"30 2 * * 1-5\"\ntimezone = \"Europe/Berlin\"\n\
                    overlap = \"queue\"\nmissed = \"all\"\n";
    let jobs = valid(&jobs(QUEUE, schedule)).jobs.expect("jobs");
    let schedule = &jobs.schedules[0];
    assert_eq!(
        (schedule.name.as_str(), schedule.kind.as_str()),
        ("nightly", "nightly")
    );
    assert_eq!((schedule.missed, schedule.overlap), (Missed::All, Overlap::Queue));
}

#[test]
fn what_is_wrong_is_told_with_its_place() {
    cases(
        in_halves(jobs),
        &ROOT,
        r#"
        --
        ! 12:13: error: jobs.queue.mail.pool: missing; write pool = followed by the name of a pool
        pool = "wwww"
        --
        ! 13:1: error: jobs.queue.mail.pool: there is no pool "wwww"; did you mean "www"?
        pool = "www"
        --
        ! 12:13: error: jobs.queue.mail.script: missing; write script = followed by the path of the script that runs the jobs
        pool = "www"
        script = "jobs.php"
        --
        ! 14:1: error: jobs.queue.mail.script: "jobs.php" is not an absolute path; start it with /
        pool = "www"
        script = "/srv/jobs.php"
        timeout = "10m"
        --
        ! 15:1: error: jobs.queue.mail.timeout: jobs may take 600 s, and pool www ends requests after 300 s (request_terminate_timeout); give the pool a longer time, or the queue a shorter one
        pool = "www"
        script = "/srv/jobs.php"
        weigth = 2
        --
        ! 15:1: error: jobs.queue.mail.weigth: unknown key; did you mean weight?
        pool = "www"
        script = "/srv/jobs.php"
        --
        [jobs.schedule.s]
        queue = "mial"
        cron = "0 1 * *"
        timezone = "Europe/Nowhere"
        missed = "never"
        ! 16:1: error: jobs.schedule.s.queue: there is no queue "mial"; did you mean "mail"?
        ! 17:1: error: jobs.schedule.s.cron: it has 4 fields, not 5; write five fields: minute, hour, day of month, month, day of week
        ! 18:1: error: jobs.schedule.s.timezone: there is no time zone "Europe/Nowhere"; name one of /usr/share/zoneinfo, such as "Europe/Berlin"
        ! 19:1: error: jobs.schedule.s.missed: "never" is not known; write one of "once", "skip", "all"
        pool = "www"
        script = "/srv/jobs.php"
        --
        [jobs.schedule.s]
        queue = "mail"
        cron = "0 0 31 2,4 *"
        ! 17:1: error: jobs.schedule.s.cron: it never comes: no month that it names has such a day; write five fields: minute, hour, day of month, month, day of week
    "#,
    );
}

#[test]
fn pools_that_can_not_tell_a_job_from_a_request_have_none() {
    let refused = |application: &str| {
        let text = format!(
            "[pool.app]\nlisten = \"/run/a.sock\"\nuser = \"www-data\"\npm = \"static\"\nmax_children = 4\n{application}\n\
             [jobs.queue.mail]\npool = \"app\"\n"
        );
        found(&text, &ROOT).join("\n")
    };
    for application in [
        "application = { runtime = \"http\", address = \"127.0.0.1:3000\" }",
        "application = { runtime = \"asgi\", root = \"/srv/app\" }",
        "application = { runtime = \"http\", start_command = \"node app.js\", root = \"/srv/app\" }",
    ] {
        let found = refused(application);
        assert!(
            found.contains("its application can't tell a job from a client's request"),
            "{application}: {found}"
        );
    }
    let sites = "[pool.app]\nlisten = \"/run/a.sock\"\nrouting = \"application\"\n[pool.app.applications]\n\
                 directories = [\"/srv/www\"]\n[jobs.queue.mail]\npool = \"app\"\n";
    let found = found(sites, &ROOT).join("\n");
    assert!(
        found.contains("a job does not name one of the pool's applications"),
        "{found}"
    );
}

#[test]
fn every_pool_s_applications_are_told_where_jobs_are_pushed() {
    let other = "[pool.other]\nlisten = \"/run/b.sock\"\nuser = \"www-data\"\npm = \"static\"\nmax_children = 1\n\
                 env = { FORKYARD_JOBS = \"/own\" }\npush_timeout = \"300ms\"\n[pool.other.application]\nruntime = \"php\"\nversion = \"8.2\"\n";
    let told = |text: &str| -> Vec<Vec<(String, String)>> {
        let config = valid(text);
        config
            .pools
            .iter()
            .map(|pool| pool.environment.env.clone())
            .collect()
    };
    let variables = |socket: &str, millis: &str| {
        let variables = [("FORKYARD_JOBS", socket), ("FORKYARD_JOBS_TIMEOUT", millis)];
        variables
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .to_vec()
    };
    assert_eq!(
        told(&jobs(QUEUE, other)),
        [
            variables("/run/forkyard-jobs.sock", "2000"),
            variables("/own", "300")
        ]
    );
    let none = jobs(QUEUE, "");
    let (pool, _) = none.split_once("[jobs]").expect("a table");
    assert_eq!(told(pool), [Vec::new()]);
}

#[test]
fn jobs_are_written_in_the_main_file_and_have_queues() {
    let text = jobs(QUEUE, "")
        .replace("[jobs.queue.mail]\n", "")
        .replace(QUEUE, "");
    assert_eq!(
        found(&text, &ROOT).join("\n"),
        "10:2: error: jobs.queue: missing; write a table [jobs.queue.NAME] with pool"
    );
}
