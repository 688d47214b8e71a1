//! Checks whether the application's directory is reachable.

use std::io::ErrorKind;
use std::path::Path;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Barrier {
    pub summary: String,
    pub solution: String,
}

/// Checks each directory from the root down, with this process's permissions.
pub fn barrier(directory: &Path, user: &str) -> Option<Barrier> {
    let mut ways: Vec<&Path> = directory.ancestors().collect();
    ways.reverse();
    for pair in ways.windows(2) {
        let [parent, next] = pair else { continue };
        let Err(error) = std::fs::metadata(next) else {
            continue;
        };
        let (parent, next) = (parent.display(), next.display());
        return Some(match error.kind() {
            ErrorKind::PermissionDenied => Barrier {
                summary: format!("The directory {parent} can't be entered by user {user}."),
                solution: format!(
                    "Let user {user} enter it (chmod o+x {parent}), put the application where {user} may go, such as below /srv, \
                     or run it as a user who may."
                ),
            },
            ErrorKind::NotFound => Barrier {
                summary: format!("There is no {next}."),
                solution: "Correct the directory of the application, or make it.".to_owned(),
            },
            _ => Barrier {
                summary: format!("{next} can't be inspected: {error}."),
                solution: "Check the file system that the application is on.".to_owned(),
            },
        });
    }
    match std::fs::metadata(directory) {
        Ok(found) if !found.is_dir() => Some(Barrier {
            summary: format!("{} is no directory.", directory.display()),
            solution: "Correct the directory of the application.".to_owned(),
        }),
        Ok(_) | Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_that_is_missing_is_named() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(barrier(directory.path(), "app"), None);
        let missing = directory.path().join("a/b");
        let found = barrier(&missing, "app").unwrap();
        assert_eq!(
            found.summary,
            format!("There is no {}.", directory.path().join("a").display())
        );
        let file = directory.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(
            barrier(&file, "app")
                .unwrap()
                .summary
                .ends_with("is no directory.")
        );
    }
}
