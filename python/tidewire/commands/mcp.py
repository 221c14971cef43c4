"""``tidewire mcp``: the tools and prompts of a gateway for clients of the Model Context Protocol
over stdin and stdout.
"""

from __future__ import annotations

import http.client
import json
import socket
import sys
import threading
import time
from contextlib import closing, suppress
from typing import Any, TextIO
from urllib.parse import urlsplit

import tidewire as tw

_INTERNAL = -32_603
_CANCELLED = "notifications/cancelled"
_INITIALIZED = "notifications/initialized"
_VERSION = "MCP-Protocol-Version"
_SESSION = "Mcp-Session-Id"
_LIST_CHANGES = [
    f'{{"jsonrpc": "2.0", "method": "notifications/{name}/list_changed"}}' for name in ("tools", "prompts")
]
# Most concurrent requests; the next one waits.
_REQUESTS_MAX = 64
_FINISH_S = 1.0  # For pending requests at the end of stdin.
_RECONNECT_S, _RECONNECT_MAX_S = 1.0, 30.0  # Before a reconnect of the stream; doubled each time.


def mcp(url: str, token: str | None) -> int:
    """Forward messages until stdin ends, and return the exit code. Pending requests then have one
    second.

    Args:
        url: The gateway, ``http://host:port``.
        token: A token, for hubs that require one.

    Each line of stdin and of stdout is one JSON-RPC message. Cancelling a request cancels its
    call.
    """
    try:
        relay = Relay(url, token, sys.stdout)
    except tw.InvalidArgument as error:
        print(f"mcp: {error}", file=sys.stderr)
        return 2
    for line in sys.stdin:
        if line.strip():
            relay.take(line)
    relay.finish()
    return 0


class Relay:
    """Relay that forwards concurrent requests to a gateway, and writes its responses.

    Args:
        url: The gateway.
        token: Its token, or None.
        out: Stream for responses.
    """

    def __init__(self, url: str, token: str | None, out: TextIO) -> None:
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError:
            port = None
        is_gateway = parts.scheme in ("http", "https") and parts.hostname and parts.path in ("", "/", "/mcp")
        if not is_gateway or (port is None and ":" in parts.netloc.rpartition("]")[2]):
            raise tw.InvalidArgument(
                f"URL: {url!r} is not allowed: give that of a gateway, such as http://127.0.0.1:8080 (tidewire up --http)"
            )
        self._address = (parts.scheme, str(parts.hostname), port)
        self._headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        if token:
            self._headers["authorization"] = f"Bearer {token}"
        self._out = out
        self._writes = threading.Lock()
        self._slots = threading.BoundedSemaphore(_REQUESTS_MAX)
        self._open: dict[str, http.client.HTTPConnection] = {}
        self._threads: list[threading.Thread] = []

    def take(self, line: str) -> None:
        """Forward one message."""
        try:
            message: Any = json.loads(line)
        except ValueError:
            message = None
        message = message if isinstance(message, dict) else {}
        if message.get("method") == _CANCELLED:
            self._cancel(message)
            return
        if message.get("method") == _INITIALIZED and _SESSION in self._headers:
            threading.Thread(target=self._listen, name="mcp events", daemon=True).start()
            return
        self._slots.acquire()
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        # A client sends nothing else before the response.
        if message.get("method") == "initialize":
            self._forward(line, message)
            return
        thread = threading.Thread(target=self._forward, args=(line, message), name="mcp", daemon=True)
        self._threads.append(thread)
        thread.start()

    def finish(self) -> None:
        """Wait for pending requests, at most a second. The process exit cancels the others."""
        end = time.monotonic() + _FINISH_S
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))

    def _forward(self, line: str, message: dict[str, Any]) -> None:
        key = json.dumps(message.get("id"))
        connection = self._connection()
        self._open[key] = connection
        try:
            with closing(connection):
                connection.request("POST", "/mcp", line.encode(), self._headers)
                answer = connection.getresponse()
                status, session = answer.status, answer.getheader(_SESSION, "")
                answer_text = self._events(answer) if _is_stream(answer) else answer.read().decode()
        except (OSError, http.client.HTTPException) as error:
            status, answer_text = 0, f"the gateway can't be reached: {error or type(error).__name__}"
        finally:
            was_cancelled = self._open.pop(key, None) is None
            self._slots.release()
        if was_cancelled or "id" not in message or "method" not in message:
            return
        if status != 200 or not answer_text:
            answer_text = _failure(message, answer_text)
        elif message["method"] == "initialize":
            with suppress(ValueError, KeyError, TypeError):
                self._headers[_VERSION] = json.loads(answer_text)["result"]["protocolVersion"]
                self._headers[_SESSION] = session
        self._write(answer_text)

    def _events(self, answer: http.client.HTTPResponse) -> str:
        """Write the notifications of a stream, and return its final response, or ""."""
        for line in answer:
            if line.startswith(b"data: "):
                text = line[6:].decode()
                if "method" not in json.loads(text):
                    return text
                self._write(text)
        return ""

    def _listen(self) -> None:
        """Write the notifications of the session until the process ends."""
        was_lost, pause_s = False, _RECONNECT_S
        while True:
            with suppress(OSError, http.client.HTTPException), closing(self._connection()) as connection:
                connection.request("GET", "/mcp", headers=self._headers)
                answer = connection.getresponse()
                if not _is_stream(answer):
                    return
                pause_s = _RECONNECT_S
                for notification in _LIST_CHANGES if was_lost else ():
                    self._write(notification)
                self._events(answer)
            was_lost = True
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _RECONNECT_MAX_S)

    def _cancel(self, message: dict[str, Any]) -> None:
        params = message.get("params")
        key = json.dumps(params.get("requestId") if isinstance(params, dict) else None)
        connection = self._open.pop(key, None)
        if connection is not None and connection.sock is not None:
            # This ends the reader of the connection, and the gateway cancels the call.
            with suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)

    def _connection(self) -> http.client.HTTPConnection:
        scheme, host, port = self._address
        kind = http.client.HTTPSConnection if scheme == "https" else http.client.HTTPConnection
        return kind(host, port)

    def _write(self, line: str) -> None:
        with self._writes:
            self._out.write(line.replace("\n", " ") + "\n")
            self._out.flush()


def _is_stream(answer: http.client.HTTPResponse) -> bool:
    return answer.headers.get_content_type() == "text/event-stream"


def _failure(message: dict[str, Any], answer_text: str) -> str:
    """Return the JSON-RPC response for an HTTP response with another status than 200."""
    try:
        problem = json.loads(answer_text)
        if "jsonrpc" in problem:
            return answer_text
        error = {"code": _INTERNAL, "message": problem["detail"], "data": problem}
    except (ValueError, KeyError, TypeError):
        error = {"code": _INTERNAL, "message": answer_text or "the gateway gave no answer"}
    return json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error})
