//! Environment variables that override the files: `FORKYARD_POOL_WWW__MAX_CHILDREN=20` means `[pool.www] max_children =
//! 20`. Useful for containers.

use std::cell::Cell;
use std::path::Path;

use super::World;
use super::error::{Diagnostic, Kind, Location, Severity};
use super::known;
use super::report::Diagnostics;
use super::settings::{self, Directive, Form, Section, Setting};

const PREFIX: &str = "FORKYARD_";
pub(super) const GLOBAL: &str = "FORKYARD_GLOBAL__";
const POOL: &str = "FORKYARD_POOL_";
const DOT: &str = "__";
/// The table of environment variables. Names in it keep their case.
const VARIABLES: &str = "env";

#[derive(Debug)]
pub struct Override {
    variable: String,
    pool: Option<String>,
    pub(super) segments: Vec<String>,
    pub text: String,
    is_used: Cell<bool>,
}

impl Override {
    /// The variable's name, in place of a file.
    pub fn location(&self) -> Location {
        Location::of_file(Path::new(&self.variable))
    }

    /// The directive of php-fpm that the variable sets, its row, and the name of the entry that it sets in a table.
    pub fn directive(&self) -> Option<(&'static Directive, &'static Setting, String)> {
        let key = self.segments.join(".");
        settings::directives(self.pool.is_none()).find_map(|(directive, setting)| {
            let rest = key.strip_prefix(&setting.path())?;
            if directive.form != Form::List || setting.values == "list" {
                return rest.is_empty().then(|| (directive, setting, String::new()));
            }
            let name = rest.strip_prefix('.').filter(|name| !name.is_empty())?;
            Some((directive, setting, name.to_owned()))
        })
    }
}

#[derive(Debug, Default)]
pub struct Overrides {
    all: Vec<Override>,
    missed: Vec<(String, String)>,
}

impl Overrides {
    pub fn of(world: &dyn World) -> Overrides {
        let mut found = Overrides::default();
        for (name, text) in world.variables() {
            match read(&name, text) {
                Some(one) => found.all.push(one),
                None => found.missed.extend(meant(&name).map(|meant| (name, meant))),
            }
        }
        found.all.sort_by(|a, b| a.variable.cmp(&b.variable));
        found.missed.sort();
        found
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The overrides of a pool, or of the global section.
    pub fn for_table<'o>(&'o self, pool: Option<&str>) -> impl Iterator<Item = &'o Override> {
        let pool = pool.map(in_variables);
        let meant = self.all.iter().filter(move |one| one.pool == pool);
        meant.inspect(|one| one.is_used.set(true))
    }

    pub(super) fn finish(&self, diagnostics: &mut Diagnostics) {
        let unused = self
            .all
            .iter()
            .filter(|one| one.pool.is_some() && !one.is_used.get());
        for one in unused {
            let problem = "there is no such pool, so the variable has no effect";
            let remedy = "write the pool's name in capitals, with _ in place of each character that is not a \
                letter or digit";
            warn(diagnostics, &one.variable, problem, remedy);
        }
        for (variable, meant) in &self.missed {
            let problem = "it stands for no key, so the variable has no effect";
            warn(diagnostics, variable, problem, &format!("did you mean {meant}?"));
        }
    }
}

pub(super) fn is_variable(location: &Location) -> bool {
    location.line == 0
        && location
            .file
            .to_str()
            .is_some_and(|name| name.starts_with(PREFIX))
}

fn warn(diagnostics: &mut Diagnostics, variable: &str, problem: &str, remedy: &str) {
    let location = Location::of_file(Path::new(variable));
    diagnostics.push(Diagnostic {
        severity: Severity::Warning,
        ..Diagnostic::error(location, Kind::rule(problem, remedy))
    });
}

/// The likely intended name of an unknown variable. Returns `None` for an application's own variables.
fn meant(variable: &str) -> Option<String> {
    let rest = variable.strip_prefix(PREFIX)?;
    let [globals, pools] = [Section::Global, Section::Pool].map(settings::keys);
    if let Some(key) = rest.strip_prefix("GLOBAL") {
        let key = nearest(key.trim_start_matches('_'), &globals);
        return Some(format!("{GLOBAL}{}", key.as_deref().unwrap_or("KEY")));
    }
    if let Some(of_pool) = rest.strip_prefix("POOL_") {
        let keys = of_pool.match_indices('_');
        let parts = keys.map(|(at, _)| (&of_pool[..at], &of_pool[at + 1..]));
        let exact =
            |(pool, key): (&str, &str)| exact(key, &pools).map(|key| format!("{POOL}{pool}{DOT}{key}"));
        let meant = parts.clone().find_map(exact).or_else(|| {
            let mut near = parts.filter_map(|(pool, key)| Some((pool, nearest(key, &pools)?)));
            near.next().map(|(pool, key)| format!("{POOL}{pool}{DOT}{key}"))
        });
        return Some(meant.unwrap_or_else(|| format!("{POOL}NAME{DOT}KEY")));
    }
    // Applications commonly use this name.
    if rest.eq_ignore_ascii_case(VARIABLES) {
        return None;
    }
    let rest = rest.trim_start_matches('_');
    let by = |find: fn(&str, &[&str]) -> Option<String>| {
        let global = find(rest, &globals).map(|key| format!("{GLOBAL}{key}"));
        global.or_else(|| Some(format!("{POOL}NAME{DOT}{}", find(rest, &pools)?)))
    };
    by(exact).or_else(|| by(nearest))
}

/// The key that matches if underscores also stand for dots.
fn exact(name: &str, keys: &[&str]) -> Option<String> {
    let flat = |key: &str| key.replace('.', "_");
    let name = name.to_ascii_lowercase().replace(DOT, "_");
    let found = keys.iter().find(|key| flat(key) == name)?;
    Some(found.replace('.', DOT).to_ascii_uppercase())
}

/// The exact or most similar key.
fn nearest(name: &str, keys: &[&str]) -> Option<String> {
    let flat: Vec<String> = keys.iter().map(|key| key.replace('.', "_")).collect();
    let flat: Vec<&str> = flat.iter().map(String::as_str).collect();
    exact(name, keys).or_else(|| exact(known::nearest_word(&name.replace(DOT, "_"), &flat)?, keys))
}

fn read(variable: &str, text: String) -> Option<Override> {
    let (pool, key) = match variable.strip_prefix(GLOBAL) {
        Some(key) => (None, key),
        None => {
            let (pool, key) = variable.strip_prefix(POOL)?.split_once(DOT)?;
            (Some(pool.to_owned()), key)
        }
    };
    let lower = key.to_ascii_lowercase();
    let segments = match key.split_once(DOT) {
        Some((table, name)) if table.eq_ignore_ascii_case(VARIABLES) => {
            vec![VARIABLES.to_owned(), name.to_owned()]
        }
        _ => lower.split(DOT).map(str::to_owned).collect(),
    };
    Some(Override {
        pool,
        segments,
        text,
        is_used: Cell::new(false),
        variable: variable.to_owned(),
    })
}

fn in_variables(name: &str) -> String {
    let letter = |c: char| {
        if c.is_ascii_alphanumeric() {
            c.to_ascii_uppercase()
        } else {
            '_'
        }
    };
    name.chars().map(letter).collect()
}
