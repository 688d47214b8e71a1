//! Request variables that scripts see.

use super::client::Request;
use super::servers::Setup;
use super::{Pair, pair, scripts};

#[test]
fn server_variables_in_order() {
    let reply = pair().get("/server.php?a=1&b[]=2&b[]=3&c%20d=%41+e&a.b=c");
    assert!(reply.body().contains(r#"["FCGI_ROLE"]=>"#) && reply.body().contains("RESPONDER"));
}

#[test]
fn environment_of_the_pool() {
    let mut setup = Setup::new();
    setup.env = vec![
        ("FIRST".into(), "1".into()),
        ("HOME".into(), "/nowhere".into()),
        ("LAST".into(), "a b".into()),
    ];
    let reply = Pair::start(&setup).get("/server.php");
    assert!(reply.body().contains("/nowhere") && !reply.body().contains("SECRET"));
}

#[test]
fn odd_names_and_values() {
    let request = Request::get(&scripts(), "/server.php?x=%00y&=z&&q")
        .with("HTTP_X_ODD", "caf\u{e9}\r\n\t\"<>")
        .with("HTTP_PROXY", "http://evil.example/")
        .with("with.dot and[blank]", "v")
        .with("EMPTY", "")
        .with("FCGI_ROLE", "FILTER")
        .with("LONG", &"l".repeat(60_000))
        .with("NUL", "before\0after")
        .with("HTTP_COOKIE", "a=1; b=%20x; a=2; c[d]=e; noval; =z");
    pair().same(&request);
}

#[test]
fn repeated_parameters() {
    let mut request = Request::get(&scripts(), "/server.php");
    request
        .params
        .insert(0, (b"HTTP_HOST".to_vec(), b"first.example".to_vec()));
    request
        .params
        .push((b"QUERY_STRING".to_vec(), b"last=1".to_vec()));
    pair().same(&request);
}

#[test]
fn many_parameters() {
    let mut request = Request::get(&scripts(), "/server.php");
    for i in 0..300 {
        request = request.with(&format!("HTTP_X_{i}"), &format!("value {i}"));
    }
    pair().same(&request);
}

#[test]
fn variables_order_with_environment() {
    let setup = Setup::new().ini("variables_order = EGPCS");
    Pair::start(&setup).get("/server.php?a=1");
    let setup = Setup::new().ini("auto_globals_jit = 0");
    Pair::start(&setup).get("/server.php?a=1");
}

#[test]
fn authentication() {
    let pair = pair();
    for value in [
        "Basic dXNlcjpwYSBzczp3b3Jk",
        "basic dXNlcjo=",
        "Digest username=\"x\"",
        "Bearer abc",
        "Basic !!",
        "",
    ] {
        pair.same(&Request::get(&scripts(), "/server.php").with("HTTP_AUTHORIZATION", value));
    }
    assert!(!pair.get("/server.php").body().contains("PHP_AUTH"));
}

#[test]
fn sapi_functions_and_settings() {
    let reply = pair().get("/sapi.php");
    assert!(reply.body().contains("fpm-fcgi") && reply.body().contains("opcache"));
}

#[test]
fn status_of_the_pool() {
    let pair = pair();
    pair.get("/status.php?a=1");
    let request = Request::get(&scripts(), "/status.php?b=%22").with("HTTP_AUTHORIZATION", "Basic dXNlcjpw");
    assert!(pair.same(&request).body().contains("\"user\""));
    for length in [500, 1, 500, 1] {
        pair.get(&format!("/status.php?q={}", "x".repeat(length)));
    }
}

#[test]
fn module_information() {
    let pair = pair();
    let uri = "/info.php";
    let module = |socket| {
        let text = Request::get(&scripts(), uri).send(socket).body();
        let start = text.find("module_cgi-fcgi").expect("the module is shown");
        text[start..]
            .split("module_")
            .nth(1)
            .unwrap_or_default()
            .to_owned()
    };
    assert_eq!(module(&pair.fpm.socket), module(&pair.forkyard.socket));
}

#[test]
fn persistent_things_and_sessions() {
    let pair = pair();
    for _ in 0..3 {
        pair.get("/sqlite.php?persistent=0");
        pair.get("/sqlite.php?persistent=1");
    }
    let (one, two) = (super::servers::directory(), super::servers::directory());
    for _ in 0..3 {
        let ask = |directory: &tempfile::TempDir, socket| {
            Request::get(
                &scripts(),
                &format!("/session.php?path={}", directory.path().display()),
            )
            .send(socket)
        };
        super::assert_equal(&ask(&one, &pair.fpm.socket), &ask(&two, &pair.forkyard.socket));
    }
}
