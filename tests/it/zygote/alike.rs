//! Every setting of a PHP pool has the same effect with a preloader and with a zygote.

use super::extensions::lacks_extensions;
use super::{FRESH, PHP, user};
use crate::support::prelude::*;

struct Row {
    name: &'static str,
    settings: &'static str,
    application: &'static str,
    values: &'static str,
    code: &'static str,
    expected: &'static str,
}

const fn row(
    name: &'static str,
    settings: &'static str,
    application: &'static str,
    values: &'static str,
    code: &'static str,
    expected: &'static str,
) -> Row {
    Row {
        name,
        settings,
        application,
        values,
        code,
        expected,
    }
}

const ROWS: [Row; 22] = [
    row(
        "user_ini",
        "",
        "",
        "",
        "echo ini_get('memory_limit'), ini_get('user_ini.filename');",
        "99M.user.ini",
    ),
    row(
        "env_file",
        "env_file = \"DIR/secrets\"\n",
        "",
        "",
        "echo getenv('SECRET'), $_SERVER['SECRET'];",
        "hiddenhidden",
    ),
    row(
        "env",
        "env = { WHO = \"me\", PATH = \"/bin\" }\n",
        "",
        "",
        "echo getenv('WHO'), getenv('PATH'), $_SERVER['WHO'];",
        "me/binme",
    ),
    row(
        "clear_env",
        "",
        "",
        "",
        "echo json_encode([getenv('PATH'), getenv('HOME'), getenv('PHP_INI_SCAN_DIR'), getenv('FORKYARD')]);",
        "[false,false,false,false]",
    ),
    row(
        "keeps_env",
        "clear_env = false\n",
        "",
        "",
        "echo getenv('OF_THE_MASTER');",
        "passed-on",
    ),
    row(
        "files",
        "rlimit_files = 77\n",
        "",
        "",
        "echo posix_getrlimit()['soft openfiles'], posix_getrlimit()['hard openfiles'];",
        "7777",
    ),
    row(
        "core",
        "rlimit_core = 4096\n",
        "",
        "",
        "echo posix_getrlimit()['soft core'], posix_getrlimit()['hard core'];",
        "40964096",
    ),
    row(
        "nice",
        "process.priority = 3\n",
        "",
        "",
        "echo explode(' ', file_get_contents('/proc/self/stat'))[18 + substr_count(explode(')', file_get_contents('/proc/self/stat'))[0], ' ') - 1];",
        "3",
    ),
    row(
        "chdir",
        "chdir = \"DIR\"\n",
        "",
        "",
        "echo basename(readlink('/proc/self/cwd'));",
        "chdir",
    ),
    row(
        "disabled",
        "",
        "",
        ", disable_functions = \"strrev,ucwords\", disable_classes = \"ArrayObject\"",
        "echo json_encode([function_exists('strrev'), function_exists('ucwords'), function_exists('strtolower')]), ini_get('disable_functions');",
        "[false,false,true]strrev,ucwords",
    ),
    row(
        "admin",
        "",
        "php_value = { precision = 7 }\n",
        ", memory_limit = \"61M\"",
        "ini_set('memory_limit', '1M'); ini_set('precision', 5); echo ini_get('memory_limit'), ini_get('precision');",
        "61M5",
    ),
    row(
        "prepend",
        "",
        "php_value = { auto_prepend_file = \"DIR/before.inc\" }\n",
        "",
        "echo 'after';",
        "before after",
    ),
    row(
        "basedir",
        "",
        "",
        ", open_basedir = \"DIR\"",
        "echo @file_get_contents('/etc/hostname') === false ? 'closed' : 'open', ini_get('open_basedir') !== '' ? ' set' : '';",
        "closed set",
    ),
    row("umask", "", "", "", "printf('%o', umask());", "22"),
    row(
        "no_new_privs",
        "no_new_privs = true\n",
        "",
        "",
        "echo preg_match('/NoNewPrivs:\\s+1/', file_get_contents('/proc/self/status'));",
        "1",
    ),
    row(
        "no_calls",
        "confine.deny_system_calls = true\n",
        "",
        "",
        "echo preg_match('/Seccomp:\\s+2/', file_get_contents('/proc/self/status'));",
        "1",
    ),
    row(
        "paths",
        "confine.write = [\"DIR\"]\n",
        "",
        "",
        "echo @file_get_contents('/etc/hostname') === false ? 'closed' : 'open', (bool) file_put_contents(__DIR__ . '/x', 'x') ? ' written' : '';",
        "closed written",
    ),
    row(
        "extension",
        "",
        "",
        ", extension = \"apcu.so\", apc.shm_size = \"8M\"",
        "echo apcu_sma_info(true)['seg_size'] >> 20, ini_get('apc.shm_size');",
        "78M",
    ),
    row(
        "zone",
        "",
        "php_value = { date.timezone = \"Asia/Tokyo\" }\n",
        "",
        "echo date('T e');",
        "JST Asia/Tokyo",
    ),
    row(
        "session",
        "",
        "",
        ", session.save_path = \"DIR\"",
        "session_id('abc'); session_start(); $_SESSION['n'] = 5; session_write_close(); echo file_get_contents(__DIR__ . '/sess_abc');",
        "n|i:5;",
    ),
    row(
        "late",
        "",
        "",
        ", short_open_tag = 1, variables_order = \"GS\", opcache.validate_timestamps = 0",
        "echo ini_get('short_open_tag'), ini_get('variables_order'), ini_get('opcache.validate_timestamps'), json_encode($_ENV);",
        "1GS0[]",
    ),
    row(
        "jailed",
        "chroot = \"DIR\"\n",
        "",
        "",
        "echo getcwd(), __FILE__, json_encode(is_dir('/proc')), posix_getuid() > 0 ? '' : 'root';",
        "//jailed.phpfalse",
    ),
];

