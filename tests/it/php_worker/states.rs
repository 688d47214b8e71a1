//! State that a request sees of earlier ones: the same in an ordinary pool and in the loop.

use super::{ask, both, case, post, say};
use crate::support::prelude::*;

pub(super) const POOLS: [&str; 3] = ["www", "loop", "snap"];
const FORM: &str = "application/x-www-form-urlencoded";
const MULTIPART: &str = "multipart/form-data; boundary=b";

fn upload(name: &str, text: &str) -> String {
    format!(
        "--b\r\nContent-Disposition: form-data; name=\"f\"; filename=\"{name}\"\r\nContent-Type: text/plain\r\n\r\n{text}\r\n--b--\r\n"
    )
}

pub(super) fn twice(daemon: &Daemon, name: &str, query: &str) -> String {
    let mut all: Vec<String> = Vec::new();
    for pool in POOLS {
        for _ in 0..2 {
            all.push(say(daemon, pool, name, query));
        }
    }
    all.dedup();
    assert_eq!(all.len(), 1, "{name}: {all:?}");
    all.remove(0)
}

fn rich(daemon: &Daemon) -> (Params, &'static str) {
    let body = "p=posted&q[]=1";
    let params = post(case(daemon, "superglobals", "token=one"), FORM, body)
        .with("HTTP_COOKIE", "a=first; secret=s")
        .with("HTTP_X_SECRET", "s")
        .with("HTTP_AUTHORIZATION", "Basic dXNlcjpwYXNz");
    (params, body)
}

#[test]
fn the_input_of_a_request_is_its_own() {
    let daemon = both("", "");
    let (params, body) = rich(&daemon);
    let poor = case(&daemon, "superglobals", "token=two");
    let expected_rich = r#"["one",{"p":"posted","q":["1"]},{"a":"first","secret":"s"},[],{"case":"superglobals","token":"one","p":"posted","q":["1"]},["HTTP_AUTHORIZATION","HTTP_COOKIE","HTTP_HOST","HTTP_X_SECRET"],"user","pass","application\/x-www-form-urlencoded","a=first; secret=s",false,"case=superglobals&token=one"]"#;
    let expected_poor = r#"["two",[],[],[],{"case":"superglobals","token":"two"},["HTTP_HOST"],null,null,"",false,false,"case=superglobals&token=two"]"#;
    each(POOLS, |pool| {
        for _ in 0..2 {
            assert_eq!(ask(&daemon, pool, &params, body.as_bytes()).body(), expected_rich);
            assert_eq!(ask(&daemon, pool, &poor, b"").body(), expected_poor, "{pool}");
        }
        let sent = post(case(&daemon, "input", ""), "application/json", "{\"a\":1}");
        for _ in 0..2 {
            assert_eq!(ask(&daemon, pool, &sent, b"{\"a\":1}").body(), "{\"a\":1}|7");
            assert_eq!(say(&daemon, pool, "input", ""), "|0", "{pool}");
        }
        let headers = case(&daemon, "headers", "token=t")
            .with("HTTP_COOKIE", "a=b")
            .with("HTTP_X_B", "c");
        for _ in 0..2 {
            assert_eq!(
                ask(&daemon, pool, &headers, b"").body(),
                r#"[{"Content-Length":"","Content-Type":"","Cookie":"a=b","Host":"localhost","X-B":"c"},"t","b",false]"#
            );
            assert_eq!(
                say(&daemon, pool, "headers", "token=u"),
                r#"[{"Content-Length":"","Content-Type":"","Host":"localhost"},"u",null,false]"#
            );
        }
    });
    assert_eq!(twice(&daemon, "time", ""), "now new");
    // A handle of an earlier request's body is closed, or it would read another body.
    let sent = post(case(&daemon, "held input", ""), "text/plain", "secret");
    let said: Vec<String> = (0..3)
        .map(|_| ask(&daemon, "loop", &sent, b"secret").body())
        .collect();
    assert_eq!(said, ["none", "closed", "closed"]);
}

