"""A shop in a storm: visitors, orders, bots at ten times the capacity, a slow database, a reload in the middle."""

import subprocess
import threading
from dataclasses import dataclass, field

from harness import mariadb, processes, visitors
from harness.needs import BOTH, NGINX, PHP_BUILDS, PHP_VERSION
from harness.nginx import Nginx
from harness.servers import SERVERS, Pool
from harness.sites import settle
from harness.table import Row

PACKAGES = (*BOTH, *NGINX, "mariadb-server", f"php{PHP_VERSION}-mysql")
BUILDS = PHP_BUILDS

# Two processors compute 33 pages a second, of 60 ms each; of them visitors and orders want a third.
PEOPLE, ORDERS, BOTS = 6, 1, 330
SLOW = 3
# php-fpm's number for these pages: two processors, half of the time a wait.
TUNED = 8
OURS = {"max_children": '"auto"', "max_request_queue_time": '"auto"', "lanes": '"wordpress"'}


@dataclass
class Run:
    """What came of one server's storm."""

    people: visitors.Kind
    orders: visitors.Kind
    bots: visitors.Kind
    executed: int = 0
    ordered: int = 0
    memory: list = field(default_factory=list)

    def kinds(self):
        return (self.people, self.orders, self.bots)

    def lost(self):
        return sum(kind.lost for kind in self.kinds())

    def useful(self):
        """The part of the executed pages that somebody got, %."""
        got = sum(len(kind.steps()) * len(kind.done()) for kind in self.kinds())
        return min(100, got / max(self.executed, 1) * 100)


def run(bench):
    # When the bots come and leave, when the database is slow, when the pool is reloaded, and when all ends; seconds.
    times = (5, 19, 8, 13, 11, 24) if bench.quick else (30, 150, 60, 120, 90, 180)
    directory = bench.directory("shop")
    (directory / "database").mkdir(parents=True)
    directory.chmod(0o777)
    site = directory / "site"
    site.mkdir()
    (site / "shop").mkdir()
    script = site / "shop/index.php"
    script.write_text((bench.scripts / "shop/index.php").read_text())
    settle(site)
    pool = Pool(pm="dynamic", max_children=TUNED, start_servers=4, min_spare_servers=2, max_spare_servers=4, own=OURS)
    runs = {}
    with mariadb.running(directory / "database"):
        _sql(directory, "CREATE DATABASE shop; CREATE TABLE shop.pace (factor INT); INSERT INTO shop.pace VALUES (1);"
                        "CREATE TABLE shop.orders (id INT AUTO_INCREMENT PRIMARY KEY)")  # fmt: skip
        for server in SERVERS:
            runs[server.name] = _storm(bench, server, pool, directory, script, times)
    yield from _rows(runs, times)


def _rows(runs, times):
    forkyard, php_fpm = runs["forkyard"], runs["php-fpm"]
    bots, calm, _, _, _, end = times

    def share(kind):
        return len(kind.done()) / len(kind.visits) * 100

    for name in ("people", "orders"):
        ours, theirs = (share(getattr(each, name)) for each in (forkyard, php_fpm))
        series = {each: getattr(one, name).by_second(end) for each, one in runs.items()}
        note = f"of {len(getattr(forkyard, name).visits)}; bots from {bots} to {calm} s"
        yield Row(f"{name} that got all they wanted", ours, theirs, "%", "≥ php-fpm", ours >= theirs, note=note, rounds={"seconds": series})
    ours, theirs = (each.people.p99(bots, calm) for each in (forkyard, php_fpm))
    before = forkyard.people.p99(0, bots)
    yield Row("people's p99 during the storm", ours, None if theirs == float("inf") else theirs, "s", "", True,
              note=f"before it {before:.2f} s; php-fpm: {len(php_fpm.people.done(bots, calm))} answers")  # fmt: skip
    yield Row("bots that got a page", share(forkyard.bots), share(php_fpm.bots), "%", "", True)
    yield Row("pages executed that somebody got", forkyard.useful(), php_fpm.useful(), "%", "≥ 95%", forkyard.useful() >= 95)
    note = "an answer with 500 or 502, or none; the pool is reloaded in the middle"
    yield Row("requests lost", forkyard.lost(), php_fpm.lost(), "", "0", forkyard.lost() == 0, note=note)
    yield Row("memory, the most", max(forkyard.memory), max(php_fpm.memory), "MiB", "", True, note="PSS of all processes")


def _storm(bench, server, pool, directory, script, times):
    bots_come, bots_leave, slow, well, reload, end = times
    found = Run(
        visitors.Kind("people", "10.1", visitors.BROWSER, 8, visitors.page),
        visitors.Kind("orders", "10.2", visitors.BROWSER, 8, visitors.order),
        visitors.Kind("bots", "10.3", visitors.BOT, 5, visitors.page),
    )
    _sql(directory, "DELETE FROM shop.orders")
    for path in directory.glob("executed-*"):
        path.unlink()
    with bench.start(server, pool) as running, Shop(bench, [running], script) as nginx:
        for path in directory.glob("executed-*"):
            path.unlink()
        is_over = threading.Event()
        watcher = threading.Thread(target=_watch, args=(running, found.memory, is_over))
        watcher.start()
        streams = [(found.people, PEOPLE, 0, end), (found.orders, ORDERS, 0, end), (found.bots, BOTS, bots_come, bots_leave)]
        events = [
            (slow, lambda: _sql(directory, f"UPDATE shop.pace SET factor = {SLOW}")),
            (well, lambda: _sql(directory, "UPDATE shop.pace SET factor = 1")),
            (reload, running.reload),
        ]
        try:
            visitors.run(nginx.port(running), streams, events)
        finally:
            is_over.set()
            watcher.join()
    found.executed = sum(path.stat().st_size for path in directory.glob("executed-*"))
    found.ordered = int(_sql(directory, "SELECT COUNT(*) FROM shop.orders"))
    if found.ordered < len(found.orders.done()):
        raise RuntimeError(f"{server.name}: {len(found.orders.done())} orders were confirmed, {found.ordered} are in the database")
    return found


def _watch(server, memory, is_over):
    while not is_over.wait(1):
        memory.append(processes.pss_mib(server.processes()))


def _sql(directory, command):
    client = ["mariadb", "--no-defaults", "-N", "-S", directory / "database/db.sock", "-e", command]
    return subprocess.run(client, check=True, capture_output=True, text=True).stdout.strip() or "0"


class Shop(Nginx):
    """Visitors have the addresses that they say; every path is the script's."""

    path = "/product/1/"

    def __init__(self, bench, servers, script):
        self._script = script
        super().__init__(bench, servers)

    def location(self, server):
        return (
            f"set_real_ip_from 127.0.0.1; real_ip_header X-Real-IP; {super().location(server)}"
            f" fastcgi_param SCRIPT_FILENAME {self._script}; fastcgi_param REQUEST_START $msec; fastcgi_param REQUEST_TIMEOUT 60;"
        )
