//! The process title (ps(1), top(1)) and the process name (comm in proc(5)), used by pgrep -x, ps -C, monit and
//! `start-stop-daemon --name`.

use std::sync::OnceLock;

struct Area {
    start: usize,
    bytes: usize,
}

static AREA: OnceLock<Option<Area>> = OnceLock::new();

/// Moves the environment out of the memory for titles. Call it first in `main`, before threads or pointers into the
/// environment exist.
pub fn prepare() {
    AREA.get_or_init(|| {
        let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
        let fields: Vec<&str> = stat.rsplit(')').next()?.split_whitespace().collect();
        // proc(5): arg_start is field 48, env_end field 51; field 3 follows the ')'.
        let field = |number: usize| fields.get(number - 3)?.parse::<usize>().ok();
        let (start, env_end) = (field(48)?, field(51)?);
        let bytes = env_end.checked_sub(start)?;
        // environ points there; setting a variable copies it to the heap.
        for (name, value) in std::env::vars_os().collect::<Vec<_>>() {
            // SAFETY: called before a second thread exists.
            unsafe {
                std::env::remove_var(&name);
                std::env::set_var(&name, value);
            }
        }
        Some(Area { start, bytes })
    });
}

/// Returns the process's name, at most 15 bytes.
pub fn name() -> String {
    let mut name = [0u8; 16];
    // nix declares the buffer immutable, which breaks with link-time optimization.
    // SAFETY: PR_GET_NAME writes at most 16 bytes (prctl(2)).
    let result = unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    if result < 0 {
        return String::new();
    }
    String::from_utf8_lossy(&name[..end]).into_owned()
}

/// Sets the process's name to the master's, as in php-fpm.
pub fn take_name(name: &str) {
    if name.is_empty() {
        return;
    }
    if let Ok(name) = std::ffi::CString::new(name) {
        let _ = nix::sys::prctl::set_name(&name);
    }
}

/// Sets the title, truncated if necessary. Needs [`prepare`].
pub fn set(title: &str) {
    let Some(Some(area)) = AREA.get() else { return };
    if area.bytes < 2 {
        return;
    }
    let text = title.as_bytes();
    let length = text.len().min(area.bytes - 1);
    // SAFETY: the kernel placed `bytes` writable bytes at `start` (proc(5)); `prepare` has copied the old strings.
    unsafe {
        let block = area.start as *mut u8;
        std::ptr::copy_nonoverlapping(text.as_ptr(), block, length);
        std::ptr::write_bytes(block.add(length), 0, area.bytes - length);
    }
}
