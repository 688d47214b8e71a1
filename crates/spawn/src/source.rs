//! Reads the line of an application's source that a text blames. For processes that are the application's user: what they may
//! not read is not shown.

use forkyard_core::spawn::report::source::{self, Excerpt};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Longest file that is read.
const MOST_BYTES: u64 = 4 << 20;

/// The excerpt; `None`: the text blames nothing below `root`, or it can't be read.
pub fn blamed(text: &str, root: &Path) -> Option<Excerpt> {
    let blamed = source::blamed(text, root)?;
    let file = blamed.file.canonicalize().ok()?;
    // A FIFO would be waited for, and a link may lead elsewhere.
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
