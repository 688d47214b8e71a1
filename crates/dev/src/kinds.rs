//! What differs between kinds of applications. The compiler asks here for a new kind.

use forkyard_protocol::inspector::Kind;

/// What there is to know of a kind.
pub(crate) struct Traits {
    /// For people.
    pub(crate) name: &'static str,
    /// A client may have a WebSocket.
    pub(crate) has_websockets: bool,
    /// It reads no body of an unknown length, as CGI has none.
    pub(crate) needs_length: bool,
    /// It is a program that gets CGI's parameters as they are.
    pub(crate) is_plain_cgi: bool,
    /// One of these runs it, and the packages that have it. None: the daemon says what is missing.
    pub(crate) programs: (&'static [&'static str], &'static str),
}

pub(crate) fn traits(kind: Kind) -> Traits {
    let python: (&[&str], &str) = (&["/usr/bin/python3"], "python3");
    let (name, has_websockets, needs_length, is_plain_cgi, programs) = match kind {
        Kind::Php => ("PHP", false, true, false, (&[][..], "")),
        Kind::Wsgi => ("Python (WSGI)", false, false, false, python),
        Kind::Asgi => ("Python (ASGI)", true, false, false, python),
        Kind::Rack => (
            "Ruby (Rack)",
            false,
            false,
            false,
            (&["/usr/bin/ruby"][..], "ruby ruby-rack"),
        ),
        Kind::Node => ("Node.js", true, false, false, (&["node"][..], "nodejs")),
        Kind::Http => ("a program that speaks HTTP", true, false, false, (&[][..], "")),
        Kind::Fastcgi => ("a program that speaks FastCGI", false, true, true, (&[][..], "")),
        Kind::Cgi => ("CGI", false, true, true, (&[][..], "")),
    };
    Traits {
        name,
        has_websockets,
        needs_length,
        is_plain_cgi,
        programs,
    }
}
