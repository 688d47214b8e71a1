//! The promises of docs/explain/security.md against a pool's hostile code.

mod apart;
mod confine;
mod filled;
mod floods;
mod headers;
mod held;
mod hostile;
mod keyrings;
mod liars;
mod memory;
mod names;
mod opened;
mod parameters;
mod ports;
mod requests;
mod sent;
mod sessions;
mod smuggling;
mod sockets;
mod status;
mod storms;
mod within;

pub(crate) use crate::skip::needs_root;
use std::process::{Command, Output};

pub const NOBODY: u32 = 65_534;

pub fn python_as(uid: u32, script: &str, arguments: &[&str]) -> Output {
    let script = format!("import os\nos.setgroups([])\nos.setgid({uid})\nos.setuid({uid})\n{script}");
    Command::new("/usr/bin/python3")
        .args(["-c", &script])
        .args(arguments)
        .output()
        .expect("python3")
}
