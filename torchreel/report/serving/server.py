"""The server of a report: on the loopback interface alone, for requests that have the token.

Lives here: who is answered, and within which bounds.  Not here: what is answered (`live`).

Any page that a browser shows may send requests to 127.0.0.1, under a name of its own where that
resolves to it.  Hence: the path begins with a random token, the Host header has to be this address,
nothing but GET is answered, and no answer may be read or framed by another page.
"""

from __future__ import annotations

import secrets
import socket
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from socketserver import ThreadingMixIn
from typing import Any
from urllib.parse import unquote

from torchreel.errors import TorchreelError, UsageError
from torchreel.report.page import SERVED, asset, policy, script_text
from torchreel.report.serving.live import LiveReport

LOOPBACK = "127.0.0.1"
_TOKEN_BYTES = 24
_MOST_REQUESTS = 16
"""Requests that are answered at once; others wait for one of these to end."""
_MOST_CLIENTS = 256
"""Connections that are read at once, most of them idle: a browser opens some ahead of need."""
_SECONDS = 10
"""A client that says nothing for so long is left."""
_LONGEST_PATH = 1_000

HTML, JSON, TEXT = "text/html; charset=utf-8", "application/json", "text/plain; charset=utf-8"
_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


class ReportServer(ThreadingMixIn, HTTPServer):
    """Serves a report on a port of 127.0.0.1, 0 for a free one. Read-only.

    Raises UsageError where the port can't be had.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = 32

    def __init__(self, report: LiveReport, port: int = 0) -> None:
        self.report = report
        self.token = secrets.token_urlsafe(_TOKEN_BYTES)
        self.room = threading.BoundedSemaphore(_MOST_REQUESTS)
        self._clients = threading.BoundedSemaphore(_MOST_CLIENTS)
        try:
            super().__init__((LOOPBACK, port), _Handler)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UsageError(
                f"Port {port} of {LOOPBACK} can't be had: {reason}. Without --port, a free one is "
                "taken."
            ) from error

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self.server_address[1])

    @property
    def url(self) -> str:
        """The address of the page, with the token."""
        return f"http://{LOOPBACK}:{self.port}/{self.token}/"

    def server_bind(self) -> None:
        """Bind without asking a name server for our own name, as HTTPServer would."""
        socket.socket.bind(self.socket, self.server_address)
        self.server_address = self.socket.getsockname()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Read in a thread, if there is one more to have within the time of a client."""
        if not self._clients.acquire(timeout=_SECONDS):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Read and answer, and make room for another client."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._clients.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Leave a client that went away, without a word on the console."""


class _Handler(BaseHTTPRequestHandler):
    server: ReportServer
    timeout = _SECONDS

    def parse_request(self) -> bool:
        """Refuse what is no GET, has another Host or none, or lacks the token."""
        if not super().parse_request():
            return False
        hosts = self.headers.get_all("Host", [])
        if len(hosts) != 1 or hosts[0] not in {f"{host}:{self.server.port}" for host in _HOSTS}:
            return self._refuse(HTTPStatus.FORBIDDEN)
        if self.command != "GET":
            return self._refuse(HTTPStatus.METHOD_NOT_ALLOWED)
        return True

    def do_GET(self) -> None:
        """Answer when a place is free: a client takes none until it has asked for something."""
        with self.server.room:
            self._get()

    def _get(self) -> None:
        """Answer the page, the state, the document or a compile."""
        path, _, query = self.path.partition("?")
        _, token, name = ([*path.split("/", 2), "", ""])[:3]
        known = secrets.compare_digest(token.encode(), self.server.token.encode())
        if not known or len(self.path) > _LONGEST_PATH or path.count("/") != 2:
            self._refuse(HTTPStatus.NOT_FOUND)
            return
        report = self.server.report
        answers: dict[str, tuple[str, Callable[[], bytes]]] = {
            "": (HTML, report.page),
            "state": (JSON, report.state),
            "document": (JSON, report.document),
            "compile": (JSON, lambda: report.compile(unquote(query))),
        }
        if name not in answers:
            self._refuse(HTTPStatus.NOT_FOUND)
            return
        self._answer(*answers[name])

    def _answer(self, kind: str, read: Callable[[], bytes]) -> None:
        try:
            self._send(HTTPStatus.OK, kind, read())
        except UsageError as error:
            self._send(HTTPStatus.NOT_FOUND, TEXT, str(error).encode(errors="replace"))
        except TorchreelError as error:
            self._send(HTTPStatus.SERVICE_UNAVAILABLE, TEXT, str(error).encode(errors="replace"))

    def _refuse(self, status: HTTPStatus) -> bool:
        self._send(status, TEXT, f"{status.value} {status.phrase}\n".encode())
        return False

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer what is no request, without its text in the answer."""
        self._refuse(HTTPStatus(code))

    def _send(self, status: HTTPStatus, kind: str, data: bytes) -> None:
        self.close_connection = True
        self.send_response(status)
        style, script = asset("style.css"), script_text()
        allowed = policy(script, style, SERVED) if kind == HTML else "default-src 'none'"
        headers = {
            **_HEADERS, "Content-Type": kind, "Content-Length": str(len(data)),
            "Content-Security-Policy": f"{allowed}; frame-ancestors 'none'", "Connection": "close",
        }  # fmt: skip
        if status == HTTPStatus.METHOD_NOT_ALLOWED:
            headers["Allow"] = "GET"
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def version_string(self) -> str:
        """Return the name of the server, without versions."""
        return "torchreel"

    def log_message(self, format: str, *args: object) -> None:
        """Write no log: its lines would have the token."""


_HOSTS = (LOOPBACK, "localhost")
