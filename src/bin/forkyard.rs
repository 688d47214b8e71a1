//! The forkyard daemon and its subcommands; by a name such as `forkyard-fpm`, the daemon with php-fpm's options and files.

fn main() -> std::process::ExitCode {
    forkyard::main()
}
