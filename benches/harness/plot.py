"""Rows as pictures: an SVG for each case, which a document can show and a browser can read aloud."""

from html import escape

from .table import figure

WIDTH = 860
LABEL = 330
BARS = 300
LINE = 46
HEAD = 58
STYLE = (
    "text{font:13px sans-serif;fill:#222}.title{font-weight:bold;font-size:15px}.small{font-size:11px;fill:#666}"
    ".own{fill:#2b6cb0}.other{fill:#b8c2cc}.bar{stroke:#c53030;stroke-width:2}"
    "@media(prefers-color-scheme:dark){text{fill:#ddd}.small{fill:#999}.own{fill:#63b3ed}.other{fill:#4a5568}}"
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
    """Two bars a row, forkyard's above; both are as long as their figures, and the longer one fills the width."""
    parts = []
    for index, row in enumerate(rows):
        top = HEAD + index * LINE
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
        verdict = "met" if row.met else "NOT MET"
        parts.append(text(WIDTH - 10, top + 16, f"{ratio}{row.must}: {verdict}", 'class="small" text-anchor="end"'))
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


def text(x, y, words, attributes=""):
    return f'<text x="{x:.1f}" y="{y}" {attributes}>{escape(words)}</text>\n'
