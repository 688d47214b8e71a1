"""What single requests cost a server's processes, in what can be counted: system calls, bytes, page faults, context switches."""

import contextlib
import ctypes
import os
import re
import statistics
import time
from pathlib import Path

from . import processes

# System calls that return how many bytes they have moved.
MOVING = {
    "read", "pread64", "readv", "preadv", "preadv2", "recvfrom", "recvmsg", "write", "pwrite64", "writev", "pwritev", "pwritev2", "sendto",
    "sendmsg", "sendfile", "splice", "tee", "copy_file_range",
}
# The worker reads its processor time now and then, not for each request.
BY_TIME = {"clock_gettime"}
CALL = re.compile(r"(\d+) +(\d+\.\d+) (<\.\.\. )?(\w+)")
RESULT = re.compile(r" = (\d+)$")
# What a server does when it has answered is the request's, too.
PAUSE_SECONDS = 0.005
# Of personality(2).
ASK, ADDR_NO_RANDOMIZE = 0xFFFFFFFF, 0x0040000
_libc = ctypes.CDLL(None)
PROCESSORS = sorted(os.sched_getaffinity(0))


@contextlib.contextmanager
def on_one_processor(index=0):
    """All that is started meanwhile takes turns with this process on one processor, and has its memory at the same addresses each time."""
    affinity = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {PROCESSORS[index % len(PROCESSORS)]})
    personality = _libc.personality(ASK)
    _libc.personality(personality | ADDR_NO_RANDOMIZE)
    try:
        yield
    finally:
        _libc.personality(personality)
        os.sched_setaffinity(0, affinity)


@contextlib.contextmanager
def first():
    """This process goes before all others there: what wakes it waits, and what it sends is there as a whole."""
    # Where that is forbidden, the figures are a little less steady.
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    try:
        yield
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def calls(bench, pids, client, count, threads=None):
    """System calls of one request by name, and the bytes that they move. `threads`: of these only."""
    output = bench.directory("strace")
    with processes.traced(pids, output, "-ttt", "-s", "0", "-e", "signal=none"), first():
        begun = []
        for _ in range(count):
            begun.append(time.time())
            client.ask()
            time.sleep(PAUSE_SECONDS)
        begun.append(time.time())
    # To be attached to interrupts a wait, and the first request of a kept connection makes it.
    return calls_between(output.read_text(), begun[2:], threads)


def calls_between(trace, times, threads=None):
    """What is usual in the spans between these times."""
    spans = [{} for _ in times[1:]]
    moved = [0] * len(spans)
    for line in trace.splitlines():
        if not (found := CALL.match(line)):
            continue
        thread, at, resumed, name = found.groups()
        if threads and int(thread) not in threads:
            continue
        index = sum(1 for begun in times if begun <= float(at)) - 1
        if not 0 <= index < len(spans) or name in BY_TIME:
            continue
        if not resumed:
            spans[index][name] = spans[index].get(name, 0) + 1
        if name in MOVING and (result := RESULT.search(line)):
            moved[index] += int(result.group(1))
    names = sorted({name for span in spans for name in span})
    counts = {name: usual([span.get(name, 0) for span in spans]) for name in names}
    return {name: count for name, count in counts.items() if count}, usual(moved)


def usual(values):
    """The mean of the middle half: what happens once in a while has no part in it, what happens every other time has."""
    mean = round(statistics.fmean(sorted(values)[len(values) // 4 : -(len(values) // 4) or None]), 1)
    return int(mean) if mean.is_integer() else mean


def faults_and_switches(pids, client, count):
    """Page faults, and context switches because there was nothing to do, of one request."""
    faults, switches = [], []
    with first():
        client.ask()
        time.sleep(PAUSE_SECONDS)
        before = _faults(pids), _switches(pids)
        for _ in range(count):
            client.ask()
            time.sleep(PAUSE_SECONDS)
            after = _faults(pids), _switches(pids)
            faults.append(after[0] - before[0])
            switches.append(after[1] - before[1])
            before = after
    return usual(faults), usual(switches)


def _faults(pids):
    fields = (Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split() for pid in pids)
    # Minor ones and those that read from a disk.
    return sum(int(words[7]) + int(words[9]) for words in fields)


def _switches(pids):
    total = 0
    for pid in pids:
        for task in os.listdir(f"/proc/{pid}/task"):
            text = Path(f"/proc/{pid}/task/{task}/status").read_text()
            total += int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)", text, re.M).group(1))
    return total
