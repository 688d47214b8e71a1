//! Options and exit codes.

use crate::both::{codes_and_first_lines, is_stock_there};

#[test]
fn help_and_wrong_options_are_as_in_php_fpm() {
    if !is_stock_there() {
        return;
    }
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
        let ours = ours.1.replace("forkyard-fpm", "php-fpm8.2");
        assert_eq!(stock.1, ours, "first line with {arguments:?}");
    }
}

#[test]
fn what_php_says_of_itself_is_as_in_php_fpm() {
    if !is_stock_there() {
        return;
    }
    for arguments in [["-v"], ["-m"], ["-i"]] {
        let [stock, ours] = codes_and_first_lines(&arguments);
        assert_eq!(stock.0, ours.0, "exit code with {arguments:?}");
        let start = |line: &str| line.split(" (built").next().map(str::to_owned);
        assert_eq!(start(&stock.1), start(&ours.1), "first line with {arguments:?}");
    }
}
