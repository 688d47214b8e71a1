#!/usr/bin/env python3
"""Background jobs while processes are killed: each job writes its number and attempt to a table, and how the table looks is said.

Wanted: no job is missing, none runs twice at once, attempts strictly increase, and each start that another follows has an end in
the store. Workers, the process that keeps jobs, the master and its keeper are killed at random, sometimes all of them at once;
the daemon is reloaded and upgraded in between. Run by scripts/soak jobs; tests/it/jobs/exact.rs runs a small sample.
"""

import argparse
import collections
import contextlib
import json
import os
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time

SCRIPT = r"""<?php
$dir = __DIR__ . '/out';
$id = $_SERVER['FORKYARD_JOB_ID'];
$line = "$id {$_SERVER['FORKYARD_JOB_ATTEMPT']}\n";
// The kernel lets go of the lock when this process dies.
$lock = fopen("$dir/locks/$id", 'c');
if (!flock($lock, LOCK_EX | LOCK_NB)) {
    file_put_contents("$dir/overlaps", $line, FILE_APPEND);
}
file_put_contents("$dir/starts", $line, FILE_APPEND);
usleep($id % 50 ? random_int(0, 5000) : 300000);
unlink("$dir/locks/$id");
echo 'ok';
"""

# How often what is done, of each hundred.
ACTIONS = [
    ("worker", 55), ("jobs", 14), ("reload", 10), ("master", 8), ("upgrade", 5), ("keeper", 4), ("all", 4),
]
PATIENCE_SECONDS = 120


def prepare(directory):
    """Makes what the jobs need; says the script's path."""
    for name in ("store", "out", "out/locks"):
        os.mkdir(f"{directory}/{name}")
        os.chmod(f"{directory}/{name}", 0o777)
    with open(f"{directory}/job.php", "w") as file:
        file.write(SCRIPT)
    return f"{directory}/job.php"


def children(pid):
    """The child processes of one, with their titles."""
    found = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children") as file:
                found += [int(word) for word in file.read().split()]
    except OSError:
        pass
    return [(child, title(child)) for child in found]


