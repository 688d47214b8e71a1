//! Parses what the kernel writes about processes: /proc/PID/syscall, schedstat, net/tcp (proc(5)).

use std::net::{Ipv4Addr, Ipv6Addr};

/// A kind of system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    /// It waits on the descriptor that is its first argument.
    Descriptor,
    /// It waits on the descriptors of a list in the process's memory: poll(2).
    Several,
    /// It waits on the descriptors of the instance that is its first argument: epoll_wait(2).
    Events,
    Futex,
    /// flock(2), or fcntl(2) with a lock.
    Lock,
    Sleep,
    Child,
    /// It waits until data is on a disk.
    Sync,
    Open,
    Other,
}

/// What /proc/PID/syscall shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Task {
    Running,
    /// It sleeps outside of a system call, as in a page fault.
    Elsewhere,
    Waits {
        call: Call,
        arguments: [u64; 6],
    },
}

/// fcntl(2): F_SETLKW and F_OFD_SETLKW.
const LOCKS: [u64; 2] = [7, 38];

/// Parses /proc/PID/syscall.
pub(crate) fn task(text: &str) -> Option<Task> {
    let mut words = text.split_whitespace();
    let number = match words.next()? {
        "running" => return Some(Task::Running),
        "-1" => return Some(Task::Elsewhere),
        number => number.parse().ok()?,
    };
    let mut arguments = [0; 6];
    for argument in &mut arguments {
        *argument = u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
    }
    let call = match call(number) {
        Call::Lock if number == libc::SYS_fcntl && !LOCKS.contains(&arguments[1]) => Call::Other,
        call => call,
    };
    Some(Task::Waits { call, arguments })
}

fn call(number: i64) -> Call {
    match number {
        libc::SYS_read
        | libc::SYS_readv
        | libc::SYS_pread64
        | libc::SYS_preadv
        | libc::SYS_write
        | libc::SYS_writev
        | libc::SYS_pwrite64
        | libc::SYS_recvfrom
        | libc::SYS_recvmsg
        | libc::SYS_sendto
        | libc::SYS_sendmsg
        | libc::SYS_connect
        | libc::SYS_accept4 => Call::Descriptor,
        libc::SYS_ppoll => Call::Several,
        libc::SYS_epoll_pwait => Call::Events,
        libc::SYS_futex => Call::Futex,
        libc::SYS_flock | libc::SYS_fcntl => Call::Lock,
        libc::SYS_nanosleep | libc::SYS_clock_nanosleep => Call::Sleep,
        libc::SYS_wait4 | libc::SYS_waitid => Call::Child,
        libc::SYS_fsync | libc::SYS_fdatasync | libc::SYS_sync => Call::Sync,
        libc::SYS_openat | libc::SYS_newfstatat | libc::SYS_getdents64 => Call::Open,
        // arm64 has only the newer ones above.
        #[cfg(target_arch = "x86_64")]
        libc::SYS_poll => Call::Several,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_epoll_wait => Call::Events,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_open | libc::SYS_stat | libc::SYS_lstat => Call::Open,
        _ => Call::Other,
    }
}

/// The time that a task ran and stood in the run queue, in nanoseconds.
pub(crate) fn schedstat(text: &str) -> Option<(u64, u64)> {
    let mut words = text.split_whitespace().map(str::parse);
    Some((words.next()?.ok()?, words.next()?.ok()?))
}

/// The descriptors of an array of `struct pollfd`.
pub(crate) fn polled(memory: &[u8]) -> impl Iterator<Item = i32> {
    let descriptor = |entry: &[u8]| Some(i32::from_ne_bytes(entry.get(..4)?.try_into().ok()?));
    let all = memory.chunks_exact(8).filter_map(descriptor);
    all.filter(|descriptor| *descriptor >= 0)
}

/// The descriptors that an epoll instance watches, by its fdinfo.
pub(crate) fn watched(text: &str) -> impl Iterator<Item = i32> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("tfd:"));
    lines.filter_map(|line| line.split_whitespace().next()?.parse().ok())
}

