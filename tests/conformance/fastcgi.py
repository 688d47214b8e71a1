"""A FastCGI client that takes an answer apart without judging it."""

import socket
import struct

BEGIN_REQUEST, END_REQUEST, PARAMS, STDIN, STDOUT, STDERR = 1, 3, 4, 5, 6, 7
RESPONDER, KEEP_CONNECTION = 1, 1
# A record's longest content that is a multiple of 8.
LONGEST = 65528


class Answer:
    """What came back: both streams, the end record's content, and how it ended (`end`, `eof`, `reset`, `timeout`)."""

    def __init__(self):
        self.out, self.err, self.end, self.how = b"", b"", None, "eof"

    def whole(self):
        """What is compared. Whether a worker that dies leaves something unread (`reset`) or not is no difference."""
        return (self.out, self.err, self.end, "closed" if self.how in ("eof", "reset") else self.how)


class Client:
    """Requests to one server, each over a connection of its own or all over one that is kept."""

    def __init__(self, path, keeps, timeout_s):
        self.path, self.keeps, self.timeout_s = path, keeps, timeout_s
        self.socket = None

    def ask(self, parameters, body=b""):
        is_new = self.socket is None
        answer = self.try_to_ask(parameters, body)
        if answer.how != "end" or not self.keeps:
            self.close()
        # The server may have closed an idle connection while the request was on its way.
        if not is_new and answer.how in ("eof", "reset") and not answer.out and not answer.err:
            answer = self.try_to_ask(parameters, body)
            if answer.how != "end":
                self.close()
        return answer

    def close(self):
        if self.socket:
            self.socket.close()
            self.socket = None

    def try_to_ask(self, parameters, body):
        answer = Answer()
        try:
            if self.socket is None:
                self.socket = socket.socket(socket.AF_UNIX)
                self.socket.settimeout(self.timeout_s)
                self.socket.connect(self.path)
            try:
                self.socket.sendall(request(parameters, body, self.keeps))
            except (BrokenPipeError, ConnectionResetError):
                pass  # What was answered before that can still be read.
            self.read(answer)
        except TimeoutError:
            answer.how = "timeout"
        except ConnectionResetError:
            answer.how = "reset"
        except OSError as error:
            answer.how = f"error: {error}"
        return answer

    def read(self, answer):
        data = b""
        while True:
            while len(data) >= 8:
                _, kind, _, length, padding, _ = struct.unpack(">BBHHBB", data[:8])
                if len(data) < 8 + length + padding:
                    break
                content, data = data[8 : 8 + length], data[8 + length + padding :]
                if kind == STDOUT:
                    answer.out += content
                elif kind == STDERR:
                    answer.err += content
                elif kind == END_REQUEST:
                    answer.end, answer.how = content[:5], "end"
                    return
            more = self.socket.recv(1 << 18)
            if not more:
                return
            data += more


def request(parameters, body, keeps):
    pairs = b"".join(pair(name.encode(), value) for name, value in parameters.items())
    begin = struct.pack(">HB5x", RESPONDER, KEEP_CONNECTION if keeps else 0)
    return record(BEGIN_REQUEST, begin) + stream(PARAMS, pairs) + stream(STDIN, body)


def stream(kind, content):
    parts = [content[at : at + LONGEST] for at in range(0, len(content), LONGEST)]
    return b"".join(record(kind, part) for part in [*parts, b""])


def record(kind, content):
    return struct.pack(">BBHHBB", 1, kind, 1, len(content), 0, 0) + content


def pair(name, value):
    value = value if isinstance(value, bytes) else value.encode()
    return length_of(name) + length_of(value) + name + value


def length_of(text):
    return bytes([len(text)]) if len(text) < 128 else struct.pack(">I", len(text) | 1 << 31)
