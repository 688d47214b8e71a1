"""What cases have in common of what they need: Debian packages, and what is built of forkyard."""

import os

# scripts/bench sets it: that of this release of Debian's.
PHP_VERSION = os.environ.get("FORKYARD_PHP", "8.2")
# forkyard with PHP.
PHP = (f"libphp{PHP_VERSION}-embed", f"php{PHP_VERSION}-dev", f"php{PHP_VERSION}-opcache")
# And php-fpm beside it.
BOTH = (*PHP, f"php{PHP_VERSION}-fpm")
# An nginx in front, and what asks it.
NGINX = ("nginx-light", "curl", "wrk")

# forkyard with PHP, and what asks it.
PHP_BUILDS = ("forkyard", "forkyard-php", "forkyard-load")
# forkyard with an application in Python or Ruby.
WRAPPED_BUILDS = ("forkyard", "libforkyard.so")
