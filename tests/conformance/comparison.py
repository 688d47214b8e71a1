"""Whether two servers gave the same answer, chance apart."""

import re

# What differs from one run of a script to the next: ids of sessions, names of temporary files, addresses, times, numbers.
CHANCE = [
    (re.compile(rb"PHPSESSID=[^;\r\n&\"']*"), b"PHPSESSID=S"),
    (re.compile(rb"/tmp/php[A-Za-z0-9]{6}"), b"/tmp/phpX"),
    (re.compile(rb"(?<![A-Za-z0-9])[a-z0-9,-]{26,32}(?![A-Za-z0-9])"), b"SID"),
    (re.compile(rb"0x[0-9a-f]{6,16}"), b"ADDRESS"),
    (re.compile(rb"\b[0-9a-f]{13,64}\b"), b"HEX"),
    (re.compile(rb"(?m)^(Date|Last-Modified|Expires):.*$"), rb"\1"),
    (re.compile(rb"\d[\d.,:E+-]*"), b"N"),
]
# forkyard-fpm's answer to a request that takes too long; php-fpm closes the connection.
TIME_IS_UP = b"Status: 504 "


def compare(tries, is_sequence):
    """What there is to say of some tries, each an answer of the reference and one of the other: a verdict, and in what
    they differ. In a sequence numbers may differ from the start: they may count what the worker has done so far."""
    first, second = tries[-1]
    if first.whole() == second.whole():
        return "same" if len(tries) == 1 else "same at another try", None
    if not first.out and first.how != "end" and second.out.startswith(TIME_IS_UP):
        return "no answer in time", None
    if is_sequence and without_chance(first) == without_chance(second):
        return "same but for numbers", None
    references = {answer.whole() for answer, _ in tries}
    others = {answer.whole() for _, answer in tries}
    if references & others:
        return "same at another try", None
    if len(references) > 1:
        if {without_chance(answer) for answer, _ in tries} & {without_chance(answer) for _, answer in tries}:
            return "same but for what varies in php-fpm too", None
        if len(tries) > 1 and len({without_chance(answer) for answer, _ in tries}) > 1:
            return "varies in php-fpm", None
    return "different", cause(first, second)


def without_chance(answer):
    out, err, end, how = answer.whole()
    for pattern, by in CHANCE:
        out, err = pattern.sub(by, out), pattern.sub(by, err)
    return (out, err, end, how)


def cause(first, second):
    if first.how != second.how:
        return f"ends by {first.how} / {second.how}"
    if first.end != second.end:
        return f"end record {first.end.hex()} / {second.end.hex()}"
    (here, _, here_body), (there, _, there_body) = (answer.out.partition(b"\r\n\r\n") for answer in (first, second))
    if here != there:
        is_order = sorted(here.split(b"\r\n")) == sorted(there.split(b"\r\n"))
        return "order of headers" if is_order else "headers"
    return "body" if here_body != there_body else "standard error"
