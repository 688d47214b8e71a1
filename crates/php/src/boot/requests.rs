//! The preloader's requests: the boot and the warm-up requests.

use crate::ffi::{Description, Pair};
use crate::preloader::Error;
use forkyard_config::WorkerScript;
use std::ffi::{CString, c_char};
use std::path::Path;

/// `MAX_REQUESTS` for scripts that count their own requests, if nothing else limits them.
const NO_LIMIT: u64 = 1_000_000_000;

pub(super) struct Params {
    texts: Vec<(CString, CString)>,
    pub(super) pairs: Vec<Pair>,
}

impl Params {
    fn new(parameters: Vec<(String, String)>) -> Result<Params, Error> {
        let text = |name: &str, text: String| {
            CString::new(text).map_err(|_| Error::Setting(format!("warm_up_server.{name}")))
        };
        let mut texts = Vec::new();
        for (name, value) in parameters {
            texts.push((text(&name, name.clone())?, text(&name, value)?));
        }
        let pairs = texts
            .iter()
            .map(|(name, value)| Pair {
                name: name.as_ptr(),
                value: value.as_ptr(),
            })
            .collect();
        Ok(Params { texts, pairs })
    }

    fn value(&self, name: &str) -> *const c_char {
        let found = self
            .texts
            .iter()
            .find(|(known, _)| known.as_bytes() == name.as_bytes());
        found.map_or(std::ptr::null(), |(_, value)| value.as_ptr())
    }

    pub(super) fn description(&self) -> Description {
        Description {
            method: self.value("REQUEST_METHOD"),
            query_string: self.value("QUERY_STRING"),
            request_uri: self.value("SCRIPT_NAME"),
            content_type: c"".as_ptr(),
            script: self.value("SCRIPT_FILENAME"),
            authorization: self.value("HTTP_AUTHORIZATION"),
            cookies: self.value("HTTP_COOKIE"),
            document_root: self.value("DOCUMENT_ROOT"),
            php_value: self.value("PHP_VALUE"),
            php_admin_value: self.value("PHP_ADMIN_VALUE"),
            content_length: 0,
            status: 200,
            denied: 0,
            names_files: 0,
        }
    }
}

pub(super) struct WarmUp {
    pub(super) boot: Params,
    pub(super) mode: CString,
    /// `MAX_REQUESTS` for scripts. Larger than a worker's own limit, so that not all exit at the same number.
    pub(super) max_requests: CString,
    requests: Vec<(String, Params)>,
    begun: usize,
}

impl WarmUp {
    pub(super) fn new(application: &WorkerScript, most: Option<u64>) -> Result<WarmUp, Error> {
        let server = &application.warm_up_server;
        let mut requests = Vec::new();
        for path in &application.warm_up_requests {
            let parameters = with(of_request(&application.path, path), server);
            requests.push((path.clone(), Params::new(parameters)?));
        }
        let most = most.map_or(NO_LIMIT, |most| {
            most.saturating_add(requests.len() as u64).saturating_add(1)
        });
        Ok(WarmUp {
            mode: CString::new(application.mode.as_str()).map_err(|_| Error::NotPhp)?,
            boot: Params::new(with(of_script(&application.path), server))?,
            max_requests: CString::new(most.to_string()).map_err(|_| Error::NotPhp)?,
            requests,
            begun: 0,
        })
    }

    pub(super) fn next(&mut self) -> Option<&Params> {
        let (_, params) = self.requests.get(self.begun)?;
        self.begun += 1;
        Some(params)
    }

    pub(super) fn under_way(&self) -> Option<&str> {
        let (path, _) = self.requests.get(self.begun.checked_sub(1)?)?;
        Some(path)
    }
}

/// The script's parameters without a request. No others, because frameworks would mistake them for a request's.
fn of_script(script: &Path) -> Vec<(String, String)> {
    let name = script.file_name().unwrap_or_default().to_string_lossy();
    let root = script.parent().unwrap_or(script).to_string_lossy();
    pairs(&[
        ("DOCUMENT_ROOT", &root),
        ("SCRIPT_FILENAME", &script.to_string_lossy()),
        ("SCRIPT_NAME", &format!("/{name}")),
    ])
}

