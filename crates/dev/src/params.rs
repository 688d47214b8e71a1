//! Builds a request's parameters as a web server does.

use crate::reply::WEBSOCKET;
use crate::site::Target;
use crate::subject::{Subject, What};
use forkyard_protocol::upgrade;
use hyper::Version;
use hyper::http::request::Parts;
use std::net::SocketAddr;
use std::path::Path;

pub(crate) type Params = Vec<(Vec<u8>, Vec<u8>)>;

/// Headers with parameters of their own, and connection headers. `Proxy` would become HTTP_PROXY.
const LEFT_OUT: [&str; 6] = [
    "content-type",
    "content-length",
    "connection",
    "transfer-encoding",
    "upgrade",
    "proxy",
];

#[derive(Debug, Clone, Copy)]
pub(crate) struct Ends {
    pub(crate) client: SocketAddr,
    pub(crate) server: SocketAddr,
}

/// `path`: decoded. `length`: of the body, if known.
pub(crate) fn params(
    subject: &Subject,
    target: &Target,
    head: &Parts,
    path: &str,
    length: Option<u64>,
    ends: Ends,
) -> Params {
    let mut params = Params::new();
    let mut add = |name: &str, value: &[u8]| params.push((name.as_bytes().to_vec(), value.to_vec()));
    let uri = head.uri.path_and_query().map_or("/", |it| it.as_str());
    let documents = subject.documents.as_deref().unwrap_or(&subject.root);
    add("FORKYARD_APP_ROOT", bytes(&subject.root));
    add("GATEWAY_INTERFACE", b"CGI/1.1");
    add(
        "SERVER_SOFTWARE",
        concat!("forkyard-dev/", env!("CARGO_PKG_VERSION")).as_bytes(),
    );
    add("SERVER_PROTOCOL", protocol(head.version));
    add("REQUEST_METHOD", head.method.as_str().as_bytes());
    add("REQUEST_SCHEME", b"http");
    add("REQUEST_URI", uri.as_bytes());
    add("DOCUMENT_URI", path.as_bytes());
    add("DOCUMENT_ROOT", bytes(documents));
    add("QUERY_STRING", head.uri.query().unwrap_or_default().as_bytes());
    add("REDIRECT_STATUS", b"200");
    add(
        "REMOTE_ADDR",
        ends.client.ip().to_canonical().to_string().as_bytes(),
    );
    add("REMOTE_PORT", ends.client.port().to_string().as_bytes());
    add(
        "SERVER_ADDR",
        ends.server.ip().to_canonical().to_string().as_bytes(),
    );
    add("SERVER_PORT", ends.server.port().to_string().as_bytes());
    add("SERVER_NAME", host(head).as_bytes());
    match target {
        Target::Script { file, name, info } => {
            add("SCRIPT_FILENAME", bytes(file));
            add("SCRIPT_NAME", name.as_bytes());
            add("PATH_INFO", info.as_bytes());
        }
        _ if has_own_path(subject) => {
            add("SCRIPT_NAME", b"");
            add("PATH_INFO", path.as_bytes());
        }
        _ => add("SCRIPT_NAME", path.as_bytes()),
    }
    if let Some(kind) = head.headers.get("content-type") {
        add("CONTENT_TYPE", kind.as_bytes());
    }
    if let Some(length) = length {
        add("CONTENT_LENGTH", length.to_string().as_bytes());
    }
    for name in head.headers.keys() {
        // A name with an underscore could imitate another header.
        if LEFT_OUT.contains(&name.as_str()) || name.as_str().contains('_') {
            continue;
        }
        let values: Vec<&[u8]> = head
            .headers
            .get_all(name)
            .iter()
            .map(|it| it.as_bytes())
            .collect();
        let between: &[u8] = if name == "cookie" { b"; " } else { b", " };
        let name = format!("HTTP_{}", name.as_str().to_uppercase().replace('-', "_"));
        add(&name, &values.join(between));
    }
    params
}

pub(crate) fn with_upgrade(mut params: Params) -> Params {
    let more = [
        ("HTTP_CONNECTION", "Upgrade"),
        ("HTTP_UPGRADE", WEBSOCKET),
        (upgrade::PARAMETER, WEBSOCKET),
    ];
    params.extend(more.map(|(name, value)| (name.into(), value.into())));
    params
}

fn has_own_path(subject: &Subject) -> bool {
    let What::Application { kind, .. } = subject.what else {
        return false;
    };
    kind.traits().is_plain_cgi
}

fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_encoded_bytes()
}

fn host(head: &Parts) -> String {
    let named = head.headers.get("host").and_then(|host| host.to_str().ok());
    let named = named.and_then(|host| host.parse::<hyper::http::uri::Authority>().ok());
    named.map_or_else(|| "localhost".to_owned(), |authority| authority.host().to_owned())
}

fn protocol(version: Version) -> &'static [u8] {
    match version {
        Version::HTTP_10 => b"HTTP/1.0",
        _ => b"HTTP/1.1",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_the_parameters_of_a_web_server() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("wsgi.py"), "").unwrap();
        let root = directory.path().canonicalize().unwrap();
        let subject = crate::subject::inspect(&root).unwrap();
        let request = hyper::Request::post("/a%20b?c=d")
            .header("Host", "shop.localhost:8000")
            .header("Content-Type", "text/plain")
            .header("Proxy", "evil")
            .header("X_Real_IP", "1.2.3.4")
            .header("Cookie", "a=1")
            .header("Cookie", "b=2")
            .body(())
            .unwrap();
        let ends = Ends {
            client: "127.0.0.1:1".parse().unwrap(),
            server: "127.0.0.1:8000".parse().unwrap(),
        };
        let (head, ()) = request.into_parts();
        let all = params(&subject, &Target::Application, &head, "/a b", Some(3), ends);
        let value = |name: &str| {
            let found = all.iter().find(|(known, _)| known == name.as_bytes());
            found.map(|(_, value)| String::from_utf8_lossy(value).into_owned())
        };
        for (name, wanted) in [
            ("REQUEST_URI", "/a%20b?c=d"),
            ("SCRIPT_NAME", "/a b"),
            ("QUERY_STRING", "c=d"),
            ("REQUEST_METHOD", "POST"),
            ("CONTENT_TYPE", "text/plain"),
            ("CONTENT_LENGTH", "3"),
            ("HTTP_HOST", "shop.localhost:8000"),
            ("SERVER_NAME", "shop.localhost"),
            ("HTTP_COOKIE", "a=1; b=2"),
        ] {
            assert_eq!(value(name).as_deref(), Some(wanted), "{name}");
        }
        for name in ["HTTP_PROXY", "HTTP_X_REAL_IP", "HTTP_CONTENT_TYPE"] {
            assert_eq!(value(name), None, "{name}");
        }
    }
}
