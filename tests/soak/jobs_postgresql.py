#!/usr/bin/env python3
"""Background jobs of two daemons in one database of PostgreSQL, each behind a network of its own that is cut, and that forwards
nothing more for a while without ending a connection.

Wanted as of tests/soak/jobs.py: no job is missing, none runs twice at once, attempts strictly increase, and each start that another
follows has an end in the store. Run by scripts/soak jobs-postgresql.
"""

import os
import random
import socket
import subprocess
import tempfile
import threading
import time

import jobs
from jobs import PATIENCE_SECONDS, Daemon, prepare, tell, until

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# How often what is done, of each hundred.
DEEDS = [("worker", 30), ("jobs", 10), ("cut", 30), ("silence", 22), ("long silence", 2), ("master", 3), ("reload", 3)]


class Network:
    """Forwards connections to the server's socket. `gate`: nothing passes while it is not set."""

    def __init__(self, server):
        self.server, self.connections, self.lock = server, set(), threading.Lock()
        self.gate = threading.Event()
        self.gate.set()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            client, _ = self.listener.accept()
            server = socket.socket(socket.AF_UNIX)
            try:
                server.connect(self.server)
            except OSError:
                client.close()
                continue
            with self.lock:
                self.connections.add((client, server))
            for ends in ((client, server), (server, client)):
                threading.Thread(target=self._pass, args=(*ends, (client, server)), daemon=True).start()

    def _pass(self, source, target, pair):
        try:
            while data := source.recv(65536):
                self.gate.wait()
                target.sendall(data)
        except OSError:
            pass
        self._end(pair)

    def _end(self, pair):
        with self.lock:
            self.connections.discard(pair)
        for end in pair:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def cut(self):
        with self.lock:
            pairs = list(self.connections)
        for pair in pairs:
            self._end(pair)

    def silence(self, seconds):
        """Nothing passes for so long; others go on meanwhile."""
        if self.gate.is_set():
            self.gate.clear()
            threading.Timer(seconds, self.gate.set).start()


class Database:
    """A server of its own, which ends with its input."""

    def __init__(self, directory):
        self.directory = directory
        script = ["sh", f"{ROOT}/tests/support/postgresql.sh", directory]
        self.script = subprocess.Popen(script, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self.script.stdout.readline() != "started\n":
            raise SystemExit("there is no server")
        until("a server that answers", lambda: self.rows("SELECT 1"))

    def rows(self, statement):
        url = f"postgresql://forkyard@/postgres?host={self.directory}"
        psql = subprocess.run(["psql", "-qAt", "-c", statement, url], capture_output=True, text=True)
        return [line.split("|") for line in psql.stdout.splitlines()]


def main():
    options = jobs.arguments(__doc__, 10_000, 1.5)
    with tempfile.TemporaryDirectory(prefix="forkyard-soak-") as directory:
        os.chmod(directory, 0o755)
        prepare(directory)
        os.mkdir(f"{directory}/server")
        database = Database(f"{directory}/server")
        daemons, networks = [], []
        for name in ("one", "two"):
            os.mkdir(f"{directory}/{name}")
            os.chmod(f"{directory}/{name}", 0o755)
            network = Network(f"{directory}/server/.s.PGSQL.5432")
            url = f"postgresql://forkyard@127.0.0.1:{network.port}/postgres"
            daemons.append(Daemon(options.program, f"{directory}/{name}", options.php, url))
            networks.append(network)
        begun = time.monotonic()
        with jobs.shown(daemons):
            for daemon in daemons:
                daemon.start()
            ids = run(database, daemons, networks, options)
        for daemon in daemons:
            daemon.stop()
        seconds = time.monotonic() - begun
        ends = database.rows("SELECT job, attempt, outcome FROM forkyard.ended")
        ends = {(int(job), int(attempt)): outcome for job, attempt, outcome in ends}
        states = {int(job): int(state) for job, state in database.rows("SELECT id, state FROM forkyard.job")}
        database.script.stdin.close()
        database.script.wait()
        tell(*jobs.judge_by(directory, ids, ends, states), daemons[0].counts + daemons[1].counts, seconds)


def run(database, daemons, networks, options):
    """Has the jobs done while things happen; says their numbers."""
    ids, left = set(), options.count
    last, since = None, time.monotonic()
    while True:
        if left:
            place = random.randrange(2)
            if networks[place].gate.is_set():
                ids |= push(daemons[place], min(left, 500))
                left -= min(left, 500)
        states = database.rows("SELECT state, count(*) FROM forkyard.job GROUP BY state ORDER BY state")
        if dict(map(tuple, states)).get("3") == str(options.count) and not left:
            return ids
        if states != last:
            last, since = states, time.monotonic()
        if time.monotonic() - since > PATIENCE_SECONDS:
            raise SystemExit(f"nothing goes on: jobs by state {states}")
        time.sleep(random.uniform(0.05, options.pause))
        names, weights = zip(*DEEDS)
        deed, place = random.choices(names, weights)[0], random.randrange(2)
        daemon, network = daemons[place], networks[place]
        if deed == "cut":
            network.cut()
        elif deed == "silence":
            network.silence(random.uniform(0.5, 12))
        elif deed == "long silence":
            # Longer than the machine may be silent: the other takes its jobs.
            network.silence(random.uniform(21, 26))
        else:
            daemon.do(deed)
            continue
        daemon.counts[deed] += 1


def push(daemon, count):
    """Adds jobs by a daemon, with keys of its own."""
    daemon.name = getattr(daemon, "name", os.path.basename(daemon.directory))
    return daemon.push(count, os.path.basename(daemon.directory))


main()
