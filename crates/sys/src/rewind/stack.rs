//! From one stack to another.

/// Leaves the stack for the one that ends at `top`, which is a multiple of 16, and calls a function there.
///
/// # Safety
/// There is room below `top`, and nothing on the stack that is left is needed any more.
#[cfg(target_arch = "x86_64")]
pub(super) unsafe fn leave_for(
    top: usize,
    function: unsafe extern "C" fn(*mut libc::c_void) -> !,
    context: *mut libc::c_void,
) -> ! {
    // SAFETY: the caller's promise; a call pushes the return address, as the convention has it.
    unsafe {
        core::arch::asm!(
            "mov rsp, {top}",
            "xor ebp, ebp",
            "call {function}",
            "ud2",
            top = in(reg) top,
            function = in(reg) function,
            in("rdi") context,
            options(noreturn),
        )
    }
}

/// The same.
///
/// # Safety
/// The same.
#[cfg(target_arch = "aarch64")]
pub(super) unsafe fn leave_for(
    top: usize,
    function: unsafe extern "C" fn(*mut libc::c_void) -> !,
    context: *mut libc::c_void,
) -> ! {
    // SAFETY: the caller's promise.
    unsafe {
        core::arch::asm!(
            "mov sp, {top}",
            "mov x29, xzr",
            "blr {function}",
            "brk #1",
            top = in(reg) top,
            function = in(reg) function,
            in("x0") context,
            options(noreturn),
        )
    }
}

/// Where the stack is now: what a function has called before it lies above.
#[inline(never)]
pub(super) fn here() -> usize {
    let mark = 0_u8;
    std::ptr::from_ref(std::hint::black_box(&mark)) as usize
}
