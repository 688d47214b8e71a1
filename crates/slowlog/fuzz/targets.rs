//! Fuzz targets for a worker's answers and memory.

use super::memory::{Memory, TEXT_BYTES};
use super::php;
use super::stack_text::{stack, tasks};
use forkyard_fuzz::{Target, number_of, target};
use forkyard_protocol::stack::Layout;

/// All fuzz targets of this crate.
pub const TARGETS: &[Target] = &[
    target("slowlog_told", 800, told),
    target("slowlog_php", 1024, php_calls),
];

fn told(input: &[u8]) {
    let depth = number_of(input, 5) as u32;
    let all = std::iter::once(stack(input, true, depth)).chain(tasks(input, depth).into_iter().map(
        |(name, stack)| {
            assert!(name.len() <= TEXT_BYTES);
            stack
        },
    ));
    for stack in all {
        assert!(stack.calls.len() <= depth as usize);
        for call in &stack.calls {
            assert!(call.file.len() <= TEXT_BYTES && call.function.len() <= TEXT_BYTES);
            assert!(!call.file.contains(&b'\n') && !call.function.contains(&b'\n'));
        }
    }
    assert!(tasks(input, depth).len() <= 50);
}

struct Area<'a>(&'a [u8]);

impl Memory for Area<'_> {
    fn read(&self, address: u64, to: &mut [u8]) -> Option<()> {
        let start = usize::try_from(address).ok()?;
        let end = start.checked_add(to.len())?;
        to.copy_from_slice(self.0.get(start..end)?);
        Some(())
    }
}

pub(super) const LAYOUT: Layout = Layout {
    current_call: 0,
    call_opline: 0,
    call_function: 8,
    call_info: 16,
    call_previous: 24,
    function_type: 0,
    function_name: 8,
    function_file: 16,
    opline_line: 4,
    string_length: 0,
    string_text: 8,
    info_code: 1,
    info_top: 2,
    type_internal: 1,
};

fn php_calls(input: &[u8]) {
    let depth = number_of(input, 30) as u32;
    let stack = php::read(&LAYOUT, &Area(input), depth);
    assert!(stack.calls.len() <= depth as usize);
    for call in &stack.calls {
        assert!(call.file.len() <= TEXT_BYTES && call.function.len() <= TEXT_BYTES);
    }
}
