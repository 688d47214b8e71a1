//! A start that fails and leaves very many processes behind.

use super::Broken;
use crate::support::prelude::*;

const ORPHANS: usize = 600;
const MOST_AT_ONCE: usize = 64;

const LEAVES: &str = "import os\n\
                      open('once', 'x').close()\n\
                      for _ in range(600):\n    child = os.fork()\n    if child == 0:\n        os.setsid()\n        \
                      if os.fork() == 0: os.execv('/bin/sleep', ['sleep', '300'])\n        os._exit(0)\n    \
                      os.waitpid(child, 0)\nraise RuntimeError('enough')\n";

#[test]
fn what_a_start_leaves_behind_is_looked_for_in_parts() {
    let broken = Broken::start("wsgi", "wsgi.py", LEAVES, "", "");
    let master = broken.daemon.pid();
    let trace = broken.daemon.dir.join("trace");
    let mut strace = crate::support::strace::attach(master, &trace, &["-e", "trace=openat,epoll_wait"]);
    broken.refused();
    let others = || process::children(master).into_iter().map(process::title);
    let is_left = |title: &String| title.starts_with("sleep") || title.contains("wsgi");
    assert_eq!(others().filter(is_left).count(), 0);
    process::signal(strace.id(), Signal::SIGINT);
    process::wait(&mut strace, "strace's end");
    let trace = read_file(trace);
    let turns = trace.split("epoll_wait(");
    let looks: Vec<usize> = turns.map(|turn| turn.matches("/stat\"").count()).collect();
    let most = looks.iter().max().copied().unwrap_or_default();
    assert!(
        !trace.contains("/environ\""),
        "reading that may wait: it is left to another process"
    );
    assert!(looks.iter().sum::<usize>() >= ORPHANS, "all were looked at");
    assert!(
        most <= MOST_AT_ONCE,
        "{most} processes were looked at in one turn of the loop"
    );
}
