//! Finds the cause of a process's wait in the kernel's files about it.

pub(crate) mod kernel_text;

use kernel_text::{Call, Task};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The activity of a process, or the cause of its wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Cause {
    /// It runs, or stands in the run queue.
    Computing,
    Database,
    Http,
    /// Another server.
    Network,
    Disk,
    Lock,
    /// The web server or its client: the request's body, or room for the answer.
    Client,
    /// A child or a pipe.
    Process,
    Sleep,
    Other,
}

impl Cause {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Cause::Computing => "cpu",
            Cause::Database => "database",
            Cause::Http => "HTTP",
            Cause::Network => "network",
            Cause::Disk => "disk",
            Cause::Lock => "lock",
            Cause::Client => "client",
            Cause::Process => "process",
            Cause::Sleep => "sleep",
            Cause::Other => "other",
        }
    }
}

/// The other end of a descriptor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Descriptor {
    File(String),
    Pipe,
    /// A connection to a port, and the port at this end.
    Tcp {
        peer: String,
        port: u16,
        own_port: u16,
    },
    /// A unix connection: the paths of the other end and of this one.
    Unix {
        peer: Option<String>,
        own: Option<String>,
    },
    Unknown,
}

/// The kernel's data about a process at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Evidence {
    pub(crate) task: Task,
    /// The kernel function that it sleeps in, if readable.
    pub(crate) function: String,
    /// The descriptors of its system call.
    pub(crate) descriptors: Vec<Descriptor>,
}

/// A cause and its details.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Finding {
    pub(crate) cause: Cause,
    pub(crate) detail: String,
}

/// Ports of databases, caches and queues.
const DATABASES: [(u16, &str); 9] = [
    (1433, "SQL Server"),
    (1521, "Oracle"),
    (3306, "MySQL"),
    (5432, "PostgreSQL"),
    (5672, "AMQP"),
    (6379, "Redis"),
    (9042, "Cassandra"),
    (11211, "memcached"),
    (27017, "MongoDB"),
];
/// Parts of their sockets' paths.
const DATABASE_PATHS: [&str; 7] = [
    "mysql",
    "mariadb",
    ".s.pgsql.",
    "postgres",
    "redis",
    "valkey",
    "memcached",
];
const HTTP_PORTS: [u16; 6] = [80, 443, 8000, 8080, 8443, 9200];

/// Returns the cause of a process's wait. `listen`: the pool's address, which the requests' connections share.
pub(crate) fn find(evidence: &Evidence, listen: &str) -> Finding {
    let Evidence {
        task,
        function,
        descriptors,
    } = evidence;
    let call = match task {
        Task::Running => return Finding::of(Cause::Computing, ""),
        // A page of a file that is not in memory, for example.
        Task::Elsewhere => return of_function(function).unwrap_or(Finding::of(Cause::Other, function)),
        Task::Waits { call, .. } => *call,
    };
    match call {
        Call::Sleep => return Finding::of(Cause::Sleep, ""),
        Call::Child => return Finding::of(Cause::Process, "a child"),
        Call::Futex => return Finding::of(Cause::Lock, "a lock in memory"),
        Call::Lock => return Finding::of(Cause::Lock, &path_of(descriptors)),
        Call::Sync => return Finding::of(Cause::Disk, &path_of(descriptors)),
        Call::Open => return of_function(function).unwrap_or(Finding::of(Cause::Disk, "")),
        Call::Descriptor | Call::Several | Call::Events | Call::Other => {}
    }
    // If it watches several descriptors, the best known one counts.
    let mut found: Vec<Finding> = descriptors.iter().map(|it| of_descriptor(it, listen)).collect();
    found.sort_by_key(|finding| finding.cause);
    let known = found.into_iter().find(|finding| finding.cause != Cause::Other);
    known
        .or_else(|| of_function(function))
        .unwrap_or(Finding::of(Cause::Other, function))
}

impl Finding {
    fn of(cause: Cause, detail: &str) -> Finding {
        Finding {
            cause,
            detail: detail.to_owned(),
        }
    }
}

fn path_of(descriptors: &[Descriptor]) -> String {
    match descriptors.first() {
        Some(Descriptor::File(path)) => path.clone(),
        _ => String::new(),
    }
}

fn of_descriptor(descriptor: &Descriptor, listen: &str) -> Finding {
    match descriptor {
        Descriptor::File(path) => Finding::of(Cause::Disk, path),
        Descriptor::Pipe => Finding::of(Cause::Process, "a pipe"),
        Descriptor::Tcp { own_port, .. } if is_port_of(*own_port, listen) => Finding::of(Cause::Client, ""),
        Descriptor::Tcp { peer, port, .. } => {
            let database = DATABASES.iter().find(|(known, _)| known == port);
            match database {
                Some((_, name)) => Finding::of(Cause::Database, &format!("{name} {peer}")),
                None if HTTP_PORTS.contains(port) => Finding::of(Cause::Http, peer),
                None => Finding::of(Cause::Network, peer),
            }
        }
        Descriptor::Unix { own: Some(own), .. } if own == listen => Finding::of(Cause::Client, ""),
        Descriptor::Unix { peer: Some(peer), .. } => match is_database(peer) {
            true => Finding::of(Cause::Database, peer),
            false => Finding::of(Cause::Network, peer),
        },
        // Pairs, and workers' connections that a router has passed on.
        Descriptor::Unix { .. } | Descriptor::Unknown => Finding::of(Cause::Other, ""),
    }
}

