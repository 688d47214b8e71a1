mod descriptors;
mod thread_state;
mod unseen;

use super::regions::PAGE;
use super::*;
use std::io::Write;

struct Round {
    snapshot: Snapshot,
    pages: Pages,
    disturb: fn(u64, &mut [u8]),
    rounds: u64,
    large: &'static mut [u8],
}

const OK: i32 = 0;
const NOT_TAKEN: i32 = 2;
const DIFFERENT: i32 = 3;
const LEFT: i32 = 4;
const FAILED: i32 = 100;
const LARGE: usize = 5 << 20;

fn in_child(act: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child does not return, and only allocates from glibc. Its heap is consistent after a fork.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let code = act();
        // SAFETY: ends the process.
        unsafe { libc::_exit(code) }
    }
    let mut status = 0;
    // SAFETY: the child from above.
    unsafe { libc::waitpid(pid, &mut status, 0) };
    match libc::WIFEXITED(status) {
        true => libc::WEXITSTATUS(status),
        false => -libc::WTERMSIG(status),
    }
}

fn rounds(rounds: u64, disturb: fn(u64, &mut [u8])) -> i32 {
    rounds_with(None, rounds, disturb)
}

#[track_caller]
fn assert_put_back(count: u64, disturb: fn(u64, &mut [u8])) {
    assert_eq!(rounds(count, disturb), OK);
    assert_eq!(rounds_with(Some(Vec::new()), count, disturb), OK, "counted pages");
}

fn rounds_with(closable: Option<Vec<i32>>, rounds: u64, disturb: fn(u64, &mut [u8])) -> i32 {
    in_child(|| {
        let large: &mut [u8] = Box::leak(vec![1_u8; LARGE].into_boxed_slice());
        let _ = std::thread::spawn(|| ()).join();
        let Ok(pages) = Pages::take(closable) else {
            return NOT_TAKEN;
        };
        large[LARGE / 2] = 9;
        let Ok(snapshot) = Snapshot::prepare(&pages) else {
            return NOT_TAKEN;
        };
        let round = Box::leak(Box::new(Round {
            snapshot,
            pages,
            disturb,
            rounds,
            large,
        }));
        let context = std::ptr::from_mut(round);
        // SAFETY: one thread; `again` finds the round where it was.
        let taken = unsafe { snapshot.take(&(*context).pages, again, context.cast()) };
        if let Err(error) = taken {
            let _ = writeln!(std::io::stderr(), "{error}");
            return NOT_TAKEN;
        }
        // SAFETY: as above.
        unsafe { again(context.cast()) }
    })
}

unsafe extern "C" fn again(context: *mut libc::c_void) -> ! {
    // SAFETY: leaked by `rounds`.
    let round = unsafe { &mut *context.cast::<Round>() };
    let code = match round.snapshot.outcome() {
        Err(failure) => Some(FAILED + failure.kind() as i32),
        // Before the first rewind the frames still change.
        Ok(rewound) if rewound.number == 0 => None,
        Ok(rewound) => after(round, rewound),
    };
    if let Some(code) = code {
        // SAFETY: ends the process.
        unsafe { libc::_exit(code) }
    }
    let rewound = round.snapshot.outcome().unwrap_or_default();
    // Leaks them, because they have no owner here.
    round.snapshot.take_kept().for_each(std::mem::forget);
    (round.disturb)(rewound.number, round.large);
    if let Err(failure) = round.snapshot.check() {
        // SAFETY: ends the process.
        unsafe { libc::_exit(FAILED + failure.kind() as i32) }
    }
    if KEEPS.load(std::sync::atomic::Ordering::Relaxed) {
        round.snapshot.keep_open([271, 270].into_iter());
    }
    // SAFETY: taken, and one thread.
    unsafe { round.snapshot.rewind() }
}

fn after(round: &mut Round, rewound: Rewound) -> Option<i32> {
    if round.rounds > 100 && rewound.number % 100 != 0 && rewound.number < 999 {
        return None;
    }
    let mut different = [0_usize; 8];
    let mut count = 0;
    round.snapshot.differences(|at| {
        if count < 8 {
            different[count] = at;
        }
        count += 1;
    });
    if count > 0 {
        let _ = writeln!(
            std::io::stderr(),
            "{count} words differ: {different:x?} {rewound:?}"
        );
        return Some(DIFFERENT);
    }
    // SAFETY: one thread.
    let is_well = unsafe { WORD } == 7
        // SAFETY: as above.
        && !(unsafe { READS_NO_LIST } && rewound.has_read_mappings)
        && round.large[LARGE / 2] == 9
        && round.large.iter().filter(|byte| **byte != 1).count() == 1;
    if !is_well {
        return Some(LEFT);
    }
    (rewound.number == round.rounds).then_some(OK)
}

