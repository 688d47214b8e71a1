"""forkyard-php under valgrind: instructions of a request by what they belong to (callgrind), and bytes that libc copies (dhat).

Its options are in a file that it finds by HOME: a worker's title takes the place of its arguments.
"""

import json
import os
import re
import shutil
import signal
import statistics
import struct
from collections import Counter

from . import counting, processes
from .servers import PROGRAMS, Forkyard

REAL = "forkyard-php.real"
FEW = 2
OWNERS = ("forkyard", "PHP", "libc")
LIBC = re.compile(r"(libc|libm|libpthread|libdl|librt|libresolv|ld-linux[\w-]*)\.so")



def server(bench, tool, *options):
    """A kind of server whose workers run under a tool of valgrind. What the tool writes is in `output`, by process."""
    directory = bench.directory(tool)
    output = directory / "output"
    output.mkdir(parents=True)
    directory.chmod(0o755)
    output.chmod(0o777)
    shutil.copy(PROGRAMS / "forkyard", directory)
    shutil.copy(PROGRAMS / "forkyard-php", directory / REAL)
    _place_shim(directory)
    (directory / ".valgrindrc").write_text("\n".join(["-q", "--vgdb=no", f"--{tool}:{tool}-out-file={output}/%p", *options]) + "\n")
    wrapper = directory / "forkyard-php"
    wrapper.write_text(f'#!/bin/sh\nHOME={directory} exec valgrind --tool={tool} {directory}/{REAL} "$@"\n')
    wrapper.chmod(0o755)
    return type("Valgrind", (Forkyard,), {"name": tool, "programs": directory, "output": output})


def _place_shim(directory):
    """A shim that is built in has no name in memory. As a file it comes first."""
    if (PROGRAMS / "php").is_dir():
        shutil.copytree(PROGRAMS / "php", directory / "php")
        return
    program = (directory / REAL).read_bytes()
    (directory / "php").mkdir()
    for found in re.finditer(rb"(?<!^)\x7fELF\x02\x01\x01", program):
        at = found.start()
        (sections,), (size, count) = struct.unpack_from("<Q", program, at + 40), struct.unpack_from("<HH", program, at + 58)
        shim = program[at : at + sections + size * count]
        version, api = re.search(rb"\0(\d+\.\d+)\.\d+\0", shim).group(1), re.search(rb"API(\d{8})", shim).group(1)
        (directory / f"php/{version.decode()}-{api.decode()}.so").write_bytes(shim)


def instructions(running, pool, client, warm_up, count):
    """Medians of what single requests execute, by what it belongs to. Callgrind writes down its sums before a call that each makes."""
    pid = worker(running, pool)
    costs, seen = [], len(_dumps(running, pid))
    for number in range(warm_up + count):
        with counting.first():
            client.ask()
        processes.wait_until_idle(pid)
        dumps = _dumps(running, pid)
        if number >= warm_up:
            costs.append(sum((_by_owner(dump) for dump in dumps[seen:]), Counter()))
        seen = len(dumps)
    return {owner: round(statistics.median(cost[owner] for cost in costs)) for owner in OWNERS}


def _dumps(running, pid):
    """Those of the first thread, if they are apart. They are numbered from 1 on."""
    names = (re.fullmatch(rf"{pid}\.(\d+)(-0*1)?", path.name) for path in running.output.iterdir())
    return [running.output / name.group() for name in sorted(filter(None, names), key=lambda name: int(name.group(1)))]


def _by_owner(dump):
    """Callgrind's format: lines of costs below the object that they are of. A call's costs are told where they arise."""
    names, owner, is_call, costs = {}, None, False, Counter()
    with dump.open(errors="replace") as lines:
        for line in lines:
            if found := re.match(r"(c?)ob=\((\d+)\)(?: (.*))?", line):
                call, number, name = found.groups()
                if name:
                    names[number] = owner_of(name)
                if not call:
                    owner = names[number]
            elif line.startswith("calls="):
                is_call = True
            elif line[0] in "+-*0123456789":
                if not is_call:
                    costs[owner] += int(line.split()[1])
                is_call = False
    return costs


def owner_of(path):
    """Whose code a file of a process has."""
    if "forkyard-php" in path.rsplit("/", 1)[-1] or re.search(r"/php/\d+\.\d+-\d+\.so$", path):
        return "forkyard"
    # Times are read without the kernel, by code that it puts there for libc.
    return "libc" if path == "[vdso]" or LIBC.match(path.rsplit("/", 1)[-1]) else "PHP"


def copied(running, pool, clients):
    """Bytes that libc's functions copy for one request, for each of several clients and how many requests it sends.

    A process tells when it ends. The first worker compiles all scripts, the second answers a few requests of each client, and
    those after it the same and many of one client. The difference is told. forkyard takes a preloader's eighth worker that
    is killed for its fault, and starts another preloader.
    """
    totals = []
    for many in (None, None, *clients):
        pid = worker(running, pool)
        for client in clients:
            for _ in range(FEW + (clients[client] if client is many else 0)):
                with counting.first():
                    client.ask()
            client.close()
        processes.wait_until_idle(pid)
        os.kill(pid, signal.SIGTERM)
        processes.wait(lambda: not processes.title(pid))
        totals.append(sum(place["tb"] for place in json.loads((running.output / str(pid)).read_text())["pps"]))
    base = totals[1]
    return [round((total - base) / many) for total, many in zip(totals[2:], clients.values(), strict=True)]


def worker(running, pool):
    """The only worker of a pool."""
    found = []

    def is_there():
        found[:] = [pid for pid in running.workers() if processes.title(pid).endswith(f": pool {pool}")]
        return found

    processes.wait(is_there)
    return found[0]
