//! The kernel counts descriptors in flight by user, and refuses the router's if its user has too many.

use super::Sites;
use crate::support::prelude::*;

const USER: &str = "uucp";
/// Sends descriptors as the router's user up to the kernel's limit of descriptors in flight, and keeps them there. Its
/// descriptor limit is the router's.
const SENDER: &str = r#"
import errno, os, pwd, socket, sys
user = pwd.getpwnam(sys.argv[1])
os.setgroups([]); os.setgid(user.pw_gid); os.setuid(user.pw_uid)
held, full = [], False
while not full:
    held.append(socket.socketpair())
    held[-1][0].setblocking(False)
    while True:
        try: socket.send_fds(held[-1][0], [b'x'], [0] * 250)
        except BlockingIOError: break
        except OSError as error:
            if error.errno != errno.ETOOMANYREFS: raise
            full = True
            break
print(flush=True)
sys.stdin.read()
"#;

#[test]
fn a_connection_that_the_kernel_does_not_let_pass_waits_and_costs_no_instance() {
    skip_if!(needs_root());
    let sites = Sites::start(&format!(
        "max = 2\nrouter_user = {USER:?}\nmax_request_queue_time = \"20s\"\n"
    ));
    sites.wsgi("shop", 0, "str(os.getpid())");
    let first = sites.body("/shop/");
    let mut sender = Command::new("/usr/bin/python3")
        .args(["-c", SENDER, USER])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3");
    let output = sender.stdout.as_mut().expect("a pipe");
    output.read_exact(&mut [0]).expect("they are under way");
    std::thread::scope(|scope| {
        let request = scope.spawn(|| sites.get("/shop/"));
        wait_until("the router to wait", || {
            let log = sites.daemon.log();
            assert_lacks(&log, "in turn did not take it");
            log.contains("connections can't be passed on")
        });
        assert!(!request.is_finished());
        process::signal(sender.id(), Signal::SIGKILL);
        process::wait(&mut sender, "the sender");
        let answer = request.join().expect("an answer");
        assert_eq!(answer, (200, first.clone()), "{}", sites.daemon.log());
    });
    assert_eq!(sites.body("/shop/"), first);
}
