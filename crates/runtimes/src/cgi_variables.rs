//! Which of a request's parameters become environment variables of a program.
//!
//! CGI programs, and processes that FastCGI programs start, inherit them. `PERL5OPT`, `LD_PRELOAD`, `PATH` or `IFS`
//! would decide what code runs, so parameters are allowed by a list.

/// RFC 3875 section 4.1, common additions of web servers, and the parameters of FastCGI filters (section 6.4).
const KNOWN: &[&[u8]] = &[
    b"AUTH_TYPE",
    b"CONTENT_LENGTH",
    b"CONTENT_TYPE",
    b"CONTEXT_DOCUMENT_ROOT",
    b"CONTEXT_PREFIX",
    b"DOCUMENT_ROOT",
    b"DOCUMENT_URI",
    b"FCGI_DATA_LAST_MOD",
    b"FCGI_DATA_LENGTH",
    b"GATEWAY_INTERFACE",
    b"HTTPS",
    b"PATH_INFO",
    b"PATH_TRANSLATED",
    b"QUERY_STRING",
    b"REMOTE_ADDR",
    b"REMOTE_HOST",
    b"REMOTE_IDENT",
    b"REMOTE_PORT",
    b"REMOTE_USER",
    b"REQUEST_METHOD",
    b"REQUEST_SCHEME",
    b"REQUEST_URI",
    b"SCRIPT_FILENAME",
    b"SCRIPT_NAME",
    b"SCRIPT_URI",
    b"SCRIPT_URL",
    b"SERVER_ADDR",
    b"SERVER_ADMIN",
    b"SERVER_NAME",
    b"SERVER_PORT",
    b"SERVER_PROTOCOL",
    b"SERVER_SIGNATURE",
    b"SERVER_SOFTWARE",
    b"SSL_CIPHER",
    b"SSL_PROTOCOL",
    b"SSL_TLS_SNI",
    b"UNIQUE_ID",
];

/// Name prefixes: client headers, Apache's values before a rewrite, the client certificate, and a job's own data.
const FAMILIES: &[&[u8]] = &[b"HTTP_", b"REDIRECT_", b"SSL_CLIENT_", b"FORKYARD_JOB_"];

/// The client header `Proxy` would become this variable, which names a proxy to libraries (CVE-2016-5385). No list allows
/// it.
const NEVER: &[u8] = b"HTTP_PROXY";

/// Whether a program receives a parameter. `more`: names from the configuration, where a final `*` matches any rest.
pub(super) fn is_passed(name: &[u8], more: &[String]) -> bool {
    let is_word = !name.is_empty()
        && name
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    let is_listed = |listed: &String| match listed.strip_suffix('*') {
        Some(begin) => name.starts_with(begin.as_bytes()),
        None => name == listed.as_bytes(),
    };
    is_word
        && name != NEVER
        && (KNOWN.contains(&name)
            || FAMILIES.iter().any(|family| name.starts_with(family))
            || more.iter().any(is_listed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_gets_what_a_request_is_made_of_and_what_is_listed() {
        let passes = |name: &[u8]| is_passed(name, &[]);
        assert!(KNOWN.iter().all(|name| passes(name)));
        for name in ["HTTP_HOST", "HTTP_X_OWN", "REDIRECT_STATUS", "SSL_CLIENT_S_DN"] {
            assert!(passes(name.as_bytes()), "{name}");
        }
        for name in [
            "",
            "HTTP_PROXY",
            "HTTP_X%%",
            "BASH_FUNC_x%%",
            "PATH",
            "IFS",
            "ENV",
            "PERL5OPT",
            "PERL5LIB",
            "PYTHONPATH",
            "RUBYOPT",
            "NODE_OPTIONS",
            "LD_PRELOAD",
            "LD_LIBRARY_PATH",
            "GCONV_PATH",
            "SSL_CERT_FILE",
            "PHP_VALUE",
            "PHP_ADMIN_VALUE",
            "path_info",
            "HTTP_A=B",
            "HTTP_A\0B",
        ] {
            assert!(!passes(name.as_bytes()), "{name}");
        }
        let more = [
            "GIT_*".to_owned(),
            "CGIT_CONFIG".to_owned(),
            "HTTP_PROXY".to_owned(),
        ];
        for (name, is_in) in [
            ("GIT_PROJECT_ROOT", true),
            ("CGIT_CONFIG", true),
            ("CGIT_CONFIGS", false),
            ("GIT", false),
            ("GIT_%", false),
            ("HTTP_PROXY", false),
        ] {
            assert_eq!(is_passed(name.as_bytes(), &more), is_in, "{name}");
        }
    }
}
