//! The commands about background jobs.

use super::table::{ASKED, CONFIG};
use super::{Entry, File, Group};

const JOB_FILES: &[File] = &[
    CONFIG,
    (
        "/run/forkyard-jobs.sock",
        "The jobs' socket, unless [jobs] has another.",
    ),
];

/// A command about jobs.
const fn jobs(name: &'static str, examples: &'static [(&'static str, &'static str)]) -> Entry {
    Entry {
        name,
        group: Group::Within,
        examples,
        codes: ASKED,
        files: JOB_FILES,
    }
}

pub(super) const COMMANDS: &[Entry] = &[
    Entry {
        name: "jobs",
        group: Group::Jobs,
        examples: &[
            (
                "forkyard jobs push mail send --payload '{\"to\":7}'",
                "Adds a job of the kind send to the queue mail.",
            ),
            ("forkyard jobs list --state failed", "Lists the jobs that failed."),
            ("forkyard jobs queues", "Shows how much waits in each queue."),
        ],
        codes: ASKED,
        files: JOB_FILES,
    },
    jobs(
        "jobs push",
        &[(
            "forkyard jobs push mail send --payload '{\"to\":7}' --in 5m",
            "Adds a job that begins in five minutes.",
        )],
    ),
    jobs(
        "jobs list",
        &[(
            "forkyard jobs list --queue mail --state waiting",
            "Lists the waiting jobs of one queue.",
        )],
    ),
    jobs(
        "jobs count",
        &[(
            "forkyard jobs count --queue mail",
            "Counts the jobs of one queue, by their state.",
        )],
    ),
    jobs(
        "jobs last",
        &[("forkyard jobs last --by key", "Lists the last job of each key.")],
    ),
    jobs(
        "jobs run",
        &[(
            "forkyard jobs run send --key 'welcome/*'",
            "Adds the last job of each key again.",
        )],
    ),
    jobs(
        "jobs purge",
        &[(
            "forkyard jobs purge --state failed",
            "Forgets all jobs that failed.",
        )],
    ),
    jobs(
        "jobs backup",
        &[(
            "forkyard jobs backup /var/backups/jobs.db",
            "Copies the jobs into a file.",
        )],
    ),
    jobs(
        "jobs show",
        &[("forkyard jobs show 17", "Shows everything of job 17.")],
    ),
    jobs(
        "jobs wait",
        &[("forkyard jobs wait 17", "Returns when job 17 has ended.")],
    ),
    jobs(
        "jobs retry",
        &[(
            "forkyard jobs retry --state failed --queue mail",
            "Lets all failed jobs of a queue wait again.",
        )],
    ),
    jobs(
        "jobs cancel",
        &[(
            "forkyard jobs cancel 17",
            "Takes job 17 out of its queue, or ends it.",
        )],
    ),
    jobs(
        "jobs discard",
        &[(
            "forkyard jobs discard --state quarantined",
            "Gives up all quarantined jobs.",
        )],
    ),
    jobs(
        "jobs pause",
        &[(
            "forkyard jobs pause mail --reason maintenance",
            "Starts no further job of a queue.",
        )],
    ),
    jobs(
        "jobs resume",
        &[("forkyard jobs resume mail", "Starts jobs of the queue again.")],
    ),
    jobs(
        "jobs queues",
        &[("forkyard jobs queues", "Shows how much waits in each queue.")],
    ),
    jobs(
        "jobs schedules",
        &[(
            "forkyard jobs schedules",
            "Shows the next scheduled jobs and their times.",
        )],
    ),
    jobs(
        "jobs run-now",
        &[(
            "forkyard jobs run-now nightly",
            "Pushes the job of a schedule now.",
        )],
    ),
    jobs(
        "jobs stats",
        &[("forkyard jobs stats --json", "Prints the figures for a program.")],
    ),
    jobs(
        "jobs kinds",
        &[(
            "forkyard jobs kinds",
            "Shows how long each kind of job takes, and how often it fails.",
        )],
    ),
    jobs(
        "jobs connections",
        &[("forkyard jobs connections", "Shows who is connected.")],
    ),
    jobs(
        "jobs sequences",
        &[("forkyard jobs sequences", "Shows how far each sequence is.")],
    ),
    jobs(
        "jobs sequence",
        &[(
            "forkyard jobs sequence 3 --wait",
            "Returns when the last job of sequence 3 has ended.",
        )],
    ),
    jobs(
        "jobs cancel-sequence",
        &[("forkyard jobs cancel-sequence 3", "Takes no more of sequence 3.")],
    ),
];
