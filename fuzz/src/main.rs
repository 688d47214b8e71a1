//! Runs the fuzz target named by `FORKYARD_FUZZ_TARGET` under libFuzzer.
#![no_main]

use forkyard_fuzz::{Target, mutate, seeds};
use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

#[path = "../../tests/fuzz/targets.rs"]
mod targets;

const TARGETS: [&[Target]; 9] = [
    targets::TARGETS,
    forkyard_config::fuzz::TARGETS,
    forkyard_fpm_config::fuzz::TARGETS,
    forkyard_host::fuzz::TARGETS,
    forkyard_jobs::fuzz::TARGETS,
    forkyard_router::fuzz::TARGETS,
    forkyard_runtimes::fuzz::TARGETS,
    forkyard_slowlog::fuzz::TARGETS,
    forkyard_worker::fuzz::TARGETS,
];

static TARGET: LazyLock<&'static Target> = LazyLock::new(|| {
    let name = std::env::var("FORKYARD_FUZZ_TARGET").unwrap_or_default();
    let found = TARGETS.into_iter().flatten().find(|target| target.name == name);
    found.unwrap_or_else(|| {
        for target in TARGETS.into_iter().flatten() {
            println!("{} {}", target.name, target.most_bytes);
        }
        std::process::exit(if name.is_empty() { 0 } else { 2 })
    })
});

/// No input is worth more memory than this, and as much again for each of its bytes: a length that lies must not be
/// believed.
const MOST_MEMORY: usize = 8 << 20;
const MOST_FOR_A_BYTE: usize = 8 << 10;

struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

fn add(bytes: usize) {
    let held = HELD.fetch_add(bytes, Ordering::Relaxed).wrapping_add(bytes);
    if held > PEAK.load(Ordering::Relaxed) {
        PEAK.store(held, Ordering::Relaxed);
    }
}

// SAFETY: every call is passed unchanged to the system allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller keeps to the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

static SEEDS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| seeds(&TARGET));

fuzz_target!(init: { LazyLock::force(&TARGET); }, |input: &[u8]| {
    let before = HELD.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    (TARGET.run)(input);
    let peak = PEAK.load(Ordering::Relaxed).saturating_sub(before);
    let most = MOST_MEMORY + MOST_FOR_A_BYTE * input.len();
    assert!(peak <= most, "{peak} bytes of memory for an input of {}", input.len());
});

fuzz_mutator!(|data: &mut [u8], size: usize, most: usize, seed: u32| {
    if seed % 2 == 0 {
        return fuzzer_mutate(data, size, most);
    }
    let mut input = data[..size].to_vec();
    mutate(&mut input, &SEEDS, u64::from(seed));
    let length = input.len().min(most);
    data[..length].copy_from_slice(&input[..length]);
    length
});
