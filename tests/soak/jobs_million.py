#!/usr/bin/env python3
"""How long a push takes while commands run on a store with very many jobs of each state, and a scrape of metrics.

Two clients push all the time. Wanted: of a thousand pushes one takes longer than 50 ms at most, whatever else is done. Run by
scripts/soak jobs-million.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import tempfile
import threading
import time

WANTED_MS = 50
CLIENTS = 2
PAUSE_SECONDS = 0.004
# Pushes that are measured at least while the same is done again and again.
LEAST = 1_500
STATES = {"waiting": 0, "scheduled": 1, "done": 3, "failed": 4, "quarantined": 5, "cancelled": 6, "blocked": 7, "discarded": 8}

# What is done, and whether it may be done again and again.
DEEDS = [
    ("nothing", None, True),
    ("list", ["list"], True),
    ("list of a state", ["list", "--state", "failed"], True),
    ("list of a tenant without jobs", ["list", "--tenant", "nobody"], True),
    ("list of a kind without jobs", ["list", "--kind", "none"], True),
    ("count", ["count"], True),
    ("queues", ["queues"], True),
    ("stats", ["stats"], True),
    ("kinds", ["kinds"], True),
    ("sequences", ["sequences"], True),
    ("show", ["show", "1"], True),
    ("scrape", "status", True),
    ("backup", "backup", False),
    ("pause", ["pause", "other"], True),
    ("retry of all that failed", ["retry", "--state", "failed", "--queue", "q"], False),
    ("discard of all in quarantine", ["discard", "--state", "quarantined", "--queue", "q"], False),
    ("cancel of all for later", ["cancel", "--state", "scheduled", "--queue", "q"], False),
    ("cancel of all that wait", ["cancel", "--state", "waiting", "--queue", "q"], False),
    ("purge of all that is done", ["purge", "--state", "done", "--queue", "q"], False),
]


def configuration(directory, durability):
    user = 'user = "www-data"\n' if os.geteuid() == 0 else ""
    (queue, jobs) = (f'pool = "www"\nscript = "{directory}/job"\n', f"{directory}/store/jobs.db")
    return (
        f'[global]\ncontrol = "{directory}/control.sock"\n'
        f'[pool.www]\nlisten = "{directory}/www.sock"\n{user}pm = "ondemand"\nmax_children = 1\n'
        f'application = {{ runtime = "cgi", root = "{directory}" }}\n'
        f'[jobs]\nstore = "{jobs}"\nlisten = "{directory}/jobs.sock"\n{user}durability = "{durability}"\n'
        f"keep_done = \"365d\"\n[jobs.queue.q]\n{queue}[jobs.queue.pushed]\n{queue}[jobs.queue.other]\n{queue}"
    )


class Client:
    def __init__(self, directory):
        deadline = time.monotonic() + 60
        while True:
            self.socket = socket.socket(socket.AF_UNIX)
            try:
                self.socket.connect(f"{directory}/jobs.sock")
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
        self.lines = self.socket.makefile("rb")

    def ask(self, **request):
        self.socket.sendall(json.dumps(request).encode() + b"\n")
        answer = json.loads(self.lines.readline())
        if answer["result"] == "error":
            raise RuntimeError(answer["message"])
        return answer


@contextlib.contextmanager
def daemon(program, directory):
    with open(f"{directory}/log", "ab") as log:
        process = subprocess.Popen([program, "run", "-c", f"{directory}/forkyard.toml"], stdout=log, stderr=log)
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def fill(path, count):
    """Writes so many jobs of each state, as the process that keeps jobs does."""
    database = sqlite3.connect(path)
    database.execute("PRAGMA synchronous = OFF")
    now = int(time.time() * 1000)
    for state in STATES.values():
        ended = now if state in (3, 4, 5, 6, 8) else None
        database.execute(
            "WITH RECURSIVE number (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < ?) "
            "INSERT INTO job (queue, kind, tenant, state, priority, run_at, pushed_at, ended_at, serial, payload, content_type) "
            "SELECT 'q', 'k' || n % 20, 't' || n % 50, ?, 100, ?, ?, ?, ?, CAST('{\"n\":' || n || '}' AS BLOB), 'application/json' "
            "FROM number",
            (count, state, now + 86_400_000 if state == 1 else None, now, ended, "s" if state == 7 else None),
        )
    database.execute("INSERT INTO ready SELECT queue, tenant, priority, 0, id FROM job WHERE state = 0")
    database.execute("INSERT INTO later SELECT run_at, id FROM job WHERE state = 1")
    database.execute("INSERT INTO blocked SELECT queue, serial, priority, id FROM job WHERE state = 7")
    database.execute("INSERT INTO lane SELECT queue, serial, min(id) FROM job WHERE state = 7")
    database.execute("DELETE FROM blocked WHERE id IN (SELECT id FROM lane)")
    database.commit()
    database.close()


def push(directory, times, errors, over):
    client = Client(directory)
    while not over.is_set():
        begun = time.monotonic()
        try:
            client.ask(command="push", job={"queue": "pushed", "kind": "k", "payload": {"to": "you"}})
        except RuntimeError as error:
            errors.append(str(error))
        times.append((begun, (time.monotonic() - begun) * 1000))
        time.sleep(PAUSE_SECONDS)


def at(times, part):
    return times[min(len(times) - 1, int(len(times) * part))]


def measure(options, directory, name, deed, is_repeated, times):
    first, begun, done = len(times), time.monotonic(), 0
    while True:
        match deed:
            case None:
                time.sleep(0.2)
            case "status":
                subprocess.run([options.program, "status", "--metrics", "-c", f"{directory}/forkyard.toml"], check=True, stdout=subprocess.DEVNULL)
            case "backup":
                command = [options.program, "jobs", "backup", f"{directory}/copy.db", "-c", f"{directory}/forkyard.toml"]
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                os.unlink(f"{directory}/copy.db")
            case _:
                command = [options.program, "jobs", *deed, "--socket", f"{directory}/jobs.sock"]
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        done += 1
        if not is_repeated or len(times) - first >= LEAST:
            break
    took = (time.monotonic() - begun) / done
    found = sorted(millis for _, millis in times[first:]) or [0.0]
    worst = at(found, 0.999)
    print(
        f"{name:32} {took:8.2f} s {len(found):7} pushes  p50 {at(found, 0.5):6.1f}  p99 {at(found, 0.99):6.1f}  "
        f"p99.9 {worst:6.1f}  max {found[-1]:6.1f} ms",
        flush=True,
    )
    return worst


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("count", type=int, nargs="?", default=1_000_000)
    parser.add_argument("--program", default="target/debug/forkyard")
    parser.add_argument("--php")
    parser.add_argument("--durability", default="full")
    parser.add_argument("--directory")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        os.chmod(directory, 0o755)
        os.mkdir(f"{directory}/store")
        if os.geteuid() == 0:
            shutil.chown(f"{directory}/store", "www-data")
        with open(f"{directory}/job", "w") as script:
            script.write("#!/bin/sh\n")
        os.chmod(f"{directory}/job", 0o755)
        with open(f"{directory}/forkyard.toml", "w") as file:
            file.write(configuration(directory, options.durability))
        with daemon(options.program, directory):
            client = Client(directory)
            for queue in ("q", "pushed"):
                client.ask(command="pause", queue=queue)
        fill(f"{directory}/store/jobs.db", options.count)
        print(f"{options.count} jobs of each of {len(STATES)} states, {os.path.getsize(directory + '/store/jobs.db') >> 20} MiB")
        with daemon(options.program, directory):
            begun = time.monotonic()
            Client(directory).ask(command="queues")
            print(f"the store is open after {time.monotonic() - begun:.2f} s")
            times, errors, over = [], [], threading.Event()
            pushers = [threading.Thread(target=push, args=(directory, times, errors, over)) for _ in range(CLIENTS)]
            for pusher in pushers:
                pusher.start()
            try:
                worst = {name: measure(options, directory, name, deed, again, times) for name, deed, again in DEEDS}
            finally:
                over.set()
                for pusher in pushers:
                    pusher.join()
    late = [name for name, millis in worst.items() if millis > WANTED_MS]
    if errors:
        print(f"{len(errors)} pushes were refused: {errors[0]}")
    if late:
        print(f"more than {WANTED_MS} ms: {', '.join(late)}")
    raise SystemExit(1 if late or errors else 0)


if __name__ == "__main__":
    main()
