//! Everything a site does except answering 200 to a GET.

use super::{Site, assert_quiet, http};
use crate::support::nginx::curl;

const SETTINGS: &str = "pm = \"static\"\nmax_children = 2\n";

fn start() -> Site {
    let site = Site::start(SETTINGS, "", "");
    let index = "<?php header('X-Made-By: script');
        echo $_SERVER['SCRIPT_NAME'], '|', $_SERVER['PATH_INFO'] ?? '-', '|', $_SERVER['PHP_SELF'], '|', $_SERVER['QUERY_STRING'], '|', $_SERVER['REQUEST_METHOD'];";
    site.write("index.php", index);
    site
}

#[test]
fn what_follows_the_script_is_path_info() {
    let site = start();
    let answer = site.get("/index.php/foo/b%20ar?q=1&r=%2F").text();
    assert_eq!(answer, "/index.php|/foo/b ar|/index.php/foo/b ar|q=1&r=%2F|GET");
    assert_eq!(site.get("/?x").text(), "/index.php||/index.php|x|GET");
    assert_quiet(&site.daemon);
}

#[test]
fn head_has_the_headers_and_no_body() {
    let site = start();
    let answer = http(&["--head", &site.nginx.url("/index.php")]);
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("X-Made-By"), Some("script"));
    assert!(answer.body.is_empty());
}

#[test]
fn a_script_that_is_not_there_is_404_and_a_text_file_403() {
    let site = start();
    site.write("notes.txt", "<?php echo 'ran';");
    let missing = site.get("/missing.php");
    assert_eq!(
        (missing.status, missing.text().as_str()),
        (404, "File not found.\n")
    );
    let text = site.get("/notes.txt");
    assert_eq!((text.status, text.text().as_str()), (403, "Access denied.\n"));
    assert!(!text.text().contains("ran"));
}

#[test]
fn scripts_choose_status_and_redirect() {
    let site = start();
    let script = "<?php switch ($_GET['do']) {
        case 'found': header('Location: /index.php?there'); break;
        case 'moved': header('Location: http://example.org/', true, 301); break;
        case 'gone': http_response_code(410); echo 'gone'; break;
        case 'status': header('Status: 418 Teapot'); break;
        case 'nothing': http_response_code(204); break;
        case 'cookies': setcookie('a', '1'); setcookie('b', '2'); break;
        case 'fatal': undefined_function(); }";
    site.write("do.php", script);
    let status = |what: &str| {
        let answer = site.get(&format!("/do.php?do={what}"));
        (answer.status, answer.header("Location").unwrap_or("-").to_owned())
    };
    assert_eq!(status("found"), (302, "/index.php?there".to_owned()));
    assert_eq!(status("moved"), (301, "http://example.org/".to_owned()));
    assert_eq!(status("gone"), (410, "-".to_owned()));
    assert_eq!(status("status").0, 418);
    assert_eq!(status("nothing").0, 204);
    assert_eq!(status("fatal").0, 500);
    let followed = curl(&["--location", &site.nginx.url("/do.php?do=found")]);
    assert_eq!(followed, "/index.php||/index.php|there|GET");
    let cookies = site.get("/do.php?do=cookies");
    assert_eq!(
        cookies.head.matches("Set-Cookie: ").count(),
        2,
        "{}",
        cookies.head
    );
    assert_eq!(site.get("/?x").status, 200);
}

#[test]
fn forms_cookies_and_authentication_reach_the_script() {
    let site = start();
    let script = "<?php echo json_encode([$_POST, $_COOKIE, $_SERVER['PHP_AUTH_USER'] ?? null,
        $_SERVER['PHP_AUTH_PW'] ?? null, getallheaders()['X-Own'] ?? null]);";
    site.write("form.php", script);
    let arguments = [
        "--data-urlencode",
        "list[a][]=ü &",
        "--data-urlencode",
        "list[a][]=2",
        "--cookie",
        "one=1; two=zw%20ei",
        "--user",
        "ada:se:cret",
        "--header",
        "X-Own: mine",
    ];
    let answer = http(&[&arguments[..], &[&site.nginx.url("/form.php")]].concat()).text();
    let seen: serde_json::Value = serde_json::from_str(&answer).expect("JSON");
    let wanted = serde_json::json!([
        {"list": {"a": ["ü &", "2"]}},
        {"one": "1", "two": "zw ei"},
        "ada",
        "se:cret",
        "mine"
    ]);
    assert_eq!(seen, wanted);
}

#[test]
fn scripts_with_thousands_of_functions_are_compiled_and_cached() {
    let application = "php_admin_value = { opcache.file_update_protection = 0 }\n";
    let site = Site::start("pm = \"static\"\nmax_children = 1\n", application, "");
    for count in [100, 1000, 3000] {
        let functions: String = (0..count)
            .map(|n| format!("function f{n}() {{ return {n}; }}\n"))
            .collect();
        let name = format!("functions{count}.php");
        site.write(&name, &format!("<?php\n{functions}echo f{}();", count - 1));
        for _ in 0..2 {
            assert_eq!(site.get(&format!("/{name}")).text(), (count - 1).to_string());
        }
        site.write(
            "cached.php",
            "<?php echo json_encode(opcache_is_script_cached(__DIR__ . '/' . $_GET['file']));",
        );
        assert_eq!(site.get(&format!("/cached.php?file={name}")).text(), "true");
    }
    assert_quiet(&site.daemon);
}
