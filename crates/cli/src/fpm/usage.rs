pub(super) fn text(program: &str, prefix: &str) -> String {
    format!(
        "Usage: {program} [-n] [-e] [-h] [-i] [-m] [-v] [-t] [-p <prefix>] [-g <pid>] [-c <file>] [-d foo[=bar]] \
         [-y <file>] [-D] [-F [-O]]\n\
         \x20 -c <path>|<file> php.ini, or the directory that it is in\n\
         \x20 -n               Start PHP without php.ini\n\
         \x20 -d foo[=bar]     Set foo to bar, over php.ini\n\
         \x20 -e               Extended information for debuggers and profilers\n\
         \x20 -h               Show this help\n\
         \x20 -i               Show what phpinfo() shows\n\
         \x20 -m               Show the modules of PHP\n\
         \x20 -v               Show the version\n\
         \x20 -p, --prefix <dir>\n\
         \x20                  What relative paths are relative to (default: {prefix}).\n\
         \x20 -g, --pid <file>\n\
         \x20                  The pid file, unless the configuration names one.\n\
         \x20 -y, --fpm-config <file>\n\
         \x20                  The configuration file.\n\
         \x20 -t, --test       Test the configuration and exit; twice: show it as well\n\
         \x20 -D, --daemonize  Go to the background; overrides daemonize\n\
         \x20 -F, --nodaemonize\n\
         \x20                  Stay in the foreground; overrides daemonize\n\
         \x20 -O, --force-stderr\n\
         \x20                  In the foreground, log to standard error, terminal or not\n\
         \x20 -R, --allow-to-run-as-root\n\
         \x20                  Let pools run as root\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first line is php-fpm's.
    #[test]
    fn what_an_option_does_is_no_wider_than_a_terminal() {
        let text = text("php-fpm", "/usr");
        for line in text.lines().skip(1) {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }
}
