"""A request's body as a file."""

import sys


class Body:
    """wsgi.input. `read_more` returns the next bytes, or nothing at the end."""

    __slots__ = ("_read_more", "_rest", "_ended")

    def __init__(self, read_more, begin=b"", is_whole=False):
        self._read_more = read_more
        self._rest = begin
        self._ended = is_whole

    def _more(self):
        if self._ended:
            return b""
        part = self._read_more()
        self._ended = not part
        return part

    def read(self, size=-1):
        if size is None or size < 0:
            parts = [self._rest]
            while part := self._more():
                parts.append(part)
            self._rest = b""
            return b"".join(parts)
        parts, length = [self._rest], len(self._rest)
        while length < size and (part := self._more()):
            parts.append(part)
            length += len(part)
        whole = b"".join(parts)
        self._rest = whole[size:]
        return whole[:size]

    def readline(self, size=-1):
        limit = sys.maxsize if size is None or size < 0 else size
        parts, length = [], 0
        while length < limit:
            if not self._rest:
                self._rest = self._more()
                if not self._rest:
                    break
            end = self._rest.find(b"\n") + 1 or len(self._rest)
            end = min(end, limit - length)
            part, self._rest = self._rest[:end], self._rest[end:]
            parts.append(part)
            length += len(part)
            if part.endswith(b"\n"):
                break
        return b"".join(parts)

    def readlines(self, hint=-1):
        lines, length = [], 0
        while line := self.readline():
            lines.append(line)
            length += len(line)
            if hint is not None and 0 < hint <= length:
                break
        return lines

    def __iter__(self):
        while line := self.readline():
            yield line