fn start(preloader: &str) -> Daemon {
    let configure = |dir: &Path| {
        let pools = ROWS.iter().map(|row| {
            let own = dir.join(row.name);
            fs::create_dir(&own).expect("directory");
            fs::set_permissions(&own, fs::Permissions::from_mode(0o777)).expect("chmod");
            write_file(
                own.join(format!("{}.php", row.name)),
                format!("<?php {}", row.code),
            );
            write_file(
                own.join(".user.ini"),
                if row.name == "user_ini" {
                    "memory_limit = 99M\n"
                } else {
                    ""
                },
            );
            fs::write(own.join("before.inc"), "before ").expect("a file");
            let secrets = own.join("secrets");
            fs::write(&secrets, "SECRET=hidden\n").expect("secrets");
            fs::set_permissions(&secrets, fs::Permissions::from_mode(0o600)).expect("chmod");
            let id = user("a");
            chown(&secrets, Some(id), Some(id)).expect("chown");
            let of_row = |text: &str| text.replace("DIR", &own.display().to_string());
            let settings = format!(
                "user = \"{id}\"\ngroup = \"{id}\"\npm = \"ondemand\"\nmax_children = 1\n{}",
                of_row(row.settings)
            );
            let application = format!(
                "runtime = \"php\"\nversion = \"{PHP}\"\npreloader = \"{preloader}\"\n\
                 php_admin_value = {{ {FRESH}{} }}\n{}",
                of_row(row.values),
                of_row(row.application)
            );
            pool(dir, row.name, &settings, &application)
        });
        pools.collect::<String>()
    };
    Daemon::start_by(configure, |dir| {
        let mut command = forkyard(&["run"], dir);
        command.env("OF_THE_MASTER", "passed-on");
        command
    })
}

#[test]
fn every_setting_of_a_pool_has_the_same_effect_with_an_own_preloader_and_with_a_zygote() {
    skip_if!(needs_root());
    let daemons = ["own", "zygote"].map(|preloader| (preloader, start(preloader)));
    let mut wrong = Vec::new();
    for (preloader, daemon) in &daemons {
        for row in &ROWS {
            if row.name == "extension" && lacks_extensions() {
                continue;
            }
            let root = match row.name {
                "jailed" => Path::new("").to_owned(),
                name => daemon.dir.join(name),
            };
            let params = Params::get(&root, &format!("{}.php", row.name), "");
            let answer =
                Client::connect(&daemon.socket(row.name)).and_then(|mut client| client.request(&params, b""));
            let answer = answer.expect("answer");
            if answer.body() != row.expected {
                let errors = text_of(&answer.stderr);
                wrong.push(format!(
                    "{preloader} {}: {:?}, not {:?} {errors}",
                    row.name,
                    answer.body(),
                    row.expected
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let (_, zygote) = &daemons[1];
    assert!(
        zygote
            .log()
            .lines()
            .all(|line| !line.contains("can't be started once"))
    );
}