/// Whether a pool's address has this port.
fn is_port_of(port: u16, listen: &str) -> bool {
    let last = listen.rsplit(':').next().unwrap_or(listen);
    !listen.starts_with('/') && last.parse() == Ok(port)
}

fn is_database(path: &str) -> bool {
    let path = path.to_lowercase();
    let name = Path::new(&path);
    let is_named = |part: &&str| {
        name.iter()
            .any(|component| component.to_string_lossy().contains(*part))
    };
    DATABASE_PATHS.iter().any(is_named)
}

/// Returns the cause for a function of the kernel. In a page fault, nothing else is known.
fn of_function(function: &str) -> Option<Finding> {
    const FUNCTIONS: [(&str, Cause); 10] = [
        ("futex", Cause::Lock),
        ("flock", Cause::Lock),
        ("posix_lock", Cause::Lock),
        ("nanosleep", Cause::Sleep),
        ("pipe", Cause::Process),
        // The other end of a FIFO is not open yet.
        ("wait_for_partner", Cause::Process),
        ("do_wait", Cause::Process),
        ("folio_wait", Cause::Disk),
        ("io_schedule", Cause::Disk),
        ("jbd2", Cause::Disk),
    ];
    let found = FUNCTIONS.iter().find(|(part, _)| function.contains(part));
    found.map(|(_, cause)| Finding::of(*cause, function))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(call: Call, descriptors: Vec<Descriptor>) -> Evidence {
        Evidence {
            task: Task::Waits {
                call,
                arguments: [0; 6],
            },
            function: String::new(),
            descriptors,
        }
    }

    fn tcp(port: u16, own_port: u16) -> Descriptor {
        Descriptor::Tcp {
            peer: format!("127.0.0.1:{port}"),
            port,
            own_port,
        }
    }

    fn unix(peer: Option<&str>, own: Option<&str>) -> Descriptor {
        Descriptor::Unix {
            peer: peer.map(str::to_owned),
            own: own.map(str::to_owned),
        }
    }

    #[test]
    fn what_is_at_the_other_end_names_the_cause() {
        for (descriptor, cause, detail) in [
            (tcp(3306, 50_000), Cause::Database, "MySQL 127.0.0.1:3306"),
            (tcp(443, 50_000), Cause::Http, "127.0.0.1:443"),
            (tcp(4711, 50_000), Cause::Network, "127.0.0.1:4711"),
            (tcp(50_000, 9000), Cause::Client, ""),
            (
                unix(Some("/run/mysqld/mysqld.sock"), None),
                Cause::Database,
                "/run/mysqld/mysqld.sock",
            ),
            (
                unix(Some("/run/postgresql/.s.PGSQL.5432"), None),
                Cause::Database,
                "/run/postgresql/.s.PGSQL.5432",
            ),
            (unix(Some("/run/other"), None), Cause::Network, "/run/other"),
            (unix(None, None), Cause::Other, ""),
            (
                Descriptor::File("/srv/big.csv".into()),
                Cause::Disk,
                "/srv/big.csv",
            ),
            (Descriptor::Pipe, Cause::Process, "a pipe"),
            (Descriptor::Unknown, Cause::Other, ""),
        ] {
            let finding = find(
                &waiting(Call::Descriptor, vec![descriptor.clone()]),
                "127.0.0.1:9000",
            );
            assert_eq!(
                (finding.cause, finding.detail.as_str()),
                (cause, detail),
                "{descriptor:?}"
            );
        }
        let own = unix(None, Some("/run/www.sock"));
        assert_eq!(
            find(&waiting(Call::Several, vec![own]), "/run/www.sock").cause,
            Cause::Client
        );
    }

    #[test]
    fn of_several_the_best_known_one_counts() {
        let several = vec![Descriptor::Unknown, tcp(4711, 1), tcp(5432, 1), Descriptor::Pipe];
        assert_eq!(find(&waiting(Call::Events, several), "").cause, Cause::Database);
    }

    #[test]
    fn the_call_names_the_cause_if_no_descriptor_does() {
        for (call, cause) in [
            (Call::Sleep, Cause::Sleep),
            (Call::Child, Cause::Process),
            (Call::Futex, Cause::Lock),
            (Call::Lock, Cause::Lock),
            (Call::Sync, Cause::Disk),
            (Call::Open, Cause::Disk),
            (Call::Events, Cause::Other),
            (Call::Other, Cause::Other),
        ] {
            assert_eq!(find(&waiting(call, Vec::new()), "").cause, cause, "{call:?}");
        }
    }

    #[test]
    fn in_a_page_fault_the_kernels_function_is_all_there_is() {
        for (function, cause) in [
            ("folio_wait_bit_common", Cause::Disk),
            ("futex_wait_queue", Cause::Lock),
            ("0", Cause::Other),
        ] {
            let evidence = Evidence {
                task: Task::Elsewhere,
                function: function.to_owned(),
                descriptors: Vec::new(),
            };
            assert_eq!(find(&evidence, "").cause, cause, "{function}");
        }
    }
}
