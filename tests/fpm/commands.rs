//! Options and exit codes.

use super::both::{STOCK, codes_and_first_lines, compare, forkyard_fpm, is_stock_there, run};

#[test]
fn help_and_wrong_options_are_as_in_php_fpm() {
    skip_if!(!is_stock_there());
    let lines: [&[&str]; 9] = [
        &["-h"],
        &["--help"],
        &["--usage"],
        &["-?"],
        &["--nope"],
        &["-t", "x"],
        &["-tz"],
        &["-y"],
        &["-hz"],
    ];
    for arguments in lines {
        let [stock, ours] = codes_and_first_lines(arguments);
        assert_eq!(stock.0, ours.0, "exit code with {arguments:?}");
        let ours = ours
            .1
            .replace("forkyard-fpm", concat!("php-fpm", env!("FORKYARD_PHP")));
        assert_eq!(stock.1, ours, "first line with {arguments:?}");
    }
}

#[test]
fn what_php_says_of_itself_is_as_in_php_fpm() {
    skip_if!(!is_stock_there());
    let lines: [&[&str]; 7] = [
        &["-v"],
        &["-m"],
        &["-i"],
        &["-n", "-m"],
        &["-e", "--define=memory_limit=7M", "--info"],
        &["-dextension=nonexistent", "--modules"],
        &[
            "-c",
            concat!("/etc/php/", env!("FORKYARD_PHP"), "/fpm/php.ini"),
            "--version",
        ],
    ];
    let varies = |line: &&str| {
        ![
            "_ =>",
            "$_SERVER['_']",
            "REQUEST_TIME",
            "Configuration File (php.ini) Path",
            "Strings",
            "memory =>",
            "Start time =>",
        ]
        .iter()
        .any(|part| line.contains(part))
    };
    for arguments in lines {
        let [stock, ours] = [STOCK, forkyard_fpm()].map(|program| run(program, arguments));
        assert_eq!(
            stock.status.code(),
            ours.status.code(),
            "exit code with {arguments:?}"
        );
        let [stock, ours] = [stock, ours].map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        let [stock, ours] = [&stock, &ours].map(|text| text.lines().filter(varies).collect::<Vec<_>>());
        let first = stock.iter().zip(&ours).find(|(stock, ours)| stock != ours);
        assert_eq!(first, None, "{arguments:?}");
        assert_eq!(stock.len(), ours.len(), "{arguments:?}");
    }
}

#[test]
fn the_test_says_what_php_says_of_its_ini() {
    skip_if!(!is_stock_there());
    let directory = tempfile::tempdir().expect("tempdir");
    let path = |name: &str| directory.path().join(name).display().to_string();
    let (pools, ini) = (path("php-fpm.conf"), path("php.ini"));
    let text = "[global]\nerror_log = /dev/null\n[www]\nuser = www-data\nlisten = 127.0.0.1:9\npm = ondemand\npm.max_children = 1\n";
    std::fs::write(&pools, text).expect("configuration");
    for (lines, code) in [
        ("memory_limit = 64M\n", 0),
        ("memory_limit = 64M\nfoo = \"not closed\n", 0),
        ("log_errors = On\nextension = nonexistent\n", 0),
        ("log_errors = Off\nextension = nonexistent\n", 0),
        (
            "opcache.preload = /nowhere.php\nopcache.preload_user = nobody\n",
            70,
        ),
    ] {
        std::fs::write(&ini, lines).expect("php.ini");
        let arguments = ["-t", "-y", &pools, "-c", &ini];
        compare(lines, &arguments).unwrap_or_else(|difference| panic!("{difference}"));
        let outputs = [STOCK, forkyard_fpm()].map(|program| run(program, &arguments));
        assert_eq!(outputs[0].stdout, outputs[1].stdout, "{lines}");
        assert_eq!(outputs[1].status.code(), Some(code), "{lines}");
    }
}
