//! Stack switching.

/// Calls a function on the stack that ends at `top`, a multiple of 16.
///
/// # Safety
/// There is room below `top`, and the old stack is no longer needed.
pub(super) unsafe fn leave_for(
    top: usize,
    function: unsafe extern "C" fn(*mut libc::c_void) -> !,
    context: *mut libc::c_void,
) -> ! {
    // SAFETY: the caller's promise; x86-64's call pushes a return address as the ABI requires.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        core::arch::asm!(
            "mov rsp, {top}",
            "xor ebp, ebp",
            "call {function}",
            "ud2",
            top = in(reg) top,
            function = in(reg) function,
            in("rdi") context,
            options(noreturn),
        );
        #[cfg(target_arch = "aarch64")]
        core::arch::asm!(
            "mov sp, {top}",
            "mov x29, xzr",
            "blr {function}",
            "brk #1",
            top = in(reg) top,
            function = in(reg) function,
            in("x0") context,
            options(noreturn),
        );
    }
}

/// The callers' frames are above.
#[inline(never)]
pub(super) fn here() -> usize {
    let mark = 0_u8;
    std::ptr::from_ref(std::hint::black_box(&mark)) as usize
}
