//! Settings that php-fpm sets after PHP has started, and forkyard-fpm before.

use super::both::{STOCK, forkyard_fpm, said};
use super::pair::{Fpm, is_possible};
use crate::support::prelude::*;

const SCRIPT: (&str, &str) = ("a.php", "<?php echo 'served';");
const READY: &str = "ready to handle connections";
const SCRIPTS: [(&str, &str); 7] = [
    SCRIPT,
    ("broken.php", "<?php parse error here"),
    ("exits.php", "<?php exit(1);"),
    ("throws.php", "<?php throw new Exception('x');"),
    ("prints.php", "<?php echo 'printed by the preload script';"),
    (
        "crashes.php",
        "<?php foreach ([1, 2] as $try) { exec('kill -SEGV ' . getmypid()); }",
    ),
    ("hangs.php", "<?php while (true) { sleep(1); }"),
];

const AT_FAULT: [&str; 12] = [
    "opcache.preload = /missing.php",
    "opcache.preload = {DIR}/broken.php",
    "opcache.preload = {DIR}/exits.php",
    "opcache.preload = {DIR}/throws.php",
    "opcache.preload = {DIR}/crashes.php",
    "opcache.lockfile_path = /missing",
    "opcache.memory_consumption = 8",
    "opcache.interned_strings_buffer = 128",
    "opcache.file_cache_only = 1",
    "opcache.jit_buffer_size = 100000G",
    "apc.shm_size = 100000G",
    "apc.mmap_file_mask = /tmp/apc",
];

const ODD: [&str; 71] = [
    "opcache.preload = {DIR}/prints.php",
    "opcache.preload_user = nosuch",
    "opcache.file_cache = /missing/dir",
    "opcache.file_cache = relative",
    "opcache.file_cache = /proc",
    "opcache.preferred_memory_model = foo",
    "opcache.memory_consumption = 100000",
    "opcache.memory_consumption = 9",
    "opcache.memory_consumption = -1",
    "opcache.memory_consumption = word",
    "opcache.interned_strings_buffer = 0",
    "opcache.interned_strings_buffer = 4096",
    "opcache.interned_strings_buffer = -1",
    "opcache.jit = bogus",
    "opcache.jit = tracing",
    "opcache.jit_buffer_size = -1",
    "opcache.jit_buffer_size = 8M",
    "opcache.max_accelerated_files = 99999999",
    "opcache.max_accelerated_files = 0",
    "opcache.max_wasted_percentage = 99",
    "opcache.error_log = /missing/x",
    "opcache.log_verbosity_level = 9",
    "opcache.blacklist_filename = /missing",
    "opcache.restrict_api = /missing",
    "opcache.huge_code_pages = 1",
    "opcache.protect_memory = 1",
    "opcache.optimization_level = 0",
    "opcache.enable = 0",
    "opcache.enable_cli = 1",
    "opcache.revalidate_freq = -5",
    "opcache.validate_root = 1",
    "opcache.no.such = 1",
    "apc.enabled = 0",
    "apc.shm_segments = 5",
    "apc.entries_hint = 99999999999",
    "apc.serializer = nosuch",
    "apc.ttl = -1",
    "yac.enable = 1",
    "yac.keys_memory_size = 1",
    "extension = nosuch.so",
    "extension = opcache.so",
    "zend_extension = /missing.so",
    "zend_extension = opcache.so",
    "session.save_handler = redis",
    "session.save_path = /missing",
    "session.auto_start = 1",
    "date.timezone = Mars/Olympus",
    "sys_temp_dir = /missing",
    "extension_dir = /missing",
    "disable_functions = strlen",
    "disable_classes = ArrayObject",
    "error_log = /missing/dir/x.log",
    "auto_prepend_file = /missing.php",
    "user_ini.filename = none.ini",
    "include_path = /missing",
    "zend.assertions = 1",
    "zend.multibyte = 1",
    "zend.script_encoding = UTF-16",
    "zend.enable_gc = 0",
    "pcre.jit = 0",
    "realpath_cache_size = 0",
    "enable_post_data_reading = 0",
    "output_handler = nosuch",
    "zlib.output_compression = 1",
    "open_basedir = /",
    "memory_limit = 1M",
    "max_execution_time = -1",
    "browscap = /missing/browscap.ini",
    "variables_order = X",
    "expose_php = 0",
    "ffi.preload = /missing.h",
];

fn options() -> Vec<&'static str> {
    let mut options = vec![
        "-d",
        "zend_extension=opcache.so",
        "-d",
        "display_errors=0",
        "-d",
        "log_errors=1",
    ];
    let said = Command::new(concat!("php-config", env!("FORKYARD_PHP")))
        .arg("--extension-dir")
        .output()
        .expect("php-config");
    let place = PathBuf::from(String::from_utf8_lossy(&said.stdout).trim());
    assert!(
        place.join("apcu.so").exists(),
        "apcu.so is missing: scripts/test puts it there"
    );
    options.extend(["-d", "extension=apcu.so"]);
    options
}

