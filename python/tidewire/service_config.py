"""The settings of services."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tidewire import _limits
from tidewire._numbers import Numbers


@dataclass(frozen=True)
class ServiceConfig(Numbers):
    """How the services of a node work. ``docs/reference/limits.md`` has the units and ranges.

    It is the table ``services`` of a node's configuration: ``tw.Node(config={"services":
    {"service_waiting": 100}})``, the table ``[services]`` of a TOML file, or
    ``TIDEWIRE_SERVICES__SERVICE_WAITING=100`` in the environment. ``node.serving`` is what is in
    force. ``node.serve`` can say otherwise for one service: ``concurrency``, ``waiting`` and
    ``streams``.

    Args:
        service_concurrency: Calls that one instance handles at once, over all callers.
        service_waiting: Calls that wait for one instance; one more is refused.
        service_streams: Streams that one instance writes at once.
        stream_ahead: Items of a stream that were written here for a reader of this process and not
            yet taken.

    Raises:
        ConfigError: if values are not allowed; it names all of them at once.
    """

    service_concurrency: int = _limits.SERVICE_CONCURRENCY.default
    service_waiting: int = _limits.SERVICE_WAITING.default
    service_streams: int = _limits.SERVICE_STREAMS.default
    stream_ahead: int = _limits.STREAM_AHEAD.default

    _table: ClassVar[str] = "services"
