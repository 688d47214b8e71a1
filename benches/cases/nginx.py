"""The smallest script through nginx, as a browser would fetch it."""

from harness.needs import BOTH, NGINX
from harness.nginx import Nginx
from harness.table import at_least

PACKAGES = (*BOTH, *NGINX)
BUILDS = ("forkyard", "forkyard-php")

CLIENTS = 8


def run(bench):
    rounds, seconds = (5, 1) if bench.quick else (9, 3)
    with bench.both() as servers, Scripts(bench, servers) as nginx:
        for server in servers:
            nginx.rate(server, CLIENTS, 1)
        comparison = bench.compare(servers, lambda server: nginx.rate(server, CLIENTS, seconds), rounds)
        yield at_least(comparison, 1.2, work=f"hello through nginx, {CLIENTS} clients")


class Scripts(Nginx):
    """In front of FastCGI servers that run scripts."""

    path = "/hello.php"

    def __init__(self, bench, servers):
        self._root = bench.scripts
        super().__init__(bench, servers)

    def location(self, server):
        script = "fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;"
        return f"root {self._root}; {script} {super().location(server)}"