fn of_request(script: &Path, uri: &str) -> Vec<(String, String)> {
    let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
    let mut all = of_script(script);
    all.extend(pairs(&[
        ("CONTENT_LENGTH", ""),
        ("CONTENT_TYPE", ""),
        ("DOCUMENT_URI", path),
        ("GATEWAY_INTERFACE", "CGI/1.1"),
        ("HTTP_HOST", "localhost"),
        ("QUERY_STRING", query),
        ("REMOTE_ADDR", "127.0.0.1"),
        ("REQUEST_METHOD", "GET"),
        ("REQUEST_SCHEME", "http"),
        ("REQUEST_URI", uri),
        ("SERVER_ADDR", "127.0.0.1"),
        ("SERVER_NAME", "localhost"),
        ("SERVER_PORT", "80"),
        ("SERVER_PROTOCOL", "HTTP/1.1"),
        ("SERVER_SOFTWARE", "forkyard"),
    ]));
    all
}

fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
    let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    list.iter().map(pair).collect()
}

fn with(mut parameters: Vec<(String, String)>, own: &[(String, String)]) -> Vec<(String, String)> {
    parameters.retain(|(name, _)| !own.iter().any(|(known, _)| known == name));
    parameters.extend_from_slice(own);
    parameters
}

#[cfg(test)]
mod tests {
    use super::*;
    use forkyard_config::{BootConnections, Isolation, WorkerMode};

    fn application() -> WorkerScript {
        WorkerScript {
            path: "/srv/app/public/index.php".into(),
            mode: WorkerMode::Loop,
            isolation: Isolation::Auto,
            warm_up_requests: vec!["/".into(), "/login?from=home".into()],
            warm_up_server: pairs(&[("HTTP_HOST", "shop.example"), ("APP_ENV", "prod")]),
            boot_connections: BootConnections::Cut,
            watch: Vec::new(),
        }
    }

    fn value(params: &Params, name: &str) -> Option<String> {
        let found = params.texts.iter().find(|(known, _)| known.to_str() == Ok(name));
        found.map(|(_, value)| value.to_str().unwrap().to_owned())
    }

    #[test]
    fn each_request_has_its_path_and_the_pools_variables() {
        let mut warm_up = WarmUp::new(&application(), Some(500)).unwrap();
        assert_eq!(warm_up.under_way(), None);
        assert_eq!(value(&warm_up.boot, "HTTP_HOST").as_deref(), Some("shop.example"));
        assert_eq!(value(&warm_up.boot, "REQUEST_URI"), None);
        warm_up.next().unwrap();
        assert_eq!(warm_up.under_way(), Some("/"));
        let second = warm_up.next().unwrap();
        let found = |name| value(second, name);
        assert_eq!(found("QUERY_STRING").as_deref(), Some("from=home"));
        assert_eq!(found("REQUEST_URI").as_deref(), Some("/login?from=home"));
        assert_eq!(found("DOCUMENT_URI").as_deref(), Some("/login"));
        assert_eq!(found("HTTP_HOST").as_deref(), Some("shop.example"));
        assert_eq!(found("APP_ENV").as_deref(), Some("prod"));
        assert_eq!(found("DOCUMENT_ROOT").as_deref(), Some("/srv/app/public"));
        assert_eq!(found("SCRIPT_NAME").as_deref(), Some("/index.php"));
        assert!(warm_up.next().is_none());
    }

    #[test]
    fn a_script_that_counts_by_itself_counts_further_than_its_worker() {
        let text = |most| WarmUp::new(&application(), most).unwrap().max_requests;
        assert_eq!(text(Some(550)).to_str(), Ok("553"));
        assert_eq!(text(None).to_str(), Ok("1000000000"));
    }
}
