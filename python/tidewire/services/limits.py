"""The limits of services."""

from __future__ import annotations

from typing import Final

from tidewire._limits import ASK_TIMEOUT_MS, Limit

SERVICE_CONCURRENCY: Final = Limit("service_concurrency", "calls", 1024, 1, 10_000)
"""Calls that one instance of a service handles at once; further calls wait."""

SERVICE_STREAMS: Final = Limit("service_streams", "streams", 10_000, 10_000, 10_000)
"""Streams that one instance of a service writes at once; further streams wait for their first item."""

SERVICE_METHODS: Final = Limit("service_methods", "methods", 0, 0, 1000)
"""Methods and event handlers of one service."""

SERVICE_WAITING: Final = Limit("service_waiting", "calls", 10_000, 10_000, 10_000)
"""Calls that wait for one instance of a service; one more is refused."""

STREAM_AHEAD: Final = Limit("stream_ahead", "items", 32, 32, 32)
"""Items of a stream that were written and not yet read; the writer waits."""

CALL_HEADERS: Final = Limit("call_headers", "headers", 0, 0, 56)
"""Headers of one call. The rest of link_fields is for what a call says of itself."""

CALL_TIMEOUT_S: Final = ASK_TIMEOUT_MS.default / 1000
"""How long a call may take where neither the caller nor the method says otherwise, in seconds."""

CALL_TIMEOUT_MAX_S: Final = ASK_TIMEOUT_MS.max / 1000
"""The longest time that a call may be given, in seconds."""
