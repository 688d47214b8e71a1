"""Three hundred users on one machine, a pool for each: the first request to each, what that costs, and a reload."""

import os
import statistics
import time

from harness import fastcgi, processes
from harness.needs import BOTH, PHP_BUILDS
from harness.servers import PHP_VERSION, SERVERS, Pool
from harness.table import Row

PACKAGES = BOTH
BUILDS = PHP_BUILDS

USERS = 300
MANY_USERS = 1000
FIRST_USER = 70000
APPLICATION = f'{{ runtime = "php", version = "{PHP_VERSION}", preloader = "zygote" }}'
START = "from the daemon's start to the first answer"
HALF = "first request to each, half of them within"
LONGEST = "first request to each, the longest"
MEMORY = "memory after a request to each"
LEFT = "memory when the workers have gone"
RELOAD = "reload, until each answers anew: processor time"
# What has to be within so many times php-fpm's figure, and what within a figure of its own.
EACH = [(START, "ms", 1.0), (HALF, "ms", 0.7), (LONGEST, "ms", 1.0), (MEMORY, "MiB", 0.85)]
AFTER = [(LEFT, "MiB", 90), (RELOAD, "s", 1)]
# Both servers stop a worker that has had nothing to do for so long.
IDLE_SECONDS = 10


def run(bench):
    if os.geteuid() != 0:
        raise RuntimeError("only root can have pools of several users")
    directory = bench.directory("users")
    yield from _rows(bench, directory, 30 if bench.quick else USERS, EACH + AFTER)
    if not bench.quick:
        # More pools than a server usually has: that a cold start costs no more with each.
        yield from _rows(bench, directory, MANY_USERS, [(HALF, "ms", 0.6)])


def _rows(bench, directory, count, wanted):
    pools = [
        Pool(f"p{number}", "ondemand", max_children=4, user=FIRST_USER + number, application=APPLICATION)
        for number in range(count)
    ]
    scripts = []
    for number in range(count):
        script = directory / f"u{number}" / "hello.php"
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text("<?php echo 'hello ', getmypid();")
        os.utime(script, (time.time() - 60,) * 2)
        scripts.append(script)
    figures = {server.name: _measure(bench, server, pools, scripts) for server in SERVERS}
    forkyard, php_fpm = figures.values()
    for name, unit, most in wanted:
        is_relative = (name, unit, most) not in AFTER
        yield Row(
            work=f"{count} users: {name}",
            forkyard=forkyard[name],
            php_fpm=php_fpm[name],
            unit=unit,
            ratio=forkyard[name] / php_fpm[name],
            must=f"≤ {most:g}" if is_relative else f"≤ {most} {unit}",
            met=forkyard[name] <= (most * php_fpm[name] if is_relative else most),
            note="PSS, unmapped shared memory, page tables" if name == MEMORY else "",
        )


def _measure(bench, server, pools, scripts):
    with bench.start(server, *pools) as running:
        def walk():
            taken, pids = [], []
            for pool, script in zip(pools, scripts):
                begun = time.monotonic()
                body = fastcgi.get(running.socket(pool.name), script)
                taken.append((time.monotonic() - begun) * 1000)
                pids.append(int(body.split()[-1]))
            return taken, pids

        with processes.awake():
            # forkyard is ready before PHP is, so that its start and the first request are one figure.
            begun = time.monotonic()
            fastcgi.get(running.socket(pools[0].name), scripts[0])
            first = running.start_seconds + time.monotonic() - begun
            taken, before = walk()
        memory = processes.whole_memory_mib(running.processes())
        cpu = processes.family_cpu_seconds(running.pid)
        running.reload()
        end = time.monotonic() + 60
        while set(walk()[1]) & set(before):
            if time.monotonic() > end:
                raise RuntimeError(f"{running.name}: workers of before the reload still answer")
        cpu = processes.family_cpu_seconds(running.pid) - cpu
        end = time.monotonic() + 6 * IDLE_SECONDS
        while running.workers() and time.monotonic() < end:
            time.sleep(0.5)
        left = processes.whole_memory_mib(running.processes())
        return {
            START: first * 1000,
            HALF: statistics.median(taken[1:]),
            LONGEST: max(taken[1:]),
            MEMORY: memory,
            LEFT: left,
            RELOAD: cpu,
        }