/// Finds a connection in net/tcp or net/tcp6: the other end as a text, its port, and the port of this end.
pub(crate) fn connection(table: &str, inode: u32) -> Option<(String, u16, u16)> {
    let inode = inode.to_string();
    let mut lines = table.lines().skip(1);
    lines.find_map(|line| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        if words.get(9) != Some(&inode.as_str()) {
            return None;
        }
        let own = words.get(1)?.rsplit_once(':')?.1;
        let (address, port) = words.get(2)?.split_once(':')?;
        let port = u16::from_str_radix(port, 16).ok()?;
        let own = u16::from_str_radix(own, 16).ok()?;
        Some((format!("{}:{port}", host(address)?), port, own))
    })
}

/// The kernel writes an address as words in the machine's byte order.
fn host(text: &str) -> Option<String> {
    let word = |at: usize| u32::from_str_radix(text.get(at..at + 8)?, 16).ok();
    let bytes = |at: usize| word(at).map(u32::to_ne_bytes);
    if text.len() == 8 {
        return Some(Ipv4Addr::from(bytes(0)?).to_string());
    }
    let mut address = [0; 16];
    for (index, part) in address.chunks_exact_mut(4).enumerate() {
        part.copy_from_slice(&bytes(index * 8)?);
    }
    let address = Ipv6Addr::from(address);
    Some(match address.to_ipv4_mapped() {
        Some(address) => address.to_string(),
        None => format!("[{address}]"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_read_with_its_arguments() {
        let line = format!("{} 0x5 0x7ffd 0x3 0x0 0x0 0x0 0x7ffc 0x7f1a\n", libc::SYS_read);
        let arguments = [5, 0x7ffd, 3, 0, 0, 0];
        let call = Call::Descriptor;
        assert_eq!(task(&line), Some(Task::Waits { call, arguments }));
        assert_eq!(task("running\n"), Some(Task::Running));
        assert_eq!(task("-1 0x7ffc 0x7f1a\n"), Some(Task::Elsewhere));
        for nonsense in ["", "x", "0 0x1", "0 1 2 3 4 5 6", "99999999999999999999"] {
            assert_eq!(task(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn fcntl_waits_for_a_lock_only_if_it_asks_for_one() {
        let asked = |command: u64| {
            let line = format!("{} 0x5 {command:#x} 0x0 0x0 0x0 0x0 0x0 0x0", libc::SYS_fcntl);
            task(&line).map(|task| matches!(task, Task::Waits { call: Call::Lock, .. }))
        };
        assert_eq!((asked(7), asked(3)), (Some(true), Some(false)));
    }

    #[test]
    fn run_times_are_the_first_two_numbers() {
        assert_eq!(schedstat("123 45 6\n"), Some((123, 45)));
        assert_eq!((schedstat("123"), schedstat("a b")), (None, None));
    }

    #[test]
    fn descriptors_are_found_in_lists() {
        let mut memory = Vec::new();
        for descriptor in [7_i32, -1, 9] {
            memory.extend_from_slice(&descriptor.to_ne_bytes());
            memory.extend_from_slice(&[1, 0, 0, 0]);
        }
        memory.push(3);
        assert_eq!(polled(&memory).collect::<Vec<_>>(), [7, 9]);
        let fdinfo =
            "pos:\t0\nflags:\t02\ntfd:        5 events:       19 data: 5\ntfd: x\ntfd:       12 events: 1\n";
        assert_eq!(watched(fdinfo).collect::<Vec<_>>(), [5, 12]);
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn connections_are_found_by_inode() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
            0: 0100007F:C350 0100007F:0CEA 01 00000000:00000000 00:00000000 00000000    33        0 4711 1 ffff 20\n   \
            1: 0000000000000000FFFF00000100007F:0050 0000000000000000FFFF00000200007F:01BB 01 0:0 0:0 0 33 0 4712 1\n   \
            2: 00000000000000000000000001000000:0050 B80D0120000000000000000001000000:1F90 01 0:0 0:0 0 33 0 4713 1\n";
        let found = |inode| connection(table, inode);
        assert_eq!(found(4711), Some(("127.0.0.1:3306".into(), 3306, 50_000)));
        assert_eq!(found(4712), Some(("127.0.0.2:443".into(), 443, 80)));
        assert_eq!(found(4713), Some(("[2001:db8::1]:8080".into(), 8080, 80)));
        assert_eq!(found(1), None);
    }
}
