"""The one place that imports the compiled part."""

from __future__ import annotations

from tidewire._tidewire import (
    ActorRef,
    Bridge,
    Context,
    Engine,
    Hub,
    Intake,
    Link,
    LinkSubscription,
    Listening,
    Pending,
    RemoteCall,
    RemoteMessage,
    RemoteStream,
    Subscription,
    Timer,
    __version__,
    after_fork,
    decode_value,
    encode_value,
    send_blocking,
)

__all__ = [
    "ActorRef",
    "Bridge",
    "Context",
    "Engine",
    "Hub",
    "Intake",
    "Link",
    "LinkSubscription",
    "Listening",
    "Pending",
    "RemoteCall",
    "RemoteMessage",
    "RemoteStream",
    "Subscription",
    "Timer",
    "__version__",
    "after_fork",
    "decode_value",
    "encode_value",
    "send_blocking",
]
