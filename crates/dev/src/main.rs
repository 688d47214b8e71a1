//! `forkyard dev`, a program of its own.

fn main() -> std::process::ExitCode {
    forkyard_dev::main()
}
