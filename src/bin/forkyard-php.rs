//! The preloader of PHP pools.

fn main() -> std::process::ExitCode {
    forkyard_php::main()
}
