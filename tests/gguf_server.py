"""A local HTTP server for tests: serves bytes, and misbehaves on request."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit


@dataclass
class Asked:
    """One request as it arrived, and how many body bytes were sent for it."""

    path: str
    headers: dict[str, str]
    sent: int = 0


@dataclass
class Site:
    """What the server serves: `files` by path; `behave` may answer first and then returns True."""

    files: dict[str, bytes] = field(default_factory=dict)
    etag: str = '"one"'
    ranges: bool = True
    behave: Callable[[Handler], bool] | None = None
    asked: list[Asked] = field(default_factory=list)
    url: str = ""

    @property
    def sent(self) -> int:
        return sum(request.sent for request in self.asked)


class Handler(BaseHTTPRequestHandler):
    """Serves `Site.files` with ETag, If-None-Match and single ranges."""

    protocol_version = "HTTP/1.1"
    site: Site

    def do_GET(self) -> None:
        self.record = Asked(self.path, {k.lower(): v for k, v in self.headers.items()})
        self.site.asked.append(self.record)
        try:
            if self.site.behave is None or not self.site.behave(self):
                self.serve(self.site.files.get(urlsplit(self.path).path))
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    do_HEAD = do_GET  # noqa: N815

    def serve(self, data: bytes | None) -> None:
        if data is None:
            self.answer(404, b"no such file")
        elif self.site.etag and self.record.headers.get("if-none-match") == self.site.etag:
            self.answer(304, b"", ETag=self.site.etag)
        elif self.site.ranges and "range" in self.record.headers:
            start, end = self.range(len(data))
            if start >= len(data):
                self.answer(416, b"", **{"Content-Range": f"bytes */{len(data)}"})
                return
            extra = {"Content-Range": f"bytes {start}-{end}/{len(data)}"}
            self.answer(206, data[start : end + 1], ETag=self.site.etag, **extra)
        else:
            self.answer(200, data, ETag=self.site.etag)

    def range(self, size: int) -> tuple[int, int]:
        match = re.fullmatch(r"bytes=(\d+)-(\d+)", self.record.headers["range"])
        assert match, "a range that we never ask for"
        return int(match[1]), min(int(match[2]), size - 1)

    def answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            if value:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.body(body)

    def body(self, data: bytes, piece: int = 65_536) -> None:
        for start in range(0, len(data), piece):
            part = data[start : start + piece]
            self.record.sent += len(part)  # before: a client may look as soon as it has the bytes
            self.wfile.write(part)

    def cut(self) -> None:
        """End the connection in the middle of whatever was promised."""
        self.wfile.flush()
        self.close_connection = True

    def json(self, value: Any, **headers: str) -> None:
        self.answer(
            200, json.dumps(value).encode(), **{"Content-Type": "application/json"}, **headers
        )

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


class Server(ThreadingHTTPServer):
    """Says nothing when a client hangs up, which is what the tests are about."""

    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        pass


@contextmanager
def serving(site: Site) -> Iterator[Site]:
    """Run the server on a free port of this machine; sets `site.url`."""
    handler = type("SiteHandler", (Handler,), {"site": site})
    server = Server(("127.0.0.1", 0), handler)
    site.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield site
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
