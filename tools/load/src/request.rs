//! Encodes the request: nginx's stock `fastcgi_params` and a browser's usual headers.

use crate::arguments::Arguments;
use fastcgi::Request;

/// Encodes the request that all clients send.
pub(crate) fn encode(arguments: &Arguments) -> Vec<u8> {
    let params = params(arguments);
    let params: Vec<(&[u8], &[u8])> = params
        .iter()
        .map(|(name, value)| (name.as_bytes(), value.as_bytes()))
        .collect();
    let body = vec![b'x'; arguments.body_bytes];
    let mut wire = Vec::new();
    Request {
        keep: arguments.keep,
        params: &params,
        body: &body,
        ..Request::default()
    }
    .encode(&mut wire);
    wire
}

fn params(arguments: &Arguments) -> Vec<(String, String)> {
    let (root, name) = match arguments.script.rsplit_once('/') {
        Some((root, name)) => (root, format!("/{name}")),
        None => ("", format!("/{}", arguments.script)),
    };
    let uri = arguments.uri.as_ref().unwrap_or(&name);
    let (document, query) = uri.split_once('?').unwrap_or((uri, ""));
    let is_post = arguments.body_bytes > 0;
    let length = if is_post {
        arguments.body_bytes.to_string()
    } else {
        String::new()
    };
    let all = [
        ("SCRIPT_FILENAME", arguments.script.as_str()),
        ("QUERY_STRING", query),
        ("REQUEST_METHOD", if is_post { "POST" } else { "GET" }),
        (
            "CONTENT_TYPE",
            if is_post { "application/octet-stream" } else { "" },
        ),
        ("CONTENT_LENGTH", &length),
        ("SCRIPT_NAME", &name),
        ("REQUEST_URI", uri),
        ("DOCUMENT_URI", document),
        ("DOCUMENT_ROOT", root),
        ("SERVER_PROTOCOL", "HTTP/1.1"),
        ("REQUEST_SCHEME", "http"),
        ("GATEWAY_INTERFACE", "CGI/1.1"),
        ("SERVER_SOFTWARE", "nginx/1.22.1"),
        ("REMOTE_ADDR", "127.0.0.1"),
        ("REMOTE_PORT", "50000"),
        ("SERVER_ADDR", "127.0.0.1"),
        ("SERVER_PORT", "80"),
        ("SERVER_NAME", "localhost"),
        ("REDIRECT_STATUS", "200"),
        ("HTTP_HOST", "localhost"),
        (
            "HTTP_USER_AGENT",
            "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
        ),
        (
            "HTTP_ACCEPT",
            "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
        ),
        ("HTTP_ACCEPT_LANGUAGE", "en-GB,en;q=0.5"),
        ("HTTP_ACCEPT_ENCODING", "gzip, deflate, br"),
    ];
    let mut params: Vec<(String, String)> = all
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    for (name, value) in &arguments.params {
        match params.iter_mut().find(|(known, _)| known == name) {
            Some(pair) => pair.1.clone_from(value),
            None => params.push((name.clone(), value.clone())),
        }
    }
    params
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[test]
    fn the_uri_and_own_parameters_are_told() {
        let arguments = Arguments::parse_from([
            "forkyard-load",
            "--connect=/socket",
            "--script=/srv/www/a.php",
            "--uri=/a.php/b?c=d",
            "--param=HTTP_HOST=example.org",
            "--param=PHP_VALUE=precision=3",
            "--body-bytes=7",
        ]);
        let params = params(&arguments);
        let value = |name| {
            params
                .iter()
                .find(|(known, _)| known == name)
                .map(|(_, value)| value.as_str())
        };
        assert_eq!(value("DOCUMENT_ROOT"), Some("/srv/www"));
        assert_eq!(value("SCRIPT_NAME"), Some("/a.php"));
        assert_eq!(value("DOCUMENT_URI"), Some("/a.php/b"));
        assert_eq!(value("QUERY_STRING"), Some("c=d"));
        assert_eq!(value("HTTP_HOST"), Some("example.org"));
        assert_eq!(value("PHP_VALUE"), Some("precision=3"));
        assert_eq!(
            (value("REQUEST_METHOD"), value("CONTENT_LENGTH")),
            (Some("POST"), Some("7"))
        );
    }
}