static KEEPS: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
static mut WORD: u64 = 7;
static mut READS_NO_LIST: bool = false;

fn map(bytes: usize) -> *mut u8 {
    // SAFETY: a new mapping.
    unsafe {
        let place = libc::mmap(
            std::ptr::null_mut(),
            bytes,
            3,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        std::ptr::write_bytes(place.cast::<u8>(), 1, bytes);
        place.cast()
    }
}

fn request(round: u64, large: &mut [u8]) {
    let mut kept: Vec<Vec<u8>> = Vec::new();
    for size in [16, 1000, 100_000, 3 << 20] {
        kept.push(vec![round as u8 + 1; size]);
    }
    std::mem::forget(kept);
    large[round as usize * 4096 % LARGE] = 2;
    // SAFETY: one thread.
    unsafe {
        WORD = round + 100;
        libc::setlocale(libc::LC_ALL, c"C.UTF-8".as_ptr());
        map(1 << 20);
        libc::sbrk(1 << 16);
    }
    deep(200);
}

fn deep(depth: u32) -> u64 {
    let filler = std::hint::black_box([u64::from(depth); 512]);
    match depth {
        0 => filler[7],
        _ => deep(depth - 1) + filler[3],
    }
}

#[test]
fn every_page_is_put_back() {
    assert_put_back(12, request);
}

#[test]
fn a_thousand_rounds_and_the_renewal_between_them() {
    assert_put_back(1003, |round, large| {
        large[round as usize % LARGE] = 3;
        if round % 100 == 0 {
            request(round, large);
        }
    });
}

fn whole_pages(large: &mut [u8]) -> (*mut libc::c_void, usize) {
    let start = (large.as_ptr() as usize).next_multiple_of(4096);
    (start as *mut libc::c_void, (1 << 20))
}

#[test]
fn memory_that_changes_without_a_write_is_put_back() {
    // Dropped pages.
    assert_put_back(4, |round, large| {
        let (start, bytes) = whole_pages(large);
        // SAFETY: the test's slice.
        unsafe { libc::madvise(start, bytes, libc::MADV_DONTNEED) };
        if round % 2 == 1 {
            large[1 << 19] = 5;
        }
    });
    // Unmapped.
    assert_put_back(4, |_, large| {
        let (start, bytes) = whole_pages(large);
        // SAFETY: as above.
        unsafe { libc::munmap(start, bytes) };
    });
    assert_put_back(4, |round, large| {
        let (start, bytes) = whole_pages(large);
        // SAFETY: as above.
        unsafe {
            libc::munmap(start, bytes);
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
            libc::mmap(start, bytes, 3, flags, -1, 0);
            if round % 2 == 1 {
                std::ptr::write_bytes(start.cast::<u8>(), 8, bytes);
            }
        }
    });
    // An equal amount elsewhere keeps the process's size.
    assert_put_back(4, |_, large| {
        let (start, bytes) = whole_pages(large);
        // SAFETY: as above.
        unsafe { libc::munmap(start, bytes) };
        map(bytes);
    });
    // Moved.
    assert_put_back(4, |_, large| {
        let (start, bytes) = whole_pages(large);
        // SAFETY: as above.
        unsafe {
            libc::mremap(
                start,
                bytes,
                bytes,
                libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED,
                start.add(64 << 20),
            )
        };
    });
}

#[test]
fn memory_that_the_kernel_may_drop_is_left_alone() {
    /// `MAP_DROPPABLE` needs Linux 6.11; the rest needs 6.7.
    const DROPPABLE: i32 = 0x08;
    let code = in_child(|| {
        // SAFETY: a new mapping, and one thread.
        unsafe {
            let flags = DROPPABLE | libc::MAP_ANONYMOUS;
            let place = libc::mmap(std::ptr::null_mut(), 4096, 3, flags, -1, 0);
            MAPPED = match place == libc::MAP_FAILED {
                true => map(4096).cast(),
                false => place.cast(),
            };
        }
        // The last round reads the list of mappings.
        rounds(300, |round, _| {
            // SAFETY: mapped above; one thread.
            unsafe { (*MAPPED) = round as usize };
        })
    });
    assert_eq!(code, OK);
}

static mut MAPPED: *mut usize = std::ptr::null_mut();

#[test]
fn mappings_that_came_are_gone_without_a_look_at_the_list() {
    let code = in_child(|| {
        // SAFETY: a new mapping, and one thread.
        unsafe {
            READS_NO_LIST = true;
            let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
            MAPPED = libc::mmap(std::ptr::null_mut(), 4096, 3, flags, -1, 0).cast();
        }
        rounds(6, |round, _| {
            let mut there = 0_u8;
            // SAFETY: asks about a page that may be missing; one thread.
            unsafe {
                if round > 0 && libc::mincore(*MAPPED as *mut libc::c_void, 4096, &raw mut there) == 0 {
                    libc::_exit(LEFT);
                }
                *MAPPED = map(192 << 10) as usize;
                // Below and not adjacent to the last one.
                map(64 << 10);
                libc::munmap((*MAPPED + (64 << 10)) as *mut libc::c_void, 64 << 10);
            }
        })
    });
    assert_eq!(code, OK);
}

/// No other code writes to the middle pages.
static mut APART: [u64; 2048] = [0; 2048];

#[test]
fn data_that_only_a_thread_which_has_ended_wrote_to_are_put_back() {
    assert_put_back(6, |round, _| {
        if round == 3 {
            // SAFETY: its only user.
            let write = || unsafe { (&raw mut APART).cast::<u64>().add(1024).write_volatile(7) };
            let _ = std::thread::spawn(write).join();
        }
    });
}

#[test]
fn the_kernels_state_is_put_back() {
    let code = rounds(3, |round, _| {
        let mut now = [0_u8; 64];
        // SAFETY: plain calls of one thread.
        unsafe {
            let is_well = round == 0
                || (libc::umask(0o22) != 0o777
                    && *libc::getcwd(now.as_mut_ptr().cast(), 64).cast::<u8>().add(1) != 0
                    && libc::fcntl(2, libc::F_GETFD) >= 0
                    && libc::fcntl(90, libc::F_GETFD) < 0);
            if !is_well {
                libc::_exit(LEFT);
            }
            libc::umask(0o777);
            libc::chdir(c"/".as_ptr());
            libc::dup2(1, 90);
            libc::close(2);
            libc::open(c"/dev/null".as_ptr(), libc::O_RDONLY);
            libc::signal(libc::SIGUSR1, libc::SIG_IGN);
            let timer = [0_i64, 0, 0, 1000];
            libc::setitimer(libc::ITIMER_REAL, timer.as_ptr().cast(), std::ptr::null_mut());
        }
    });
    assert_eq!(code, OK);
}

extern "C" fn handler(_: i32) {}

extern "C" fn other_handler(signal: i32) {
    std::hint::black_box(signal);
}

#[test]
fn handlers_of_all_signals_are_put_back() {
    const SIGNALS: [i32; 5] = [libc::SIGUSR1, libc::SIGUSR2, libc::SIGPIPE, libc::SIGCHLD, 60];
    static mut BEFORE: [[u64; 4]; 5] = [[0; 4]; 5];
    fn of(signal: i32) -> [u64; 4] {
        let mut action = [0_u64; 4];
        // SAFETY: the buffer fits the kernel's struct.
        unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, 0, action.as_mut_ptr(), 8) };
        action
    }
    fn set(signal: i32, handler: usize, flags: i32) {
        // SAFETY: zeroes are a valid `sigaction`, and the handler does nothing.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            (action.sa_sigaction, action.sa_flags) = (handler, flags);
            libc::sigaction(signal, &raw const action, std::ptr::null_mut());
        }
    }
    let code = in_child(|| {
        // One caught, one ignored, the rest at their defaults.
        set(libc::SIGUSR1, handler as *const () as usize, 0);
        set(libc::SIGPIPE, libc::SIG_IGN, 0);
        // SAFETY: one thread.
        unsafe { BEFORE = SIGNALS.map(of) };
        rounds(3, |_, _| {
            // SAFETY: one thread.
            if unsafe { BEFORE } != SIGNALS.map(of) {
                // SAFETY: ends the process.
                unsafe { libc::_exit(LEFT) };
            }
            // Other handler, caught, other default, default with other flags, ignored.
            set(
                libc::SIGUSR1,
                other_handler as *const () as usize,
                libc::SA_RESTART,
            );
            set(libc::SIGUSR2, handler as *const () as usize, 0);
            set(libc::SIGPIPE, libc::SIG_DFL, 0);
            set(libc::SIGCHLD, libc::SIG_DFL, libc::SA_NOCLDWAIT);
            set(60, libc::SIG_IGN, 0);
        })
    });
    assert_eq!(code, OK);
}

