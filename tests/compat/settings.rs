//! Ini values, wherever they come from.

use super::client::Request;
use super::servers::Setup;
use super::{Pair, pair, scripts};
use crate::support::prelude::*;

const NAMES: &str =
    "/ini.php?names=memory_limit,precision,user_agent,date.timezone,no.such,arg_separator.output";

#[test]
fn values_of_the_pool() {
    let setup = Setup::new()
        .value("precision", "9")
        .value("memory_limit", "99M")
        .value("date.timezone", "Nowhere/Nothing")
        .admin_value("user_agent", "a \"b\" c")
        .admin_value("arg_separator.output", ";");
    let pair = Pair::start(&setup);
    for _ in 0..2 {
        pair.get(NAMES);
        pair.get("/sapi.php");
    }
}

#[test]
fn functions_switched_off_for_the_pool() {
    let setup = Setup::new()
        .admin_value("disable_functions", "exec, strtoupper ,no_such,getmypid")
        .admin_value("disable_classes", "ArrayObject");
    let pair = Pair::start(&setup);
    for _ in 0..3 {
        pair.get("/functions.php?names=exec,strtoupper,strtolower,getmypid,ArrayObject,ArrayIterator");
    }
}

#[test]
fn values_for_one_request() {
    let request = |value: &str, admin: &str| {
        Request::get(&scripts(), NAMES)
            .with("PHP_VALUE", value)
            .with("PHP_ADMIN_VALUE", admin)
    };
    for (value, admin) in [
        ("precision=3\nmemory_limit=50M", "user_agent=admin"),
        ("precision=4", "precision=5"),
        ("", "date.timezone = \"Europe/Berlin\" ; comment"),
        ("memory_limit=lots", "no.such=1"),
        ("precision=12\n\n;x\n\nuser_agent='a;b'", ""),
    ] {
        let pair = pair();
        pair.same(&request(value, admin));
    }
}

#[test]
fn values_for_one_request_that_are_wrong() {
    for value in [
        "[section]\nprecision=3",
        "precision",
        "x[y]=z",
        "precision=3\n=4",
        "(",
        "precision=",
    ] {
        let pair = pair();
        pair.same(&Request::get(&scripts(), NAMES).with("PHP_VALUE", value));
    }
}

#[test]
fn user_ini_files() {
    let setup = Setup::new().ini("user_ini.cache_ttl = -1");
    each([Setup::new(), setup], |setup| {
        let pair = Pair::start(&setup);
        for _ in 0..2 {
            let reply = pair.get("/user_ini/deep/show.php");
            assert_starts(&reply.body(), "prepended\nstring(3) \"77M\"\nstring(1) \"6\"");
            pair.get("/user_ini/show.php");
            pair.get("/ini.php?names=memory_limit,precision");
            for root in ["/user_ini", "/user_ini/", "/user_ini/deep", "/elsewhere", "/"] {
                let root = format!("{}{root}", scripts().display());
                pair.same(&Request::get(&scripts(), "/user_ini/deep/show.php").with("DOCUMENT_ROOT", &root));
            }
            pair.same(&Request::get(&scripts(), "/user_ini/deep/show.php").without("DOCUMENT_ROOT"));
        }
    });
    let pair = Pair::start(&Setup::new().ini("user_ini.filename ="));
    pair.get("/user_ini/deep/show.php");
}

#[test]
fn sections_of_php_ini() {
    let directory = scripts().join("user_ini");
    let setup = Setup::new().ini(&format!(
        "[PATH={}]\nuser_agent = by path\nprecision = 2\n[HOST=Example.ORG]\npost_max_size = 3M\nmemory_limit = 55M",
        directory.display()
    ));
    let pair = Pair::start(&setup);
    for uri in [
        "/user_ini/show.php",
        "/user_ini/deep/show.php",
        "/ini.php?names=user_agent,post_max_size,precision",
    ] {
        pair.get(uri);
        pair.same(&Request::get(&scripts(), uri).with("SERVER_NAME", "other.example"));
        pair.same(&Request::get(&scripts(), uri).without("SERVER_NAME"));
    }
}

#[test]
fn what_opcache_has_folded_outlives_a_request() {
    let ask = |socket: &Path| {
        ["/tmp/a", "/tmp/b", ""].map(|value| {
            let request = Request::get(&scripts(), "/folded.php");
            let line = format!("upload_tmp_dir={value}");
            let request = match value {
                "" => request,
                _ => request.with("PHP_ADMIN_VALUE", &line),
            };
            request.send(socket).body()
        })
    };
    let pair = pair();
    assert_eq!(
        ask(&pair.forkyard.socket),
        ["/tmp/a /tmp/a", "/tmp/a /tmp/b", "/tmp/a "]
    );
    // In php-fpm the last value stays until the worker exits.
    assert_eq!(
        ask(&pair.fpm.socket),
        ["/tmp/a /tmp/a", "/tmp/a /tmp/b", "/tmp/a /tmp/b"]
    );
    let pair = Pair::start(&Setup::new().ini("opcache.optimization_level = 0x7FFEBF7E"));
    assert_eq!(
        ask(&pair.forkyard.socket),
        ["/tmp/a /tmp/a", "/tmp/b /tmp/b", " "]
    );
    assert_eq!(
        ask(&pair.fpm.socket),
        ["/tmp/a /tmp/a", "/tmp/b /tmp/b", "/tmp/b /tmp/b"]
    );
}
