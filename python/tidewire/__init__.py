"""Tidewire: one messaging runtime from a function call to a cluster.

>>> import tidewire as tw
>>> with tw.Node() as node:
...     double = node.spawn(lambda n: n * 2)
...     node.sync.ask(double, 21)
42
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidewire._binding import ActorRef, Context, Pending, Subscription, Timer, __version__
from tidewire._ledger import Ledger, Stuck, Terminated
from tidewire.broker import BrokerConfig
from tidewire.config import Config
from tidewire.dead_letters import DeadLetter, DeadLetters
from tidewire.errors import (
    ActorStopped,
    AlreadyStarted,
    AskCycle,
    AskTimeout,
    CallCancelled,
    ConfigError,
    InvalidArgument,
    InvalidSubject,
    LimitExceeded,
    LinkLost,
    MailboxFull,
    MessageExpired,
    NameTaken,
    NodeStopped,
    NoReply,
    NoResponders,
    NoSuchTarget,
    PayloadTooLarge,
    PoolFailed,
    PoolStopped,
    RemoteError,
    TaskQuarantined,
    TaskTimeout,
    TidewireError,
    Unauthorized,
    Unhandled,
    UnknownDispatcher,
    VersionMismatch,
    WireError,
    WorkerLost,
)
from tidewire.node import Node
from tidewire.subscription import Envelope, SubscriptionStream
from tidewire.supervision import Mailbox, Supervision

if TYPE_CHECKING:
    from tidewire.agents.agent import Agent
    from tidewire.agents.directory import Directory
    from tidewire.agents.handlers import handle
    from tidewire.agents.message import Message
    from tidewire.agents.receipt import Receipt
    from tidewire.agents.retry import Retry
    from tidewire.pools.options import Batch, Restarts, Scale
    from tidewire.pools.pool import Pool

# What a program that uses only actors need not load.
_LATER = {
    "Agent": "tidewire.agents.agent",
    "Batch": "tidewire.pools.options",
    "Directory": "tidewire.agents.directory",
    "Message": "tidewire.agents.message",
    "Pool": "tidewire.pools.pool",
    "Receipt": "tidewire.agents.receipt",
    "Restarts": "tidewire.pools.options",
    "Retry": "tidewire.agents.retry",
    "Scale": "tidewire.pools.options",
    "handle": "tidewire.agents.handlers",
}

__all__ = [
    "ActorRef",
    "ActorStopped",
    "Agent",
    "AlreadyStarted",
    "AskCycle",
    "AskTimeout",
    "Batch",
    "BrokerConfig",
    "CallCancelled",
    "Config",
    "ConfigError",
    "Context",
    "DeadLetter",
    "DeadLetters",
    "Directory",
    "Envelope",
    "InvalidArgument",
    "InvalidSubject",
    "Ledger",
    "LimitExceeded",
    "LinkLost",
    "Mailbox",
    "MailboxFull",
    "Message",
    "MessageExpired",
    "NameTaken",
    "NoReply",
    "NoResponders",
    "NoSuchTarget",
    "Node",
    "NodeStopped",
    "PayloadTooLarge",
    "Pending",
    "Pool",
    "PoolFailed",
    "PoolStopped",
    "Receipt",
    "RemoteError",
    "Restarts",
    "Retry",
    "Scale",
    "Stuck",
    "Subscription",
    "SubscriptionStream",
    "Supervision",
    "TaskQuarantined",
    "TaskTimeout",
    "Terminated",
    "TidewireError",
    "Timer",
    "Unauthorized",
    "Unhandled",
    "UnknownDispatcher",
    "VersionMismatch",
    "WireError",
    "WorkerLost",
    "__version__",
    "handle",
]


def __getattr__(name: str) -> Any:
    module = _LATER.get(name)
    if module is None:
        raise AttributeError(f"module 'tidewire' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(module), name)
    globals()[name] = value
    return value
