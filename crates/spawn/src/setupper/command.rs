//! Checks a command before the shell executes it, because the shell's exit code doesn't show the cause.

use crate::handshake::response::CommandCheck;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Bytes read from a file. The kernel reads 256 of a `#!` line (execve(2)).
const MOST_HEAD: u64 = 256;

/// Checks a command's first word. `directory`: the working directory; `path`: the variable PATH.
pub fn check(command: &str, directory: &Path, path: &str) -> CommandCheck {
    let Some(word) = first_word(command) else {
        return CommandCheck::default();
    };
    let named = |fault: Option<(String, String)>, path: Option<PathBuf>| {
        let (fault, remedy) = fault.unzip();
        CommandCheck {
            word: word.clone(),
            path,
            fault,
            remedy,
        }
    };
    if word.contains('/') {
        let file = directory.join(&word);
        return named(fault(&file), Some(file));
    }
    let candidates = path.split(':').map(|entry| directory.join(entry).join(&word));
    let files: Vec<PathBuf> = candidates.filter(|file| file.is_file()).collect();
    let fine = files.iter().find(|file| is_executable(file));
    match fine.or(files.first()) {
        Some(file) => named(fault(file), Some(file.clone())),
        None if is_builtin(&word) => named(None, None),
        None => {
            let fault = format!("there is no {word} in PATH ({path}).");
            let has = |name: &str| directory.join(name).is_file();
            let remedy = if has("package.json") && has("server.js") {
                // For example, a Next.js build with `output: "standalone"`.
                format!(
                    "Let the server that is there be started, by start_command = \"node server.js\", or install {word}."
                )
            } else {
                "Install it, or give its whole path, or set PATH for the application.".to_owned()
            };
            named(Some((fault, remedy)), None)
        }
    }
}

/// The first word, unless the shell would expand it.
fn first_word(command: &str) -> Option<String> {
    let word = command.split_whitespace().next()?;
    let plain = |c: char| c.is_alphanumeric() || "/._-+:@%,".contains(c);
    word.chars().all(plain).then(|| word.to_owned())
}

/// Builtins have no file. The shell checks them.
fn is_builtin(word: &str) -> bool {
    ["exec", "command", "eval", ":"].contains(&word)
}

fn is_executable(file: &Path) -> bool {
    nix::unistd::access(file, nix::unistd::AccessFlags::X_OK).is_ok()
}

fn fault(file: &Path) -> Option<(String, String)> {
    let name = file.display();
    let say = |fault: String, remedy: &str| Some((fault, remedy.to_owned()));
    let found = match std::fs::metadata(file) {
        Ok(found) => found,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return say(format!("there is no file {name}."), "Check the command's path.");
        }
        Err(error) => {
            return say(
                format!("{name} can't be reached: {error}."),
                "Let the application's user enter every directory of its path.",
            );
        }
    };
    if found.is_dir() {
        return say(format!("{name} is a directory."), "Give the path of a program.");
    }
    if !is_executable(file) {
        let mode = found.permissions().mode() & 0o7777;
        let way = if mode & 0o111 == 0 {
            format!("Make it executable (chmod +x {name}).")
        } else {
            "Let the application's user execute it, and check that its file system is not mounted noexec."
                .to_owned()
        };
        return say(format!("{name} is not executable (mode {mode:04o})."), &way);
    }
    let mut head = Vec::new();
    File::open(file)
        .ok()?
        .take(MOST_HEAD)
        .read_to_end(&mut head)
        .ok()?;
    match head.as_slice() {
        [b'#', b'!', line @ ..] => interpreter_fault(file, line),
        [0x7F, b'E', b'L', b'F', ..] => machine_fault(file, &head),
        _ => None,
    }
}

