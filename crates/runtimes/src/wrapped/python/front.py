"""HTTP/1.1 and WebSocket on their own socket, with uvicorn's protocols if the application's environment has uvicorn."""

import asyncio
import inspect
import os
import socket
import sys

ACCEPTED_AT_ONCE = 32
NONE, NO_ROOM = -1, -3
LAST = 1
SWITCHING_PROTOCOLS = 101
# A WebSocket's codes (RFC 6455 section 7.4.1): the service restarts; the connection was closed without a code.
SERVICE_RESTART, ABNORMAL = 1012, 1006
PIECE_BYTES = 65536
# Limits for discarding data of a client that has not read its answer.
LINGER_SECONDS = 5
LINGER_BYTES = 64 << 20
# How long an exiting worker waits for requests on accepted connections, and for answers to be sent.
HURRY_SECONDS = 1
DRAIN_SECONDS = 60
DRAIN_LOOK_SECONDS = 0.02
UNAVAILABLE = b"uvicorn is not installed in the application's environment: http_listen needs it.\n"
NO_WEBSOCKET = b"WebSocket needs uvicorn, and websockets or wsproto, in the application's environment.\n"


class Missing(asyncio.Protocol):
    """Answers every request with the reason."""

    def connection_made(self, transport):
        self._transport = transport

    def data_received(self, data):
        self._transport.write(
            b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%b"
            % (len(UNAVAILABLE), UNAVAILABLE)
        )
        self._transport.close()


def head_of(scope):
    """A request's head in uvicorn's format."""
    query = scope["query_string"]
    target = scope["raw_path"] + (b"?" + query if query else b"")
    client = scope["client"]
    fields = [
        *scope["headers"], (b"x-real-ip", client[0].encode() if client else b""), (b"x-forwarded-proto", scope["scheme"].encode()),
    ]
    lines = [b"%b %b HTTP/1.1" % (scope["method"].encode(), target), *(b"%b: %b" % field for field in fields)]
    # Values must not start new lines.
    return b"\r\n".join(line.replace(b"\r", b" ").replace(b"\n", b" ") for line in lines) + b"\r\n\r\n"


def is_new(connection):
    """Whether a uvicorn connection has had no request so far."""
    return getattr(connection, "cycle", connection) is None


def is_unread(connection):
    """Whether part of a request is missing."""
    return getattr(getattr(connection, "cycle", None), "more_body", True)


