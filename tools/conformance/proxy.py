"""A proxy that gives tools, prompts and resources the names of the suite."""

from __future__ import annotations

import http.client
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

# Names of the suite, and those of the gateway.
_URIS = {
    b"test://static-text": b"tidewire://kv/static/text",
    b"test://static-binary": b"tidewire://kv/static/binary",
    b"test://template/123/data": b"tidewire://kv/template/123",
    b"test://watched-resource": b"tidewire://streams/watched",
}
_PASSED = ("accept", "content-type", "mcp-session-id", "mcp-protocol-version", "last-event-id")


def _to_gateway(body: bytes) -> bytes:
    for theirs, ours in _URIS.items():
        body = body.replace(b'"uri":"' + theirs, b'"uri":"' + ours)
    return re.sub(rb'"name":"(test|json_schema)_', rb'"name":"\1-', body)


def _to_suite(body: bytes) -> bytes:
    return re.sub(rb'"name":"(test|json_schema)-', rb'"name":"\1_', body)


@contextmanager
def proxied(host: str, port: int, token: str) -> Iterator[str]:
    """Forward requests to a gateway, with its token, and yield the URL of the proxy."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def forward(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            headers = {name: self.headers[name] for name in _PASSED if name in self.headers}
            with closing(http.client.HTTPConnection(host, port)) as gateway:
                gateway.request(
                    self.command, self.path, _to_gateway(body), {**headers, "authorization": f"Bearer {token}"}
                )
                answer = gateway.getresponse()
                self.send_response(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() in _PASSED:
                        self.send_header(name, value)
                self.send_header("connection", "close")
                self.end_headers()
                with suppress(ConnectionError):  # The client has left.
                    for line in answer:
                        self.wfile.write(_to_suite(line))
            self.close_connection = True

        do_GET = do_POST = do_DELETE = forward

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/mcp"
        server.shutdown()
