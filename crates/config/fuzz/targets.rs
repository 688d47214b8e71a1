//! Fuzz targets of configuration files and applications' own files.

mod alone;

use super::{Errors, UserIds, World, WorldError, glob, resolve, site};
use alone::{Alone, FILE};
use forkyard_fuzz::{Target, comes_back, target};
use forkyard_protocol::inspector::Settings;
use std::collections::HashSet;
use std::path::Path;

pub const TARGETS: &[Target] = &[
    target("site_toml", 800, site),
    target("site_passengerfile", 600, passengerfile),
    target("site_package", 400, package),
    target("config_toml", 1500, toml),
    target("glob", 120, glob),
];

/// Checks that each diagnostic has a valid place and text.
fn check(errors: &Errors, input: &[u8]) {
    assert!(!errors.diagnostics.is_empty());
    let lines = input.split(|byte| *byte == b'\n').collect::<Vec<_>>();
    for diagnostic in &errors.diagnostics {
        let location = &diagnostic.location;
        assert!(
            location.line <= lines.len(),
            "line {} of {}",
            location.line,
            lines.len()
        );
        if location.line > 0 {
            let length = lines[location.line - 1].len() + 1;
            assert!(
                (1..=length + 1).contains(&location.column),
                "column {} of {length}",
                location.column
            );
        }
        assert!(!diagnostic.to_string().is_empty());
    }
}

fn toml(input: &[u8]) {
    let world = Alone::with(input);
    let path = Path::new(FILE);
    let parsed = resolve::parse_bytes(input, path, &world);
    let _ = resolve::control_socket(input, path, &world);
    match parsed {
        Ok(loaded) => {
            comes_back(&loaded.config);
            let names: HashSet<&str> = loaded
                .config
                .pools
                .iter()
                .map(|pool| pool.name.as_str())
                .collect();
            assert_eq!(names.len(), loaded.config.pools.len(), "a pool twice");
        }
        Err(errors) => check(&errors, input),
    }
}

fn can_be_passed_on(settings: &Settings) {
    let texts = settings.env.keys().chain(settings.env.values());
    let mut texts = texts.chain(&settings.entry).chain(&settings.start_command);
    assert!(texts.all(|text| !text.contains('\0')));
    let mut names = settings.env.keys();
    assert!(names.all(|name| !name.is_empty() && !name.contains('=')));
}

fn site(input: &[u8]) {
    match site::parse(input, Path::new(FILE)) {
        Ok(settings) => {
            can_be_passed_on(&settings);
            assert!(settings.max_per_app != Some(0) && settings.max_requests != Some(0));
            assert!(settings.entry.as_deref() != Some("") && settings.start_command.as_deref() != Some(""));
            comes_back(&settings);
        }
        Err(errors) => check(&errors, input),
    }
}

fn passengerfile(input: &[u8]) {
    match site::passengerfile(input, Path::new(FILE)) {
        Ok(Some(settings)) => {
            can_be_passed_on(&settings);
            assert!(settings.max_requests != Some(0) && settings.runtime.is_some());
        }
        Ok(None) => {}
        Err(error) => {
            let text = error.to_string();
            assert!(text.starts_with(FILE) && text.contains("error: "), "{text}");
            let location = text[FILE.len()..].split(' ').next().unwrap_or_default();
            if let Some(line) = location
                .split(':')
                .nth(1)
                .and_then(|line| line.parse::<usize>().ok())
            {
                assert!(line <= input.split(|byte| *byte == b'\n').count(), "{text}");
            }
        }
    }
}

fn package(input: &[u8]) {
    if let Some(command) = site::start_script(input) {
        assert!(!command.is_empty() && !command.contains('\0'));
    }
}

/// A name without wildcards matches itself.
fn glob(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let (pattern, name) = text.split_once('\n').unwrap_or((&text, &text));
    let hit = glob::matches(pattern, name);
    if !glob::is_pattern(pattern) {
        assert_eq!(hit, pattern == name);
    }
    assert!(glob::matches("*", name) || name.starts_with('.'));
    if !name.starts_with('.') {
        assert_eq!(
            glob::matches(&format!("*{pattern}"), name),
            glob::matches(&format!("**{pattern}"), name)
        );
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_parser_keeps_its_promises_whatever_it_is_given() {
        forkyard_fuzz::check(super::TARGETS);
    }
}
