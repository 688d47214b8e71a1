//! Differences between kinds of applications. The exhaustive matches make the compiler ask about a new kind.

use forkyard_protocol::inspector::Kind;

pub(crate) struct Traits {
    pub(crate) name: &'static str,
    pub(crate) has_websockets: bool,
    pub(crate) needs_length: bool,
    pub(crate) is_plain_cgi: bool,
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