#[test]
fn a_thread_that_has_been_joined_is_none() {
    let code = in_child(|| {
        // On one CPU the kernel often still lists a joined thread.
        // SAFETY: zeroes are a valid CPU set, and it exists.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(libc::sched_getcpu() as usize, &mut set);
            libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
        }
        rounds(300, |_, _| {
            let _ = std::thread::spawn(|| ()).join();
        })
    });
    assert_eq!(code, OK);
}

#[test]
fn timers_that_were_created_are_gone() {
    assert_put_back(4, |_, _| {
        // SAFETY: plain calls of one thread, with room for their results.
        unsafe {
            let mut setting = [0_i64; 4];
            let mut is_left = |id: i32| libc::syscall(libc::SYS_timer_gettime, id, setting.as_mut_ptr()) == 0;
            if (0..64).any(&mut is_left) {
                libc::_exit(LEFT);
            }
            let (mut deleted, mut armed) = (0_i32, 0_i32);
            for id in [&raw mut deleted, &raw mut armed] {
                libc::syscall(libc::SYS_timer_create, libc::CLOCK_MONOTONIC, 0, id);
            }
            libc::syscall(libc::SYS_timer_delete, deleted);
            let later = [60_i64, 0, 60, 0];
            libc::syscall(libc::SYS_timer_settime, armed, 0, later.as_ptr(), 0);
        }
    });
}

