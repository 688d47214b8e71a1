"""Background jobs: their rate beside RQ and a polled table, what a start waits, fairness, memory, web requests beside them."""

import contextlib
import json
import os
import shutil
import socket
import statistics
import subprocess
import threading
import time

from harness import processes
from harness.needs import PHP, PHP_BUILDS
from harness.servers import PHP_VERSION, Forkyard, Pool
from harness.table import Row

PACKAGES = (*PHP, f"php{PHP_VERSION}-cli", f"php{PHP_VERSION}-sqlite3", "redis-server", "python3-rq")
BUILDS = (*PHP_BUILDS, "forkyard-jobs")

WORKERS = 8
# Jobs in one push.
LOT = 100
# Fairness: tenants that push long jobs, and those that push a short one now and then.
FLOODS, SMALL = 8, 10
PATIENCE_SECONDS = 120


class Jobs(Forkyard):
    """A daemon whose pools run jobs, each those of the queue with its name; the pool `quiet` has the lowest priority."""

    durability = "full"

    def configure(self):
        command = super().configure()
        store = self.directory / "store"
        store.mkdir()
        user = ""
        if os.geteuid() == 0:
            shutil.chown(store, "www-data")
            user = 'user = "www-data"\n'
        text = f'\n[jobs]\nstore = "{store}/jobs.db"\nlisten = "{self.jobs_socket()}"\n{user}durability = "{self.durability}"\n'
        for pool in self.pools:
            if pool.name != "www":
                text += f'[jobs.queue.{pool.name}]\npool = "{pool.name}"\nscript = "{self.script()}"\n'
        path = self.directory / "forkyard.toml"
        pools = path.read_text().replace("[pool.quiet]\n", "[pool.quiet]\nprocess.priority = 19\n")
        path.write_text(pools + text)
        return command

    def script(self):
        return self.directory.parent / "scripts/jobs/job.php"

    def jobs_socket(self):
        return self.directory / "push.sock"

    def keeper(self):
        """The process that keeps jobs."""
        return next(pid for pid in self.processes() if processes.title(pid) == "forkyard: jobs")


class JobsNormal(Jobs):
    durability = "normal"


class Client:
    """A connection to the jobs' socket."""

    def __init__(self, server):
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(PATIENCE_SECONDS)
        end = time.monotonic() + PATIENCE_SECONDS
        while self._socket.connect_ex(str(server.jobs_socket())) != 0:
            if time.monotonic() > end:
                raise RuntimeError("the jobs' socket can't be reached")
            time.sleep(0.01)
        self._reader = self._socket.makefile("rb")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._reader.close()
        self._socket.close()

    def ask(self, **request):
        return self.send(json.dumps(request).encode() + b"\n")

    def send(self, line):
        self._socket.sendall(line)
        answer = json.loads(self._reader.readline())
        if answer["result"] == "error":
            raise RuntimeError(answer["message"])
        return answer

    def push(self, queue, kind, **more):
        return self.ask(command="push", job={"queue": queue, "kind": kind, **more})["jobs"][0]["id"]

    def done(self, queue):
        (stats,) = (found for found in self.ask(command="stats")["queues"] if found["name"] == queue)
        others = {outcome: count for outcome, count in stats["ended"].items() if outcome != "done"}
        if others:
            raise RuntimeError(f"jobs ended otherwise: {others}")
        return stats["ended"].get("done", 0)


