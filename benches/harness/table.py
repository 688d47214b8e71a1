"""Rows of the table, and how they are told."""

import json
from dataclasses import asdict, dataclass, field


@dataclass
class Row:
    """A figure of both servers, and what forkyard's must be."""

    work: str
    forkyard: float
    php_fpm: float | None
    unit: str
    must: str
    met: bool
    ratio: float | None = None
    note: str = ""
    rounds: dict = field(default_factory=dict)
    # Whose row it is.
    case: str = ""

    def cells(self):
        return [
            self.work,
            figure(self.forkyard, self.unit),
            figure(self.php_fpm, self.unit),
            "" if self.ratio is None else f"{self.ratio:.2f}",
            self.must,
            "yes" if self.met else "NO",
        ]


HEAD = ["work", "forkyard", "php-fpm", "ratio", "must show", "met?"]


def figure(value, unit):
    if value is None:
        return "-"
    digits = 0 if abs(value) >= 1000 or value == int(value) else 1 if abs(value) >= 20 else 2
    separator = "" if unit == "%" else " "
    return f"{value:,.{digits}f}{separator}{unit}".rstrip().replace(",", " ")


def at_least(comparison, bar, **rest):
    """A row for requests a second."""
    cpu = comparison.number(1)
    return Row(
        forkyard=comparison.forkyard,
        php_fpm=comparison.php_fpm,
        unit="/s",
        ratio=comparison.ratio,
        must=f"≥ {bar} x",
        met=comparison.ratio >= bar,
        note=f"workers' CPU time for a request: {cpu[0]:.1f} µs, php-fpm {cpu[1]:.1f} µs, ratio {cpu[2]:.2f}",
        rounds=comparison.rounds,
        **rest,
    )


def processor_time(comparison, work, most):
    """A row for the workers' processor time for a request."""
    forkyard, php_fpm, ratio = comparison.number(1)
    return Row(f"{work}: CPU time", forkyard, php_fpm, "µs", f"≤ {most} x", ratio <= most, ratio)


def latencies(comparison, work):
    """Rows for the median latency and that which one request in a hundred exceeds: neither may be worse."""
    for name, index in (("p50", 2), ("p99", 3)):
        forkyard, php_fpm, ratio = comparison.number(index)
        yield no_more(f"{work}: {name}", forkyard, php_fpm, "µs", ratio)


def no_more(work, forkyard, php_fpm, unit, ratio=None, **rest):
    """A row for what costs: no more of it than php-fpm."""
    ratio = forkyard / php_fpm if ratio is None else ratio
    return Row(work, forkyard, php_fpm, unit, "≤ 1 x", ratio <= 1, ratio, **rest)


def as_text(rows):
    cells = [HEAD] + [row.cells() for row in rows]
    widths = [max(len(line[i]) for line in cells) for i in range(len(HEAD))]
    rights = {1, 2, 3}

    def line(words):
        columns = enumerate(zip(words, widths, strict=True))
        padded = (word.rjust(width) if i in rights else word.ljust(width) for i, (word, width) in columns)
        return "| " + " | ".join(padded) + " |"

    rule = "|" + "|".join("-" * (width + 1) + (":" if i in rights else "-") for i, width in enumerate(widths)) + "|"
    notes = [f"{row.work}: {row.note}" for row in rows if row.note]
    return "\n".join([line(cells[0]), rule, *map(line, cells[1:]), "", *notes])


def from_json(text):
    """What as_json has written: the rows, and what is said about all."""
    about = json.loads(text)
    return [Row(**row) for row in about.pop("rows")], about


def as_json(rows, about):
    return json.dumps(about | {"rows": [asdict(row) for row in rows]}, indent=2, ensure_ascii=False) + "\n"
