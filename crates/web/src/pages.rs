//! The paths and their answers.

use super::answer::{Answer, Status};
use super::health::{self, Probe};
use super::metrics::{self, Form};
use super::numbers::Numbers;
use super::request::Request;
use forkyard_scoreboard::status::{Selection, status};
use percent_encoding::percent_decode_str;
use std::cell::OnceCell;
use std::rc::Rc;

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";
const PATHS: &str =
    "There are /metrics, /health/live, /health/ready, /health/busy and /status/POOL, with a pool's name.";
const STATUS: &str = "/status/";

/// Numbers, and their text once a client has asked for it.
#[derive(Debug)]
pub(crate) struct Shown {
    numbers: Numbers,
    texts: [OnceCell<Rc<[u8]>>; 2],
}

impl Shown {
    pub(crate) fn new(numbers: Numbers) -> Shown {
        Shown {
            numbers,
            texts: [OnceCell::new(), OnceCell::new()],
        }
    }

    fn metrics(&self, form: Form) -> Answer {
        let (text, content_type) = match form {
            Form::OpenMetrics => (&self.texts[0], OPENMETRICS),
            Form::Prometheus => (&self.texts[1], PROMETHEUS),
        };
        let body = text.get_or_init(|| metrics::metrics(&self.numbers.status, form).into_bytes().into());
        Answer {
            status: Status::Ok,
            content_type,
            body: Rc::clone(body),
        }
    }
}

/// The page at a path.
#[derive(Debug, PartialEq, Eq)]
enum Page {
    Metrics,
    Health(Probe),
    /// php-fpm's status page of this pool.
    Status(String),
}

fn page(path: &str) -> Option<Page> {
    Some(match path {
        "/metrics" => Page::Metrics,
        "/health/live" => Page::Health(Probe::Live),
        "/health/ready" => Page::Health(Probe::Ready),
        "/health/busy" => Page::Health(Probe::Busy),
        _ => Page::Status(decoded(path.strip_prefix(STATUS)?)),
    })
}

fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// Answers a request that needs no numbers.
pub(crate) fn without_numbers(request: &Request) -> Option<Answer> {
    match page(&request.path) {
        None => Some(Answer::text(Status::NotFound, PATHS)),
        Some(Page::Status(pool)) if Selection::from_query(request.query.as_bytes()).full => {
            Some(Answer::text(
                Status::Forbidden,
                &format!(
                    "The list of processes shows what visitors ask for, and every local user can connect here. The control \
                     socket has the list: forkyard status {pool}"
                ),
            ))
        }
        Some(Page::Metrics | Page::Health(_) | Page::Status(_)) => None,
    }
}

/// Answers a request. `shown`: the numbers; `None` if the master does not answer.
pub(crate) fn answer(request: &Request, shown: Option<&Shown>) -> Answer {
    let page = match (page(&request.path), shown) {
        (None, _) => return Answer::text(Status::NotFound, PATHS),
        (Some(Page::Health(probe)), shown) => {
            return health::answer(probe, &pools(&request.query), shown.map(|shown| &shown.numbers));
        }
        (Some(_), None) => return Answer::text(Status::ServiceUnavailable, "The daemon does not answer."),
        (Some(page), Some(shown)) => (page, shown),
    };
    match page {
        (Page::Status(pool), shown) => status_page(&pool, &request.query, &shown.numbers),
        (Page::Metrics | Page::Health(_), shown) => shown.metrics(request.form),
    }
}

fn status_page(pool: &str, query: &str, numbers: &Numbers) -> Answer {
    let Some(page) = numbers.pages.get(pool) else {
        let is_known = numbers.status.pools.iter().any(|known| known.name == pool);
        let why = match is_known {
            true => format!(
                "The pool {pool:?} has no status page now: nothing of it serves, or it has applications."
            ),
            false => format!("There is no pool {pool:?}."),
        };
        return Answer::text(Status::NotFound, &why);
    };
    let answer = status(b"GET", query.as_bytes(), &page.snapshot(pool));
    Answer {
        status: Status::Ok,
        content_type: answer.content_type(),
        body: answer.body.into(),
    }
}

/// Returns the pools that a query names: `pool=NAME`, once or several times.
fn pools(query: &str) -> Vec<String> {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let named = pairs.filter(|(key, _)| *key == "pool");
    named.map(|(_, name)| decoded(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numbers::PoolPage;
    use forkyard_protocol::control::{DaemonMode, PoolStatus, Status as Seen};
    use std::collections::BTreeMap;

    fn shown() -> Shown {
        let pool = |name: &str| PoolStatus {
            name: name.to_owned(),
            ..PoolStatus::default()
        };
        let status = Seen {
            pools: vec![pool("a b"), pool("apps")],
            ..Seen::default()
        };
        let page = PoolPage {
            process_manager: "static".to_owned(),
            active: 2,
            idle: 1,
            ..PoolPage::default()
        };
        let pages = BTreeMap::from([("a b".to_owned(), page)]);
        Shown::new(Numbers::new(DaemonMode::Serving, status, pages))
    }

    fn ask(path: &str, query: &str) -> (Status, String) {
        let request = Request {
            is_head: false,
            path: path.to_owned(),
            query: query.to_owned(),
            keeps: true,
            form: Form::OpenMetrics,
        };
        let shown = shown();
        let answer = without_numbers(&request).unwrap_or_else(|| answer(&request, Some(&shown)));
        (answer.status, String::from_utf8_lossy(&answer.body).into_owned())
    }

    #[test]
    fn each_path_has_its_answer() {
        for (path, query, status, part) in [
            ("/metrics", "", Status::Ok, "# EOF\n"),
            ("/health/live", "", Status::Ok, "{\"state\":\"live\"}"),
            ("/health/live", "pool=x", Status::NotFound, "no pool \"x\""),
            (
                "/health/ready",
                "pool=a%20b",
                Status::ServiceUnavailable,
                "starting",
            ),
            ("/status/a%20b", "", Status::Ok, "total processes:      3\n"),
            ("/status/a%20b", "json", Status::Ok, "\"active processes\":2"),
            (
                "/status/a%20b",
                "xml",
                Status::Ok,
                "<active-processes>2</active-processes>",
            ),
            (
                "/status/a%20b",
                "openmetrics",
                Status::Ok,
                "phpfpm_active_processes 2",
            ),
            (
                "/status/a%20b",
                "json&full",
                Status::Forbidden,
                "forkyard status a b",
            ),
            ("/status/apps", "", Status::NotFound, "no status page"),
            ("/status/x", "", Status::NotFound, "no pool \"x\""),
            ("/", "", Status::NotFound, "/metrics"),
            ("/metrics/", "", Status::NotFound, "/metrics"),
            ("/status", "", Status::NotFound, "/metrics"),
        ] {
            let (seen, text) = ask(path, query);
            assert!(
                seen == status && text.contains(part),
                "{path}?{query}: {seen:?} {text}"
            );
        }
    }

    #[test]
    fn without_numbers_everything_is_unavailable() {
        for path in [
            "/metrics",
            "/health/live",
            "/health/ready",
            "/health/busy",
            "/status/www",
        ] {
            let request = Request {
                is_head: false,
                path: path.to_owned(),
                query: String::new(),
                keeps: true,
                form: Form::OpenMetrics,
            };
            assert_eq!(
                answer(&request, None).status,
                Status::ServiceUnavailable,
                "{path}"
            );
        }
    }
}
