"""Visitors of a site behind nginx: each kind comes at a rate, from addresses of its own, and leaves when its patience is over."""

import asyncio
import itertools
import random
import time

BROWSER = "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0"
BOT = "Mozilla/5.0 (compatible; ExampleBot/1.0)"
# The visitor's patience is over.
GAVE_UP = -1
# No answer, and what nginx answers if a worker ends in the middle of a request, or no worker takes it.
LOST = (0, 500, 502)
PAGES = [f"/product/{number}/" for number in range(40)]


class Kind:
    """One kind of visitor, and what became of each."""

    def __init__(self, name, network, agent, patience, steps):
        self.name, self.network, self.agent, self.patience, self.steps = name, network, agent, patience, steps
        # When each began, seconds since the start; how long it took; whether it got all that it wanted.
        self.visits = []
        # Those that got a 500 or 502, or whose connection was closed without an answer.
        self.lost = 0
        self._numbers = itertools.count(1)

    def address(self):
        number = next(self._numbers)
        return f"{self.network}.{number // 250 % 250}.{number % 250 + 1}"

    def done(self, begin=0, end=float("inf")):
        return sorted(took for at, took, is_done in self.visits if is_done and begin <= at < end)

    def p99(self, begin=0, end=float("inf")):
        """Seconds; the longest if there are few."""
        done = self.done(begin, end)
        return done[min(len(done) - 1, len(done) * 99 // 100)] if done else float("inf")

    def by_second(self, seconds):
        """How many that came in each second got all that they wanted."""
        counts = [0] * seconds
        for at, _, is_done in self.visits:
            if is_done and int(at) < seconds:
                counts[int(at)] += 1
        return counts


def page():
    return [("GET", random.choice(PAGES))]


def order():
    return [("GET", "/cart/?add-to-cart=7"), ("GET", "/checkout/"), ("POST", "/?wc-ajax=checkout")]


async def visit(port, kind, begun):
    """All steps of one visitor."""
    address, start = kind.address(), time.monotonic()
    is_done = True
    for method, path in kind.steps():
        try:
            status = await asyncio.wait_for(_fetch(port, kind, address, method, path), kind.patience)
        except (TimeoutError, asyncio.TimeoutError):
            status = GAVE_UP
        except (OSError, asyncio.IncompleteReadError):
            status = LOST[0]
        if status != 200:
            kind.lost += status in LOST
            is_done = False
            break
    kind.visits.append((start - begun, time.monotonic() - start, is_done))


async def _fetch(port, kind, address, method, path):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        length = "Content-Length: 0\r\n" if method == "POST" else ""
        writer.write(
            f"{method} {path} HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\nUser-Agent: {kind.agent}\r\n"
            f"X-Real-IP: {address}\r\nX-Kind: {kind.name}\r\n{length}\r\n".encode()
        )
        answer = await reader.read(-1)
        return int(answer.split(b" ", 2)[1]) if answer else LOST[0]
    finally:
        # Without this a visitor that has lost its patience would stay.
        writer.transport.abort()


async def stream(port, kind, rate, begun, begin, end):
    """Visitors that come at random times, `rate` a second."""
    visits, due = [], begun + begin
    while due < begun + end:
        await asyncio.sleep(max(0, due - time.monotonic()))
        visits.append(asyncio.ensure_future(visit(port, kind, begun)))
        due += random.expovariate(rate)
    await asyncio.gather(*visits)


def run(port, streams, events):
    """Sends visitors: (kind, rate, begin, end); calls each event (seconds, function) in a thread of its own when it is due."""

    async def everything():
        begun = time.monotonic()

        async def event(at, function):
            await asyncio.sleep(max(0, begun + at - time.monotonic()))
            await asyncio.get_running_loop().run_in_executor(None, function)

        await asyncio.gather(
            *(stream(port, kind, rate, begun, begin, end) for kind, rate, begin, end in streams),
            *(event(at, function) for at, function in events),
        )

    random.seed(42)
    asyncio.run(everything())
