use super::*;

#[test]
fn descriptors_that_requests_close_or_replace_are_put_back() {
    static mut FILES: [i32; 2] = [-1; 2];
    fn sizes() -> [i64; 2] {
        // SAFETY: plain calls of one thread; zeroes are a valid `stat`.
        unsafe {
            let files = FILES;
            files.map(|file| {
                let mut stat: libc::stat = std::mem::zeroed();
                match libc::fstat(file, &mut stat) {
                    0 => stat.st_size,
                    _ => -1,
                }
            })
        }
    }
    fn disturb(round: u64) {
        if sizes() != [7, 8] {
            // SAFETY: ends the process.
            unsafe { libc::_exit(LEFT) };
        }
        // SAFETY: plain calls of one thread.
        unsafe {
            let [closable, other] = FILES;
            libc::close(closable);
            libc::open(c"/dev/null".as_ptr(), libc::O_RDONLY);
            if round % 3 == 2 {
                libc::close(other);
                return;
            }
            for _ in 0..round * 8 {
                libc::dup(1);
            }
        }
    }
    let code = in_child(|| {
        // SAFETY: plain calls of one thread.
        unsafe {
            let files = [c"one", c"other"].map(|name| libc::memfd_create(name.as_ptr(), 0));
            libc::ftruncate(files[0], 7);
            libc::ftruncate(files[1], 8);
            FILES = files;
            libc::close(libc::dup2(1, files[1] + 2) - 1);
        }
        // SAFETY: one thread.
        let closable = unsafe { FILES[0] };
        rounds_with(Some(vec![closable]), 70, |round, _| disturb(round))
    });
    assert_eq!(code, OK);
}

#[test]
fn descriptors_that_are_kept_open_stay_and_are_there_once() {
    let code = rounds(6, |round, _| {
        // SAFETY: plain calls of one thread.
        let is_open = |number: i32| unsafe { libc::fcntl(number, libc::F_GETFD) >= 0 };
        let is_well = (round % 2 == 0) != is_open(270) && is_open(271) == is_open(270) && !is_open(272);
        if !is_well {
            // SAFETY: ends the process.
            unsafe { libc::_exit(LEFT) };
        }
        // SAFETY: plain calls.
        unsafe {
            for number in [270, 271, 272] {
                libc::dup2(1, number);
            }
        }
        KEEPS.store(round % 2 == 0, std::sync::atomic::Ordering::Relaxed);
    });
    assert_eq!(code, OK);
}

static mut FILE: i32 = -1;

/// Whether an open file description lock finds the process's fcntl(2) lock.
fn lock_file() -> bool {
    // SAFETY: plain calls of one thread; zeroes are a valid `flock`.
    unsafe {
        let mut lock: libc::flock = std::mem::zeroed();
        (lock.l_type, lock.l_whence) = (libc::F_WRLCK as i16, libc::SEEK_SET as i16);
        let mut seen = lock;
        let asked = libc::fcntl(FILE, libc::F_OFD_GETLK, &raw mut seen);
        let locked = libc::fcntl(FILE, libc::F_SETLK, &raw const lock);
        if asked != 0 || locked != 0 {
            libc::_exit(NOT_TAKEN);
        }
        seen.l_type != libc::F_UNLCK as i16
    }
}

#[test]
fn locks_of_the_process_on_a_file_of_the_snapshot_are_let_go_of() {
    let code = in_child(|| {
        // SAFETY: plain calls of one thread, and a C string.
        unsafe {
            FILE = libc::memfd_create(c"locked".as_ptr(), 0);
            if lock_file() || !lock_file() {
                return NOT_TAKEN;
            }
            libc::close(FILE);
            FILE = libc::memfd_create(c"locked".as_ptr(), 0);
        }
        rounds(4, |_, _| {
            if lock_file() {
                // SAFETY: ends the process.
                unsafe { libc::_exit(LEFT) };
            }
        })
    });
    assert_eq!(code, OK);
}
