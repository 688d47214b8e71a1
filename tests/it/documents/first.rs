//! The applications of the first five minutes are served.

use super::blocks::{self, Block, root};
use super::served::{settle_nginx, settle_toml};
use crate::support::daemon::{Daemon, directory};
use crate::support::nginx::{Nginx, curl, free_port};
use crate::support::place_library;
use std::fs;
use std::path::Path;

/// The blocks of one language's section.
fn section(title: &str) -> Vec<Block> {
    let document = root().join("docs/start/first-application.md");
    let text = fs::read_to_string(document).expect("document");
    let start = format!("\n## {title}\n");
    let (_, section) = text.split_once(&start).expect("a section");
    let section = section.split("\n## ").next().unwrap_or(section);
    let dir = directory();
    let file = dir.path().join("section.md");
    fs::write(&file, section).expect("section");
    blocks::read(&file)
}

/// Where the section says that its application's file is.
fn file(title: &str) -> String {
    let text = fs::read_to_string(root().join("docs/start/first-application.md")).expect("document");
    let (_, section) = text.split_once(&format!("\n## {title}\n")).expect("a section");
    let (_, rest) = section.split_once("<!-- file: /srv/app/").expect("a file");
    rest.split(" -->").next().unwrap_or(rest).to_owned()
}

/// The first block of this kind.
fn text<'a>(blocks: &'a [Block], kind: &str) -> &'a str {
    let block = blocks.iter().find(|block| block.kind == kind);
    &block.unwrap_or_else(|| panic!("no {kind} block")).text
}

/// Writes the section's application down, serves it, and asks for its page.
fn serve(title: &str, language: &str, path: &str) {
    place_library();
    let blocks = section(title);
    let dir = directory();
    let app = dir.path().join("app");
    fs::create_dir(&app).expect("app");
    fs::write(app.join(file(title)), text(&blocks, language)).expect("application");
    let there = |text: &str| text.replace("/srv/app", &app.display().to_string());
    let daemon = Daemon::start(|dir: &Path| settle_toml(&there(text(&blocks, "toml")), dir));
    let port = free_port();
    let site = settle_nginx(&there(text(&blocks, "nginx")), &daemon.dir, port);
    let _nginx = Nginx::start("return 404;", &site);
    let said = curl(&[&format!("http://127.0.0.1:{port}{path}")]);
    assert_eq!(said, text(&blocks, ""), "{title}\n{}", daemon.log());
    let log = daemon.log();
    assert!(!log.contains("WARNING") && !log.contains("ERROR"), "{log}");
}

#[test]
fn the_first_php_page_is_served() {
    serve("PHP", "php", "/");
}

#[test]
fn the_first_python_page_is_served() {
    serve("Python", "python", "/");
}

#[test]
fn the_first_ruby_page_is_served() {
    serve("Ruby", "ruby", "/");
}

#[test]
fn the_first_node_page_is_served() {
    serve("Node.js", "js", "/");
}