def run(bench):
    count = 2_000 if bench.quick else 20_000
    rounds = 2 if bench.quick else 5
    yield from _latency_and_memory(bench)
    rivals = {"RQ": _rq(bench, count // 10, rounds), "a polled table": _polling(bench, count // 10, rounds)}
    for server, least in ((Jobs, 3_000), (JobsNormal, 10_000)):
        rate, cpu, notes = _rate(bench, server, count, rounds)
        work = f"empty PHP jobs, durability = \"{server.durability}\", {WORKERS} workers"
        yield Row(work, rate, None, "/s", f"≥ {least}", rate >= least, note=f"{cpu} {notes}")
        for name, (other, note) in rivals.items():
            if server is Jobs:
                yield Row(
                    f"the same beside {name} (in the column of php-fpm)", rate, other, "/s", "≥ 3 x", rate >= 3 * other,
                    rate / other, note=note,
                )
    yield _web(bench)
    yield _fairness(bench)


def _latency_and_memory(bench):
    """One job at a time, from the push to the start of its script."""
    with bench.start(Jobs, Pool("jobs", max_children=WORKERS)) as server, Client(server) as client:
        server.wait_for_workers(WORKERS)
        memory = processes.pss_mib([server.keeper()])
        yield Row("an idle process that keeps jobs: memory", memory, None, "MiB", "≤ 6 MiB", memory <= 6, note="PSS")
        waits = []
        for number in range(50 if bench.quick else 300):
            begun = time.time()
            job = client.push("jobs", "sleep", payload={"ms": 0})
            waits.append((float(client.ask(command="wait", id=job)["job"]["result"]) - begun) * 1e3)
            time.sleep(0.01)
        # The first ones load what is loaded once.
        waits = sorted(waits[5:])
        p50, p99 = statistics.median(waits), waits[len(waits) * 99 // 100]
        yield Row("a push to the start of its job, idle: p50", p50, None, "ms", "< 5 ms", p50 < 5, note=f"p99 {p99:.1f} ms")


def _rate(bench, kind, count, rounds):
    """From the first push to the last end, pushed in lots by two clients while they are run."""
    with bench.start(kind, Pool("jobs", max_children=WORKERS)) as server, Client(server) as client:
        server.wait_for_workers(WORKERS)
        keeper = server.keeper()
        lot = {"command": "push", "jobs": [{"queue": "jobs", "kind": "empty", "payload": {"user": 7}}] * LOT}
        line = json.dumps(lot).encode() + b"\n"

        def push():
            with Client(server) as pusher:
                for _ in range(count // LOT // 2):
                    pusher.send(line)

        rates, costs = [], []
        done = client.done("jobs")
        with processes.awake():
            for _ in range(rounds + 1):
                before = processes.cpu_seconds([keeper]), processes.cpu_seconds(server.workers())
                begun = time.monotonic()
                pushers = [threading.Thread(target=push) for _ in range(2)]
                for pusher in pushers:
                    pusher.start()
                for pusher in pushers:
                    pusher.join()
                pushed = time.monotonic() - begun
                done += count
                # To be asked costs it time.
                _wait_until(lambda: client.done("jobs") >= done, 0.05)
                seconds = time.monotonic() - begun
                rates.append(count / seconds)
                after = processes.cpu_seconds([keeper]), processes.cpu_seconds(server.workers())
                costs.append([(a - b) / count * 1e6 for a, b in zip(after, before, strict=True)] + [count / pushed])
        own, workers, pushed = (statistics.median(column) for column in zip(*costs[1:], strict=True))
        sync = _syncs(server.directory / "store/syncs")
        cpu = f"processor time for a job: the process that keeps them {own:.0f} µs, workers {workers:.0f} µs;"
        return statistics.median(rates[1:]), cpu, f"pushed at {pushed:.0f} /s; {sync:.0f} fdatasync/s of 4 KiB alone"


def _syncs(path):
    """How many times a second the disk takes a page alone."""
    number, end = 0, time.monotonic() + 1
    with path.open("wb", buffering=0) as file:
        while time.monotonic() < end:
            file.write(bytes(4096))
            os.fdatasync(file.fileno())
            number += 1
    return number


def _rq(bench, count, rounds):
    """RQ with Redis, which writes to disk once a second: workers that do not fork for each job, its fastest kind."""
    directory = bench.directory("redis")
    directory.mkdir()
    url = f"unix://{directory}/redis.sock"
    redis = [
        "redis-server", "--port", "0", "--unixsocket", f"{directory}/redis.sock", "--dir", str(directory), "--appendonly",
        "yes", "--save", "",
    ]
    push = (
        "import sys, redis, rq; from nothing import nothing; "
        f"queue = rq.Queue(connection=redis.Redis.from_url('{url}'));\n"
        f"for _ in range({count} // {LOT}): queue.enqueue_many([queue.prepare_data(nothing, (7,)) for _ in range({LOT})])"
    )
    work = ["/usr/bin/rq", "worker", "--burst", "--quiet", "--url", url, "--worker-class", "rq.worker.SimpleWorker"]
    environment = os.environ | {"PYTHONPATH": str(bench.scripts / "jobs")}
    rates = []
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(subprocess.Popen(redis, stdout=subprocess.DEVNULL))
        stack.callback(server.terminate)
        _wait_until(lambda: (directory / "redis.sock").exists())
        for _ in range(rounds):
            start = _work(work, environment, bench.scripts)
            subprocess.run(["/usr/bin/python3", "-c", push], env=environment, check=True)
            rates.append(count / (_work(work, environment, bench.scripts) - start))
    return statistics.median(rates), f"RQ: {count} jobs by {WORKERS} workers, without the pushes and the workers' start"


def _polling(bench, count, rounds):
    """A table of SQLite and workers that poll it."""
    script, rates = bench.scripts / "jobs/poll.php", []
    for _ in range(rounds):
        directory = bench.directory("polling")
        directory.mkdir()
        php = [f"/usr/bin/php{PHP_VERSION}", "-d", "opcache.enable_cli=0", script, directory / "jobs.db"]
        subprocess.run([*php, "push", "0"], check=True)
        start = _work([*php, "work"], os.environ, directory)
        subprocess.run([*php, "push", str(count)], check=True)
        rates.append(count / (_work([*php, "work"], os.environ, directory) - start))
    return statistics.median(rates), f"a polled table: {count} jobs by {WORKERS} workers, without the pushes and the workers' start"


def _work(command, environment, directory):
    """How long as many workers take for what there is."""
    begun = time.monotonic()
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    workers = [subprocess.Popen(command, env=environment, cwd=directory, **quiet) for _ in range(WORKERS)]
    if any([worker.wait(PATIENCE_SECONDS) for worker in workers]):
        raise RuntimeError(f"{command[0]} fails")
    return time.monotonic() - begun


def _web(bench):
    """Web requests with and without jobs beside them that compute, by a pool of lower priority."""
    seconds, rounds = (1, 3) if bench.quick else (3, 7)
    quiet = Pool("quiet", max_children=WORKERS)
    alone, beside = [], []
    with bench.start(Jobs, Pool("www", max_children=WORKERS), quiet) as server, Client(server) as client:
        server.wait_for_workers(2 * WORKERS)
        measure = lambda: bench.load(server, "hello.php", clients=4, seconds=seconds)["latency_us"]["p99"]
        measure()
        for _ in range(rounds):
            alone.append(measure())
            jobs = [client.push("quiet", "spin", tenant=f"t{number}", payload={"ms": (seconds + 0.5) * 1e3}) for number in range(WORKERS)]
            # All at once: each is a tenant of its own that has nothing running.
            _wait_until(lambda: client.ask(command="show", id=jobs[-1])["job"]["state"] == "running")
            beside.append(measure())
            for job in jobs:
                client.ask(command="wait", id=job)
    ratio = statistics.median(b / a for a, b in zip(alone, beside, strict=True))
    return Row(
        f"web requests with {WORKERS} jobs that compute, and without (in the column of php-fpm): p99",
        statistics.median(beside), statistics.median(alone), "µs", "≤ 1.5 x", ratio <= 1.5, ratio,
        note="4 clients; the jobs' pool has process.priority = 19",
    )


def _fairness(bench):
    """What small tenants wait beside floods of jobs that take long."""
    workers, seconds = 20, 10 if bench.quick else 40
    waits = []
    with bench.start(Jobs, Pool("jobs", max_children=workers)) as server, Client(server) as client:
        server.wait_for_workers(workers)
        flood = [{"queue": "jobs", "kind": "sleep", "payload": {"ms": 5_000}}] * (2 * workers + seconds)
        for number in range(FLOODS):
            client.ask(command="push", jobs=[{**job, "tenant": f"flood {number}"} for job in flood])
        # A flood's first job may have a reserved worker: those end first.
        time.sleep(7)
        end, pushed, turn = time.time() + seconds, [], 0
        while time.time() < end:
            turn += 1
            more = {"tenant": f"small {turn % SMALL}", "payload": {"ms": 50}}
            pushed.append((time.time(), client.push("jobs", "sleep", **more)))
            time.sleep(0.1)
        for begun, job in pushed:
            shown = client.ask(command="wait", id=job)["job"]
            waits.append(float(shown["result"]) - begun)
        client.ask(command="cancel", state="waiting", queue="jobs")
    waits.sort()
    p99 = waits[len(waits) * 99 // 100]
    return Row(
        f"{SMALL} small tenants beside {FLOODS} floods of jobs of 5 s, {workers} workers: p99 of their wait", p99 * 1e3, None,
        "ms", "< 500 ms", p99 < 0.5, note=f"p50 {statistics.median(waits) * 1e3:.1f} ms of {len(waits)} jobs",
    )


def _wait_until(holds, seconds=0.01):
    end = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        if time.monotonic() > end:
            raise RuntimeError("it does not come")
        time.sleep(seconds)
