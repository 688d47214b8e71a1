#!/usr/bin/env python3
"""A great many starts of workers while clients hold connections on which nothing comes.

Two pools of two users have workers of one zygote, each worker for one request. Wanted: each request is answered, and no worker
ends by a signal. What the log says of one that does is shown, with the sender. Run by scripts/soak starts.
"""

import argparse
import json
import os
import re
import select
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "conformance"))

import fastcgi  # noqa: E402

GLOBAL = """[global]
control = "{directory}/control.sock"
"""
POOL = """[pool.{name}]
listen = {{ address = "{directory}/{name}.sock", mode = "0666" }}
{user}pm = "ondemand"
max_children = 24
process_idle_timeout = "1s"
max_requests = 1
[pool.{name}.application]
runtime = "php"
version = "{php}"
"""
USERS = ("www-data", "daemon")
ASKERS = 6
PATIENCE_SECONDS = 120
SIGNALLED = re.compile(r"exited on signal|was sent")


class Holder:
    """Clients that connect and say nothing. Who is hung up on comes again."""

    def __init__(self, paths, count):
        self.paths, self.count = paths, count
        self.poll, self.held, self.again = select.epoll(), {}, 0
        self.is_over = threading.Event()

    def run(self):
        while not self.is_over.is_set():
            for number in range(len(self.held), self.count):
                if not self.open(self.paths[number % len(self.paths)]):
                    break
            for descriptor, _ in self.poll.poll(0.05):
                # Unregistered with its end.
                self.held.pop(descriptor).close()
                self.again += 1

    def open(self, path):
        client = socket.socket(socket.AF_UNIX)
        client.setblocking(False)
        try:
            client.connect(path)
        except OSError:
            # The queue is full.
            client.close()
            return False
        self.held[client.fileno()] = client
        self.poll.register(client.fileno(), select.EPOLLRDHUP | select.EPOLLHUP)
        return True


class Asker(threading.Thread):
    def __init__(self, path, script, share, progress):
        super().__init__()
        self.path, self.script, self.share, self.progress = path, script, share, progress
        self.answered, self.failed = 0, []

    def run(self):
        client = fastcgi.Client(self.path, False, PATIENCE_SECONDS)
        parameters = {
            "SCRIPT_FILENAME": self.script, "SCRIPT_NAME": "/pid.php", "REQUEST_URI": "/pid.php", "QUERY_STRING": "",
            "REQUEST_METHOD": "GET", "CONTENT_LENGTH": "0", "SERVER_PROTOCOL": "HTTP/1.1",
        }
        while self.share() and len(self.failed) < 10:
            answer = client.ask(parameters)
            if answer.how == "end" and answer.out.rsplit(b"\n", 1)[-1].isdigit():
                self.answered += 1
                self.progress()
            else:
                self.failed.append(f"{answer.how}: {answer.out[:200]!r}")


def figures(program, directory):
    command = [program, "status", "--json", "--socket", f"{directory}/control.sock"]
    pools = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["pools"]
    starts, exits = 0, {}
    for counts in (pool["counts"] for pool in pools):
        starts += counts["starts"]
        for one in counts["exits"]:
            cause = " ".join(str(value) for name, value in one.items() if name != "count")
            exits[cause] = exits.get(cause, 0) + one["count"]
    return starts, exits


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    arguments.add_argument("count", nargs="?", type=int, default=100_000, help="starts")
    arguments.add_argument("--half-open", type=int, default=3_000, help="connections that are held")
    arguments.add_argument("--program", required=True)
    arguments.add_argument("--php", required=True)
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        sys.exit(soak(given, Path(directory)))


def soak(given, directory):
    os.chmod(directory, 0o755)
    text = GLOBAL.format(directory=directory)
    for number, user in enumerate(USERS):
        as_user = f'user = "{user}"\n' if os.geteuid() == 0 else ""
        text += POOL.format(directory=directory, name=f"pool{number}", user=as_user, php=given.php)
    (directory / "forkyard.toml").write_text(text)
    (directory / "pid.php").write_text("<?php echo \"\\n\", getmypid();")
    log = directory / "log"
    with log.open("wb") as output:
        daemon = subprocess.Popen(
            [given.program, "run", "-c", directory / "forkyard.toml"], stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    try:
        return load(given, directory, daemon, log)
    finally:
        daemon.terminate()
        daemon.wait()


def load(given, directory, daemon, log):
    begun = time.monotonic()
    while "ready to handle connections" not in log.read_text(errors="replace"):
        if daemon.poll() is not None or time.monotonic() - begun > PATIENCE_SECONDS:
            sys.exit(f"the daemon does not start:\n{log.read_text(errors='replace')}")
        time.sleep(0.01)
    paths = [f"{directory}/pool{number}.sock" for number in range(len(USERS))]
    holder = Holder(paths, given.half_open)
    holding = threading.Thread(target=holder.run, daemon=True)
    lock, left, done = threading.Lock(), given.count, 0

    def share():
        nonlocal left
        with lock:
            left -= 1
            return left >= 0

    def progress():
        nonlocal done
        with lock:
            done += 1
            if done % 5_000 == 0:
                took = time.monotonic() - begun
                print(f"{done} answers, {took:.0f} s, {len(holder.held)} half open, {holder.again} opened again", flush=True)

    askers = [Asker(paths[number % len(paths)], str(directory / "pid.php"), share, progress) for number in range(ASKERS)]
    for thread in (holding, *askers):
        thread.start()
    for thread in askers:
        thread.join()
    starts, exits = figures(given.program, directory)
    holder.is_over.set()
    holding.join()
    answered = sum(asker.answered for asker in askers)
    failed = [failure for asker in askers for failure in asker.failed]
    signalled = [line for line in log.read_text(errors="replace").splitlines() if SIGNALLED.search(line)]
    took = time.monotonic() - begun
    print(f"{starts} starts, {answered} answers in {took:.0f} s under {given.half_open} half-open connections ({holder.again} opened again)")
    print(f"ends: {', '.join(f'{count} {cause}' for cause, count in sorted(exits.items()))}")
    print(f"{len(failed)} requests without an answer, {len(signalled)} lines of ends by a signal")
    for line in (*failed[:20], *signalled[:50]):
        print(f"  {line}")
    is_whole = answered == given.count and starts >= given.count and not signalled
    return 0 if is_whole else 1


main()
