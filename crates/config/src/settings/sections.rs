//! The TOML tables that settings are in.

use super::row::Setting;
use super::{
    ApplicationsDraft, CgiDraft, FastCgiDraft, GlobalDraft, HttpDraft, JobQueueDraft, JobScheduleDraft,
    JobsDraft, PhpDraft, PoolDraft, WrappedDraft,
};
use forkyard_protocol::runtimes::{Kind, RUNTIMES};

/// The TOML table of a key. For a row without a key it is the place of its directive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Section {
    Global,
    Pool,
    Php,
    /// WSGI, ASGI and Rack.
    Wrapped,
    /// HTTP and Node.js.
    Http,
    FastCgi,
    Cgi,
    Applications,
    Jobs,
    JobQueue,
    JobSchedule,
}

/// What documents have about a section.
#[derive(Debug, Clone, Copy)]
pub struct About {
    /// The heading in forkyard.toml(5).
    pub heading: &'static str,
    /// The text below the heading.
    pub text: &'static str,
    /// A runtime's pool in the sample: its description, its name and its runtime.
    pub(super) sample: Option<(&'static str, &'static str, &'static str)>,
    /// The heading in docs/reference/runtimes.md that is above the table of the keys.
    pub(super) runtime: Option<&'static str>,
}

const fn about(heading: &'static str, text: &'static str) -> About {
    About {
        heading,
        text,
        sample: None,
        runtime: None,
    }
}

/// The keys of a runtime.
pub(crate) fn of_runtime(kind: Kind) -> Option<Section> {
    match kind {
        Kind::Php => Some(Section::Php),
        Kind::Cgi => Some(Section::Cgi),
        Kind::Fastcgi => Some(Section::FastCgi),
        Kind::Http | Kind::Node => Some(Section::Http),
        Kind::Wsgi | Kind::Asgi | Kind::Rack => Some(Section::Wrapped),
        Kind::Rust => None,
    }
}

impl Section {
    /// All sections, in the order of the manual.
    pub const ALL: [Section; Section::JobSchedule as usize + 1] = [
        Section::Global,
        Section::Pool,
        Section::Php,
        Section::Wrapped,
        Section::Http,
        Section::FastCgi,
        Section::Cgi,
        Section::Applications,
        Section::Jobs,
        Section::JobQueue,
        Section::JobSchedule,
    ];

    /// Its rows.
    pub(super) fn rows(self) -> &'static [Setting] {
        match self {
            Section::Global => GlobalDraft::ROWS,
            Section::Pool => PoolDraft::ROWS,
            Section::Php => PhpDraft::ROWS,
            Section::Wrapped => WrappedDraft::ROWS,
            Section::Http => HttpDraft::ROWS,
            Section::FastCgi => FastCgiDraft::ROWS,
            Section::Cgi => CgiDraft::ROWS,
            Section::Applications => ApplicationsDraft::ROWS,
            Section::Jobs => JobsDraft::ROWS,
            Section::JobQueue => JobQueueDraft::ROWS,
            Section::JobSchedule => JobScheduleDraft::ROWS,
        }
    }

    /// What documents have about it.
    pub fn about(self) -> About {
        match self {
            Section::Global => about("[global]", "The daemon itself."),
            Section::Pool => about(
                "[pool.NAME]",
                "A pool: workers that share one listening socket and run one application, or many. $pool in any string of it is \
                 replaced by its name.",
            ),
            Section::Php => about(
                "[pool.NAME.application] of PHP",
                "The runtime of a pool with runtime = \"php\".",
            ),
            Section::Wrapped => About {
                sample: Some((
                    "a WSGI application; asgi and rack have the same keys",
                    "python",
                    "wsgi",
                )),
                ..about(
                    "[pool.NAME.application] of Python and Ruby",
                    "For runtime = \"wsgi\", \"asgi\" and \"rack\".",
                )
            },
            Section::Http => About {
                sample: Some((
                    "a program that speaks HTTP; node has the same keys",
                    "app",
                    "http",
                )),
                runtime: Some("## HTTP"),
                ..about(
                    "[pool.NAME.application] of programs that speak HTTP",
                    "For runtime = \"http\" and \"node\".",
                )
            },
            Section::FastCgi => About {
                sample: Some(("a program that speaks FastCGI", "perl", "fastcgi")),
                runtime: Some("## FastCGI"),
                ..about(
                    "[pool.NAME.application] of FastCGI programs",
                    "For runtime = \"fastcgi\".",
                )
            },
            Section::Cgi => About {
                sample: Some(("CGI programs", "cgi", "cgi")),
                runtime: Some("## CGI"),
                ..about(
                    "[pool.NAME.application] of CGI programs",
                    "For runtime = \"cgi\".",
                )
            },
            Section::Applications => about(
                "[pool.NAME.applications]",
                "For a pool with routing = \"application\": each request names its application.",
            ),
            Section::Jobs => about("[jobs]", "Background jobs."),
            Section::JobQueue => about("[jobs.queue.NAME]", "Where jobs are stored, and how they run."),
            Section::JobSchedule => about("[jobs.schedule.NAME]", "Jobs that are pushed at certain times."),
        }
    }

    /// Its table.
    pub fn title(self) -> &'static str {
        match self.is_application() {
            true => "[pool.NAME.application]",
            false => self.about().heading,
        }
    }

    /// Whether it belongs to one runtime.
    pub fn is_application(self) -> bool {
        let mut kinds = RUNTIMES.iter().map(|runtime| runtime.kind);
        kinds.any(|kind| of_runtime(kind) == Some(self))
    }

    /// The prefix of its keys in a pool's table.
    pub(super) fn above(self) -> &'static str {
        match self {
            Section::Applications => "applications.",
            section if section.is_application() => "application.",
            _ => "",
        }
    }

    /// Whether it is about background jobs.
    pub fn is_of_jobs(self) -> bool {
        matches!(self, Section::Jobs | Section::JobQueue | Section::JobSchedule)
    }
}
