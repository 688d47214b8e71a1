//! The master's memory for an unused pool.

use super::descriptors::start;
use crate::support::process;

const MOST: usize = 6 << 10;

fn own_bytes(pid: u32) -> usize {
    let line = process::status_line(pid, "RssAnon").expect("a process");
    let kib = line.strip_suffix(" kB").and_then(|kib| kib.parse::<usize>().ok());
    kib.expect("a number") << 10
}

#[test]
fn an_unused_pool_takes_little_memory() {
    let (few, many) = (100, 1600);
    let [least, most] = [few, many].map(|count| own_bytes(start(count).pid()));
    let each = most.saturating_sub(least) / (many - few);
    assert!(each <= MOST, "{each} bytes for a pool");
}
