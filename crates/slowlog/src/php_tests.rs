use super::*;
use std::cell::Cell;

const LAYOUT: Layout = Layout {
    current_call: 0x100,
    ..crate::fuzz::LAYOUT
};

struct Area {
    bytes: Vec<u8>,
    next: usize,
}

impl Area {
    fn new() -> Area {
        Area {
            bytes: vec![0; 1 << 16],
            next: 0x200,
        }
    }

    fn put(&mut self, at: u64, bytes: &[u8]) {
        self.bytes[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
    }

    fn allocate(&mut self, bytes: usize) -> u64 {
        let at = self.next as u64;
        self.next += bytes.div_ceil(8) * 8;
        at
    }

    fn string(&mut self, text: &[u8]) -> u64 {
        let at = self.allocate(8 + text.len());
        self.put(at, &(text.len() as u64).to_ne_bytes());
        self.put(at + 8, text);
        at
    }

    fn function(&mut self, is_internal: bool, name: Option<&[u8]>, file: &[u8]) -> u64 {
        let name = name.map_or(0, |name| self.string(name));
        let file = self.string(file);
        let at = self.allocate(24);
        self.put(at, &[u8::from(is_internal)]);
        self.put(at + 8, &name.to_ne_bytes());
        self.put(at + 16, &file.to_ne_bytes());
        at
    }

    fn call(&mut self, function: u64, info: u32, line: u32, previous: u64) -> u64 {
        let opline = self.allocate(8);
        self.put(opline + 4, &line.to_ne_bytes());
        let at = self.allocate(32);
        for (offset, word) in [(0, opline), (8, function), (16, u64::from(info)), (24, previous)] {
            self.put(at + offset, &word.to_ne_bytes());
        }
        at
    }

    fn current(&mut self, call: u64) {
        self.put(0x100, &call.to_ne_bytes());
    }

    fn usual() -> Area {
        let mut area = Area::new();
        let script = area.function(false, None, b"/a.php");
        let f = area.function(false, Some(b"f"), b"/b.php");
        let sleep = area.function(true, Some(b"sleep"), b"");
        let main = area.call(script, 3, 7, 0);
        let in_f = area.call(f, 0, 3, main);
        let in_sleep = area.call(sleep, 0, 0, in_f);
        area.current(in_sleep);
        area
    }
}

impl Memory for Area {
    fn read(&self, address: u64, to: &mut [u8]) -> Option<()> {
        let start = usize::try_from(address).ok()?;
        let end = start.checked_add(to.len())?;
        to.copy_from_slice(self.bytes.get(start..end)?);
        Some(())
    }
}

fn lines(stack: &Stack) -> Vec<String> {
    let line = |call: &Call| {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        format!("{}() {}:{}", text(&call.function), text(&call.file), call.line)
    };
    stack.calls.iter().map(line).collect()
}

#[test]
fn calls_are_placed_where_they_were_made() {
    let stack = read(&LAYOUT, &Area::usual(), 20);
    assert!(stack.is_whole);
    assert_eq!(lines(&stack), ["sleep() /b.php:3", "f() /a.php:7"]);
}

#[test]
fn included_files_and_calls_back_from_internal_functions() {
    let mut area = Area::new();
    let script = area.function(false, None, b"/a.php");
    let file = area.function(false, None, b"/inc.php");
    let array_map = area.function(true, Some(b"array_map"), b"");
    let back = area.function(false, Some(b"{closure}"), b"/inc.php");
    let main = area.call(script, 3, 1, 0);
    let included = area.call(file, 1, 5, main);
    let map = area.call(array_map, 0, 0, included);
    let closure = area.call(back, 2, 6, map);
    area.current(closure);
    let stack = read(&LAYOUT, &area, 20);
    assert_eq!(
        lines(&stack),
        [
            "{closure}() /inc.php:5",
            "array_map() /inc.php:5",
            "[INCLUDE_OR_EVAL]() /a.php:1"
        ]
    );
}

#[test]
fn the_depth_is_kept() {
    let stack = read(&LAYOUT, &Area::usual(), 1);
    assert!(stack.is_whole);
    assert_eq!(lines(&stack), ["sleep() /b.php:3"]);
}

#[test]
fn a_circle_ends() {
    let mut area = Area::new();
    let f = area.function(true, Some(b"f"), b"");
    let call = area.call(f, 0, 0, 0);
    area.put(call + 24, &call.to_ne_bytes());
    area.current(call);
    let stack = read(&LAYOUT, &area, u32::MAX);
    assert!(!stack.is_whole, "where it was called from is never found");
    assert!(stack.calls.len() <= MOST_CALLS as usize);
}

#[test]
fn long_texts_are_cut_and_impossible_ones_are_none() {
    let mut area = Area::usual();
    let long = area.function(true, Some(&[b'x'; 5_000]), b"");
    let call = area.call(long, 0, 0, 0);
    area.current(call);
    assert_eq!(read(&LAYOUT, &area, 1).calls[0].function.len(), 1_023);

    let name = u64::from_ne_bytes(
        area.bytes[long as usize + 8..long as usize + 16]
            .try_into()
            .unwrap(),
    );
    area.put(name, &u64::MAX.to_ne_bytes());
    assert!(!read(&LAYOUT, &area, 1).is_whole);
}

#[test]
fn no_memory_does_harm() {
    let mut state = 7_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for _ in 0..300 {
        let mut area = Area::usual();
        for _ in 0..200 {
            let word = match random() % 3 {
                0 => random(),
                _ => random() % (1 << 16) / 8 * 8,
            };
            let at = random() % 0x800 / 8 * 8;
            area.put(at, &word.to_ne_bytes());
        }
        let layout = if random() % 2 == 0 {
            LAYOUT
        } else {
            Layout {
                current_call: random(),
                call_previous: random() as u32,
                function_name: random() as u32,
                ..LAYOUT
            }
        };
        let stack = read(&layout, &area, random() as u32);
        assert!(stack.calls.len() <= MOST_CALLS as usize);
        assert!(stack.calls.iter().all(|call| call.function.len() <= 1_023));
    }
}

struct Busy {
    area: Area,
    calls: [u64; 2],
    reads: Cell<u64>,
    until: u64,
}

impl Memory for Busy {
    fn read(&self, address: u64, to: &mut [u8]) -> Option<()> {
        if address != LAYOUT.current_call {
            return self.area.read(address, to);
        }
        let reads = self.reads.get();
        self.reads.set(reads + 1);
        let call = self.calls[usize::from(reads < self.until && reads % 2 == 0)];
        to.copy_from_slice(&call.to_ne_bytes());
        Some(())
    }
}

#[test]
fn what_changed_meanwhile_is_read_again() {
    for (until, innermost) in [(0, "sleep"), (9, "sleep"), (1_000, "usleep")] {
        let mut area = Area::usual();
        let sleep = u64::from_ne_bytes(area.bytes[0x100..0x108].try_into().unwrap());
        let previous = u64::from_ne_bytes(
            area.bytes[sleep as usize + 24..sleep as usize + 32]
                .try_into()
                .unwrap(),
        );
        let other = area.function(true, Some(b"usleep"), b"");
        let usleep = area.call(other, 0, 0, previous);
        let busy = Busy {
            area,
            calls: [sleep, usleep],
            reads: Cell::new(0),
            until,
        };
        let stack = read(&LAYOUT, &busy, 20);
        assert!(stack.is_whole);
        assert_eq!(stack.calls[0].function, innermost.as_bytes());
    }
}
