//! Keeps background jobs in a database of PostgreSQL; started by the daemon.

fn main() -> std::process::ExitCode {
    forkyard_jobs_postgresql::main()
}
