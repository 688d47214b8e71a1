//! Fuzz targets for a CGI program's environment and its answers.

use super::head::Head;
use super::meta::{arguments, environment};
use super::target::Target;
use fastcgi::Params;
use forkyard_fuzz::in_pieces;
use std::collections::BTreeSet;

pub(crate) fn head(input: &[u8]) {
    for is_http in [false, true] {
        let mut whole = Head::new(is_http);
        let at_once = whole
            .take(input)
            .map(|read| read.map(|(header, rest)| (header, rest.to_vec())));
        let mut parts = Head::new(is_http);
        let mut in_parts = Ok(None);
        in_pieces(input, |piece| match &mut in_parts {
            Ok(None) => {
                in_parts = parts
                    .take(piece)
                    .map(|read| read.map(|(header, rest)| (header, rest.to_vec())))
            }
            Ok(Some((_, body))) => body.extend_from_slice(piece),
            Err(_) => {}
        });
        assert_eq!(at_once, in_parts);
        if let Err(malformed) = &at_once {
            assert!(forkyard_fuzz::is_one_line(&malformed.to_string()), "{malformed}");
        }
        if let Ok(Some((header, body))) = at_once {
            assert!(input.ends_with(&body));
            check(&header, is_http);
            let again = Head::new(false).take(&header);
            assert_eq!(
                again.map(|read| read.map(|(header, _)| header)),
                Ok(Some(header.clone()))
            );
        }
    }
}

fn check(header: &[u8], is_http: bool) {
    let text = header
        .strip_suffix(b"\r\n\r\n")
        .expect("an empty line at the end");
    for line in text.split(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        assert!(
            !line.is_empty() && !line.contains(&b'\r') && !line.contains(&0),
            "{line:?}"
        );
        let name = line.split(|byte| *byte == b':').next().unwrap_or_default();
        let hop = [
            "connection",
            "keep-alive",
            "transfer-encoding",
            "upgrade",
            "trailer",
        ];
        let is_hop = hop.iter().any(|hop| name.eq_ignore_ascii_case(hop.as_bytes()));
        assert!(!is_http || !is_hop, "{line:?}");
    }
}

/// Input lines `NAME=value` are parameters. Every variable of the environment occurs once and comes from CGI, the
/// client's headers or the worker.
pub(crate) fn variables(input: &[u8]) {
    let mut params = Params::new();
    for line in input.split(|byte| *byte == b'\n') {
        let equals = line.iter().position(|byte| *byte == b'=').unwrap_or(line.len());
        params.set(&line[..equals], line.get(equals + 1..).unwrap_or_default());
    }
    let target = Target {
        script: "/srv/cgi/a.cgi".into(),
        tail: params.get(b"PATH_INFO").unwrap_or_default().to_vec(),
    };
    let own = [(b"LANG".to_vec(), b"C".to_vec())];
    let more = ["MORE_*".to_owned()];
    let mut seen = BTreeSet::new();
    for variable in environment(own.into_iter(), &params, &target, &more) {
        let variable = variable.as_bytes();
        let equals = variable.iter().position(|byte| *byte == b'=').expect("a value");
        let name = &variable[..equals];
        assert!(
            seen.insert(name.to_vec()),
            "{:?} twice",
            name.escape_ascii().to_string()
        );
        let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        assert!(!name.is_empty() && name.iter().all(is_word));
        let foreign = [
            "LD_", "PERL", "PYTHON", "RUBY", "NODE_", "BASH", "IFS", "HOME", "TMPDIR", "GCONV", "MALLOC",
        ];
        assert!(
            !foreign.iter().any(|word| name.starts_with(word.as_bytes())),
            "{name:?}"
        );
        assert!(
            name != b"HTTP_PROXY" && (name != b"PATH" || variable == b"PATH=/usr/local/bin:/usr/bin:/bin")
        );
    }
    let query = params.get(b"QUERY_STRING").unwrap_or_default();
    let words = arguments(true, &params, &target);
    assert_eq!(words[0].as_bytes(), b"/srv/cgi/a.cgi");
    assert!(words.len() == 1 || !query.contains(&b'='));
    assert!(
        words
            .iter()
            .skip(1)
            .map(|word| word.as_bytes().len())
            .sum::<usize>()
            <= query.len()
    );
    assert_eq!(arguments(false, &params, &target).len(), 1);
}
