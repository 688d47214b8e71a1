//! The executable of `forkyard dev`.

fn main() -> std::process::ExitCode {
    forkyard_dev::main()
}
