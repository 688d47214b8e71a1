"""Rows as pictures: an SVG for each case, which a document can show and a browser can read aloud."""

import math
from html import escape

from .table import figure

WIDTH = 860
LABEL = 330
BARS = 300
LINE = 46
HEAD = 58
STYLE = (
    "text{font:13px sans-serif;fill:#222}.title{font-weight:bold;font-size:15px}.small{font-size:11px;fill:#666}"
    ".own{fill:#2b6cb0}.line{fill:none;stroke:#2b6cb0;stroke-width:2}.past{fill:none;stroke:#8a97a5;stroke-width:2}.other{fill:#b8c2cc}.bar{stroke:#c53030;stroke-width:2}"
    "@media(prefers-color-scheme:dark){text{fill:#ddd}.small{fill:#999}.own{fill:#63b3ed}.line{stroke:#63b3ed}.past{stroke:#a0aec0}.other{fill:#4a5568}}"
)


def write(rows, about, directory):
    """Writes CASE.svg for each case that has figures; says which files."""
    directory.mkdir(parents=True, exist_ok=True)
    cases = {}
    for row in rows:
        cases.setdefault(row.case, []).append(row)
    for case, own in cases.items():
        path = directory / f"{case}.svg"
        path.write_text(picture(case, own, about))
        yield path


def picture(case, rows, about):
    """Two bars a row, forkyard's above; both are as long as their figures, and the longer one fills the width. A line for points."""
    parts = []
    for index, row in enumerate(rows):
        top = HEAD + index * LINE
        if points := row.rounds.get("points"):
            parts += _line(row, points, top)
            continue
        if seconds := row.rounds.get("seconds"):
            parts += _course(row, seconds, top)
            continue
        # What can't be compared has one bar.
        longest = max(abs(row.forkyard), abs(row.php_fpm or 0)) or 1
        parts.append(text(LABEL - 12, top + 16, row.work, 'text-anchor="end"'))
        for at, value, name in ((0, row.forkyard, "own"), (15, row.php_fpm, "other")):
            if value is None:
                continue
            length = max(abs(value) / longest * BARS, 1)
            parts.append(f'<rect class="{name}" x="{LABEL}" y="{top + at}" width="{length:.1f}" height="13"/>')
            parts.append(text(LABEL + length + 6, top + at + 11, figure(value, row.unit), 'class="small"'))
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}; "
        parts.append(_verdict(row, top, ratio))
    height = HEAD + len(rows) * LINE
    quick = "; a quick run, not to be quoted" if about.get("quick") else ""
    said = f"{about['forkyard']}; {about['machine']}; load average {about['load_before']} before, {about['load_after']} after{quick}"
    summary = "; ".join(f"{row.work}: {figure(row.forkyard, row.unit)}, other {figure(row.php_fpm, row.unit)}" for row in rows)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">'
        f"<title>{escape(case)}: forkyard (above) and what it is beside</title><desc>{escape(summary)}</desc><style>{STYLE}</style>\n"
        + text(10, 22, f"{case}: forkyard above, beside it below", 'class="title"')
        + text(10, 40, said, 'class="small"')
        + "".join(parts)
        + "</svg>\n"
    )


def _line(row, points, top):
    """Figures over sizes, which are a decade apart at equal distances; the bottom is zero."""
    decades = math.log10(points[-1][0]) or 1
    highest = max(value for _, value in points) or 1
    places = [(LABEL + math.log10(size) / decades * BARS, top + 30 - value / highest * 24) for size, value in points]
    yield text(LABEL - 12, top + 16, row.work, 'text-anchor="end"')
    yield f'<polyline class="line" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in places)}"/>'
    for (x, y), (size, value) in zip(places, points, strict=True):
        yield f'<circle class="own" cx="{x:.1f}" cy="{y:.1f}" r="3"/>'
        yield text(x + 6, top + 42, f"{size:,}: {figure(value, '')}", 'class="small"')
    yield _verdict(row, top, f"{figure(row.forkyard, row.unit)}; ")


def _course(row, seconds, top):
    """Counts by the second, forkyard's in its colour, from left to right."""
    highest = max(map(max, seconds.values())) or 1
    for name, counts in seconds.items():
        # Means of five seconds: single ones are ragged.
        means = [sum(counts[max(at - 4, 0) : at + 1]) / min(at + 1, 5) for at in range(len(counts))]
        places = (f"{LABEL + at / len(means) * BARS:.1f},{top + 32 - value / highest * 30:.1f}" for at, value in enumerate(means))
        yield f'<polyline class="{"line" if name == "forkyard" else "past"}" points="{" ".join(places)}"/>'
    yield text(LABEL - 12, top + 16, row.work, 'text-anchor="end"')
    yield _verdict(row, top, f"{figure(row.forkyard, row.unit)}, {figure(row.php_fpm, row.unit)}; ")


def _verdict(row, top, before):
    verdict = f"{row.must}: met" if row.met and row.must else row.must and f"{row.must}: NOT MET"
    return text(WIDTH - 10, top + 16, before + verdict, 'class="small" text-anchor="end"')


def text(x, y, words, attributes=""):
    return f'<text x="{x:.1f}" y="{y}" {attributes}>{escape(words)}</text>\n'