class Front:
    """Accepts connections and counts their requests as the worker's."""

    def __init__(self, loop, application, state, running, mount, turn_soon):
        self._turn_soon = turn_soon
        self._loop, self._application, self._state, self._running = loop, application, state, running
        self._mount = mount
        self._visits = {}
        self._tasks = set()
        self._is_watched = False
        self._descriptor = NONE
        self.is_closing = False
        # Connections that were told about the shutdown.
        self._told = set()
        # uvicorn's state, created with the first connection.
        self._server = None
        self._factory = self._tunnels = None

    def _protocol(self, application):
        """A factory of uvicorn protocols for the application, and whether they support WebSocket; None without
        uvicorn."""
        try:
            from uvicorn.config import Config
            from uvicorn.server import ServerState
        except ImportError:
            return None, False
        config = Config(
            application, loop="none", lifespan="off", interface="asgi3", log_config=None, log_level="info", access_log=False,
            proxy_headers=False, server_header=False,
        )
        config.load()
        self._server = self._server or ServerState()
        more = {"config": config, "server_state": self._server}
        if "app_state" in inspect.signature(config.http_protocol_class.__init__).parameters:
            more["app_state"] = self._state
        front = self

        class Protocol(config.http_protocol_class):
            def connection_lost(self, exc):
                # The socket is closed below.
                if exc is None and is_unread(self):
                    front.linger(self.transport)
                super().connection_lost(exc)

        return lambda: Protocol(**more), config.ws_protocol_class is not None

    def open(self, library, worker):
        self._library, self._worker = library, worker
        self._descriptor = library.http(worker)
        if self._factory is None:
            factory, has_websocket = self._protocol(self._serve)
            self._factory = factory or Missing
            if factory is None:
                sys.stderr.write("http_listen: there is no uvicorn in the application's environment; requests there are answered "
                                 "with 503. Install uvicorn, and websockets or wsproto for WebSocket.\n")
            elif not has_websocket:
                sys.stderr.write("http_listen: there is neither websockets nor wsproto in the application's environment; WebSocket "
                                 "is refused. Install one of them.\n")
            sys.stderr.flush()
        self.watch(True)

    def watch(self, wanted):
        """Starts or stops accepting connections."""
        if wanted == self._is_watched or self._descriptor < 0:
            return
        self._is_watched = wanted
        if wanted:
            self._loop.add_reader(self._descriptor, self._accept)
        else:
            self._loop.remove_reader(self._descriptor)

    def _accept(self):
        for _ in range(ACCEPTED_AT_ONCE):
            descriptor = self._library.accept(self._worker)
            if descriptor == NO_ROOM:
                return self.watch(False)
            if descriptor < 0:
                return
            client = socket.socket(fileno=descriptor)
            client.setblocking(False)
            self._begin_task(self._loop.connect_accepted_socket(self._factory, client))

    def _begin_task(self, coroutine):
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._end_task)

    def _end_task(self, task):
        self._tasks.discard(task)
        if not task.cancelled():
            # The client is gone.
            task.exception()

    def linger(self, transport):
        """Keeps a closing connection until the client has read the answer: closing with unread data resets it, and the
        answer is lost."""
        own = transport.get_extra_info("socket")
        try:
            client = socket.socket(fileno=os.dup(own.fileno()))
        except OSError:
            return
        client.setblocking(False)
        self._begin_task(asyncio.wait_for(self._drop_input(client), LINGER_SECONDS))

    async def _drop_input(self, client):
        left = LINGER_BYTES
        with client:
            client.shutdown(socket.SHUT_WR)
            while left > 0 and (piece := await self._loop.sock_recv(client, PIECE_BYTES)):
                left -= len(piece)

    def _hear(self, receive):
        """A WebSocket's `receive`: the application also gets 1012. Early versions of uvicorn tell it 1006, or nothing."""

        async def hear():
            message = await receive()
            if self.is_closing and message["type"] == "websocket.disconnect" and message.get("code", ABNORMAL) == ABNORMAL:
                message["code"] = SERVICE_RESTART
            return message

        return hear

    async def _serve(self, scope, receive, send):
        if scope["type"] not in ("http", "websocket"):
            return await self._application(scope, receive, send)
        if scope["type"] == "websocket":
            receive = self._hear(receive)
        status = None
        token = self._begin(scope)
        task = asyncio.current_task()
        self._visits[token], self._running[task] = task, token

        async def tell(message):
            nonlocal status
            kind = message["type"]
            if kind in ("http.response.start", "websocket.http.response.start"):
                status = message["status"]
            elif kind == "websocket.accept":
                status = 101
                self._library.endless(self._worker, token)
            elif kind == "websocket.close" and status is None:
                status = 403
            await send(message)
            if kind in ("http.response.body", "websocket.send"):
                self._library.sent(self._worker, token)

        try:
            await self._application(scope, receive, tell)
        finally:
            if self._visits.pop(token, None) is not None:
                self._end(token, status or 500)
            self._running.pop(task, None)

    async def tunnel(self, is_endless, scope, receive, send):
        """Serves a WebSocket request that came over FastCGI; its two bodies are the two directions."""
        if self._tunnels is None:
            self._tunnels = self._protocol(self._serve_tunnel)
        factory, has_websocket = self._tunnels
        if not has_websocket:
            await send({"type": "http.response.start", "status": 501, "headers": [(b"content-type", b"text/plain")]})
            return await send({"type": "http.response.body", "body": NO_WEBSOCKET})
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        tasks = []
        try:
            await self._loop.connect_accepted_socket(factory, theirs)
            await self._loop.sock_sendall(ours, head_of(scope))
            status, headers, first = await self._answer(ours)
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": first, "more_body": True})
            if status == SWITCHING_PROTOCOLS:
                is_endless()
            tasks.append(self._loop.create_task(self._carry_in(ours, receive)))
            while piece := await self._loop.sock_recv(ours, PIECE_BYTES):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body"})
        finally:
            for task in tasks:
                task.cancel()
            ours.close()

    async def _answer(self, ours):
        """The head of uvicorn's answer, and the data after it."""
        text = b""
        while b"\r\n\r\n" not in text:
            piece = await self._loop.sock_recv(ours, PIECE_BYTES)
            if not piece:
                raise RuntimeError("the connection was closed without an answer")
            text += piece
        head, _, rest = text.partition(b"\r\n\r\n")
        first, *lines = head.split(b"\r\n")
        pairs = (line.partition(b":") for line in lines)
        return int(first.split(b" ", 2)[1]), [(name, value.strip()) for name, _, value in pairs], rest

    async def _carry_in(self, ours, receive):
        more = True
        try:
            while more:
                message = await receive()
                await self._loop.sock_sendall(ours, message.get("body", b""))
                more = message.get("more_body", False)
            ours.shutdown(socket.SHUT_WR)
        except OSError:
            # The application closed it; the reader notices.
            pass

    async def _serve_tunnel(self, scope, receive, send):
        self._describe(scope)
        await self._application(scope, self._hear(receive), send)

    def _describe(self, scope):
        """Completes uvicorn's scope: the client's address and scheme from the web server's headers, `root_path`, the
        state."""
        said = dict(scope["headers"])
        # Trusted, because only the web server can connect here.
        address, scheme = said.get(b"x-real-ip"), said.get(b"x-forwarded-proto")
        if address:
            scope["client"] = (address.decode("latin-1"), 0)
        if scheme in (b"http", b"https"):
            secure = scheme == b"https"
            scope["scheme"] = ("wss" if secure else "ws") if scope["type"] == "websocket" else scheme.decode()
        scope["root_path"], scope["path"] = self._mount.divide("", scope["path"])
        scope["state"] = self._state.copy()
        return address

    def _begin(self, scope):
        headers = scope["headers"]
        said = dict(headers)
        address = self._describe(scope)
        # Text in early versions of uvicorn.
        raw, query = scope.get("raw_path"), scope["query_string"]
        path = raw if isinstance(raw, bytes) else scope["path"].encode()
        params = [
            b"REQUEST_METHOD", scope.get("method", "GET").encode(), b"REQUEST_URI", path + (b"?" + query if query else b""),
            b"SCRIPT_NAME", path, b"QUERY_STRING", query, b"REMOTE_ADDR", address or b"", b"CONTENT_LENGTH",
            said.get(b"content-length", b""),
        ]
        for name, value in headers:
            params += [b"HTTP_" + name.upper().replace(b"-", b"_"), value]
        text = b"\0".join(part.replace(b"\0", b"") for part in params) + b"\0"
        return self._library.visit(self._worker, text, len(text))

    def _end(self, token, status):
        text = b"Status: %d\r\n\r\n" % status
        self._library.send(self._worker, token, text, 0, len(text), LAST)
        # A request may have waited for this room.
        self._turn_soon()

    def expire(self, token):
        """The worker has ended the request. Returns false if it is none of these."""
        task = self._visits.pop(token, None)
        if task is not None:
            task.cancel()
        return task is not None

    async def drain(self):
        """Waits for connections with an answer or a request in progress."""
        self.watch(False)
        begun = self._loop.time()
        while True:
            while others := {*self._tasks, *self._running}:
                await asyncio.wait(others)
            connections = self._server.connections if self._server else ()
            waited = self._loop.time() - begun
            if not connections or waited >= DRAIN_SECONDS:
                return
            if waited >= HURRY_SECONDS or not any(is_new(connection) for connection in connections):
                self.close()
            await asyncio.sleep(DRAIN_LOOK_SECONDS)

    def close(self):
        """Announces the shutdown on every connection: WebSockets close with 1012."""
        self.watch(False)
        self.is_closing = True
        connections = set(self._server.connections if self._server else ())
        for connection in connections - self._told:
            # Early versions of uvicorn close WebSockets without a message.
            fail = getattr(connection, "fail_connection", None)
            if fail is not None and connection.handshake_completed_event.is_set():
                connection.ws_server.closing = True
                fail(SERVICE_RESTART)
            else:
                connection.shutdown()
        # At most once.
        self._told = connections
