//! The runtimes: what differs between them, one row each.

use serde::{Deserialize, Serialize};

/// The numbers are the rows of [`RUNTIMES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Php,
    Cgi,
    Fastcgi,
    Http,
    Node,
    Wsgi,
    Asgi,
    Rack,
    Rust,
}

/// How workers begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workers {
    /// A preloader forks them.
    Forked,
    /// The daemon starts `forkyard-helper` for each.
    Helper,
    /// The daemon forks itself.
    Daemon,
}

/// How many requests a worker serves at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requests {
    One,
    /// One in each of its threads.
    Threads,
    /// As many as `concurrency`, on an event loop.
    Loop,
    /// As many as clients send: it forwards them to a program.
    Forwarded,
}

/// The processes that can outlive a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leaves {
    /// None, or they are left alone.
    Nothing,
    /// The worker's process group.
    Group,
    /// The worker's session.
    Session,
    /// The session of a program that ends with the worker, unless the worker exited with code 0.
    Program,
}

/// How the calls of a slow request are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Calls {
    /// In the worker's memory.
    Memory,
    /// The worker shows them.
    Asked,
    /// The worker's child processes are listed.
    Processes,
    Unknown,
}

/// The targets of a site's paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paths {
    /// Scripts with the ending .php, and files.
    Scripts,
    /// Executable files, unless one program answers all paths.
    Programs,
    /// The application.
    Application,
}

#[derive(Debug)]
pub struct RuntimeTraits {
    pub kind: Kind,
    /// Its name in configurations.
    pub name: &'static str,
    /// Its name in sentences.
    pub title: &'static str,
    pub workers: Workers,
    pub requests: Requests,
    pub leaves: Leaves,
    pub calls: Calls,
    pub paths: Paths,
    /// Whether a change of `tmp/restart.txt` replaces its processes.
    pub has_restart_file: bool,
    /// Whether each worker starts a program. A reload doesn't compare its files, and the worker reports failed starts.
    pub starts_from_disk: bool,
    /// Whether applications of an application pool can have it.
    pub is_for_many: bool,
    /// Whether a request's body needs a length.
    pub needs_length: bool,
    /// Whether it gets no other parameters than CGI's.
    pub is_plain_cgi: bool,
    /// The descriptors that a worker and its program need at least to serve a request, found by trial.
    pub least_descriptors: u64,
    /// The interpreters, one is enough, and Debian's packages with them.
    pub programs: (&'static [&'static str], &'static str),
}

const PYTHON: (&[&str], &str) = (&["/usr/bin/python3"], "python3");

pub static RUNTIMES: [RuntimeTraits; Kind::Rust as usize + 1] = [
    RuntimeTraits {
        kind: Kind::Php,
        name: "php",
        title: "PHP",
        workers: Workers::Forked,
        requests: Requests::One,
        leaves: Leaves::Nothing,
        calls: Calls::Memory,
        paths: Paths::Scripts,
        has_restart_file: true,
        starts_from_disk: false,
        is_for_many: true,
        needs_length: true,
        is_plain_cgi: false,
        least_descriptors: 14,
        programs: (&[], ""),
    },
    RuntimeTraits {
        kind: Kind::Cgi,
        name: "cgi",
        title: "CGI",
        workers: Workers::Helper,
        requests: Requests::One,
        leaves: Leaves::Session,
        calls: Calls::Processes,
        paths: Paths::Programs,
        has_restart_file: false,
        starts_from_disk: false,
        is_for_many: true,
        needs_length: true,
        is_plain_cgi: true,
        least_descriptors: 21,
        programs: (&[], ""),
    },
    RuntimeTraits {
        kind: Kind::Fastcgi,
        name: "fastcgi",
        title: "a program that speaks FastCGI",
        workers: Workers::Helper,
        requests: Requests::One,
        leaves: Leaves::Program,
        calls: Calls::Processes,
        paths: Paths::Application,
        has_restart_file: true,
        starts_from_disk: true,
        is_for_many: true,
        needs_length: true,
        is_plain_cgi: true,
        least_descriptors: 22,
        programs: (&[], ""),
    },
    RuntimeTraits {
        kind: Kind::Http,
        name: "http",
        title: "a program that speaks HTTP",
        least_descriptors: 11,
        programs: (&[], ""),
        ..NODE
    },
    NODE,
    RuntimeTraits {
        kind: Kind::Wsgi,
        name: "wsgi",
        title: "Python (WSGI)",
        least_descriptors: 19,
        programs: PYTHON,
        ..RACK
    },
    RuntimeTraits {
        kind: Kind::Asgi,
        name: "asgi",
        title: "Python (ASGI)",
        requests: Requests::Loop,
        least_descriptors: 20,
        programs: PYTHON,
        ..RACK
    },
    RACK,
    RuntimeTraits {
        kind: Kind::Rust,
        name: "rust",
        title: "a handler in Rust",
        workers: Workers::Daemon,
        requests: Requests::One,
        leaves: Leaves::Session,
        calls: Calls::Unknown,
        paths: Paths::Application,
        has_restart_file: true,
        starts_from_disk: false,
        is_for_many: false,
        needs_length: false,
        is_plain_cgi: false,
        least_descriptors: 7,
        programs: (&[], ""),
    },
];

const NODE: RuntimeTraits = RuntimeTraits {
    kind: Kind::Node,
    name: "node",
    title: "Node.js",
    workers: Workers::Helper,
    requests: Requests::Forwarded,
    leaves: Leaves::Nothing,
    calls: Calls::Unknown,
    paths: Paths::Application,
    has_restart_file: true,
    starts_from_disk: false,
    is_for_many: true,
    needs_length: false,
    is_plain_cgi: false,
    least_descriptors: 21,
    programs: (&["node"], "nodejs"),
};

const RACK: RuntimeTraits = RuntimeTraits {
    kind: Kind::Rack,
    name: "rack",
    title: "Ruby (Rack)",
    workers: Workers::Forked,
    requests: Requests::Threads,
    leaves: Leaves::Group,
    calls: Calls::Asked,
    paths: Paths::Application,
    has_restart_file: true,
    starts_from_disk: false,
    is_for_many: true,
    needs_length: false,
    is_plain_cgi: false,
    least_descriptors: 23,
    programs: (&["/usr/bin/ruby"], "ruby ruby-rack"),
};

const _: () = {
    let mut row = 0;
    while row < RUNTIMES.len() {
        assert!(
            RUNTIMES[row].kind as usize == row,
            "rows are in the order of Kind"
        );
        row += 1;
    }
};

impl Kind {
    pub fn traits(self) -> &'static RuntimeTraits {
        &RUNTIMES[self as usize]
    }

    pub fn named(name: &str) -> Option<Kind> {
        let row = RUNTIMES.iter().find(|row| row.name == name);
        row.map(|row| row.kind)
    }
}

impl RuntimeTraits {
    /// Whether a worker serves many requests in one thread. It can then serve HTTP and WebSockets.
    pub fn serves_http(&self) -> bool {
        matches!(self.requests, Requests::Loop | Requests::Forwarded)
    }
}