#[test]
fn what_can_not_be_put_back_is_told() {
    // SAFETY: plain calls of one thread.
    let child = |_: u64, _: &mut [u8]| unsafe {
        if libc::fork() == 0 {
            libc::_exit(0);
        }
    };
    assert_eq!(rounds(1, child), FAILED + Unrewindable::Child.kind() as i32);
    let late_child = |round: u64, _: &mut [u8]| {
        // SAFETY: ends the child.
        if round == 5 && unsafe { libc::fork() } == 0 {
            // SAFETY: as above.
            unsafe { libc::_exit(0) };
        }
    };
    assert_eq!(rounds(9, late_child), FAILED + Unrewindable::Child.kind() as i32);
    let thread = |_: u64, _: &mut [u8]| {
        // SAFETY: waits forever.
        std::thread::spawn(|| unsafe { libc::pause() });
    };
    assert_eq!(rounds(1, thread), FAILED + Unrewindable::Thread.kind() as i32);
    // SAFETY: as above.
    let session = |_: u64, _: &mut [u8]| unsafe {
        libc::setsid();
    };
    assert_eq!(rounds(1, session), FAILED + Unrewindable::Identity.kind() as i32);
    // SAFETY: as above.
    let priority = |_: u64, _: &mut [u8]| unsafe {
        let is_lowest = libc::getpriority(libc::PRIO_PROCESS, 0) == 19;
        libc::nice(if is_lowest { -1 } else { 1 });
    };
    assert_eq!(rounds(1, priority), FAILED + Unrewindable::Priority.kind() as i32);
    // SAFETY: as above.
    let limit = |_: u64, _: &mut [u8]| unsafe {
        let limit = libc::rlimit {
            rlim_cur: 64,
            rlim_max: 64,
        };
        libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
    };
    assert_eq!(rounds(1, limit), FAILED + Unrewindable::Limit.kind() as i32);
    // Replaces an untracked mapping by another of equal size.
    // SAFETY: as above.
    let code = |_: u64, _: &mut [u8]| unsafe {
        libc::setlocale(libc::LC_ALL, c"C".as_ptr());
        let page = (deep as *const () as usize) & !4095;
        libc::mprotect(page as *mut libc::c_void, 4096, 7);
        map(4096);
    };
    assert_eq!(rounds(1, code), FAILED + Unrewindable::Memory.kind() as i32);
}

unsafe extern "C" fn is_wiped(context: *mut libc::c_void) -> ! {
    // SAFETY: the test's page; ends the process.
    unsafe { libc::_exit(i32::from(*context.cast::<u8>())) }
}

#[test]
fn a_snapshot_has_nothing_of_what_a_fork_wipes() {
    let code = in_child(|| {
        // SAFETY: a new anonymous mapping of this child.
        let page = unsafe {
            let (protection, flags) = (
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            );
            let page = libc::mmap(std::ptr::null_mut(), PAGE, protection, flags, -1, 0);
            if page == libc::MAP_FAILED || libc::madvise(page, PAGE, libc::MADV_WIPEONFORK) != 0 {
                return NOT_TAKEN;
            }
            page
        };
        let Ok(pages) = Pages::take(None) else {
            return NOT_TAKEN;
        };
        // Like a generator that is used between fork and snapshot.
        // SAFETY: mapped above.
        unsafe { *page.cast::<u8>() = 50 };
        let Ok(snapshot) = Snapshot::prepare(&pages) else {
            return NOT_TAKEN;
        };
        // SAFETY: one thread.
        match unsafe { snapshot.take(&pages, is_wiped, page) } {
            // SAFETY: taken, and one thread. A restored page has the snapshot's content.
            Ok(()) => unsafe {
                *page.cast::<u8>() = 60;
                snapshot.rewind()
            },
            Err(_) => NOT_TAKEN,
        }
    });
    assert_eq!(code, OK);
}
