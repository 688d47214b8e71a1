//! Variables of the environment that stand over what the files say: `FORKYARD_POOL_WWW__MAX_CHILDREN=20` is
//! `[pool.www] max_children = 20`. A container's configuration is changed so without another file.

use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;

use super::World;
use super::error::{Diagnostic, Kind, Location, Severity};
use super::report::Diagnostics;

/// What the names of such variables begin with.
const GLOBAL: &str = "FORKYARD_GLOBAL__";
const POOL: &str = "FORKYARD_POOL_";
/// What a dot is written as.
const DOT: &str = "__";
/// The table whose names are those of variables, which have capitals.
const VARIABLES: &str = "env";

/// One variable.
#[derive(Debug)]
pub(super) struct Override {
    variable: String,
    /// The pool's name as variables have it; `None`: it is for `[global]`.
    pool: Option<String>,
    /// The key, in its parts.
    pub(super) segments: Vec<String>,
    /// The value as it is written.
    pub(super) text: String,
    is_used: Cell<bool>,
}

impl Override {
    /// Its name stands for the place in a file.
    pub(super) fn location(&self) -> Location {
        Location {
            file: Arc::from(Path::new(&self.variable)),
            line: 0,
            column: 0,
            order: 0,
        }
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Overrides(Vec<Override>);

impl Overrides {
    /// Those of the environment.
    pub(super) fn of(world: &dyn World) -> Overrides {
        let variables = world.variables().into_iter();
        let mut all: Vec<Override> = variables.filter_map(|(name, text)| read(name, text)).collect();
        all.sort_by(|a, b| a.variable.cmp(&b.variable));
        Overrides(all)
    }

    /// Those for `[global]`, or for a pool.
    pub(super) fn for_table<'o>(&'o self, pool: Option<&str>) -> impl Iterator<Item = &'o Override> {
        let pool = pool.map(in_variables);
        let meant = self.0.iter().filter(move |one| one.pool == pool);
        meant.inspect(|one| one.is_used.set(true))
    }

    /// Tells of those that no table is there for.
    pub(super) fn finish(&self, diagnostics: &mut Diagnostics) {
        let unused = self
            .0
            .iter()
            .filter(|one| one.pool.is_some() && !one.is_used.get());
        for one in unused {
            let kind = Kind::Rule {
                problem: "there is no such pool, so the variable has no effect".to_owned(),
                remedy: "write the pool's name in capitals, with _ for what is neither letter nor digit"
                    .to_owned(),
            };
            diagnostics.push(Diagnostic {
                severity: Severity::Warning,
                ..Diagnostic::error(one.location(), kind)
            });
        }
    }
}

/// A variable, if it is one.
fn read(variable: String, text: String) -> Option<Override> {
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
        variable,
    })
}

/// A pool's name as variables have it.
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
