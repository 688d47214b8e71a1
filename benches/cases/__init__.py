"""What is measured. A case is a module with a function `run(bench)` that yields rows; its docstring says what it is.

`PACKAGES` are the Debian packages that it needs, `BUILDS` what is built of forkyard for it, by the names in `lib.sh`."""

from . import (
    applications, asgi, births, burst, cgi, compute, crash, dokuwiki, express, fastcgi, forks, hello, idle, kept, large, master,
    memory, nginx, order, pools, rack, reload, syscalls, wsgi,
)

CASES = {
    module.__name__.rsplit(".", 1)[1]: module
    for module in (
        hello, order, nginx, large, compute, dokuwiki, births, master, cgi, fastcgi, rack, wsgi, asgi, express, forks, applications,
        pools, memory, burst, reload, crash, idle, kept, syscalls,
    )
}
