//! forkyard in the place of php-fpm: its options, its configuration files, its log lines.

fn main() -> std::process::ExitCode {
    forkyard::cli::fpm::main()
}
