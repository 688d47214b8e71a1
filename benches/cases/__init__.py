"""What is measured. A case is a module with a function `run(bench)` that yields rows; its docstring says what it is.

`PACKAGES` are the Debian packages that it needs, `BUILDS` what is built of forkyard for it, by the names in `lib.sh`."""

from . import (
    applications, asgi, beside, births, boot_once, burst, cgi, compute, counts, crash, dokuwiki, express, fastcgi, forks, growth, hello, idle, jobs, kept,
    large, master, memory, nginx, order, overload, pools, rack, reload, syscalls, users, wsgi,
)

CASES = {
    module.__name__.rsplit(".", 1)[1].replace("_", "-"): module
    for module in (
        hello, order, nginx, large, compute, dokuwiki, boot_once, births, master, cgi, fastcgi, rack, wsgi, asgi, beside, express, forks,
        applications, pools, users, memory, burst, reload, overload, crash, idle, kept, syscalls, counts, growth, jobs,
    )
}
