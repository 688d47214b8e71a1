//! The picture in the README is what users see, and it comes before anything that leads elsewhere.

use super::blocks::{self, root};
use crate::support::prelude::*;

/// Normalizes white space: the README wraps lines like a terminal.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn the_picture_in_the_readme_is_what_users_see() {
    let shop = directory();
    fs::write(shop.path().join("wsgi.py"), "import stripe\n").expect("application");
    let place = shop.path().display().to_string();
    let daemon = Daemon::start(|dir| {
        let application = format!("runtime = \"wsgi\"\nroot = \"{place}\"");
        let settings = "pm = \"ondemand\"\nmax_children = 10\n";
        let global = with_control(dir);
        global + &pool(dir, "shop", settings, &application)
    });
    let said = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forkyard"));
        let control = daemon.dir.join("control.sock");
        let output = command.args(arguments).arg("--socket").arg(control).output();
        String::from_utf8(output.expect("forkyard").stdout).expect("text")
    };
    daemon.ask("shop", &Params::get(&daemon.dir, "x", ""));
    let status = until("the refusal", || {
        let status = said(&["status"]);
        status.contains("failing").then_some(status)
    });
    let (_, rest) = status.split_once("last error ").expect("the error's id");
    let mut rest = rest.split(", ");
    let (id, age) = (rest.next().expect("id"), rest.next().expect("age"));
    let error = said(&["error", id]).replace(&place, "/srv/shop");

    let picture = blocks::find("README.md", "", "$ forkyard status");
    let (shown_status, shown_error) = picture.split_once("$ forkyard error").expect("two commands");
    let (shown_id, shown_error) = shown_error.split_once('\n').expect("an id");
    let heads = |text: &str| text.lines().find(|line| line.starts_with("POOL")).map(words);
    assert_eq!(heads(shown_status), heads(&status), "{status}");
    let (_, message) = shown_status.split_once("shop: last").expect("a message");
    let message = words(message).replace(shown_id.trim(), id).replace("3h ago", age);
    assert!(words(&status).contains(&message), "{message}: {status}");
    let error = words(&error);
    for part in shown_error.split("...") {
        let part = part.trim_matches(['\n', ',', ' ', '>']);
        assert!(error.contains(&words(part)), "{part}: {error}");
    }
}

#[test]
fn a_screen_of_the_readme_comes_before_its_first_link() {
    let text = read_file(root().join("README.md"));
    let lines = text.lines().take_while(|line| !line.contains("](")).count();
    assert!((30..=50).contains(&lines), "{lines}");
}
