//! Configuration files on the real machine.

use std::fs;
use std::path::Path;

use forkyard_config::{EXIT_INVALID, check, load};

const POOL: &str = "pm = \"static\"\nmax_children = 1\napplication = { runtime = \"rust\" }\n";

/// Root has to name the workers' user; for other users that is a warning.
const GLOBAL: &str = "[global]\nallow_root = true\n";

fn checked(path: &Path) -> (u8, String) {
    let mut out = Vec::new();
    let code = check(path, false, &|_| Vec::new(), &mut out).unwrap();
    (code, String::from_utf8(out).unwrap())
}

#[test]
fn files_are_included_in_order_and_directories_are_not() {
    let directory = tempfile::tempdir().unwrap();
    let pools = directory.path().join("pools.d");
    fs::create_dir_all(pools.join("d.toml")).unwrap();
    for name in ["b", "a", ".hidden"] {
        let text = format!(
            "[pool.{}]\nlisten = \"{}/$pool.sock\"\n{POOL}",
            name.replace('.', ""),
            directory.path().display()
        );
        fs::write(pools.join(format!("{name}.toml")), text).unwrap();
    }
    let main = directory.path().join("main.toml");
    fs::write(
        &main,
        format!("{GLOBAL}include = [\"*.d/[ab].toml\", \"pools.d/*.toml\"]\n"),
    )
    .unwrap();
    let loaded = load(&main).unwrap();
    let names: Vec<&str> = loaded
        .config
        .pools
        .iter()
        .map(|pool| pool.name.as_str())
        .collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(loaded.warnings, []);
    assert_eq!(
        checked(&main),
        (
            0,
            format!("{}: configuration is valid: 2 pools\n", main.display())
        )
    );
}

#[test]
fn a_wrong_file_is_told_line_by_line() {
    let directory = tempfile::tempdir().unwrap();
    let main = directory.path().join("main.toml");
    let name = main.display();
    let socket = directory.path().join("www.sock");
    let text = format!(
        "{GLOBAL}[pool.www]\nlisten = \"{}\"\n{POOL}pid = 3\nmax_childen = 4\n",
        socket.display()
    );
    fs::write(&main, text).unwrap();
    let expected = format!(
        "{name}:8:1: error: [pool www] pid: unknown key; it belongs in [global]\n\
         {name}:9:1: error: [pool www] max_childen: unknown key; did you mean max_children?\n"
    );
    assert_eq!(checked(&main), (EXIT_INVALID, expected));
}

#[test]
fn a_missing_file_is_an_error() {
    let path = Path::new("/nowhere/forkyard.toml");
    let expected = "/nowhere/forkyard.toml: error: can't be read: No such file or directory (os error 2); \
                    name the configuration with -c FILE, and let this user read it\n";
    assert_eq!(checked(path), (EXIT_INVALID, expected.to_owned()));
}

#[test]
fn an_endless_file_is_not_read_to_its_end() {
    let (code, text) = checked(Path::new("/dev/zero"));
    assert_eq!(
        (code, text.as_str()),
        (
            EXIT_INVALID,
            "/dev/zero: error: can't be read: it is longer than 16777216 bytes; \
             name the configuration with -c FILE, and let this user read it\n"
        )
    );
}
