//! Precedence of `.user.ini`, `php_value`, `php_admin_value`, `PHP_VALUE`, `PHP_ADMIN_VALUE` and ini_set().

use super::client::{Kept, Request};
use super::servers::php_fpm::{PHP_FPM, PhpFpm};
use super::servers::{Setup, directory};
use crate::support::forkyard_fpm;
use crate::support::prelude::*;

const NAMES: [&str; 9] = [
    "upload_max_filesize",
    "max_input_vars",
    "memory_limit",
    "precision",
    "user_agent",
    "date.timezone",
    "realpath_cache_size",
    "allow_url_fopen",
    "opcache.revalidate_freq",
];

struct Values {
    user_ini: [&'static str; 9],
    php_value: [&'static str; 9],
    php_admin_value: [&'static str; 9],
    param: [&'static str; 9],
    admin_param: [&'static str; 9],
}

#[rustfmt::skip]
const VALUES: Values = Values {
    user_ini: ["31M", "3001", "301M", "3", "by user.ini", "Europe/Rome", "3001K", "0", "31"],
    php_value: ["32M", "3002", "302M", "4", "by php_value", "Europe/Paris", "3002K", "0", "32"],
    php_admin_value: ["33M", "3003", "303M", "5", "by php_admin_value", "Europe/Berlin", "3003K", "0", "33"],
    param: ["34M", "3004", "304M", "6", "by PHP_VALUE", "Europe/Madrid", "3004K", "0", "34"],
    admin_param: ["35M", "3005", "305M", "-7", "by PHP_ADMIN_VALUE", "Europe/Vienna", "3005K", "0", "35"],
};

fn lines(values: [&str; 9]) -> String {
    NAMES
        .iter()
        .zip(values)
        .map(|(name, value)| format!("{name} = \"{value}\"\n"))
        .collect()
}

fn setup(has_value: bool, has_admin_value: bool) -> Setup {
    let mut setup = Setup::new();
    let all = || NAMES.iter().copied();
    if has_value {
        setup = all()
            .zip(VALUES.php_value)
            .fold(setup, |setup, (name, value)| setup.value(name, value));
    }
    if has_admin_value {
        let held = all()
            .zip(VALUES.php_admin_value)
            .filter(|(name, _)| *name != "user_agent");
        setup = held.fold(setup, |setup, (name, value)| setup.admin_value(name, value));
    }
    setup
}

fn requests(root: &Path) -> Vec<(String, Request)> {
    let mut requests = Vec::new();
    for number in 0..8 {
        let is_in = |bit: u32| number & bit != 0;
        let place = if is_in(1) { "site" } else { "plain" };
        let uri = format!("/matrix.php?names={}&to=11", NAMES.join(","));
        let mut request = Request::get(&root.join(place), &uri);
        if is_in(2) {
            request = request.with("PHP_VALUE", &lines(VALUES.param));
        }
        if is_in(4) {
            request = request.with("PHP_ADMIN_VALUE", &lines(VALUES.admin_param));
        }
        requests.push((
            format!("{place}, PHP_VALUE {}, PHP_ADMIN_VALUE {}", is_in(2), is_in(4)),
            request,
        ));
    }
    requests
}

#[test]
fn the_same_one_wins_in_every_combination() {
    let sites = directory();
    for place in ["site", "plain"] {
        let place = sites.path().join(place);
        std::fs::create_dir(&place).expect("the directory is ours");
        std::fs::copy(super::scripts().join("matrix.php"), place.join("matrix.php")).expect("a script");
    }
    std::fs::write(sites.path().join("site/.user.ini"), lines(VALUES.user_ini))
        .expect("the directory is ours");
    for (has_value, has_admin_value) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut setup = setup(has_value, has_admin_value);
        let ours = PhpFpm::start_as(forkyard_fpm(), &setup);
        setup.max_requests = Some(1);
        let theirs = PhpFpm::start_as(PHP_FPM, &setup);
        let requests = requests(sites.path());
        let mut kept = Kept::open(&ours.socket);
        let check = |kept: &mut Kept, (title, request): &(String, Request)| {
            let expected = request.send(&theirs.socket);
            assert_starts(&expected.body(), "upload_max_filesize: [");
            for (way, reply) in [
                ("a new connection", request.send(&ours.socket)),
                ("a kept connection", kept.send(request)),
            ] {
                assert_eq!(
                    (reply.text(), reply.errors()),
                    (expected.text(), expected.errors()),
                    "php_value {has_value}, php_admin_value {has_admin_value}, {title}, over {way}"
                );
            }
        };
        // The second run has the reverse order, so that each follows both of its neighbors.
        requests.iter().for_each(|request| check(&mut kept, request));
        requests
            .iter()
            .rev()
            .for_each(|request| check(&mut kept, request));
    }
}

#[test]
fn a_sites_own_file_wins_over_what_the_pool_and_the_request_only_suggest() {
    let sites = directory();
    std::fs::copy(
        super::scripts().join("matrix.php"),
        sites.path().join("matrix.php"),
    )
    .expect("a script");
    std::fs::write(
        sites.path().join(".user.ini"),
        "upload_max_filesize = 64M\nmemory_limit = 90M\n",
    )
    .expect("the directory is ours");
    let setup = Setup::new()
        .value("upload_max_filesize", "2M")
        .admin_value("memory_limit", "256M");
    let server = PhpFpm::start_as(forkyard_fpm(), &setup);
    let request = Request::get(
        sites.path(),
        "/matrix.php?names=upload_max_filesize,memory_limit&to=1G",
    )
    .with("PHP_VALUE", "upload_max_filesize=3M\nmemory_limit=100M");
    let body = request.send(&server.socket).body();
    assert_contains(&body, "upload_max_filesize: [\"64M\",");
    assert_contains(&body, "memory_limit: [\"100M\",");
    assert_contains(&body, "\"access\":4},false,\"100M\",\"100M\"]");
}
