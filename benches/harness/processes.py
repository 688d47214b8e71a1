"""Processes as /proc and strace show them."""

import contextlib
import os
import re
import signal
import struct
import subprocess
import time
from pathlib import Path

PATIENCE_SECONDS = 120


def descendants(pid):
    """The process and all below it."""
    found = [pid]
    for parent in found:
        with contextlib.suppress(OSError):
            for task in os.listdir(f"/proc/{parent}/task"):
                text = Path(f"/proc/{parent}/task/{task}/children").read_text()
                found += [int(child) for child in text.split()]
    return found


def title(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode(errors="replace")
    except OSError:
        return ""


def state(pid):
    """The letter that the kernel has for what a process does, as S for a wait."""
    return Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0]


def wait_until_idle(pid):
    """It sleeps, and has used no time of a processor meanwhile."""
    seen = []

    def is_idle():
        seen[:] = [*seen[-1:], (state(pid), cpu_seconds([pid]))]
        return seen[0] == seen[-1] and len(seen) > 1 and seen[0][0] == "S"

    wait(is_idle)


def wait(condition):
    end = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > end:
            raise RuntimeError(f"nothing has come of a wait of {PATIENCE_SECONDS} s")
        time.sleep(0.005)


def pss_mib(pids):
    """Sum of the proportional set sizes: a page that n processes share counts 1/n in each."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            found = re.search(r"^Pss:\s+(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.M)
            total += int(found.group(1)) if found else 0
    return total / 1024


def whole_memory_mib(pids):
    """PSS, shared memory that the processes hold and have not mapped, and page tables."""
    kilobytes, mapped, held = 0, 0, {}
    for pid in pids:
        with contextlib.suppress(OSError):
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
            fields = {name: int(value) for name, value in re.findall(r"^(\w+):\s+(\d+) kB", rollup, re.M)}
            tables = re.search(r"^VmPTE:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.M)
            kilobytes += fields["Pss"] + (int(tables.group(1)) if tables else 0)
            mapped += fields.get("Pss_Shmem", 0)
            for fd in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    if os.readlink(f"/proc/{pid}/fd/{fd}").startswith("/memfd:"):
                        about = os.stat(f"/proc/{pid}/fd/{fd}")
                        held[about.st_dev, about.st_ino] = about.st_blocks // 2
    return (kilobytes + max(0, sum(held.values()) - mapped)) / 1024


def family_cpu_seconds(pid):
    """Processor time of a process, of the children that it has reaped, and of all that live below it."""
    words = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
    ticks = sum(int(word) for word in words[11:15])
    return ticks / os.sysconf("SC_CLK_TCK") + cpu_seconds(descendants(pid)[1:])


def cpu_seconds(pids):
    """Time on a processor so far, to the nanosecond where getrusage(2) would round."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            for task in os.listdir(f"/proc/{pid}/task"):
                total += int(Path(f"/proc/{pid}/task/{task}/schedstat").read_text().split()[0])
    return total / 1e9


def listening_sockets(directory):
    """How many unix sockets below a directory are listening, without connecting to any."""
    accepting = "00010000"
    lines = Path("/proc/net/unix").read_text().splitlines()[1:]
    fields = (line.split() for line in lines)
    return sum(1 for f in fields if len(f) == 8 and f[3] == accepting and f[7].startswith(str(directory)))


@contextlib.contextmanager
def awake():
    """Keeps the processors from halting while the block runs, where the kernel can be asked to (PM QoS).

    A virtual processor that has halted takes tens of microseconds to wake, several times what the smallest request
    takes, and whether it halts between two requests is a matter of luck. Asked for no latency at all, it polls.
    """
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            wish = stack.enter_context(open("/dev/cpu_dma_latency", "wb", buffering=0))
            wish.write(struct.pack("i", 0))
        yield


@contextlib.contextmanager
def traced(pids, output, *options):
    """Runs strace on processes and on what they start while the block runs."""
    attach = [word for pid in pids for word in ("-p", str(pid))]
    command = ["strace", "-f", "-q", "-o", str(output), *options, *attach]
    strace = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 10
        while not all(_is_traced(pid) for pid in pids):
            if strace.poll() is not None or time.monotonic() > end:
                raise RuntimeError("strace can't attach")
            time.sleep(0.01)
        yield
    finally:
        if strace.poll() is None:
            strace.send_signal(signal.SIGINT)
        strace.wait(10)


def _is_traced(pid):
    return "TracerPid:\t0\n" not in Path(f"/proc/{pid}/status").read_text()


def calls_of_idle(pids, output, seconds):
    """How many system calls processes make in so many seconds in which nothing is asked of them."""
    with traced(pids, output, "-ttt"):
        # To be attached to interrupts a wait, which is then begun again.
        time.sleep(0.5)
        begun = time.time()
        time.sleep(seconds)
        ended = time.time()
    times = (float(line.split()[1]) for line in Path(output).read_text().splitlines())
    return sum(1 for at in times if begun <= at < ended)


def calls_counted(summary):
    """Counts of system calls from the table of `strace -c`."""
    counts = {}
    for line in Path(summary).read_text().splitlines():
        words = line.split()
        if len(words) >= 5 and re.fullmatch(r"[\d.]+", words[0]) and words[-1] != "total":
            counts[words[-1]] = int(words[3])
    return counts
