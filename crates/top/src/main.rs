//! The executable of `forkyard top`.

fn main() -> std::process::ExitCode {
    forkyard_top::main()
}
