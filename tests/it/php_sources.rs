//! The sources of php-src's test suites (`tests/conformance/sources.py`), from a mirror that a fake apt plays.

use crate::support::prelude::*;

const APT_GET: &str = r#"#!/bin/sh
mirror=$(dirname "$0")
for last; do :; done
case $last in
update) cat "$mirror/complaint" >&2 ;;
*)
    echo "$last" >>"$mirror/asked"
    version=${last#*=}
    grep -qx "$version" "$mirror/held" || { echo "E: Failed to fetch http://mirror/x.tar.xz  404  Not Found [IP: ::1 80]" >&2; exit 100; }
    echo "the tests of $version" >"php8.2_${version%-*}.orig.tar.xz"
    ;;
esac
"#;
const APT_CACHE: &str = "#!/bin/sh\nsed 's/^/Version: /' \"$(dirname \"$0\")/listed\"\n";

struct Mirror(tempfile::TempDir);

impl Mirror {
    fn new(listed: &str, held: &str, complaint: &str) -> Mirror {
        let dir = tempfile::tempdir().expect("there is room");
        let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).expect("writable");
        write("listed", listed);
        write("held", held);
        write("complaint", complaint);
        for (name, text) in [("apt-get", APT_GET), ("apt-cache", APT_CACHE)] {
            write_program(&dir.path().join(name), text);
        }
        Mirror(dir)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn command(&self) -> Command {
        let mut command = Command::new("python3");
        let path = format!("{}:/usr/bin:/bin", self.path().display());
        command
            .args([
                "-B",
                concat!(env!("CARGO_MANIFEST_DIR"), "/tests/conformance/sources.py"),
                "8.2",
            ])
            .env("PATH", path)
            .env("XDG_CACHE_HOME", self.path().join("cache"))
            .env_remove("PHP_SRC_DIR")
            .stdin(Stdio::null());
        command
    }

    fn fetch(&self) -> (Option<i32>, String, String) {
        let output = self.command().output().expect("python3");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        let archive = text(&output.stdout);
        let name = archive.rsplit('/').next().unwrap_or_default().to_owned();
        (output.status.code(), name, text(&output.stderr))
    }

    fn asked(&self) -> Vec<String> {
        let text = fs::read_to_string(self.path().join("asked")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

#[test]
fn the_newest_source_that_the_mirror_has_is_taken_and_kept() {
    let mirror = Mirror::new("8.2.9-1\n8.2.31-1\n8.2.30-1\n", "8.2.9-1\n8.2.30-1\n", "");
    let archive = (Some(0), "php8.2_8.2.30.orig.tar.xz".to_owned(), String::new());
    assert_eq!(mirror.fetch(), archive);
    assert_eq!(mirror.asked(), ["php8.2=8.2.31-1", "php8.2=8.2.30-1"]);
    assert_eq!(mirror.fetch(), archive);
    assert_eq!(mirror.asked().len(), 2, "it was there");
    let kept = fs::read_dir(mirror.path().join("cache/forkyard/php8.2")).expect("the cache");
    assert_eq!(kept.count(), 2, "the archive and its lock");
}

#[test]
fn several_suites_fetch_once() {
    let mirror = Mirror::new("8.2.30-1\n", "8.2.30-1\n", "");
    let start = |_| mirror.command().stdout(Stdio::null()).spawn().expect("python3");
    let suites: Vec<_> = (0..4).map(start).collect();
    for mut suite in suites {
        assert!(suite.wait().expect("our child").success());
    }
    assert_eq!(mirror.asked(), ["php8.2=8.2.30-1"]);
}

#[test]
fn a_mirror_without_the_source_is_told_from_one_that_can_not_be_reached() {
    const UNREACHABLE: &str = "W: Failed to fetch http://mirror/InRelease  Could not resolve 'mirror'\n";
    const LOCKED: &str = "E: Unable to lock directory /cache/lists/\n";
    let rows = [
        ("8.2.30-1\n", "", 77, "lists 8.2.30-1 and holds none"),
        ("", "", 77, "lists none"),
        ("", UNREACHABLE, 1, "Could not resolve 'mirror'"),
        ("8.2.30-1\n", LOCKED, 1, "Unable to lock directory"),
    ];
    each(rows, |(listed, complaint, status, expected)| {
        let (code, archive, said) = Mirror::new(listed, "", complaint).fetch();
        assert_eq!((code, archive.as_str()), (Some(status), ""), "{said}");
        assert_starts(&said, "SKIPPED, NOT TESTED: ");
        assert_contains(&said, expected);
        assert_lacks(&said, "Traceback");
    });
}
