//! The forkyard daemon and its subcommands.

fn main() -> std::process::ExitCode {
    forkyard::cli::main()
}