#[test]
fn a_session_leaves_neither_data_nor_id() {
    let application =
        "php_admin_value = { \"session.save_path\" = \"DIR\", \"session.gc_probability\" = \"0\" }\n";
    let daemon = both("", application);
    each(POOLS, |pool| {
        for round in ["a", "b"] {
            let id = format!("id={pool}{round}");
            assert_eq!(
                say(&daemon, pool, "session", &format!("token=x&{id}")),
                format!("[] {pool}{round}")
            );
            assert_eq!(say(&daemon, pool, "session before", ""), r#"[true,"",null]"#);
            assert_eq!(say(&daemon, pool, "session", "token=y"), "[] new", "{pool}");
            assert_eq!(
                say(&daemon, pool, "superglobals", "token=z")
                    .matches("false")
                    .count(),
                2
            );
            assert_eq!(
                say(&daemon, pool, "session", &format!("token=y&{id}")),
                format!("{{\"x\":1}} {pool}{round}"),
                "what was written is there"
            );
        }
        for count in ["1", "2", "3"] {
            assert_eq!(
                say(&daemon, pool, "session left open", &format!("id={pool}open")),
                count
            );
        }
    });
}

#[test]
fn an_answer_is_its_requests_own() {
    let daemon = both("", "");
    each(POOLS, |pool| {
        for token in ["one", "two"] {
            let answer = ask(
                &daemon,
                pool,
                &case(&daemon, "response", &format!("token={token}")),
                b"",
            );
            let text = answer.text();
            assert_eq!(answer.body(), "200 [] 0 0", "{pool}: {text}");
            assert_starts(&text, "Status: 418");
            assert_contains(&text, &format!("X-Left: {token}\r\n"));
            assert_contains(&text, &format!("X-Callback: {token}\r\n"));
            assert_eq!(text.matches("Set-Cookie").count(), 1, "{text}");
            let next = ask(&daemon, pool, &case(&daemon, "", "token=next"), b"").text();
            assert!(
                !next.contains("X-") || next.matches("X-").count() == next.matches("X-Powered-By").count(),
                "{next}"
            );
            assert_lacks(&next, "Status");
            assert_lacks(&next, "Cookie");
            assert_ends(&next, "hello next");
        }
    });
    assert_eq!(twice(&daemon, "shutdown", ""), "body first second");
    assert_eq!(twice(&daemon, "destructor", ""), "here gone");
    assert_eq!(twice(&daemon, "exit", ""), "before exit and shutdown");
    assert_eq!(twice(&daemon, "nested exit", ""), "buffered");
    assert_eq!(twice(&daemon, "exception handler", ""), "handled it");
    each(POOLS, |pool| {
        for token in ["a", "b"] {
            let answer = ask(
                &daemon,
                pool,
                &case(&daemon, "exception", &format!("token={token}")),
                b"",
            );
            assert_starts(&answer.text(), "Status: 500");
            let message = format!("Uncaught RuntimeException: uncaught in {token}");
            assert_contains(&answer.error_text(), &message);
        }
        let file = daemon.dir.join(format!("{pool}.finished"));
        for _ in 0..2 {
            let said = say(&daemon, pool, "finish", &format!("file={}", file.display()));
            assert_eq!(said, "answered");
            until("the rest of the script", || {
                fs::read_to_string(&file).ok().filter(|text| text == "went on")
            });
            fs::remove_file(&file).expect("remove");
        }
    });
    assert_eq!(twice(&daemon, "directory", ""), "home 022");
}

#[test]
fn an_upload_is_gone_with_its_request() {
    let daemon = both("", "");
    each(POOLS, |pool| {
        let noted = daemon.dir.join(format!("{pool}.path"));
        let query = format!("file={}", noted.display());
        for name in ["one.txt", "two.txt"] {
            let body = upload(name, "text");
            let params = post(case(&daemon, "upload", &query), MULTIPART, &body);
            let said = ask(&daemon, pool, &params, body.as_bytes()).body();
            assert_eq!(said, format!("[\"{name}\",true,\"text\",null,false]"), "{pool}");
            let path = read_file(&noted);
            assert!(!path.is_empty());
            wait_until("its end", || !Path::new(&path).exists());
            assert_eq!(
                say(&daemon, pool, "upload", &query),
                "[null,false,false,null,false]"
            );
        }
    });
    assert_eq!(
        twice(&daemon, "upload", &format!("file={}/none", daemon.dir.display())),
        "[null,false,false,null,false]"
    );
}

fn next(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

#[test]
fn no_answer_has_another_users_token() {
    let application =
        "php_admin_value = { \"session.save_path\" = \"DIR\", \"session.gc_probability\" = \"0\" }\n";
    let daemon = both("", application);
    let mut seed = 0x2545_f491_4f6c_dd1d;
    for round in 0..200 {
        let bits = next(&mut seed);
        let (own, other) = match bits & 1 {
            0 => ("alicetoken", "bobtoken"),
            _ => ("bobtoken", "alicetoken"),
        };
        let mut query = format!("token={own}");
        for (bit, text) in [
            (2, format!("&session={own}")),
            (4, "&header=1".into()),
            (8, "&fails=1".into()),
        ] {
            if bits & bit != 0 {
                query.push_str(&text);
            }
        }
        let mut params = case(&daemon, "everything", &query);
        if bits & 16 != 0 {
            params = params.with("HTTP_COOKIE", &format!("user={own}"));
        }
        if bits & 32 != 0 {
            let credentials = match own {
                "alicetoken" => "dXNlcjphbGljZXRva2Vu",
                _ => "dXNlcjpib2J0b2tlbg==",
            };
            params = params.with("HTTP_AUTHORIZATION", &format!("Basic {credentials}"));
        }
        let body = match bits & 192 {
            64 => format!("user={own}"),
            128 => upload(&format!("{own}.txt"), own),
            _ => String::new(),
        };
        if !body.is_empty() {
            let content_type = if bits & 64 != 0 { FORM } else { MULTIPART };
            params = post(params, content_type, &body);
        }
        let pool = if round % 2 == 0 { "loop" } else { "snap" };
        let answer = ask(&daemon, pool, &params, body.as_bytes());
        let all = format!("{}{}", answer.text(), answer.error_text());
        assert!(answer.ended && all.contains(own), "round {round}: {all}");
        assert!(!all.contains(other), "round {round}, {bits:b}: {all}");
        assert_eq!(all.contains("X-User"), bits & 4 != 0, "round {round}: {all}");
    }
}

#[test]
fn what_the_application_keeps_stays_in_the_loop_and_nowhere_else() {
    let daemon = both(
        "",
        "php_value = { \"date.timezone\" = \"Europe/Paris\", precision = \"14\" }\n",
    );
    let fresh = "1 no no 14 no Europe/Paris no";
    assert_eq!(say(&daemon, "www", "memory of the process", ""), fresh);
    assert_eq!(say(&daemon, "www", "memory of the process", ""), fresh);
    assert_eq!(say(&daemon, "loop", "memory of the process", ""), fresh);
    assert_eq!(
        say(&daemon, "loop", "memory of the process", ""),
        "2 yes yes 5 yes Asia/Tokyo yes"
    );
    for pool in POOLS {
        assert_eq!(say(&daemon, pool, "peak", "big=1"), "much", "{pool}");
        assert_eq!(say(&daemon, pool, "peak", ""), "little", "{pool}");
    }
    let functions = "[true,true,true,true,true,true]";
    let marks: Value = serde_json::from_str(&say(&daemon, "loop", "marks", "")).expect("JSON");
    assert_eq!(marks.to_string(), format!("[\"1\",true,{functions}]"));
    let marks = say(&daemon, "www", "marks", "");
    assert_eq!(
        marks,
        format!("[null,false,{}]", functions.replace("true", "false"))
    );
}

#[test]
fn settings_that_come_with_a_request_are_refused_and_compression_is_each_answers_own() {
    let daemon = both(
        "",
        "php_admin_value = { \"zlib.output_compression\" = \"1\" }\nrequest_settings = \"all\"\n",
    );
    each(POOLS, |pool| {
        let wanted = case(&daemon, "gzip", "").with("HTTP_ACCEPT_ENCODING", "gzip");
        for _ in 0..2 {
            let answer = ask(&daemon, pool, &wanted, b"").text();
            assert!(answer.contains("Content-Encoding: gzip"), "{pool}: {answer}");
            let plain = ask(&daemon, pool, &case(&daemon, "gzip", ""), b"").text();
            assert_lacks(&plain, "Content-Encoding");
            assert_contains(&plain, "compressed compressed");
        }
    });
    let sent = case(&daemon, "", "token=t").with("PHP_VALUE", "auto_prepend_file=/etc/passwd\nprecision=3");
    for _ in 0..2 {
        assert_eq!(ask(&daemon, "loop", &sent, b"").body(), "hello t");
    }
    daemon.wait_for("[pool loop] refused the settings that came with a request (PHP_VALUE, PHP_ADMIN_VALUE)");
    assert_eq!(daemon.log().matches("refused the settings").count(), 1);
}
