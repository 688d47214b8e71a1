"""One request at a time, where each of them counts and the load generator would be too much."""

import socket
import struct

BEGIN, END, PARAMS, STDIN, STDOUT = 1, 3, 4, 5, 6
KEEP = 1
# What nginx and a browser add, as forkyard-load does.
USUAL = {
    "CONTENT_TYPE": "",
    "CONTENT_LENGTH": "",
    "REQUEST_SCHEME": "http",
    "GATEWAY_INTERFACE": "CGI/1.1",
    "SERVER_SOFTWARE": "nginx/1.22.1",
    "REMOTE_ADDR": "127.0.0.1",
    "REMOTE_PORT": "50000",
    "SERVER_ADDR": "127.0.0.1",
    "SERVER_PORT": "80",
    "SERVER_NAME": "localhost",
    "REDIRECT_STATUS": "200",
    "HTTP_HOST": "localhost",
    "HTTP_USER_AGENT": "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
    "HTTP_ACCEPT": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
    "HTTP_ACCEPT_LANGUAGE": "en-GB,en;q=0.5",
    "HTTP_ACCEPT_ENCODING": "gzip, deflate, br",
}


def get(path, script):
    """The body of a script's answer."""
    with Client(path, script, usual={}) as client:
        return client.ask().partition(b"\r\n\r\n")[2].decode()


class Client:
    """Sends the same request as often as it is told to, on a new connection each time or on a kept one."""

    def __init__(self, path, script, keep=False, uri=None, usual=USUAL, **more):
        uri = uri or f"/{script.name}"
        parameters = usual | {
            "SCRIPT_FILENAME": str(script),
            "SCRIPT_NAME": f"/{script.name}",
            "REQUEST_METHOD": "GET",
            "REQUEST_URI": uri,
            "DOCUMENT_URI": uri,
            "DOCUMENT_ROOT": str(script.parent),
            "QUERY_STRING": "",
            "SERVER_PROTOCOL": "HTTP/1.1",
        } | more
        pairs = b"".join(_pair(name.encode(), value.encode()) for name, value in parameters.items())
        self._path, self._keep = str(path), keep
        self._request = (
            _record(BEGIN, struct.pack(">HB5x", 1, KEEP if keep else 0)) + _record(PARAMS, pairs) + _record(PARAMS, b"") + _record(STDIN, b"")
        )
        self._connection = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        if self._connection:
            self._connection.close()
            self._connection = None

    def ask(self):
        """What the script has written: its head and its body."""
        if self._connection is None:
            self._connection = socket.socket(socket.AF_UNIX)
            self._connection.settimeout(120)
            self._connection.connect(self._path)
        self._connection.sendall(self._request)
        answer = self._answer()
        if not self._keep:
            self.close()
        return answer

    def _answer(self):
        pending, at, answer = bytearray(), 0, []
        while True:
            received = self._connection.recv(1 << 20)
            if not received:
                raise RuntimeError(f"{self._path}: the connection ended: {b''.join(answer)[:1000]!r}")
            pending += received
            while len(pending) - at >= 8:
                _, kind, _, length, padding, _ = struct.unpack_from(">BBHHBB", pending, at)
                end = at + 8 + length + padding
                if len(pending) < end:
                    break
                if kind == STDOUT:
                    answer.append(bytes(pending[at + 8 : at + 8 + length]))
                elif kind == END:
                    return b"".join(answer)
                at = end


def _record(kind, content):
    return struct.pack(">BBHHBB", 1, kind, 1, len(content), 0, 0) + content


def _pair(name, value):
    return _length(name) + _length(value) + name + value


def _length(text):
    return bytes([len(text)]) if len(text) < 128 else struct.pack(">I", len(text) | 0x80000000)
