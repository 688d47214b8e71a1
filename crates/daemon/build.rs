//! Tells the program the commit that it is built from, if that is known.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=FORKYARD_COMMIT");
    let version = std::env::var("CARGO_PKG_VERSION").expect("cargo sets it");
    let commit = std::env::var("FORKYARD_COMMIT")
        .ok()
        .filter(|commit| !commit.is_empty());
    let commit = commit.map_or_else(String::new, |commit| format!(" ({commit})"));
    println!("cargo:rustc-env=FORKYARD_VERSION={version}{commit}");
}
