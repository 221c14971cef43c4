"""The one place that imports the compiled part."""

from __future__ import annotations

from tidewire._tidewire import (
    ActorRef,
    Bridge,
    Context,
    Engine,
    Intake,
    Pending,
    Subscription,
    Timer,
    __version__,
    mark_forked,
    send_blocking,
)

__all__ = [
    "ActorRef",
    "Bridge",
    "Context",
    "Engine",
    "Intake",
    "Pending",
    "Subscription",
    "Timer",
    "__version__",
    "mark_forked",
    "send_blocking",
]