fn interpreter_fault(file: &Path, line: &[u8]) -> Option<(String, String)> {
    let line = String::from_utf8_lossy(line);
    let line = line.split('\n').next().unwrap_or_default();
    let interpreter = line.split_whitespace().next()?.to_owned();
    let path = Path::new(interpreter.trim_end_matches('\r'));
    let name = file.display();
    if line.ends_with('\r') {
        return Some((
            format!(
                "the first line of {name} ends with a carriage return, which the kernel takes for a part of it."
            ),
            format!("Save {name} with Unix line endings."),
        ));
    }
    if !path.exists() {
        return Some((
            format!("{name} asks in its first line for the interpreter {interpreter}, which is not there."),
            format!("Install {interpreter}, or correct the first line of {name}."),
        ));
    }
    if !is_executable(path) {
        return Some((
            format!(
                "{name} asks in its first line for the interpreter {interpreter}, which can't be executed."
            ),
            format!("Let the application's user execute {interpreter}."),
        ));
    }
    None
}

/// ELF machine numbers (elf(5), e_machine) and their common names.
const MACHINES: [(u16, &str, &str); 5] = [
    (3, "x86", "x86 (32 bits)"),
    (40, "arm", "ARM (32 bits)"),
    (62, "x86_64", "x86-64"),
    (183, "aarch64", "ARM (64 bits)"),
    (243, "riscv64", "RISC-V"),
];

fn machine_fault(file: &Path, head: &[u8]) -> Option<(String, String)> {
    let little = *head.get(5)? == 1;
    let bytes = [*head.get(18)?, *head.get(19)?];
    let machine = if little {
        u16::from_le_bytes(bytes)
    } else {
        u16::from_be_bytes(bytes)
    };
    let own = std::env::consts::ARCH;
    let known = MACHINES.iter().find(|(number, _, _)| *number == machine);
    let fits = known.is_some_and(|(_, name, _)| *name == own || (*name == "x86" && own == "x86_64"));
    let ours = MACHINES.iter().any(|(_, name, _)| *name == own);
    (!fits && ours).then(|| {
        let kind = known.map_or("another machine", |(_, _, name)| name);
        (
            format!(
                "{} is a program for {kind}, and this machine is {own}.",
                file.display()
            ),
            "Install the program that was built for this machine.".to_owned(),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(directory: &Path, name: &str, text: &[u8], mode: u32) {
        let file = directory.join(name);
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    fn said(directory: &Path, command: &str) -> String {
        let path = "/usr/bin:/bin";
        check(command, directory, path).fault.unwrap_or_default()
    }

    #[test]
    fn each_fault_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let here = directory.path();
        script(here, "fine", b"#!/bin/sh\n", 0o755);
        script(here, "mode", b"#!/bin/sh\n", 0o644);
        script(here, "lost", b"#!/nowhere/python -u\n", 0o755);
        script(here, "dos", b"#!/bin/sh\r\n", 0o755);
        let mut elf = b"\x7fELF\x02\x01\x01".to_vec();
        elf.resize(18, 0);
        elf.extend([0xF3, 0x00, 0, 0]);
        script(here, "alien", &elf, 0o755);
        assert_eq!(said(here, "./fine --port $PORT"), "");
        assert_eq!(said(here, "sh -c x"), "");
        assert!(said(here, "./mode").contains("not executable (mode 0644)"));
        assert!(said(here, "./lost").contains("interpreter /nowhere/python, which is not there"));
        assert!(said(here, "./dos").contains("carriage return"));
        assert!(said(here, "./alien").contains("RISC-V"));
        assert!(said(here, "./missing").contains("there is no file"));
        assert!(said(here, ".").contains("is a directory") || said(here, "./").contains("is a directory"));
        assert!(said(here, "no-such-program-here").contains("in PATH"));
        let remedy = |word: &str| check(word, here, "/usr/bin:/bin").remedy.unwrap_or_default();
        assert!(remedy("next start").contains("Install it"));
        script(here, "package.json", b"{}", 0o644);
        assert!(remedy("next start").contains("Install it"));
        script(here, "server.js", b"", 0o644);
        assert!(remedy("next start").contains("start_command = \"node server.js\""));
        assert_eq!(check("$RUNNER x", here, "/bin"), CommandCheck::default());
        assert_eq!(check("", here, "/bin"), CommandCheck::default());
    }
}
