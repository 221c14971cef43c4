"""The settings of services."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tidewire import _limits
from tidewire._numbers import Numbers


@dataclass(frozen=True)
class ServiceConfig(Numbers):
    """Settings of the services of a node. ``docs/reference/limits.md`` has the units and ranges.

    It is the table ``services`` of a node's configuration: ``tw.Node(config={"services":
    {"service_waiting": 100}})``, the table ``[services]`` of a TOML file, or
    ``TIDEWIRE_SERVICES__SERVICE_WAITING=100`` in the environment. ``node.serving`` has the
    effective settings. ``node.serve`` overrides them for one service: ``concurrency``, ``waiting``
    and ``streams``.

    Args:
        service_concurrency: Most calls that one instance handles at once, over all callers.
        service_waiting: Most queued calls of one instance; one more is refused.
        service_streams: Most streams that one instance writes at once.
        stream_ahead: Most unread items of a stream to a reader of this process.

    Raises:
        ConfigError: if values are not allowed; the error lists all of them.
    """

    service_concurrency: int = _limits.SERVICE_CONCURRENCY.default
    service_waiting: int = _limits.SERVICE_WAITING.default
    service_streams: int = _limits.SERVICE_STREAMS.default
    stream_ahead: int = _limits.STREAM_AHEAD.default

    _table: ClassVar[str] = "services"
