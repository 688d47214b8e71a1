//! Reads the source line blamed by an error text. Called by processes that run as the application's user, so that
//! user's permissions apply.

use forkyard_core::spawn::report::source::{self, Excerpt};
use std::fs::File;
use std::io::Read;
use std::path::Path;

const MOST_BYTES: u64 = 4 << 20;

/// Returns the excerpt, or `None` if the text names no readable file below `root`.
pub fn blamed(text: &str, root: &Path) -> Option<Excerpt> {
    let blamed = source::blamed(text, root)?;
    let file = blamed.file.canonicalize().ok()?;
    // Opening a FIFO would block, and links may lead out of the root.
    if !file.starts_with(root.canonicalize().ok()?) || !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    File::open(&file)
        .ok()?
        .take(MOST_BYTES)
        .read_to_end(&mut bytes)
        .ok()?;
    let below = blamed.file.strip_prefix(root).ok()?;
    Excerpt::of(below, blamed.line, &String::from_utf8_lossy(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_line_below_the_root_is_shown_and_no_other() {
        let directory = tempfile::tempdir().unwrap();
        let top = directory.path().canonicalize().unwrap();
        let root = top.join("shop");
        fs::create_dir(&root).unwrap();
        fs::write(root.join("app.rb"), "one\ntwo\nthree\n").unwrap();
        fs::write(top.join("secret.rb"), "secret\n").unwrap();
        std::os::unix::fs::symlink(top.join("secret.rb"), root.join("link.rb")).unwrap();
        let said = |name: &str, line: usize| blamed(&format!("{}/{name}:{line}: no", root.display()), &root);
        let excerpt = said("app.rb", 2).unwrap();
        assert_eq!((excerpt.file.as_str(), excerpt.lines.len()), ("app.rb", 3));
        assert_eq!(said("app.rb", 9), None);
        assert_eq!(said("missing.rb", 1), None);
        assert_eq!(said("link.rb", 1), None);
    }
}
