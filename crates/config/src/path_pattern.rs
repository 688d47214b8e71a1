//! Path patterns: shell wildcards within a component, and `**` for any number of directories.

use crate::glob;
use serde::{Deserialize, Serialize};
use std::path::{Component, Path, PathBuf};

const ANY_DEPTH: &str = "**";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct PathPattern {
    parts: Vec<String>,
}

impl From<String> for PathPattern {
    fn from(text: String) -> PathPattern {
        let parts = text.split('/').filter(|part| !part.is_empty() && *part != ".");
        PathPattern {
            parts: parts.map(str::to_owned).collect(),
        }
    }
}

impl From<PathPattern> for String {
    fn from(pattern: PathPattern) -> String {
        format!("/{}", pattern.parts.join("/"))
    }
}

impl PathPattern {
    pub fn is_plain(&self) -> bool {
        !self.parts.iter().any(|part| glob::is_pattern(part))
    }

    /// The directory that contains all matches.
    pub fn root(&self) -> PathBuf {
        let plain = self
            .parts
            .iter()
            .take_while(|part| !glob::is_pattern(part))
            .count();
        let plain = plain.min(self.parts.len().saturating_sub(1));
        let mut root = PathBuf::from("/");
        root.extend(&self.parts[..plain]);
        root
    }

    pub fn matches(&self, path: &Path) -> bool {
        parts_of(path).is_some_and(|path| matches(&self.parts, &path))
    }

    /// Whether the pattern can match something below a directory.
    pub fn leads_through(&self, directory: &Path) -> bool {
        parts_of(directory).is_some_and(|path| leads_through(&self.parts, &path))
    }
}

/// `None` if a component can't be part of a pattern.
fn parts_of(path: &Path) -> Option<Vec<&str>> {
    let parts = path.components().filter_map(|component| match component {
        Component::Normal(part) => Some(part.to_str()),
        Component::RootDir | Component::CurDir | Component::ParentDir | Component::Prefix(_) => None,
    });
    parts.collect()
}

fn is_hidden(name: &str) -> bool {
    name.starts_with('.')
}

fn matches(pattern: &[String], path: &[&str]) -> bool {
    let Some((first, rest)) = pattern.split_first() else {
        return path.is_empty();
    };
    if first == ANY_DEPTH {
        let hidden = path.iter().position(|name| is_hidden(name)).unwrap_or(path.len());
        return (0..=hidden).any(|depth| matches(rest, &path[depth..]));
    }
    match path.split_first() {
        Some((name, below)) => glob::matches(first, name) && matches(rest, below),
        None => false,
    }
}

fn leads_through(pattern: &[String], path: &[&str]) -> bool {
    let Some((name, below)) = path.split_first() else {
        return !pattern.is_empty();
    };
    match pattern.split_first() {
        Some((first, _)) if first == ANY_DEPTH => !path.iter().any(|name| is_hidden(name)),
        Some((first, rest)) => glob::matches(first, name) && leads_through(rest, below),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_match_at_any_depth_and_hidden_directories_are_passed_over() {
        let pattern = |text: &str| PathPattern::from(text.to_owned());
        for (text, path, expected) in [
            ("/srv/src/**/*.php", "/srv/src/a.php", true),
            ("/srv/src/**/*.php", "/srv/src/a/b/c.php", true),
            ("/srv/src/**/*.php", "/srv/src/a/b/c.css", false),
            ("/srv/src/**/*.php", "/srv/src/.git/c.php", false),
            ("/srv/src/**/*.php", "/srv/c.php", false),
            ("/srv/**/views/*", "/srv/a/views/b", true),
            ("/srv/**/views/*", "/srv/a/b", false),
            ("/srv/*.php", "/srv/a/b.php", false),
            ("/srv/.env", "/srv/.env", true),
        ] {
            assert_eq!(pattern(text).matches(Path::new(path)), expected, "{text} {path}");
        }
        for (text, directory, expected) in [
            ("/srv/src/**/*.php", "/srv/src/a/b", true),
            ("/srv/src/**/*.php", "/srv/src/.git", false),
            ("/srv/*/config/*.yaml", "/srv/a", true),
            ("/srv/*/config/*.yaml", "/srv/a/config", true),
            ("/srv/*/config/*.yaml", "/srv/a/src", false),
            ("/srv/*.php", "/srv/a", false),
        ] {
            let found = pattern(text).leads_through(Path::new(directory));
            assert_eq!(found, expected, "{text} {directory}");
        }
        for (text, root, is_plain) in [
            ("/srv/src/**/*.php", "/srv/src", false),
            ("/srv//./.env", "/srv", true),
            ("/*", "/", false),
        ] {
            let pattern = pattern(text);
            assert_eq!(
                (pattern.root(), pattern.is_plain()),
                (PathBuf::from(root), is_plain)
            );
        }
    }
}
