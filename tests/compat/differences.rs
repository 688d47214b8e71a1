//! What php-fpm does and forkyard does not, on purpose.

use super::client::Request;
use super::scripts;
use super::servers::Setup;
use super::servers::forkyard::Forkyard;
use crate::support::prelude::*;

#[test]
fn values_for_one_request_end_with_it() {
    let server = Forkyard::start(&Setup::new());
    let plain = Request::get(
        &scripts(),
        "/ini.php?names=precision,memory_limit,user_agent&to=20",
    );
    let before = plain.send(&server.socket);
    let special = plain
        .clone()
        .with("PHP_VALUE", "precision=3\nprecision=4\nmemory_limit=50M")
        .with("PHP_ADMIN_VALUE", "user_agent=admin\nprecision=5");
    let during = special.send(&server.socket);
    assert_contains(&during.body(), "string(1) \"5\"\nbool(false)");
    assert!(during.body().contains("\"admin\""), "{during:?}");
    assert_eq!(plain.send(&server.socket), before);
    assert_eq!(special.send(&server.socket), during);
    assert_eq!(plain.send(&server.socket), before);
}

#[test]
fn functions_switched_off_for_one_request_come_back() {
    let server = Forkyard::start(&Setup::new());
    let plain = Request::get(&scripts(), "/functions.php?names=strtoupper,strtolower");
    let before = plain.send(&server.socket);
    assert!(before.body().contains("string(1) \"X\""), "{before:?}");
    let during = plain
        .clone()
        .with("PHP_ADMIN_VALUE", "disable_functions=strtoupper,no_such")
        .send(&server.socket);
    assert_contains(&during.body(), "Error: Call to undefined function strtoupper()");
    assert_eq!(plain.send(&server.socket), before);
}

#[test]
fn what_can_not_be_undone_is_refused() {
    let server = Forkyard::start(&Setup::new());
    each(["extension=ffi", "disable_classes=ArrayObject"], |line| {
        let request =
            Request::get(&scripts(), "/functions.php?names=ArrayObject").with("PHP_ADMIN_VALUE", line);
        let reply = request.send(&server.socket);
        assert_starts(
            &reply.errors(),
            "Passing INI directive through FastCGI: unable to set '",
        );
        assert!(reply.body().contains("bool(true)"), "{reply:?}");
    });
}

#[test]
fn opcache_can_be_sized_for_a_pool() {
    let server = Forkyard::start(&Setup::new().admin_value("opcache.memory_consumption", "24"));
    let reply = Request::get(&scripts(), "/ini.php?names=opcache.memory_consumption").send(&server.socket);
    assert!(reply.body().contains("string(2) \"24\""), "{reply:?}");
}

#[test]
fn a_negative_length_is_no_body() {
    let server = Forkyard::start(&Setup::new());
    let request = Request::post(
        &scripts(),
        "/server.php",
        "application/x-www-form-urlencoded",
        "a=1",
    );
    let reply = request.with("CONTENT_LENGTH", "-5").send(&server.socket);
    assert_eq!(reply.end, Some((0, 0)));
    assert!(reply.body().ends_with("string(0) \"\"\n"), "{reply:?}");
}

#[test]
fn output_after_the_answer_is_dropped_without_harm() {
    let server = Forkyard::start(&Setup::new());
    let directory = super::servers::directory();
    for ignore in ["0", "1"] {
        let file = directory.path().join("seen");
        let uri = format!("/finish.php?ignore={ignore}&much=1&file={}", file.display());
        assert_eq!(
            Request::get(&scripts(), &uri).send(&server.socket).body(),
            "answer\n"
        );
        assert_eq!(super::take_file(&file), "[true,false,true,0,\"end\"] shutdown 0");
    }
}
