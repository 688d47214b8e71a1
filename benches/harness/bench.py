"""One run: where it works, how long it measures, and how it compares."""

import contextlib
import itertools
import json
import os
import statistics
import subprocess
from pathlib import Path

from . import processes
from .servers import PROGRAMS, ROOT, SERVERS, Pool

SCRIPTS = ROOT / "benches/scripts"
LOAD = PROGRAMS / "forkyard-load"


class Bench:
    """What a case is given."""

    def __init__(self, work, quick, reason=None):
        self.work = Path(work)
        self.quick = quick
        # Why counts.json is renewed, if it is.
        self.reason = reason
        self.scripts = self.work / "scripts"
        self._numbers = itertools.count()

    def directory(self, name):
        # As long each time: paths are part of what is measured.
        return self.work / f"{next(self._numbers):03}-{name}"

    def start(self, server, *pools):
        return server(self.directory(server.name), pools or [Pool()])

    @contextlib.contextmanager
    def both(self, *pools):
        """forkyard and php-fpm side by side."""
        with contextlib.ExitStack() as stack:
            servers = [stack.enter_context(self.start(server, *pools)) for server in SERVERS]
            for server in servers:
                static = sum(pool.max_children for pool in server.pools if pool.pm == "static")
                server.wait_for_workers(static)
            yield servers

    def compare(self, servers, measure, rounds):
        """Measures one after the other, round by round, so that what else the machine does falls on both."""
        figures = {server.name: [] for server in servers}
        with processes.awake():
            for number in range(rounds):
                for server in servers if number % 2 == 0 else reversed(servers):
                    figures[server.name].append(measure(server))
        return Comparison(*figures.values())

    def rate(self, servers, script, seconds, rounds, **options):
        """Compares requests a second; with them, the workers' processor time for each and the latencies, in µs."""
        def measure(server):
            busy = server.busy()
            before = processes.cpu_seconds(busy)
            result = self.load(server, script, seconds=seconds, **options)
            if result["errors"]:
                raise RuntimeError(f"{server.name}: {script}: {result['errors_by_kind']}")
            cpu = processes.cpu_seconds(busy) - before
            if gone := set(busy) - set(server.busy()):
                # Their processor time is not known any more.
                raise RuntimeError(f"{server.name}: {script}: {len(gone)} of {len(busy)} workers were replaced")
            latency = result["latency_us"]
            return result["requests_per_second"], cpu / result["requests"] * 1e6, latency["p50"], latency["p99"]

        for server in servers:
            self.load(server, script, seconds=0.3, **options)
        return self.compare(servers, measure, rounds)

    def load(self, server, script, pool="www", **options):
        """Sends requests; says forkyard-load's report."""
        with self.loading(server, script, pool, **options) as load:
            pass
        return load.report

    @contextlib.contextmanager
    def loading(self, server, script, pool="www", **options):
        """Sends requests while the block runs, and until the time is over."""
        load = Load(server.socket(pool), self.scripts / script, options)
        try:
            yield load
        finally:
            load.finish()


class Load:
    """A running forkyard-load."""

    def __init__(self, socket, script, options):
        command = [LOAD, "--connect", f"unix:{socket}", "--script", script]
        for name, value in options.items():
            option = "--" + {"seconds": "duration"}.get(name, name.replace("_", "-"))
            command += [option] if value is True else [option, value]
        self.report = None
        self._process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, text=True)

    def finish(self):
        output, _ = self._process.communicate()
        self.report = json.loads(output)


class Comparison:
    """Figures of both servers, paired by round; a figure may be several numbers, the first is compared."""

    def __init__(self, forkyard, php_fpm):
        first = lambda figure: figure[0] if isinstance(figure, tuple) else figure
        self.forkyard = statistics.median(map(first, forkyard))
        self.php_fpm = statistics.median(map(first, php_fpm))
        self.ratio = statistics.median(first(f) / first(p) for f, p in zip(forkyard, php_fpm, strict=True))
        self.rounds = {"forkyard": forkyard, "php-fpm": php_fpm}

    def number(self, index):
        """Medians of the numbers at an index, and of their ratios."""
        pairs = list(zip(self.rounds["forkyard"], self.rounds["php-fpm"], strict=True))
        return (
            statistics.median(f[index] for f, _ in pairs),
            statistics.median(p[index] for _, p in pairs),
            statistics.median(f[index] / p[index] for f, p in pairs),
        )


def load_average():
    return " ".join(f"{value:.1f}" for value in os.getloadavg())
