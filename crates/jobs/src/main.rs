//! Keeps background jobs; started by the daemon.

fn main() -> std::process::ExitCode {
    forkyard_jobs::main()
}
