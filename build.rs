//! Tells the tests which version of PHP is meant where nothing says which: the newest that forkyard-php was built for.
//! Lets libphp find forkyard-php's own versions of functions of libc.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let newest = std::env::var("DEP_FORKYARD_PHP_SHIM_NEWEST").expect("the shim's build script sets it");
    println!("cargo:rustc-env=FORKYARD_PHP={newest}");
    for name in ["setitimer", "sigaction", "sigprocmask", "pthread_sigmask"] {
        println!("cargo:rustc-link-arg-bin=forkyard-php=-Wl,--export-dynamic-symbol={name}");
    }
}
