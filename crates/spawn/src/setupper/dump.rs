//! Dumps a process's environment, user and limits as text for the report.

use super::notes::Notes;
use forkyard_sys as sys;
use std::ffi::OsString;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;

pub(super) fn all(notes: &Notes) -> sys::Result<()> {
    notes.dump("envvars", &environment(std::env::vars_os()))?;
    notes.dump("user_info", user().as_bytes())?;
    notes.dump("ulimits", limits().as_bytes())
}

pub(super) fn quickly(notes: &Notes) -> sys::Result<()> {
    use nix::unistd::{Gid, Uid, getgroups};
    let groups = getgroups().unwrap_or_default();
    let groups: Vec<String> = groups.iter().map(ToString::to_string).collect();
    let (uid, gid) = (Uid::effective(), Gid::effective());
    let user = format!("uid={uid} gid={gid} groups={}\n", groups.join(","));
    notes.dump("envvars", &environment(std::env::vars_os()))?;
    notes.dump("user_info", user.as_bytes())?;
    notes.dump("ulimits", limits().as_bytes())
}

/// One sorted variable per line. Newlines in values become `\n`, so a value can't imitate a variable.
pub(super) fn environment(variables: impl Iterator<Item = (OsString, OsString)>) -> Vec<u8> {
    let mut lines: Vec<Vec<u8>> = variables
        .map(|(name, value)| {
            let mut line = name.as_bytes().to_vec();
            line.push(b'=');
            for byte in value.as_bytes() {
                match byte {
                    b'\n' => line.extend(b"\\n"),
                    byte => line.push(*byte),
                }
            }
            line.push(b'\n');
            line
        })
        .collect();
    lines.sort();
    lines.concat()
}

/// In the format of id(1).
pub(super) fn user() -> String {
    use nix::unistd::{Gid, Group, Uid, User, getgroups};
    let (uid, gid) = (Uid::effective(), Gid::effective());
    let user = User::from_uid(uid)
        .ok()
        .flatten()
        .map(|entry| format!("({})", entry.name));
    let named = |gid: Gid| {
        let entry = Group::from_gid(gid).ok().flatten();
        let name = entry.map(|entry| format!("({})", entry.name));
        format!("{gid}{}", name.unwrap_or_default())
    };
    let groups = getgroups().unwrap_or_default();
    let groups: Vec<String> = groups.into_iter().map(named).collect();
    format!(
        "uid={uid}{} gid={} groups={}\n",
        user.unwrap_or_default(),
        named(gid),
        groups.join(",")
    )
}

pub(super) fn limits() -> String {
    let mut text = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    if let Some(mask) = status.lines().find_map(|line| line.strip_prefix("Umask:")) {
        let _ = writeln!(text, "{:<26}{}", "umask", mask.trim());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_can_not_look_like_a_variable() {
        let variables = [("B", "x\nA=forged"), ("A", "1")].map(|(n, v)| (n.into(), v.into()));
        assert_eq!(
            environment(variables.into_iter()),
            b"A=1\nB=x\\nA=forged\n".to_vec()
        );
    }
}
