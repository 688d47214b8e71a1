//! Finds the existing directories to watch.

use super::Watched;
use crate::glob;
use std::path::{Component, Path, PathBuf};

/// The directories that contain pattern components, and the directories above them, which may be replaced. For a
/// missing directory, the nearest existing one above.
pub fn watched(patterns: &[PathBuf]) -> Vec<Watched> {
    let mut all = Vec::new();
    for pattern in patterns {
        let pattern = std::path::absolute(pattern).unwrap_or_else(|_| pattern.clone());
        let parts: Vec<&str> = pattern.components().filter_map(part).collect();
        let mut found = vec![PathBuf::from("/")];
        for (at, part) in parts.iter().enumerate() {
            let is_near = parts
                .get(at..=at + 1)
                .is_none_or(|near| near.iter().any(|it| glob::is_pattern(it)));
            let mut next = Vec::new();
            for directory in found {
                let inside = entries(&directory, part);
                if is_near || inside.is_empty() {
                    let part = (*part).to_owned();
                    all.push(Watched { directory, part });
                }
                next.extend(inside);
            }
            found = next;
        }
    }
    all.dedup();
    all
}

pub fn missing_directory(patterns: &[PathBuf]) -> Option<PathBuf> {
    let literal = patterns.iter().map(|pattern| {
        let parts = pattern.components();
        let is_plain = |it: &Component<'_>| part(*it).is_none_or(|part| !glob::is_pattern(part));
        let plain: PathBuf = parts.take_while(is_plain).collect();
        // A plain file may be missing.
        if plain == *pattern {
            plain.parent().map_or_else(PathBuf::new, Path::to_owned)
        } else {
            plain
        }
    });
    literal.into_iter().find(|directory| !directory.is_dir())
}

fn part(component: Component<'_>) -> Option<&str> {
    match component {
        Component::Normal(part) => part.to_str(),
        _ => None,
    }
}

fn entries(directory: &Path, part: &str) -> Vec<PathBuf> {
    if !glob::is_pattern(part) {
        let path = directory.join(part);
        return path.is_dir().then_some(path).into_iter().collect();
    }
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let matching = entries.filter(|entry| {
        entry
            .file_name()
            .to_str()
            .is_some_and(|name| glob::matches(part, name))
    });
    matching
        .map(|entry| entry.path())
        .filter(|path| path.is_dir())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_of_patterns_are_watched_and_those_above_them() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("etc/pools")).unwrap();
        std::fs::create_dir_all(root.join("srv/a")).unwrap();
        let seen = |pattern: &str| -> Vec<(PathBuf, String)> {
            let all = watched(&[root.join(pattern)]);
            all.into_iter().map(|it| (it.directory, it.part)).collect()
        };
        let at = |directory: &str, part: &str| (root.join(directory), part.to_owned());
        assert_eq!(
            seen("etc/pools/*.toml"),
            [at("etc", "pools"), at("etc/pools", "*.toml")]
        );
        assert_eq!(seen("etc/gone/*.toml"), [at("etc", "gone")]);
        assert_eq!(
            seen("srv/*/f.toml"),
            [at("", "srv"), at("srv", "*"), at("srv/a", "f.toml")]
        );
        assert_eq!(
            missing_directory(&[root.join("etc/gone/*.toml")]),
            Some(root.join("etc/gone"))
        );
        assert_eq!(
            missing_directory(&[root.join("etc/pools/*.toml"), root.join("etc/x.toml")]),
            None
        );
        let toml = &watched(&[root.join("etc/pools/*.toml")])[1];
        assert!(
            toml.has(Path::new("a.toml"))
                && !toml.has(Path::new(".a.toml.swp"))
                && !toml.has(Path::new("a.toml~"))
        );
    }
}
