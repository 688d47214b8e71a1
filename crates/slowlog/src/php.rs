//! Follows PHP's list of `zend_execute_data`, innermost call first. The shim reports the offsets from PHP's headers.
//!
//! The worker keeps running, so a call may end while it is read. The list is compared with memory afterwards and read
//! again if it has changed.

use super::job::{Call, Stack};
use super::memory::{Memory, MemoryReader};
use forkyard_protocol::stack::Layout;

/// The most reads per attempt, about ten per call; also ends a circular list.
const READS: u32 = 20_000;
const ATTEMPTS: u32 = 50;
const MOST_CALLS: u32 = 1_000;
const LONGEST_STRING: u64 = 1 << 24;

pub(super) fn read(layout: &Layout, memory: &dyn Memory, depth: u32) -> Stack {
    let mut last = Stack::default();
    for _ in 0..ATTEMPTS {
        let mut walk = Walk {
            layout,
            reader: MemoryReader::new(memory, READS),
            seen: Vec::new(),
        };
        let mut stack = Stack::default();
        stack.is_whole = walk.follow(depth.min(MOST_CALLS), &mut stack.calls).is_some();
        if stack.is_whole && walk.is_unchanged() {
            return stack;
        }
        if stack.is_whole || !last.is_whole {
            last = stack;
        }
    }
    last
}

struct Walk<'m> {
    layout: &'m Layout,
    reader: MemoryReader<'m>,
    seen: Vec<(u64, u64, u64)>,
}

impl Walk<'_> {
    /// As in php-fpm: the script itself is not a call, and a call is listed at the line of its nearest PHP caller.
    fn follow(&mut self, depth: u32, calls: &mut Vec<Call>) -> Option<()> {
        let layout = self.layout;
        let mut address = self.reader.word(layout.current_call, 0)?;
        while address != 0 && calls.len() < depth as usize {
            let function = self.reader.word(address, layout.call_function)?;
            let previous = self.reader.word(address, layout.call_previous)?;
            self.seen.push((address, function, previous));
            let Some(name) = self.name(address, function)? else {
                return Some(());
            };
            let (file, line) = self.call_site(previous)?;
            calls.push(Call {
                address,
                function: name,
                file,
                line,
            });
            address = previous;
        }
        Some(())
    }

    fn name(&mut self, call: u64, function: u64) -> Option<Option<Vec<u8>>> {
        if !is_pointer(function) {
            return Some(Some(b"???".to_vec()));
        }
        let name = self.reader.word(function, self.layout.function_name)?;
        if name != 0 {
            return self.string(name).map(Some);
        }
        let info = self.reader.number(call, self.layout.call_info)?;
        let is = |bit: u32| info & bit != 0;
        match (is(self.layout.info_code), is(self.layout.info_top)) {
            (true, true) => Some(None),
            (true, false) => Some(Some(b"[INCLUDE_OR_EVAL]".to_vec())),
            (false, _) => None,
        }
    }

    fn call_site(&mut self, mut call: u64) -> Option<(Vec<u8>, u32)> {
        while call != 0 {
            let function = self.reader.word(call, self.layout.call_function)?;
            if !is_pointer(function) {
                break;
            }
            let kind = self.reader.byte(function, self.layout.function_type)?;
            if u32::from(kind) & self.layout.type_internal == 0 {
                let file = self.reader.word(function, self.layout.function_file)?;
                let file = self.string(file)?;
                let opline = self.reader.word(call, self.layout.call_opline)?;
                let line = if is_pointer(opline) {
                    self.reader.number(opline, self.layout.opline_line)?
                } else {
                    0
                };
                return Some((file, line));
            }
            call = self.reader.word(call, self.layout.call_previous)?;
        }
        Some((Vec::new(), 0))
    }

    fn string(&mut self, string: u64) -> Option<Vec<u8>> {
        let length = self.reader.word(string, self.layout.string_length)?;
        if length > LONGEST_STRING {
            return None;
        }
        self.reader.text(string, self.layout.string_text, length)
    }

    /// Whether the list is unchanged. A call that ended and was repeated at the same address looks the same, which is
    /// fine.
    fn is_unchanged(&mut self) -> bool {
        let layout = self.layout;
        let first = self.seen.first().map_or(0, |(address, ..)| *address);
        if self.reader.word(layout.current_call, 0) != Some(first) {
            return false;
        }
        let seen = std::mem::take(&mut self.seen);
        seen.iter().all(|(address, function, previous)| {
            self.reader.word(*address, layout.call_function) == Some(*function)
                && self.reader.word(*address, layout.call_previous) == Some(*previous)
        })
    }
}

fn is_pointer(word: u64) -> bool {
    word != 0 && word % 8 == 0
}

#[cfg(test)]
#[path = "php_tests.rs"]
mod tests;
