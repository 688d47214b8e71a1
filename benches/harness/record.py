"""benches/counts.json: what requests cost when it was last said why, and what of it can be compared with a run."""

import json
import os
import re
import subprocess
from pathlib import Path

from .needs import PHP_VERSION
from .servers import PROGRAMS, ROOT
from .table import Row, figure

FILE = ROOT / "benches/counts.json"
# What a figure may differ by.
MOST = 0.02
# What libc and PHP choose their code by.
FEATURES = {"sse4_2", "avx", "avx2", "bmi2", "erms", "fsrm", "movbe", "avx512f", "avx512bw", "avx512vl", "rtm"}
# A call that is made now and then is no change.
LEAST_CALLS = 0.5
# The sum of what is compared by name; and what other load changes, too.
NEVER = {"system calls", "page faults", "context switches"}
# The figures of libc's and PHP's code.
FOREIGN = {"instructions, PHP", "instructions, libc", "bytes copied by libc"}
KEY = f"{PROGRAMS.name}, PHP {PHP_VERSION}"


def built_with():
    """What instructions depend on beside forkyard's source."""
    compiler = re.search(rb"rustc version [\d.]+ \([^)]*\)", (PROGRAMS / "forkyard-php").read_bytes())
    processor = Path("/proc/cpuinfo").read_text()
    flags = re.search(r"^flags\s*:(.*)$", processor, re.M)
    vendor = re.search(r"^vendor_id\s*: (.*)$", processor, re.M)
    return {
        "compiler": compiler.group().decode() if compiler else "",
        "PHP": _package(f"libphp{PHP_VERSION}-embed"),
        "libc": _package("libc6"),
        "processor": " ".join([vendor.group(1) if vendor else "", *sorted(FEATURES & set(flags.group(1).split() if flags else []))]),
    }


def _package(name):
    return subprocess.run(["dpkg-query", "-W", "-f", "${Version}", name], check=True, capture_output=True, text=True).stdout


def rows(figures):
    """A row for each figure of each kind of request, beside the file's. What is not compared is said once."""
    recorded, now = _read().get(KEY), built_with()
    if recorded is None:
        print(f"counts: nothing is compared: {FILE.name} has no figures of {KEY}")
    before = (recorded or {}).get("built with", now)
    changed = [name for name in now if now[name] != before[name]]
    left_out = dict.fromkeys(NEVER)
    if "compiler" in changed:
        left_out["instructions, forkyard"] = None
    if set(changed) - {"compiler"}:
        left_out |= dict.fromkeys(sorted(FOREIGN))
    for name in changed:
        print(f"counts: {name} was {before[name]}, is {now[name]}")
    if changed:
        print(f"counts: not compared: {', '.join(name for name in left_out if name not in NEVER)}")
    differ = False
    for kind, counted in figures.items():
        olds = (recorded or {}).get("counts", {}).get(kind, {})
        for name, value in _rows(counted, olds):
            row = _row(kind, name, value, _flat(olds).get(name, 0 if olds else None), name in left_out)
            differ = differ or not row.met
            yield row
    if differ:
        print(f"counts: if that is meant: FORKYARD_PROGRAMS={os.path.relpath(PROGRAMS, ROOT)} scripts/bench counts --write 'the reason'")


def _rows(counted, olds):
    """All figures; a system call by itself only where it has changed. A quick run leaves some out."""
    new, old = _flat(counted), _flat(olds)
    for name in [*new, *(name for name in old if name not in new and name.startswith("system calls, "))]:
        if not name.startswith("system calls, ") or (olds and _has_changed(name, new.get(name, 0), old.get(name, 0))):
            yield name, new.get(name, 0)


def _flat(counted):
    flat = {}
    for name, value in counted.items():
        if not isinstance(value, dict):
            flat[name] = value
            continue
        if name == "system calls":
            flat[name] = round(sum(value.values()), 1)
        flat |= {f"{name}, {part}": count for part, count in value.items()}
    return flat


def _row(kind, name, value, old, is_left_out):
    is_compared = old is not None and not is_left_out
    met = not is_compared or not _has_changed(name, value, old)
    ratio = value / old if old else None
    row = Row(f"{kind}: {name}", value, old, "", f"± {MOST:.0%}" if is_compared else "", met, ratio)
    if not met:
        print(f"counts: changed: {row.work}: {figure(old, '')} -> {figure(value, '')}")
    return row


def _has_changed(name, new, old):
    least = LEAST_CALLS if name.startswith("system calls, ") else 0
    return abs(new - old) > max(MOST * abs(old), least)


def renew(figures, reason):
    """Puts figures into the file, with the reason why they have changed."""
    told = _read() | {KEY: {"reason": reason, "built with": built_with(), "counts": figures}}
    text = json.dumps(told, indent=2, ensure_ascii=False)
    # The parts of a figure are a line.
    part = r'"[^"]*": [\d.]+'
    text = re.sub(rf"(?<=: )\{{\n +({part}(?:,\n +{part})*)\n +\}}", lambda parts: "{" + re.sub(r"\n +", " ", parts.group(1)) + "}", text)
    FILE.write_text(text + "\n")
    if owner := os.environ.get("SUDO_UID"):
        os.chown(FILE, int(owner), int(os.environ["SUDO_GID"]))


def _read():
    return json.loads(FILE.read_text()) if FILE.exists() else {}
