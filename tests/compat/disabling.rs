//! `disable_functions`, also for functions that PHP compiles to opcodes or OPcache has cached.

use super::client::{Kept, Request};
use super::scripts;
use super::servers::Setup;
use super::servers::php_fpm::{PHP_FPM, PhpFpm};
use crate::support::{assert_contains, forkyard_fpm};

const LIST: &str = "disable_functions=strtoupper,strlen,str_repeat is_int,intval,chr,ord,defined,count,in_array,\
                    array_key_exists,array_slice,call_user_func,call_user_func_array,func_num_args,gettype,compact,\
                    exec,strrev,no_such";

fn plain() -> Request {
    Request::get(&scripts(), "/disabled.php")
}

fn with(setting: &str) -> Request {
    plain().with("PHP_ADMIN_VALUE", setting)
}

fn setups() -> [Setup; 2] {
    let without = Setup::new().admin_value("opcache.enable", "0");
    [Setup::new(), without]
}

#[test]
fn a_pools_functions_are_gone_as_in_php_fpm() {
    let (name, value) = LIST.split_once('=').expect("a setting");
    for setup in setups() {
        let setup = setup
            .admin_value(name, value)
            .ini("disable_functions = ucfirst,exec");
        let [theirs, ours] = [PHP_FPM, forkyard_fpm()].map(|program| PhpFpm::start_as(program, &setup));
        for _ in 0..3 {
            let expected = plain().send(&theirs.socket);
            super::assert_equal(&expected, &plain().send(&ours.socket));
            assert_contains(
                &expected.body(),
                "strlen: Error: Call to undefined function strlen()",
            );
        }
    }
}

#[test]
fn a_requests_functions_are_gone_and_back_after_it() {
    for setup in setups() {
        // php-fpm's answer in a process that has compiled nothing yet: afterwards its functions are gone for good.
        let [expected_plain, expected] =
            [plain(), with(LIST)].map(|request| request.send(&PhpFpm::start_as(PHP_FPM, &setup).socket));
        let body = expected.body();
        for line in [
            "strlen: Error: Call to undefined function strlen()\n",
            "strlen of a constant: Error: Call to undefined function strlen()\n",
            "exec exists, by a constant: false\n",
            "included: Error: Call to undefined function strlen()\n",
            "strrev: \"own abc\"\n",
        ] {
            assert!(body.contains(line), "{line}{expected:?}");
        }
        let ours = PhpFpm::start_as(forkyard_fpm(), &setup);
        let mut kept = Kept::open(&ours.socket);
        for round in 0..4 {
            super::assert_equal(&expected, &kept.send(&with(LIST)));
            super::assert_equal(&expected, &with(LIST).send(&ours.socket));
            if round % 2 == 1 {
                let other = with("disable_functions=EXEC strlen").send(&ours.socket).body();
                assert_contains(&other, "exec exists: [false,false,false]\n");
                assert_contains(&other, "strtoupper: \"ABC\"\n");
                assert_contains(&other, "strrev: \"cba\"\n");
            }
            super::assert_equal(&expected_plain, &plain().send(&ours.socket));
            super::assert_equal(&expected_plain, &kept.send(&plain()));
        }
    }
}

#[test]
fn php_fpm_runs_what_opcache_holds() {
    // Not copied from php-fpm: it calls a disabled strlen() from a cached script, and its worker crashes at a call that is not
    // compiled to an opcode.
    let theirs = PhpFpm::start_as(PHP_FPM, &Setup::new());
    let ours = PhpFpm::start_as(forkyard_fpm(), &Setup::new());
    for (list, own) in [
        ("strlen", "strlen: Error: Call to undefined function strlen()"),
        (
            "strtoupper",
            "strtoupper: Error: Call to undefined function strtoupper()",
        ),
    ] {
        let request = with(&format!("disable_functions={list}"));
        for _ in 0..2 {
            plain().send(&theirs.socket);
            plain().send(&ours.socket);
        }
        let reply = request.send(&theirs.socket);
        assert!(
            reply.end.is_none() || reply.body().contains("strlen: 3\n"),
            "{reply:?}"
        );
        let reply = request.send(&ours.socket);
        assert!(reply.body().contains(own), "{reply:?}");
    }
}

#[test]
fn what_the_pool_has_disabled_already_costs_a_request_nothing() {
    let ours = PhpFpm::start_as(
        forkyard_fpm(),
        &Setup::new().admin_value("disable_functions", "exec,system"),
    );
    let has_opcache = |request: Request| request.send(&ours.socket).body();
    let request = Request::get(&scripts(), "/ini.php?names=opcache.enable");
    let same = request
        .clone()
        .with("PHP_ADMIN_VALUE", "disable_functions=system,exec");
    let more = request
        .clone()
        .with("PHP_ADMIN_VALUE", "disable_functions=system,exec,popen");
    assert!(has_opcache(same).contains("string(1) \"1\""));
    assert!(has_opcache(more).contains("string(1) \"0\""));
    assert!(has_opcache(request).contains("string(1) \"1\""));
}

#[test]
fn preloaded_code_is_bound_as_well() {
    let inc = scripts().join("disabled_preloaded.inc");
    let setup = Setup::new()
        .admin_value("opcache.preload", &inc.display().to_string())
        .admin_value("disable_functions", "strtoupper,strlen");
    let ours = PhpFpm::start_as(forkyard_fpm(), &setup);
    let request = Request::get(&scripts(), "/disabled_preload.php");
    let gone =
        "of_pool: Call to undefined function strtoupper()\ninlined: Call to undefined function strlen()\n";
    for _ in 0..2 {
        assert_eq!(
            request.send(&ours.socket).body(),
            format!("{gone}of_request: Abc\n")
        );
        let reply = request
            .clone()
            .with("PHP_ADMIN_VALUE", "disable_functions=ucfirst")
            .send(&ours.socket);
        assert_eq!(
            reply.body(),
            format!("{gone}of_request: Call to undefined function ucfirst()\n")
        );
    }
}