def title(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def runs(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def until(what, look):
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
        found = look()
        if found:
            return found
        time.sleep(0.01)
    raise SystemExit(f"waited {PATIENCE_SECONDS} s for {what}")


class Daemon:
    """forkyard under a keeper, and whatever of it is left."""

    def __init__(self, program, directory, php, store=None):
        self.program, self.directory = program, directory
        self.keeper = None
        self.counts = collections.Counter()
        self.log = open(f"{directory}/log", "ab")
        script = prepare(directory) if store is None else f"{os.path.dirname(directory)}/job.php"
        store = store or f"{directory}/store/jobs.db"
        user = 'user = "www-data"\n' if os.getuid() == 0 else ""
        with open(f"{directory}/forkyard.toml", "w") as file:
            file.write(
                f'[global]\npid = "{directory}/pid"\ncontrol = "{directory}/control.sock"\nprocess_control_timeout = "5s"\n'
                f'[pool.www]\nlisten = {{ address = "{directory}/www.sock", mode = "0666" }}\n{user}pm = "static"\n'
                f'max_children = 4\nreload = "always"\n[pool.www.application]\nruntime = "php"\nversion = "{php}"\n'
                f'[jobs]\nstore = "{store}"\nmachine_timeout = "20s"\nlisten = "{directory}/jobs.sock"\ndurability = "normal"\n{user}'
                f'[jobs.queue.q]\npool = "www"\nscript = "{script}"\nattempts = 1000\ncrashes = 100\n'
                'backoff = { first = "5ms", factor = 1 }\n'
            )

    def start(self):
        # What is left of the one before may still let go of its sockets.
        for _ in range(100):
            self.keeper = subprocess.Popen(
                [self.program, "run", "--keeper", "-c", f"{self.directory}/forkyard.toml"],
                stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL,
            )
            ready = until("an answer of the control socket", lambda: self.command("ping") == 0 or (self.keeper.poll() is not None and 2))
            if ready != 2:
                return
            self.counts["a start that was refused"] += 1
            time.sleep(0.1)
        raise SystemExit("the daemon does not start")

    def command(self, *words):
        command = [self.program, *words, "-c", f"{self.directory}/forkyard.toml"]
        return subprocess.run(command, stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL, timeout=PATIENCE_SECONDS).returncode

    def master(self):
        try:
            with open(f"{self.directory}/pid") as file:
                pid = int(file.read())
        except (OSError, ValueError):
            return None
        return pid if runs(pid) else None

    def kill(self, *pids):
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for pid in pids:
            until("the end of a killed process", lambda: not runs(pid))
        if self.keeper:
            self.keeper.poll()

    def of(self, words):
        return [pid for pid, name in children(self.master() or 0) if words in name]

    def do(self, action):
        """Does it, if there is something to be done; sees to it that there is a daemon afterwards."""
        master = self.master()
        has_keeper = self.keeper.poll() is None
        if action == "worker":
            self.kill(random.choice(until("a worker", lambda: self.of("forkyard: pool www"))))
        elif action == "jobs":
            self.kill(*until("the process that keeps jobs", lambda: self.of("forkyard: jobs")))
        elif action in ("reload", "upgrade"):
            if self.command(action) != 0:
                action += " that was refused"
        elif action == "keeper":
            # One that is killed while a master starts leaves nothing that goes on, or two that want the same.
            if not has_keeper:
                return
            until("a well daemon", lambda: self.command("ping") == 0)
            self.kill(self.keeper.pid)
            self.keeper.wait()
        elif action == "master":
            self.kill(until("the master", self.master))
        elif action == "all":
            until("a well daemon", lambda: self.command("ping") == 0)
            self.kill(self.keeper.pid, self.master(), *self.of("forkyard: jobs"))
            self.keeper.wait()
        elif action == "both":
            # The keeper ends while the next master starts.
            if not has_keeper or not master:
                return
            self.kill(master)
            time.sleep(random.uniform(0, 0.4))
            self.kill(self.keeper.pid)
            self.keeper.wait()
            end = time.monotonic() + 2
            while time.monotonic() < end and self.command("ping") != 0:
                time.sleep(0.05)
        self.counts[action] += 1
        if self.keeper.poll() is not None and not self.master():
            self.start()
        elif action in ("master", "upgrade"):
            until("another master", self.master)

    def stop(self):
        master = self.master()
        if master:
            os.kill(master, signal.SIGTERM)
            until("the end of the daemon", lambda: not runs(master))
        if self.keeper.poll() is None:
            self.keeper.wait(PATIENCE_SECONDS)

    def push(self, count, prefix="k"):
        """Adds jobs, and says their numbers. What is not answered was perhaps added: keys make it known."""
        first = self.pushed = getattr(self, "pushed", 0)
        self.pushed += count
        jobs = [{"queue": "q", "kind": "k", "key": f"{prefix}{first + number}"} for number in range(count)]
        line = json.dumps({"command": "push", "jobs": jobs}).encode() + b"\n"

        def ask():
            try:
                with socket.socket(socket.AF_UNIX) as client:
                    client.settimeout(PATIENCE_SECONDS)
                    client.connect(f"{self.directory}/jobs.sock")
                    client.sendall(line)
                    answer = json.loads(client.makefile().readline() or "{}")
                    return answer.get("jobs")
            except (OSError, ValueError):
                return None

        return {job["id"] for job in until("an answer to a push", ask)}


def done(path):
    """How many jobs are in each state."""
    try:
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=10) as store:
            return dict(store.execute("SELECT state, count(*) FROM job GROUP BY state"))
    except sqlite3.OperationalError:
        return {}


def judge(directory, ids):
    """What is not as it has to be, and what is worth knowing."""
    with sqlite3.connect(f"file:{directory}/store/jobs.db?mode=ro", uri=True) as store:
        ends = {(job, attempt): outcome for job, attempt, outcome in store.execute("SELECT job, attempt, outcome FROM ended")}
        states = dict(store.execute("SELECT id, state FROM job"))
    return judge_by(directory, ids, ends, states)


def judge_by(directory, ids, ends, states):
    starts = collections.defaultdict(list)
    with open(f"{directory}/out/starts") as file:
        for line in file:
            job, attempt = line.split()
            starts[int(job)].append(int(attempt))
    try:
        with open(f"{directory}/out/overlaps") as file:
            overlaps = file.read().split("\n")[:-1]
    except OSError:
        overlaps = []
    wrong = {
        "missing": [job for job in ids if not starts.get(job) or states.get(job) != 3],
        "unknown": [job for job in starts if job not in ids],
        "at once": overlaps,
        "a start twice, or out of order": [job for job, made in starts.items() if any(a >= b for a, b in zip(made, made[1:]))],
        "again without an end": [
            (job, attempt) for job, made in starts.items() for attempt in made[:-1] if (job, attempt) not in ends
        ],
    }
    known = {
        "jobs": len(ids),
        "starts": sum(map(len, starts.values())),
        "started again": sum(len(made) > 1 for made in starts.values()),
        "ends": dict(collections.Counter(ends.values())),
    }
    return wrong, known


def arguments(description, count, pause, has_deeds=False):
    """Reads the arguments, and says what they are."""
    parser = argparse.ArgumentParser(description=description.split("\n")[0])
    parser.add_argument("count", type=int, nargs="?", default=count)
    parser.add_argument("--program", type=os.path.abspath, default=os.path.abspath("target/debug/forkyard"))
    parser.add_argument("--php", default=os.environ.get("FORKYARD_PHP", "8.2"))
    parser.add_argument("--pause", type=float, default=pause, help="seconds between two deeds, at most")
    if has_deeds:
        parser.add_argument("--deeds", help="the deeds, in order, with commas, in place of random ones")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    options = parser.parse_args()
    random.seed(options.seed)
    print(f"seed {options.seed}", flush=True)
    return options


@contextlib.contextmanager
def shown(daemons):
    """Shows what the daemons have said last, and kills them, if it goes wrong."""
    try:
        yield
    except BaseException:
        for daemon in daemons:
            with open(f"{daemon.directory}/log", errors="replace") as file:
                sys.stderr.write("".join(file.readlines()[-60:]))
            master, keeper = daemon.master(), daemon.keeper and daemon.keeper.pid
            sys.stderr.write(f"keeper {keeper}, master {master}: {children(master)}\n")
            daemon.kill(*filter(None, [keeper, master, *daemon.of("forkyard")]))
        raise


def main():
    options = arguments(__doc__, 100_000, 0.4, has_deeds=True)
    with tempfile.TemporaryDirectory(prefix="forkyard-soak-") as directory:
        os.chmod(directory, 0o755)
        daemon = Daemon(options.program, directory, options.php)
        begun = time.monotonic()
        with shown([daemon]):
            daemon.start()
            ids = run(daemon, options)
        daemon.stop()
        seconds = time.monotonic() - begun
        tell(*judge(directory, ids), daemon.counts, seconds)


def tell(wrong, known, counts, seconds):
    """Says how it went, and ends."""
    print(f"{known['jobs']} jobs, {known['starts']} starts, {known['started again']} jobs started again, {seconds:.0f} s")
    print("deeds: " + ", ".join(f"{count} {name}" for name, count in sorted(counts.items())))
    print("ends before another start: " + (", ".join(f"{count} {name}" for name, count in sorted(known["ends"].items())) or "none"))
    for name, found in wrong.items():
        print(f"{name}: {len(found)}{' ' + str(found[:10]) if found else ''}")
    sys.exit(any(wrong.values()))


def run(daemon, options):
    """Has the jobs done while things happen; says their numbers."""
    ids, left = set(), options.count
    deeds = options.deeds.split(",") if options.deeds else []
    # Jobs are there for each deed.
    batch = -(-options.count // len(deeds)) if deeds else 2_000
    last, since = None, time.monotonic()
    while True:
        if left:
            ids |= daemon.push(min(left, batch))
            left -= min(left, batch)
        states = done(f"{daemon.directory}/store/jobs.db")
        if states.get(3, 0) >= options.count and not left and not deeds:
            return ids
        if states != last:
            last, since = states, time.monotonic()
        if time.monotonic() - since > PATIENCE_SECONDS:
            raise SystemExit(f"nothing goes on: jobs by state {states}")
        time.sleep(random.uniform(0.02, options.pause))
        if deeds:
            daemon.do(deeds.pop(0))
        elif not options.deeds:
            names, weights = zip(*ACTIONS)
            daemon.do(random.choices(names, weights)[0])


if __name__ == "__main__":
    main()
