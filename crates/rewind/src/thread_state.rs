//! A thread's floating point control registers and prctl(2) settings.

use super::kernel::call;
use nix::errno::Errno;

/// All zeroes is valid.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct ThreadState {
    arithmetic: Arithmetic,
    settings: [usize; SETTINGS.len()],
    schedule: Schedule,
}

const SETTINGS: [(i32, i32); 3] = [
    (libc::PR_GET_DUMPABLE, libc::PR_SET_DUMPABLE),
    (libc::PR_GET_TIMERSLACK, libc::PR_SET_TIMERSLACK),
    HUGE_PAGES,
];
const HUGE_PAGES: (i32, i32) = (libc::PR_GET_THP_DISABLE, libc::PR_SET_THP_DISABLE);

impl ThreadState {
    pub(super) fn now() -> Result<ThreadState, Errno> {
        let mut settings = [0; SETTINGS.len()];
        for (value, (get, _)) in settings.iter_mut().zip(SETTINGS) {
            *value = prctl(get, 0)?;
        }
        Ok(ThreadState {
            arithmetic: Arithmetic::now(),
            settings,
            schedule: Schedule::now()?,
        })
    }

    /// An unprivileged process can't always restore it.
    pub(super) fn has_same_schedule(&self) -> Result<bool, Errno> {
        Ok(Schedule::now()? == self.schedule)
    }

    /// `has_no_huge_pages`: in the snapshot and now, according to /proc/self/status.
    pub(super) fn put_back(&self, has_no_huge_pages: bool) -> Result<(), Errno> {
        self.arithmetic.put_back();
        for (before, (get, set)) in self.settings.iter().zip(SETTINGS) {
            if has_no_huge_pages && (get, set) == HUGE_PAGES {
                continue;
            }
            if prctl(get, 0)? != *before {
                prctl(set, *before)?;
            }
        }
        Ok(())
    }
}

fn prctl(what: i32, value: usize) -> Result<usize, Errno> {
    // SAFETY: numbers.
    unsafe { call(libc::SYS_prctl, [what as usize, value]) }
}

/// Policy and priority.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Schedule {
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
}

impl Schedule {
    fn now() -> Result<Schedule, Errno> {
        /// The first version of `struct sched_attr`.
        #[repr(C)]
        #[derive(Default)]
        struct Attributes {
            size: u32,
            policy: u32,
            flags: u64,
            nice: i32,
            priority: u32,
            of_deadlines: [u64; 3],
        }
        let mut now = Attributes::default();
        let arguments = [0, &raw mut now as usize, size_of::<Attributes>()];
        // SAFETY: the struct has this size and outlives the call.
        unsafe { call(libc::SYS_sched_getattr, arguments)? };
        // The kernel omits it for these policies.
        let of_real_time = [libc::SCHED_FIFO, libc::SCHED_RR, libc::SCHED_DEADLINE];
        if of_real_time.contains(&(now.policy as i32)) {
            now.nice = nice()?;
        }
        Ok(Schedule {
            policy: now.policy,
            flags: now.flags,
            nice: now.nice,
            priority: now.priority,
        })
    }
}

fn nice() -> Result<i32, Errno> {
    const HIGHEST: usize = 20;
    // SAFETY: numbers.
    let above_lowest = unsafe { call(libc::SYS_getpriority, [libc::PRIO_PROCESS as usize])? };
    Ok(HIGHEST as i32 - above_lowest as i32)
}

#[cfg(target_arch = "x86_64")]
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Arithmetic {
    mxcsr: u32,
    x87: u16,
}

#[cfg(target_arch = "x86_64")]
impl Arithmetic {
    /// Mask that clears the exception flags of MXCSR.
    const CONTROL: u32 = !0x3f;

    fn now() -> Arithmetic {
        let mut now = Arithmetic::default();
        // SAFETY: stores both registers into sufficient space.
        unsafe {
            std::arch::asm!(
                "stmxcsr [{mxcsr}]",
                "fnstcw [{x87}]",
                mxcsr = in(reg) &raw mut now.mxcsr,
                x87 = in(reg) &raw mut now.x87,
                options(nostack, preserves_flags),
            );
        }
        now.mxcsr &= Arithmetic::CONTROL;
        now
    }

    fn put_back(&self) {
        // SAFETY: earlier values of the registers.
        unsafe {
            std::arch::asm!(
                "ldmxcsr [{mxcsr}]",
                "fldcw [{x87}]",
                mxcsr = in(reg) &raw const self.mxcsr,
                x87 = in(reg) &raw const self.x87,
                options(nostack, preserves_flags, readonly),
            );
        }
    }
}

#[cfg(target_arch = "aarch64")]
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Arithmetic {
    fpcr: u64,
}

#[cfg(target_arch = "aarch64")]
impl Arithmetic {
    fn now() -> Arithmetic {
        let fpcr: u64;
        // SAFETY: reads a register.
        unsafe { std::arch::asm!("mrs {}, fpcr", out(reg) fpcr, options(nomem, nostack, preserves_flags)) };
        Arithmetic { fpcr }
    }

    fn put_back(&self) {
        // SAFETY: an earlier value of the register.
        unsafe {
            std::arch::asm!("msr fpcr, {}", in(reg) self.fpcr, options(nomem, nostack, preserves_flags))
        };
    }
}
