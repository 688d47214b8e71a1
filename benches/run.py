"""Compares forkyard with php-fpm on this machine. Started by scripts/bench."""

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from cases import CASES
from harness import plot, table
from harness.bench import SCRIPTS, Bench, load_average
from harness.servers import PHP_FPM, PROGRAMS


def main():
    arguments = parse()
    cases = [CASES[name] for name in arguments.cases or CASES]
    if arguments.needs:
        name = arguments.needs.upper()
        # A case may need less for a quick run.
        quick = f"{name}_QUICK" if arguments.quick else name
        needs = {need: None for case in cases for need in getattr(case, quick, getattr(case, name))}
        return print(*needs)
    if arguments.figures:
        rows, about = table.from_json(arguments.figures.read_text())
        return print(*plot.write(rows, about, arguments.plot), sep="\n")
    with tempfile.TemporaryDirectory(prefix="forkyard-bench-") as work:
        os.chmod(work, 0o755)
        bench = Bench(work, arguments.quick, arguments.write)
        shutil.copytree(SCRIPTS, bench.scripts)
        about = {"machine": machine(), "programs": PROGRAMS.name, "forkyard": version(), "quick": arguments.quick, "load_before": load_average()}
        print(f"{about['machine']}; load average {about['load_before']}", file=sys.stderr)
        rows, broken = [], []
        for name in arguments.cases or CASES:
            print(f"{name}: {CASES[name].__doc__.splitlines()[0]}", file=sys.stderr)
            try:
                # One by one: those before a failure are measured.
                for row in CASES[name].run(bench):
                    row.case = name
                    rows.append(row)
            except (RuntimeError, OSError, subprocess.SubprocessError) as error:
                print(f"{name}: {error}", file=sys.stderr)
                broken.append(name)
        about["load_after"] = load_average()
    print(table.as_text(rows))
    print(f"{about['machine']}; load average {about['load_before']} before, {about['load_after']} after")
    print(f"programs: {PROGRAMS}")
    if arguments.json:
        arguments.json.write_text(table.as_json(rows, about))
    if arguments.plot:
        print(*plot.write(rows, about, arguments.plot), sep="\n")
    if broken:
        sys.exit(f"could not be measured: {', '.join(broken)}")
    if missed := [f"{row.case}: {row.work}" for row in rows if not row.met]:
        sys.exit("\n".join(["not shown:", *missed]))


def parse():
    names = "\n".join(f"  {name:<10} {module.__doc__.splitlines()[0]}" for name, module in CASES.items())
    parser = argparse.ArgumentParser(
        prog="scripts/bench",
        description="Runs forkyard and Debian's php-fpm side by side on the same work and prints one table.\n"
        "Exit code: 0 if all that must be shown is shown, else 1.",
        epilog=f"cases:\n{names}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("cases", nargs="*", metavar="CASE", help="what to run; everything if none is named")
    parser.add_argument("--quick", action="store_true", help="shorter and fewer rounds: to see that it works")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    parser.add_argument("--plot", type=Path, metavar="DIRECTORY", help="write a picture (SVG) for each case there")
    parser.add_argument("--write", metavar="REASON", help="renew benches/counts.json, and say there why (with the case counts)")
    parser.add_argument("--from", type=Path, metavar="FILE", dest="figures", help="measure nothing: plot what --json has written")
    # Asked by scripts/bench: what the cases need of these.
    parser.add_argument("--needs", choices=["packages", "builds"], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.figures and not arguments.plot:
        parser.error("--from needs --plot DIRECTORY")
    if arguments.write is not None and not (arguments.write.strip() and "counts" in arguments.cases and not arguments.quick):
        parser.error("--write needs a reason and the case counts, without --quick")
    unknown = [name for name in arguments.cases if name not in CASES]
    if unknown:
        parser.error(f"no such case: {', '.join(unknown)}")
    return arguments


def machine():
    about = [f"{os.cpu_count()} processors", f"Linux {platform.release()}"]
    if Path(PHP_FPM).exists():
        php = subprocess.run([PHP_FPM, "-v"], capture_output=True, text=True, check=True)
        about.append(php.stdout.split("(")[0].strip())
    return ", ".join(about)


def version():
    """What is measured: version and commit."""
    said = subprocess.run([PROGRAMS / "forkyard", "--version"], capture_output=True, text=True, check=True)
    return said.stdout.splitlines()[0]


if __name__ == "__main__":
    main()
