//! The process title, as ps(1) and top(1) show it, and the process' name (comm of proc(5)), which pgrep -x, ps -C,
//! monit and `start-stop-daemon --name` look for. The name is the program's file name, not a title.

use std::sync::OnceLock;

/// Where the kernel keeps this process' arguments and environment: one block on the stack, ours to overwrite.
struct Area {
    start: usize,
    bytes: usize,
}

static AREA: OnceLock<Option<Area>> = OnceLock::new();

/// Finds the block that titles are written to and moves the environment out of it. Call once, at the very start of
/// `main`, before any other thread and before anything keeps a pointer into the environment.
pub fn prepare() {
    AREA.get_or_init(|| {
        let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
        let fields: Vec<&str> = stat.rsplit(')').next()?.split_whitespace().collect();
        // proc(5): arg_start is field 48, env_end field 51; the part after ')' begins with field 3.
        let field = |number: usize| fields.get(number - 3)?.parse::<usize>().ok();
        let (start, env_end) = (field(48)?, field(51)?);
        let bytes = env_end.checked_sub(start)?;
        // The C library's environ points into the block: set each variable again, which copies it to the heap.
        for (name, value) in std::env::vars_os().collect::<Vec<_>>() {
            // SAFETY: called before there is a second thread.
            unsafe {
                std::env::remove_var(&name);
                std::env::set_var(&name, value);
            }
        }
        Some(Area { start, bytes })
    });
}

/// This process' name: that of its program's file, at most 15 bytes of it.
pub fn name() -> String {
    let mut name = [0u8; 16];
    // nix's own call lets the kernel write to what is declared immutable: with link-time optimisation its result is nonsense.
    // SAFETY: PR_GET_NAME writes 16 bytes at most, the zero at the end among them (prctl(2)), and there is room for them.
    let result = unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    if result < 0 {
        return String::new();
    }
    String::from_utf8_lossy(&name[..end]).into_owned()
}

/// Takes the name of the master, whatever this process' program is called: php-fpm's workers have the name of their master.
/// Nothing is no name.
pub fn take_name(name: &str) {
    if name.is_empty() {
        return;
    }
    if let Ok(name) = std::ffi::CString::new(name) {
        // Fails for no string.
        let _ = nix::sys::prctl::set_name(&name);
    }
}

/// Sets the title; cut where it does not fit. Does nothing where [`prepare`] was not called or found nothing.
pub fn set(title: &str) {
    let Some(Some(area)) = AREA.get() else { return };
    if area.bytes < 2 {
        return;
    }
    let text = title.as_bytes();
    let length = text.len().min(area.bytes - 1);
    // SAFETY: the kernel placed `bytes` writable bytes at `start` for this process (proc(5)); the strings that were
    // there were copied away by `prepare`, and std keeps only offsets into argv read before it is overwritten.
    unsafe {
        let block = area.start as *mut u8;
        std::ptr::copy_nonoverlapping(text.as_ptr(), block, length);
        std::ptr::write_bytes(block.add(length), 0, area.bytes - length);
    }
}