fn pools<'s>(settings: impl Iterator<Item = &'s str>, manager: &str) -> String {
    let pool = |(number, setting): (usize, &str)| {
        let (name, value) = setting.split_once(" = ").expect("a setting");
        format!(
            "[p{number}]\nuser = www-data\nlisten = {{DIR}}/p{number}.sock\npm = {manager}\npm.max_children = 1\n\
             php_admin_value[{name}] = {value}\n"
        )
    };
    settings.enumerate().map(pool).collect()
}

fn answers(fpm: &Fpm, count: usize) -> Vec<String> {
    let params = fpm.params("a.php", "");
    let answer = |number| {
        let mut client = Client::connect(&fpm.path(&format!("p{number}.sock"))).expect("it listens");
        let answer = client.request(&params, b"");
        answer.map_or_else(|error| error.to_string(), |answer| answer.text())
    };
    (0..count).map(answer).collect()
}

fn served(answers: &[String]) -> Vec<bool> {
    answers.iter().map(|answer| answer.contains("served")).collect()
}

fn test(fpm: &Fpm, options: &[&str]) -> (String, Option<i32>) {
    let file = fpm.path("fpm.conf").display().to_string();
    let arguments: Vec<&str> = options.iter().copied().chain(["-n", "-t", "-y", &file]).collect();
    said(forkyard_fpm(), &arguments)
}

fn status(fpm: &Fpm) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forkyard"));
    let command = command
        .arg("status")
        .arg("--socket")
        .arg(fpm.path("control"))
        .arg("www");
    let output = command.output().expect("forkyard");
    assert_success(&output);
    text_of(&output.stdout)
}

fn line_of(fpm: &Fpm, text: &str) -> String {
    let configuration = fpm.read("fpm.conf");
    let at = configuration
        .lines()
        .position(|line| line.contains(text))
        .expect("it is there");
    format!("{}:{}: ", fpm.path("fpm.conf").display(), at + 1)
}

#[test]
fn every_pool_that_php_fpm_serves_is_served() {
    skip_if!(!is_possible());
    let options = options();
    let settings: Vec<&str> = AT_FAULT.into_iter().chain(ODD).collect();
    let text = pools(settings.iter().copied(), "static");
    let [stock, ours] =
        [STOCK, forkyard_fpm()].map(|program| Fpm::start_with(program, &options, "", &text, &SCRIPTS));
    let expected = served(&answers(&stock, settings.len()));
    assert!(
        expected.iter().filter(|served| **served).count() > 75,
        "{expected:?}"
    );
    let compare = |when: &str| {
        let answers = answers(&ours, settings.len());
        let found = served(&answers);
        for (number, setting) in settings.iter().enumerate() {
            assert!(
                found[number] || !expected[number],
                "{when}, {setting}: {}",
                answers[number]
            );
        }
        assert_eq!(ours.get("a.php"), "served", "{when}");
    };
    compare("at the start");
    let log = ours.read("error");
    for (number, setting) in AT_FAULT.iter().enumerate() {
        let name = setting.split_once(" = ").expect("a setting").0;
        let pool = format!("[pool p{number}] ");
        let warning = log
            .lines()
            .find(|line| line.contains(&pool) && line.contains("is left out"));
        assert!(
            warning.is_some_and(|line| line.contains(name)),
            "{setting}:\n{log}"
        );
    }
    assert_lacks(&log, "the preloader can't start");
    let warnings = log
        .matches("is left out, because PHP does not start with it")
        .count();

    let (told, code) = test(&ours, &options);
    assert_eq!(code, Some(0), "{told}");
    assert_eq!(
        told.matches("is left out, because PHP does not start with it")
            .count(),
        warnings,
        "{told}\n{log}"
    );

    ours.signal(Signal::SIGUSR2);
    ours.wait_for_count("error", READY, 2);
    compare("after a reload");
}

#[test]
fn ondemand_and_dynamic_pools_do_without_what_is_at_fault() {
    skip_if!(!is_possible());
    let dynamic = "dynamic\npm.start_servers = 1\npm.min_spare_servers = 1\npm.max_spare_servers = 1";
    let settings: Vec<&str> = AT_FAULT
        .into_iter()
        .chain(["opcache.memory_consumption = 8"])
        .collect();
    for manager in ["ondemand", dynamic] {
        let text = pools(settings.iter().copied(), manager);
        let ours = Fpm::start_with(forkyard_fpm(), &options(), "", &text, &SCRIPTS);
        for round in ["at the start", "after a reload"] {
            let answers = answers(&ours, settings.len());
            let log = ours.read("error");
            assert!(
                served(&answers).iter().all(|served| *served),
                "{manager}, {round}: {answers:#?}\n{log}"
            );
            assert_lacks(&log, "ERROR: ");
            ours.signal(Signal::SIGUSR2);
            wait_until("the reload", || ours.read("error").matches(READY).count() > 1);
        }
    }
}

