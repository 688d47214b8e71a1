//! `forkyard check` looks at the links that name pools' releases.

use forkyard_config::Pool;
use forkyard_config::release::Map;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Returns what is wrong with a pool's link, and the remedy.
pub(super) fn fault(pool: &Pool) -> Option<(String, String)> {
    let link = &pool.release.as_ref()?.link;
    let (problem, remedy) = fault_of(link)?;
    Some((problem, remedy.replace("POOL", &pool.name)))
}

/// Returns the pool with the paths of the release that its link names.
pub(super) fn in_release(pool: &Pool) -> Pool {
    let link = pool.release.as_ref().map(|release| &release.link);
    let Some((link, release)) = link.and_then(|link| Some((link, fs::canonicalize(link).ok()?))) else {
        return pool.clone();
    };
    let map = Map::new(link.as_os_str().as_bytes(), release.as_os_str().as_bytes(), []);
    forkyard_config::release::in_release(pool, &map)
}

fn fault_of(link: &Path) -> Option<(String, &'static str)> {
    let shown = link.display();
    let kind = match fs::symlink_metadata(link) {
        Ok(metadata) => metadata.file_type(),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let problem = format!("there is no link {shown}");
            return Some((
                problem,
                "nothing is served before the first deployment: forkyard deploy POOL RELEASE",
            ));
        }
        Err(error) => {
            return Some((
                format!("{shown}: {error}"),
                "the pool serves the paths as they are written",
            ));
        }
    };
    if !kind.is_symlink() {
        let what = if kind.is_dir() { "a directory" } else { "a file" };
        let remedy =
            "deploy can't move it: give the release a directory of its own, and make a link to that here";
        return Some((format!("{shown} is {what}, and not a link"), remedy));
    }
    let problem = match fs::metadata(link) {
        Ok(release) if release.is_dir() => return None,
        Ok(_) => "is no directory".to_owned(),
        Err(error) if error.kind() == ErrorKind::NotFound => "is not there".to_owned(),
        Err(error) => format!("can't be used: {error}"),
    };
    let target = fs::read_link(link).unwrap_or_default();
    let problem = format!("{shown} leads to {}, which {problem}", target.display());
    Some((problem, "deploy a release: forkyard deploy POOL RELEASE"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn each_fault_of_a_link_has_its_words() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir(at("release")).unwrap();
        fs::write(at("file"), "").unwrap();
        for (link, target) in [("good", "release"), ("dangling", "none"), ("to-file", "file")] {
            symlink(target, at(link)).unwrap();
        }
        for (name, expected) in [
            ("good", None),
            ("none", Some("there is no link DIR/none")),
            ("release", Some("DIR/release is a directory, and not a link")),
            ("good/.", Some("DIR/good/. is a directory, and not a link")),
            ("file", Some("DIR/file is a file, and not a link")),
            ("dangling", Some("DIR/dangling leads to none, which is not there")),
            (
                "to-file",
                Some("DIR/to-file leads to file, which is no directory"),
            ),
            (
                "file/below",
                Some("DIR/file/below: Not a directory (os error 20)"),
            ),
        ] {
            let expected = expected.map(|text| text.replace("DIR", &dir.path().display().to_string()));
            assert_eq!(
                fault_of(&at(name)).map(|(problem, _)| problem),
                expected,
                "{name}"
            );
        }
    }
}
