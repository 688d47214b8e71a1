use super::super::Unrewindable;
use super::{FAILED, LEFT, assert_put_back, rounds};

unsafe extern "C" {
    safe fn fegetround() -> i32;
    safe fn fesetround(round: i32) -> i32;
}

/// FE_UPWARD in <fenv.h>.
#[cfg(target_arch = "x86_64")]
const UPWARDS: i32 = 0x800;
#[cfg(not(target_arch = "x86_64"))]
const UPWARDS: i32 = 0x40_0000;

#[test]
fn rounding_and_settings_of_the_process_are_put_back() {
    assert_put_back(3, |_, _| {
        // SAFETY: plain calls of one thread.
        unsafe {
            let is_well = fegetround() == 0
                && libc::prctl(libc::PR_GET_DUMPABLE, 0, 0, 0, 0) == 1
                && libc::prctl(libc::PR_GET_TIMERSLACK, 0, 0, 0, 0) != 77_777;
            if !is_well {
                libc::_exit(LEFT);
            }
            fesetround(UPWARDS);
            libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
            libc::prctl(libc::PR_SET_TIMERSLACK, 77_777, 0, 0, 0);
        }
    });
}

#[test]
fn processors_policies_and_renounced_rights_end_the_process() {
    let priority = FAILED + Unrewindable::Priority.kind() as i32;
    let processors = |_: u64, _: &mut [u8]| {
        let mut one = nix::sched::CpuSet::new();
        let all = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0)).unwrap_or(one);
        let used: Vec<usize> = (0..nix::sched::CpuSet::count())
            .filter(|cpu| all.is_set(*cpu).unwrap_or(false))
            .collect();
        let _ = used.first().map(|cpu| one.set(*cpu));
        let _ = nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &one);
        if used.len() < 2 {
            // Only one CPU: nothing has changed.
            // SAFETY: ends the process.
            unsafe { libc::_exit(FAILED + Unrewindable::Priority.kind() as i32) };
        }
    };
    assert_eq!(rounds(1, processors), priority);
    let policy = |_: u64, _: &mut [u8]| {
        let usual = libc::sched_param { sched_priority: 0 };
        // SAFETY: the struct outlives the call.
        unsafe {
            let other = match libc::sched_getscheduler(0) {
                libc::SCHED_BATCH => libc::SCHED_IDLE,
                _ => libc::SCHED_BATCH,
            };
            libc::sched_setscheduler(0, other, &usual);
        }
    };
    assert_eq!(rounds(1, policy), priority);
    let rights = |_: u64, _: &mut [u8]| {
        // SAFETY: numbers.
        unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    };
    assert_eq!(rounds(1, rights), FAILED + Unrewindable::Identity.kind() as i32);
}
