//! Skips pools with errors if `on_error = "skip"`. A running pool keeps its old settings.
//!
//! An error belongs to its pool. A conflict between two pools (name, address) belongs to both, since either could be
//! wrong. An error in an included file outside any pool, such as a syntax error, belongs to all pools of that file. Any
//! other error affects every pool, so nothing is skipped and nothing starts.

use super::error::Diagnostic;
use super::model::{Config, OnError};
use super::report::Diagnostics;
pub use forkyard_protocol::skipped::Skipped;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A pool named in a file, valid or not.
#[derive(Debug, Clone)]
pub(super) struct Mention {
    pub(super) pool: String,
    pub(super) file: Arc<Path>,
    /// The file's position; 0 is the main file.
    pub(super) order: usize,
}

/// Removes pools with errors. Returns `false` if the configuration is unusable.
pub(super) fn leave_out(config: &mut Config, mentions: &[Mention], diagnostics: &Diagnostics) -> bool {
    if !diagnostics.has_errors() {
        return true;
    }
    let is_fatal = |diagnostic: &Diagnostic| diagnostic.pool.is_none() && diagnostic.location.order == 0;
    if config.global.on_error == OnError::Fail
        || diagnostics
            .errors()
            .iter()
            .any(|(diagnostic, _)| is_fatal(diagnostic))
    {
        return false;
    }
    let mut skipped: Vec<Skipped> = Vec::new();
    let mut add = |pool: Option<&str>, file: &Path, reason: String| {
        let known = skipped.iter_mut().find(|one| match pool {
            Some(pool) => one.is_of(pool),
            None => one.pool.is_none() && one.file == file,
        });
        match known {
            Some(known) => known.reasons.push(reason),
            None => skipped.push(Skipped {
                pool: pool.map(str::to_owned),
                file: file.to_owned(),
                reasons: vec![reason],
                goes_on: false,
            }),
        }
    };
    for (diagnostic, others) in diagnostics.errors() {
        if let Some(pool) = &diagnostic.pool {
            for name in std::iter::once(pool.as_str()).chain(others) {
                let mention = mentions.iter().find(|mention| mention.pool == name);
                let file = mention.map_or(&diagnostic.location.file, |mention| &mention.file);
                add(Some(name), file, diagnostic.said_of(Some(name)));
            }
            continue;
        }
        let file = &diagnostic.location.file;
        let of_file = mentions
            .iter()
            .filter(|mention| mention.order == diagnostic.location.order);
        let mut names = of_file.map(|mention| mention.pool.as_str()).peekable();
        if names.peek().is_none() {
            add(None, file, diagnostic.said_of(None));
        }
        for name in names {
            add(Some(name), file, diagnostic.said_of(None));
        }
    }
    config
        .pools
        .retain(|pool| skipped.iter().all(|one| !one.is_of(&pool.name)));
    config.skipped = skipped;
    !config.pools.is_empty() || !config.global.watch.is_empty()
}

pub(super) fn included(mentions: &[Mention]) -> BTreeMap<String, PathBuf> {
    let included = mentions.iter().filter(|mention| mention.order > 0);
    included
        .map(|mention| (mention.pool.clone(), mention.file.to_path_buf()))
        .collect()
}

impl Config {
    /// Keeps pools of `before` that are now skipped.
    pub fn go_on_with(&mut self, before: &Config) {
        for skipped in std::mem::take(&mut self.skipped) {
            let is_meant = |name: &str| match &skipped.pool {
                Some(pool) => pool == name,
                None => before.included.get(name) == Some(&skipped.file),
            };
            let is_gone = |name: &str| self.pools.iter().all(|pool| pool.name != name);
            let of_before = before.pools.iter();
            let running: Vec<_> = of_before
                .filter(|pool| is_meant(&pool.name) && is_gone(&pool.name))
                .cloned()
                .collect();
            if running.is_empty() {
                self.skipped.push(skipped);
                continue;
            }
            for pool in running {
                self.included.insert(pool.name.clone(), skipped.file.clone());
                self.skipped.push(Skipped {
                    pool: Some(pool.name.clone()),
                    goes_on: true,
                    ..skipped.clone()
                });
                self.pools.push(pool);
            }
        }
    }

    /// Marks a pool as skipped. `goes_on`: it runs with its old settings.
    pub fn skip(&mut self, pool: &str, reason: String, goes_on: bool) {
        if let Some(known) = self.skipped.iter_mut().find(|one| one.is_of(pool)) {
            known.goes_on = goes_on;
            if !known.reasons.contains(&reason) {
                known.reasons.push(reason);
            }
            return;
        }
        let file = self.included.get(pool).unwrap_or(&self.path).clone();
        self.skipped.push(Skipped {
            pool: Some(pool.to_owned()),
            file,
            reasons: vec![reason],
            goes_on,
        });
    }

    /// Whether a skipped pool runs with its old settings.
    pub fn goes_on(&self, pool: &str) -> bool {
        self.skipped.iter().any(|one| one.goes_on && one.is_of(pool))
    }

    pub fn forget_skipped(&mut self, pool: &str) {
        self.skipped.retain(|one| !one.is_of(pool));
    }
}
