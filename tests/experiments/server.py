"""A server on this machine that tests download from."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread


class Server(ThreadingHTTPServer):
    """Serves one file; notes the range of each request."""

    daemon_threads = True

    def __init__(self, content: bytes, name: str) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.content = content
        self.name = name
        self.ranges: list[str | None] = []
        self.takes_ranges = True
        self.shift = 0
        self.breaks_off_at: int | None = None
        self.hangs: Event | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/{self.name}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        asked = self.headers.get("Range")
        self.server.ranges.append(asked)
        content, start = self.server.content, 0
        if self.path != f"/{self.server.name}":
            self.send_error(404)
            return
        if asked and self.server.takes_ranges:
            start = int(re.fullmatch(r"bytes=(\d+)-", asked)[1])
            if start >= len(content):
                self.send_error(416)
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start + self.server.shift}-{len(content) - 1}/{len(content)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        self.wfile.write(content[start : self.server.breaks_off_at])
        if self.server.hangs is not None:
            self.server.hangs.wait(10)

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def serving(content: bytes, name: str) -> Iterator[Server]:
    """A server that runs meanwhile."""
    server = Server(content, name)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
