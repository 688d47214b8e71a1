"""Instructions of a request, counted one by one (ptrace(2)): slow, exact, and possible where valgrind is not."""

import bisect
import ctypes
import os
import re
import signal
import threading
import time
from collections import Counter
from pathlib import Path

from . import processes
from .valgrind import owner_of

PEEKUSER, SINGLESTEP, DETACH, SEIZE, INTERRUPT = 3, 9, 17, 0x4206, 0x4207
# Offset of the instruction pointer on x86-64.
POINTER = 16 * 8
PAGE = 12
WALL = 0x40000000
# Ends the count. Without the tracer it does nothing.
ENOUGH = signal.SIGWINCH

_libc = ctypes.CDLL(None, use_errno=True)
_ptrace = _libc.ptrace
_ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_ptrace.restype = ctypes.c_long


def instructions(pid, client, count):
    """What single requests execute, by what it belongs to: all from one wait for a request to the next."""
    executed, until = Counter(), []
    # A kept connection is made.
    client.ask()
    asking = threading.Thread(target=_ask, args=(pid, client, count, lambda: until.append(Counter(executed))))
    _call(SEIZE, pid)
    _call(INTERRUPT, pid)
    os.waitpid(pid, WALL)
    asking.start()
    passed = 0
    while True:
        _call(SINGLESTEP, pid, passed)
        _, status = os.waitpid(pid, WALL)
        stopped = os.WSTOPSIG(status)
        if stopped == ENOUGH:
            break
        passed = 0 if stopped == signal.SIGTRAP else stopped
        executed[_ptrace(PEEKUSER, pid, POINTER, None) >> PAGE] += 1
    asking.join()
    _call(DETACH, pid)
    return [_by_owner(pid, after - before) for before, after in zip(until, until[1:])]


def _ask(pid, client, count, waits):
    # The tracer has interrupted a wait, after which comes another.
    processes.wait_until_idle(pid)
    waits()
    for _ in range(count):
        client.ask()
        processes.wait_until_idle(pid)
        waits()
    os.kill(pid, ENOUGH)


def _call(request, pid, data=0):
    if _ptrace(request, pid, None, data) < 0:
        raise OSError(ctypes.get_errno(), f"ptrace of {pid}")


def _by_owner(pid, pages):
    mapped = re.findall(r"^([0-9a-f]+)-([0-9a-f]+) \S+ \S+ \S+ \S+ *(.*)$", Path(f"/proc/{pid}/maps").read_text(), re.M)
    starts = [int(start, 16) >> PAGE for start, _, _ in mapped]
    costs = Counter()
    for page, count in pages.items():
        index = bisect.bisect_right(starts, page) - 1
        costs[owner_of(mapped[index][2])] += count
    return costs
