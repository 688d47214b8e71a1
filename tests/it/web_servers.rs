//! The sites of `docs/howto/web-servers.md`, run by the web servers they are for.

mod backends;
mod front;

use crate::it::documents::blocks;
use crate::support::prelude::*;
use backends::Backends;
use front::Front;

const CASES: &[(&[&str], &str)] = &[
    (&[], "/vars.php"),
    (&[], "/vars.php?x=1&y=%20a+b"),
    (&[], "/vars.php/"),
    (&[], "/vars.php/some/path?x=1"),
    (&[], "/vars.php/sp%20ace/p+lus%2Bx/%C3%A4"),
    (&[], "/vars.php/a//b/../c"),
    (&[], "/sub/vars.php/deep.php/x"),
    (&[], "/with%20space.php"),
    (&[], "/with%20space.php/a%20b?c%20d"),
    (&[], "/a+b.php?a+b"),
    (&[], "/a+b.php/c+d"),
    (&[], "/"),
    (&[], "/?x=1"),
    (&[], "/sub/"),
    (&[], "/front/controller?x=1"),
    (&[], "/front/con%20trol+ler"),
    (&[], "/missing.php"),
    (&[], "/missing.php/x"),
    (&[], "/sub/missing.php?x"),
    (&["--head"], "/vars.php"),
    (&["--head"], "/down.php"),
    (&[], "/redirect.php"),
    (&[], "/teapot.php"),
    (&["--data", "a=1&b=2"], "/vars.php?x=1"),
    (&["--request", "PUT", "--data", "put"], "/up.php"),
    (&["--request", "DELETE"], "/vars.php"),
    (&["--header", "X-A: b c", "--user", "me:secret"], "/vars.php"),
];

fn examples(kind: &str) -> Vec<String> {
    let all = blocks::read(&blocks::root().join("docs/howto/web-servers.md")).into_iter();
    let texts: Vec<String> = all
        .filter(|block| block.kind == kind)
        .map(|block| block.text)
        .collect();
    assert!(!texts.is_empty(), "no example for {kind}");
    texts
}

fn compare(front: &Front, backends: &Backends) {
    let mut differences = Vec::new();
    for (arguments, path) in CASES {
        let answers: Vec<String> = (front.ports.iter())
            .map(|port| ask(*port, arguments, path))
            .collect();
        for (index, name) in [(1, "forkyard"), (2, "forkyard-fpm")] {
            if answers[index] != answers[0] {
                differences.push(format!(
                    "=== {arguments:?} {path}\n--- php-fpm\n{}\n--- {name}\n{}\n",
                    answers[0], answers[index]
                ));
            }
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    for (index, port) in front.ports.iter().enumerate() {
        let url = |path: &str| format!("http://127.0.0.1:{port}{path}");
        let vars = curl(&[&url("/vars.php?x=1")]);
        assert_contains(&vars, "\"SCRIPT_NAME\": \"\\/vars.php\"");
        let body = backends.site.path().join("body");
        let sent = curl(&[
            "--header",
            "Expect:",
            "--data-binary",
            &format!("@{}", body.display()),
            &url("/up.php"),
        ]);
        assert_eq!(sent, format!("1048576 {}", backends.body_md5));
        assert_eq!(curl(&[&url("/down.php")]).len(), 1 << 20);
        if index == 0 {
            continue;
        }
        let output = Command::new("ab")
            .args(["-q", "-k", "-n", "200", "-c", "8", &url("/vars.php/x?y=1")])
            .output()
            .expect("ab (Debian package apache2-utils)");
        let said = String::from_utf8_lossy(&output.stdout);
        assert_contains(&said, "Complete requests:      200\nFailed requests:        0");
        assert_lacks(&said, "Non-2xx");
    }
}

fn ask(port: u16, arguments: &[&str], path: &str) -> String {
    const SERVERS_OWN: [&str; 9] = [
        "date:",
        "server:",
        "connection:",
        "keep-alive:",
        "etag:",
        "last-modified:",
        "accept-ranges:",
        "transfer-encoding:",
        "alt-svc:",
    ];
    let url = format!("http://127.0.0.1:{port}{path}");
    let mut all = vec!["--include", "--path-as-is", "--header", "Host: site.test"];
    all.extend_from_slice(arguments);
    all.push(&url);
    let text = curl(&all);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let own = |line: &&str| {
        let line = line.to_ascii_lowercase();
        !SERVERS_OWN.iter().any(|name| line.starts_with(name))
    };
    let mut head: Vec<&str> = head.split("\r\n").filter(own).collect();
    head[1..].sort_unstable();
    format!("{}\n\n{body}", head.join("\n"))
}

#[test]
fn nginx() {
    let backends = Backends::start();
    for example in examples("nginx") {
        compare(&Front::nginx(&example, &backends), &backends);
    }
}

#[test]
fn apache() {
    let backends = Backends::start();
    for example in examples("apache") {
        compare(&Front::apache(&example, &backends), &backends);
    }
}

#[test]
fn lighttpd() {
    let backends = Backends::start();
    for example in examples("lighttpd") {
        if !example.contains("fix-root-scriptname") {
            compare(&Front::lighttpd(&example, &backends), &backends);
        }
    }
}

#[test]
fn lighttpd_with_one_address_for_the_whole_site() {
    let backends = Backends::start();
    let all = examples("lighttpd").into_iter();
    let roots: Vec<String> = all.filter(|text| text.contains("fix-root-scriptname")).collect();
    assert_eq!(roots.len(), 1);
    let front = Front::lighttpd(&roots[0], &backends);
    for path in ["/", "/front/x?a=1", "/vars.php", "/vars.php/x"] {
        let answers: Vec<String> = (front.ports.iter()).map(|port| ask(*port, &[], path)).collect();
        assert_eq!(answers[0], answers[1], "{path}");
        assert_eq!(answers[0], answers[2], "{path}");
    }
}

#[test]
fn caddy() {
    let backends = Backends::start();
    for example in examples("caddy") {
        compare(&Front::caddy(&example, &backends), &backends);
    }
}
