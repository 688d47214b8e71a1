"""One request at a time, where the first one counts and the load generator would be too much."""

import socket
import struct

BEGIN, END, PARAMS, STDIN, STDOUT = 1, 3, 4, 5, 6


def get(path, script):
    """The body of a script's answer."""
    parameters = {
        "SCRIPT_FILENAME": str(script),
        "SCRIPT_NAME": f"/{script.name}",
        "REQUEST_METHOD": "GET",
        "REQUEST_URI": f"/{script.name}",
        "QUERY_STRING": "",
        "SERVER_PROTOCOL": "HTTP/1.1",
    }
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(30)
        connection.connect(str(path))
        pairs = b"".join(_pair(name.encode(), value.encode()) for name, value in parameters.items())
        connection.sendall(
            _record(BEGIN, struct.pack(">HB5x", 1, 0)) + _record(PARAMS, pairs) + _record(PARAMS, b"") + _record(STDIN, b"")
        )
        answer = b""
        with connection.makefile("rb") as reader:
            while True:
                head = reader.read(8)
                if len(head) < 8:
                    raise RuntimeError(f"{path}: the connection ended: {answer!r}")
                _, kind, _, length, padding, _ = struct.unpack(">BBHHBB", head)
                content = reader.read(length + padding)[:length]
                if kind == STDOUT:
                    answer += content
                elif kind == END:
                    return answer.partition(b"\r\n\r\n")[2].decode()


def _record(kind, content):
    return struct.pack(">BBHHBB", 1, kind, 1, len(content), 0, 0) + content


def _pair(name, value):
    return _length(name) + _length(value) + name + value


def _length(text):
    return bytes([len(text)]) if len(text) < 128 else struct.pack(">I", len(text) | 0x80000000)
