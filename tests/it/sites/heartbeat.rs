//! Routers and inspectors that take up nothing are replaced; those that are only slow are not.

use super::Sites;
use crate::support::prelude::*;

#[cfg(target_arch = "x86_64")]
const LOOP: [u8; 2] = [0xeb, 0xfe];
#[cfg(target_arch = "aarch64")]
const LOOP: [u8; 4] = 0x1400_0000_u32.to_le_bytes();

/// Traces a process like a debugger, until it reads a line or is killed.
const HOLD: &str = "
import ctypes, os, select, sys
pid, zero = int(sys.argv[1]), ctypes.c_void_p(0)
ptrace = ctypes.CDLL(None, use_errno=True).ptrace
if ptrace(16, pid, zero, zero) != 0:
    sys.exit(os.strerror(ctypes.get_errno()))
os.waitpid(pid, 0x40000000)
print('held', flush=True)
while not select.select([sys.stdin], [], [], 0.05)[0]:
    if os.waitpid(pid, 0x40000000 | os.WNOHANG) != (0, 0):
        sys.exit()
ptrace(17, pid, zero, zero)
";

fn hang(pid: u32) {
    let place = until("it waits", || {
        let call = read_file(format!("/proc/{pid}/syscall"));
        let place = call.split_whitespace().last()?.strip_prefix("0x")?;
        u64::from_str_radix(place, 16).ok()
    });
    let memory = fs::OpenOptions::new()
        .write(true)
        .open(format!("/proc/{pid}/mem"));
    memory.expect("mem").write_all_at(&LOOP, place).expect("write");
    // It needs CPU time even when tests run in parallel, or it would look slow.
    let faster = Command::new("renice")
        .args(["-n", "-15", "-p", &pid.to_string()])
        .stdout(Stdio::null())
        .status();
    assert!(faster.expect("renice").success());
}

/// Traces and stops a thread until it reads a line or its input ends.
pub(in crate::it) fn hold(pid: u32) -> Child {
    let mut holder = Command::new("python3")
        .args(["-c", HOLD, &pid.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3");
    let mut line = String::new();
    let said = holder.stdout.as_mut().expect("a pipe");
    BufReader::new(said).read_line(&mut line).expect("read");
    assert_eq!(line, "held\n");
    holder
}

fn is_replaced(why: &str, harm: impl Fn(u32) -> Option<Child>) {
    let sites = Sites::start("max = 3");
    sites.cgi("app", 0, "echo app");
    assert_eq!(sites.body("/app/"), "app\n");
    for which in ["router", "inspector"] {
        let before = sites.companion(which);
        let holder = harm(before);
        sites.daemon.wait_for(&format!(
            "the {which} (pid {before}) does not answer, {why}: it is replaced"
        ));
        wait_until("its end", || !process::runs(before));
        assert_ne!(sites.companion(which), before);
        sites.cgi(&format!("after-{which}"), 0, "echo new");
        wait_until("an answer", || {
            sites.get(&format!("/after-{which}/")) == (200, "new\n".to_owned())
        });
        assert_eq!(sites.body("/app/"), "app\n");
        if let Some(mut holder) = holder {
            drop(holder.stdin.take());
            let _ = holder.wait();
        }
    }
}

#[test]
fn one_that_hangs_in_a_loop_is_replaced() {
    skip_if!(needs_root());
    is_replaced("it is busy and takes up nothing", |pid| {
        hang(pid);
        None
    });
}

/// The kernel does not notify the master of such a stop.
#[test]
fn one_that_a_tracer_holds_is_replaced() {
    skip_if!(needs_root());
    is_replaced("it is stopped", |pid| Some(hold(pid)));
}

#[test]
fn one_that_was_held_up_together_with_the_master_goes_on() {
    skip_if!(needs_root());
    let sites = Sites::start("max = 3");
    sites.cgi("app", 0, "echo app");
    assert_eq!(sites.body("/app/"), "app\n");
    let both = ["router", "inspector"].map(|which| sites.companion(which));
    let holders = both.map(hold);
    let master = sites.daemon.pid();
    process::signal(master, Signal::SIGSTOP);
    wait(Duration::from_secs(8));
    process::signal(master, Signal::SIGCONT);
    wait(Duration::from_millis(300));
    for mut holder in holders {
        holder
            .stdin
            .take()
            .expect("a pipe")
            .write_all(b"\n")
            .expect("write");
        holder.wait().expect("wait");
    }
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(6) {
        assert_eq!(sites.body("/app/"), "app\n");
        pause();
    }
    assert_eq!(both, ["router", "inspector"].map(|which| sites.companion(which)));
}

fn wait(time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        pause();
    }
}
