//! Completions in real shells, with the names of a real daemon.

use crate::support::prelude::*;

const FORKYARD: &str = env!("CARGO_BIN_EXE_forkyard");

fn start() -> Daemon {
    let daemon = Daemon::start(|dir| {
        let place = dir.display();
        let runtime = format!("runtime = \"cgi\"\nroot = \"{place}\"");
        let cgi = |name| pool(dir, name, "pm = \"ondemand\"\nmax_children = 1\n", &runtime);
        let (shop, blog) = (cgi("shop"), cgi("blog"));
        format!("[global]\ncontrol = \"{place}/control.sock\"\n{shop}{blog}")
    });
    daemon.wait_for("ready to handle connections");
    let file = daemon.dir.join("forkyard.toml");
    let text = read_file(&file);
    fs::write(&file, text.replace("[pool.blog", "[pool.wiki")).expect("configuration");
    daemon
}

fn run(shell: &[&str], script: &str, dir: &Path) -> Vec<String> {
    let completions = Command::new(FORKYARD)
        .args(["completions", shell[0]])
        .output()
        .expect("forkyard");
    let file = dir.join("completions");
    fs::write(&file, completions.stdout).expect("completions");
    let output = Command::new(shell[0])
        .args(&shell[1..])
        .args(["-c", script, "-"])
        .args([&file, Path::new(FORKYARD), &dir.join("forkyard.toml")])
        .output()
        .expect("shell");
    assert!(
        output.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let said = text_of(&output.stdout);
    said.split_whitespace().map(str::to_owned).collect()
}

fn bash(words: &str, dir: &Path) -> Vec<String> {
    let script = format!(
        ". \"$1\"; COMP_WORDS=(\"$2\" {words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
         _forkyard_with_names \"$2\" \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD-1]}}\"; echo \"${{COMPREPLY[@]}}\""
    );
    run(&["bash", "--norc"], &script, dir)
}

#[test]
fn bash_completes_the_pools_of_the_running_daemon() {
    let mut daemon = start();
    let dir = daemon.dir.clone();
    assert_eq!(bash("status -c \"$3\" ''", &dir), ["blog", "shop"]);
    assert_eq!(bash("status -c \"$3\" shop bl", &dir), ["blog"]);
    assert_eq!(bash("restart -c \"$3\" s", &dir), ["shop"]);
    assert_eq!(bash("reo", &dir), ["reopen-logs"]);
    assert_eq!(bash("status --met", &dir), ["--metrics"]);
    assert_eq!(bash("pool remove -c \"$3\" ''", &dir), ["blog", "shop"]);
    daemon.signal(Signal::SIGTERM);
    daemon.wait();
    assert_eq!(bash("status -c \"$3\" ''", &dir), ["shop", "wiki"]);
}

#[test]
fn zsh_completes_the_pools_of_the_running_daemon() {
    let daemon = start();
    let script = "compdef() { true }; _arguments() { true }; compadd() { print -r -- \"${names[@]}\" }; \
                  words=(\"$2\" status -c \"$3\" ''); CURRENT=5; . \"$1\"; _forkyard";
    let script = script.replace("words=", "typeset -a words; words=");
    assert_eq!(run(&["zsh", "-f"], &script, &daemon.dir), ["blog", "shop"]);
}