#[test]
fn a_setting_that_is_left_out_is_in_the_log_in_the_test_and_in_the_status_until_it_is_right() {
    skip_if!(!is_possible());
    let options = options();
    let pool = "php_value[memory_limit] = 64M\nphp_admin_value[opcache.preload] = {DIR}/later.php\n\
                php_admin_flag[opcache.validate_timestamps] = on";
    let [stock, ours] = [STOCK, forkyard_fpm()].map(|program| {
        let script = [(
            "a.php",
            "<?php echo function_exists('later') ? 'preloaded' : 'served';",
        )];
        Fpm::start_with(program, &options, "", pool, &script)
    });
    let ask = |fpm: &Fpm| fpm.get("a.php");
    assert_eq!([ask(&stock), ask(&ours)], ["served", "served"]);
    let place = line_of(&ours, "opcache.preload");
    let missing = ours.path("later.php");
    let warning = format!(
        "WARNING: [pool www] {place}php_admin_value[opcache.preload] = {} is left out, because PHP does not start with it: ",
        missing.display()
    );
    let log = fs::read_to_string(ours.path("error")).expect("the log");
    let line = log.lines().find(|line| line.contains(&warning));
    assert!(
        line.is_some_and(|line| line.contains("Failed opening required")),
        "{warning}\n{log}"
    );
    let (told, code) = test(&ours, &options);
    assert_eq!(code, Some(0), "{told}");
    assert_contains(&told, &warning);
    assert_contains(&told, "test is successful");
    let status = status(&ours);
    let line = status
        .lines()
        .find(|line| line.contains("without php_admin_value[opcache.preload] = "));
    let place = place.trim_end_matches(": ");
    assert!(
        line.is_some_and(|line| line.contains(place)
            && line.contains("PHP does not start with it: PHP Fatal error:  Failed")),
        "{status}"
    );

    fs::write(&missing, "<?php function later() {}").expect("script");
    ours.signal(Signal::SIGUSR2);
    ours.wait_for_count("error", READY, 2);
    wait_until("the preloaded function", || ask(&ours) == "preloaded");
    assert!(!self::status(&ours).contains("without"));
    let (told, code) = test(&ours, &options);
    assert_eq!((told.contains("is left out"), code), (false, Some(0)), "{told}");
}

#[test]
fn several_settings_are_found_and_the_others_stay() {
    skip_if!(!is_possible());
    let script = [(
        "a.php",
        "<?php echo ini_get('opcache.interned_strings_buffer'), ' ', ini_get('opcache.max_accelerated_files');",
    )];
    let pool = "php_admin_value[opcache.memory_consumption] = 8\nphp_admin_value[opcache.interned_strings_buffer] = 16\n\
                php_admin_value[opcache.lockfile_path] = /missing\nphp_admin_value[opcache.max_accelerated_files] = 4000\n\
                php_admin_value[opcache.preload] = /missing.php";
    let ours = Fpm::start_with(forkyard_fpm(), &options(), "", pool, &script);
    assert_eq!(ours.get("a.php"), "16 4000", "{}", ours.read("error"));
    let log = ours.read("error");
    for name in ["memory_consumption", "lockfile_path", "preload"] {
        assert_contains(&log, &format!("php_admin_value[opcache.{name}] = "));
    }
    assert_eq!(log.matches("is left out").count(), 3, "{log}");
}

#[test]
fn a_script_that_is_never_done_is_left_out() {
    skip_if!(!is_possible());
    let pool = "php_admin_value[opcache.preload] = {DIR}/hangs.php";
    let ours = Fpm::start_with(forkyard_fpm(), &options(), "", pool, &SCRIPTS);
    let log = ours.wait_for("error", "is left out");
    assert_eq!(ours.get("a.php"), "served");
    assert_contains(
        &log,
        "hangs.php is left out, because PHP does not start with it: ",
    );
}

#[test]
fn a_php_that_starts_with_none_of_the_settings_is_an_error() {
    skip_if!(!is_possible());
    let directory = tempfile::tempdir().expect("there is room");
    let path: &Path = directory.path();
    let text = format!(
        "[global]\nerror_log = {0}/log\n[www]\nuser = www-data\nlisten = {0}/a.sock\npm = static\npm.max_children = 1\n\
         php_admin_value[opcache.revalidate_freq] = 3\nphp_admin_value[opcache.max_accelerated_files] = 4000\n",
        path.display()
    );
    let file = path.join("fpm.conf").display().to_string();
    fs::write(&file, text).expect("writable");
    let mut arguments = options();
    arguments.extend([
        "-d",
        "opcache.preload=/missing.php",
        "-d",
        "opcache.preload_user=www-data",
        "-F",
        "-n",
        "-y",
        &file,
    ]);
    let (told, code) = said(forkyard_fpm(), &arguments);
    assert_eq!(code, Some(70), "{told}");
    let log = fs::read_to_string(path.join("log")).expect("the log");
    assert_eq!(
        log.matches("ERROR: [pool www] the preloader can't start").count(),
        1,
        "{log}"
    );
    assert_lacks(&log, "is left out");
}
