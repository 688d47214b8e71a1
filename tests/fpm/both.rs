//! Runs both programs and compares their output.

use std::process::{Command, Output, Stdio};

pub(crate) use crate::support::forkyard_fpm;
pub(crate) const STOCK: &str = concat!("/usr/sbin/php-fpm", env!("FORKYARD_PHP"));

pub(crate) fn is_stock_there() -> bool {
    !crate::skip::needs_file(STOCK)
}

pub(crate) fn run(program: &str, arguments: &[&str]) -> Output {
    Command::new(program)
        .args(arguments)
        .env("FORKYARD_TEST", "from the environment")
        .stdin(Stdio::null())
        .output()
        .expect("it can be run")
}

pub(crate) fn said(program: &str, arguments: &[&str]) -> (String, Option<i32>) {
    let output = run(program, arguments);
    let text = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = text.lines().map(without_time).collect();
    (lines.join("\n"), output.status.code())
}

pub(crate) fn without_time(line: &str) -> &str {
    match line.split_once("] ") {
        Some((time, rest)) if time.len() == 21 && time.starts_with('[') => rest,
        _ => line,
    }
}

pub(crate) fn compare(what: &str, arguments: &[&str]) -> Result<String, String> {
    let (mut stock, ours) = (said(STOCK, arguments), said(forkyard_fpm(), arguments));
    stock.0 = stock.0.replace("expecting TC_FALLBACK or '}'", "expecting '}'");
    if stock == ours {
        return Ok(ours.0);
    }
    if stock.0.lines().count() > 20 {
        let pairs = stock
            .0
            .lines()
            .zip(ours.0.lines())
            .filter(|(stock, ours)| stock != ours);
        return Err(format!("=== {what}\n{:#?}", pairs.collect::<Vec<_>>()));
    }
    Err(format!(
        "=== {what}\n--- php-fpm, exit code {:?}\n{}\n--- forkyard-fpm, exit code {:?}\n{}\n",
        stock.1, stock.0, ours.1, ours.0
    ))
}

pub(crate) fn codes_and_first_lines(arguments: &[&str]) -> [(Option<i32>, String); 2] {
    [STOCK, forkyard_fpm()].map(|program| {
        let output = run(program, arguments);
        let text = String::from_utf8_lossy(&output.stdout);
        (
            output.status.code(),
            text.lines().next().unwrap_or_default().to_owned(),
        )
    })
}
