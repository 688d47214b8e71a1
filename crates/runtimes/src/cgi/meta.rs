//! The environment and the arguments of a CGI program (RFC 3875 sections 4.1 and 4.4).

use super::target::Target;
use crate::cgi_variables::is_passed;
use fastcgi::Params;
use forkyard_base::text::percent_decoded;
use forkyard_worker::PATH;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;

/// Builds the environment (`NAME=value`): the worker's own variables, overridden by the request's parameters and the
/// variables that CGI requires.
///
/// Omits empty CONTENT_LENGTH and CONTENT_TYPE (no body, section 4.1.2) and parameters that [`is_passed`] rejects.
pub(super) fn environment(
    own: impl Iterator<Item = (Vec<u8>, Vec<u8>)>,
    params: &Params,
    target: &Target,
    more: &[String],
) -> Vec<CString> {
    let mut variables: Vec<(Vec<u8>, Vec<u8>)> = own.collect();
    let mut set = |name: &[u8], value: &[u8]| match variables.iter_mut().find(|(known, _)| known == name) {
        Some(variable) => variable.1 = value.to_vec(),
        None => variables.push((name.to_vec(), value.to_vec())),
    };
    for (name, value) in params.iter() {
        let says_nothing = value.is_empty() && matches!(name, b"CONTENT_LENGTH" | b"CONTENT_TYPE");
        if is_passed(name, more) && !says_nothing {
            set(name, value);
        }
    }
    set(b"GATEWAY_INTERFACE", b"CGI/1.1");
    set(b"SCRIPT_FILENAME", target.script.as_os_str().as_bytes());
    if !target.tail.is_empty() {
        set(b"PATH_INFO", &target.tail);
        if let Some(name) = params
            .get(b"SCRIPT_NAME")
            .and_then(|name| name.strip_suffix(&*target.tail))
        {
            set(b"SCRIPT_NAME", name);
        }
        if let Some(root) = params.get(b"DOCUMENT_ROOT") {
            set(b"PATH_TRANSLATED", &[root, &target.tail].concat());
        }
    }
    for (name, value) in [
        (&b"PATH"[..], PATH.as_bytes()),
        (b"SERVER_SOFTWARE", b"forkyard"),
        (b"SERVER_PROTOCOL", b"HTTP/1.1"),
        (b"QUERY_STRING", b""),
    ] {
        if !variables.iter().any(|(known, _)| known == name) {
            variables.push((name.to_vec(), value.to_vec()));
        }
    }
    variables
        .into_iter()
        .filter_map(|(name, value)| CString::new([&name[..], b"=", &value].concat()).ok())
        .collect()
}

/// The program's arguments, beginning with its path. With `search`, a query without `=` is a list of encoded words
/// (section 4.4); one malformed word invalidates the list.
pub(super) fn arguments(search: bool, params: &Params, target: &Target) -> Vec<CString> {
    let name = CString::new(target.script.as_os_str().as_bytes()).unwrap_or_default();
    let query = params.get(b"QUERY_STRING").unwrap_or_default();
    let is_read = matches!(params.get(b"REQUEST_METHOD"), Some(b"GET" | b"HEAD"));
    let words = if search && is_read && !query.is_empty() && !query.contains(&b'=') {
        query
            .split(|byte| *byte == b'+')
            .map(|word| CString::new(percent_decoded(word)?).ok())
            .collect::<Option<Vec<CString>>>()
            .unwrap_or_default()
    } else {
        Vec::new()
    };
    std::iter::once(name).chain(words).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn target(tail: &[u8]) -> Target {
        Target {
            script: PathBuf::from("/srv/run.cgi"),
            tail: tail.to_vec(),
        }
    }

    fn params(pairs: &[(&str, &str)]) -> Params {
        let mut params = Params::new();
        for (name, value) in pairs {
            params.set(name.as_bytes(), value.as_bytes());
        }
        params
    }

    fn texts(strings: Vec<CString>) -> Vec<String> {
        strings
            .into_iter()
            .map(|text| text.into_string().unwrap())
            .collect()
    }

    #[test]
    fn the_environment_is_the_requests() {
        let own = [
            (b"PATH".to_vec(), b"/opt/bin".to_vec()),
            (b"A".to_vec(), b"own".to_vec()),
        ];
        let sent = params(&[
            ("A", "sent"),
            ("PATH", "/tmp"),
            ("PERL5OPT", "-Mevil"),
            ("HTTP_PROXY", "http://evil"),
            ("CONTENT_LENGTH", ""),
            ("SCRIPT_NAME", "/run.cgi/x"),
            ("DOCUMENT_ROOT", "/srv"),
        ]);
        let made = texts(environment(
            own.into_iter(),
            &sent,
            &target(b"/x"),
            &["A".to_owned()],
        ));
        for wanted in [
            "PATH=/opt/bin",
            "A=sent",
            "GATEWAY_INTERFACE=CGI/1.1",
            "SCRIPT_FILENAME=/srv/run.cgi",
            "SCRIPT_NAME=/run.cgi",
            "PATH_INFO=/x",
            "PATH_TRANSLATED=/srv/x",
            "QUERY_STRING=",
        ] {
            assert!(made.iter().any(|line| line == wanted), "{wanted} in {made:?}");
        }
        assert!(!made.iter().any(|line| {
            ["HTTP_PROXY", "CONTENT_", "PERL5OPT"]
                .iter()
                .any(|name| line.starts_with(name))
        }));
    }

    #[test]
    fn a_query_is_arguments_only_where_it_is_a_search() {
        let ask = |search, method, query| {
            let sent = params(&[("REQUEST_METHOD", method), ("QUERY_STRING", query)]);
            texts(arguments(search, &sent, &target(b"")))[1..].to_vec()
        };
        assert_eq!(ask(true, "GET", "a+b%20c"), ["a", "b c"]);
        assert_eq!(ask(true, "GET", "a=b"), [""; 0]);
        assert_eq!(ask(true, "POST", "a"), [""; 0]);
        assert_eq!(ask(true, "GET", "%zz"), [""; 0]);
        assert_eq!(ask(true, "GET", "a%00"), [""; 0]);
        assert_eq!(ask(false, "GET", "-s"), [""; 0]);
    }
}
