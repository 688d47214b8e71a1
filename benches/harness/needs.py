"""What cases have in common of what they need: Debian packages, and what is built of forkyard."""

# forkyard with PHP.
PHP = ("libphp8.2-embed", "php8.2-dev", "php8.2-opcache")
# And php-fpm beside it.
BOTH = (*PHP, "php8.2-fpm")
# An nginx in front, and what asks it.
NGINX = ("nginx-light", "curl", "wrk")

# forkyard with PHP, and what asks it.
PHP_BUILDS = ("forkyard", "forkyard-php", "forkyard-load")
# forkyard with an application in Python or Ruby.
WRAPPED_BUILDS = ("forkyard", "libforkyard.so")
