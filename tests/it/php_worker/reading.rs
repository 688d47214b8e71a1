//! PHP's warnings while it reads a request: no handler of the application runs yet, as in php-fpm.

use super::{ONE, mode_pool, ordinary_pool, worker_pool};
use crate::compat::servers::Setup;
use crate::compat::servers::php_fpm::PhpFpm;
use crate::support::prelude::*;

const SCRIPT: &str = r#"<?php
set_error_handler(fn (int $number, string $message) => throw new ErrorException("handler: $message"));
error_reporting(E_WARNING);
$handler = function (): void {
    echo json_encode([http_response_code(), count($_POST), array_map(fn (array $file) => $file['error'], $_FILES), count($_GET),
        count($_COOKIE), error_get_last()['message'] ?? null]);
    try {
        echo $nothing;
    } catch (ErrorException $error) {
        echo ' ', $error->getMessage();
    }
};
if (function_exists('forkyard_handle_request')) {
    error_reporting(0);
    while (forkyard_handle_request(function () use ($handler) {
        error_reporting(E_WARNING);
        $handler();
        error_reporting(0);
    }));
} else {
    $handler();
}
"#;

const LIMITS: [(&str, &str); 6] = [
    ("post_max_size", "2K"),
    ("max_input_vars", "3"),
    ("max_file_uploads", "1"),
    ("max_multipart_body_parts", "4"),
    ("upload_tmp_dir", "/nonexistent"),
    ("display_errors", "0"),
];

fn parts(count: usize, file: &str) -> String {
    let mut body = String::new();
    for number in 0..count {
        let file = file.replace('N', &number.to_string());
        write!(
            body,
            "--b\r\nContent-Disposition: form-data; name=\"p{number}\"{file}\r\n\r\ntext\r\n"
        )
        .expect("to memory");
    }
    body + "--b--\r\n"
}

#[test]
fn no_handler_of_the_applications_hears_of_them() {
    let daemon = Daemon::start(|dir| {
        fs::write(dir.join("index.php"), SCRIPT).expect("write");
        let list: Vec<_> = LIMITS
            .iter()
            .map(|(name, value)| format!("{name} = \"{value}\""))
            .collect();
        let limits = format!("php_admin_value = {{ {} }}\n", list.join(", "));
        let snapshot = format!("worker_mode = \"snapshot\"\nisolation = \"rewind\"\n{limits}");
        ordinary_pool(dir, "www", ONE, &limits)
            + &worker_pool(dir, "loop", "index.php", ONE, &limits)
            + &mode_pool(dir, "snap", "index.php", ONE, &snapshot)
    });
    let setup = LIMITS.iter().fold(Setup::new(), |setup, (name, value)| {
        setup.admin_value(name, value)
    });
    let php_fpm = PhpFpm::start(&setup);

    let form = "application/x-www-form-urlencoded";
    let multipart = "multipart/form-data; boundary=b";
    let get = |query: &str| Params::get(&daemon.dir, "index.php", query);
    let cases = [
        ("a body over post_max_size", get(""), form, "a=1&".repeat(1000)),
        (
            "files over post_max_size",
            get(""),
            multipart,
            parts(60, "; filename=\"N\""),
        ),
        ("many variables", get(""), form, "a=1&b=2&c=3&d=4".to_owned()),
        (
            "many variables in the query",
            get("a=1&b=2&c=3&d=4"),
            "",
            String::new(),
        ),
        (
            "many cookies",
            get("").with("HTTP_COOKIE", "a=1; b=2; c=3; d=4"),
            "",
            String::new(),
        ),
        ("no boundary", get(""), "multipart/form-data", parts(1, "")),
        (
            "a boundary without its end",
            get(""),
            "multipart/form-data; boundary=\"b",
            parts(1, ""),
        ),
        ("many parts", get(""), multipart, parts(6, "")),
        ("many files", get(""), multipart, parts(3, "; filename=\"N\"")),
        (
            "a file that can't be stored",
            get(""),
            multipart,
            parts(1, "; filename=\"N\""),
        ),
        (
            "headers of a part without a name",
            get(""),
            multipart,
            "--b\r\nContent-Disposition: form-data\r\n\r\nx\r\n--b--\r\n".to_owned(),
        ),
        (
            "a body that stops",
            get(""),
            multipart,
            parts(1, "")[..40].to_owned(),
        ),
        ("nothing wrong", get("a=1"), form, "b=2".to_owned()),
    ];
    let mut warned = 0;
    for (name, params, content_type, body) in cases {
        let params = match content_type {
            "" => params,
            _ => super::post(params, content_type, &body),
        };
        let ask =
            |mut client: Client| -> Answer { client.request(&params, body.as_bytes()).expect("answer") };
        let expected = ask(Client::connect(&php_fpm.socket).expect("php-fpm"));
        assert!(
            expected.text().contains("handler: Undefined variable $nothing"),
            "{name}: {}",
            expected.text()
        );
        warned += usize::from(!expected.error_text().is_empty());
        for pool in super::states::POOLS {
            for _ in 0..2 {
                let answer = ask(daemon.client(pool));
                assert_eq!(
                    answer.text(),
                    expected.text(),
                    "{name} in {pool}: {}",
                    answer.error_text()
                );
                assert_eq!(answer.error_text(), expected.error_text(), "{name} in {pool}");
            }
        }
    }
    assert!(warned > 8, "{warned}");
}
