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
    RemoteGone,
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
from tidewire.link_config import LinkConfig
from tidewire.node import Node
from tidewire.service_config import ServiceConfig
from tidewire.subscription import Envelope, SubscriptionStream
from tidewire.supervision import Mailbox, Supervision

if TYPE_CHECKING:
    from tidewire.agents.agent import Agent
    from tidewire.agents.directory import Directory
    from tidewire.agents.handlers import handle
    from tidewire.agents.message import Message
    from tidewire.agents.receipt import Receipt
    from tidewire.agents.retry import Retry
    from tidewire.links.listening import Listener, Token
    from tidewire.links.tls import Tls
    from tidewire.objects.marks import Remote, remote
    from tidewire.objects.proxy import RemoteFunction, RemoteObject
    from tidewire.pools.options import Batch, Restarts, Scale
    from tidewire.pools.pool import Pool
    from tidewire.services.calls import Answer
    from tidewire.services.context import CallContext, context
    from tidewire.services.declare import Service, method, on, service
    from tidewire.services.info import MethodInfo, ServiceInfo
    from tidewire.services.policies import Policy
    from tidewire.services.serving import Served

# What a program that uses only actors need not load.
_LATER = {
    "Agent": "tidewire.agents.agent",
    "Answer": "tidewire.services.calls",
    "Batch": "tidewire.pools.options",
    "CallContext": "tidewire.services.context",
    "Directory": "tidewire.agents.directory",
    "Listener": "tidewire.links.listening",
    "Message": "tidewire.agents.message",
    "MethodInfo": "tidewire.services.info",
    "Policy": "tidewire.services.policies",
    "Pool": "tidewire.pools.pool",
    "Receipt": "tidewire.agents.receipt",
    "Remote": "tidewire.objects.marks",
    "RemoteFunction": "tidewire.objects.proxy",
    "RemoteObject": "tidewire.objects.proxy",
    "Restarts": "tidewire.pools.options",
    "Retry": "tidewire.agents.retry",
    "Scale": "tidewire.pools.options",
    "Served": "tidewire.services.serving",
    "Service": "tidewire.services.declare",
    "ServiceInfo": "tidewire.services.info",
    "Tls": "tidewire.links.tls",
    "Token": "tidewire.links.listening",
    "context": "tidewire.services.context",
    "handle": "tidewire.agents.handlers",
    "method": "tidewire.services.declare",
    "on": "tidewire.services.declare",
    "remote": "tidewire.objects.marks",
    "service": "tidewire.services.declare",
}

__all__ = [
    "ActorRef",
    "ActorStopped",
    "Agent",
    "AlreadyStarted",
    "Answer",
    "AskCycle",
    "AskTimeout",
    "Batch",
    "BrokerConfig",
    "CallCancelled",
    "CallContext",
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
    "LinkConfig",
    "LinkLost",
    "Listener",
    "Mailbox",
    "MailboxFull",
    "Message",
    "MessageExpired",
    "MethodInfo",
    "NameTaken",
    "NoReply",
    "NoResponders",
    "NoSuchTarget",
    "Node",
    "NodeStopped",
    "PayloadTooLarge",
    "Pending",
    "Policy",
    "Pool",
    "PoolFailed",
    "PoolStopped",
    "Receipt",
    "Remote",
    "RemoteError",
    "RemoteFunction",
    "RemoteGone",
    "RemoteObject",
    "Restarts",
    "Retry",
    "Scale",
    "Served",
    "Service",
    "ServiceConfig",
    "ServiceInfo",
    "Stuck",
    "Subscription",
    "SubscriptionStream",
    "Supervision",
    "TaskQuarantined",
    "TaskTimeout",
    "Terminated",
    "TidewireError",
    "Timer",
    "Tls",
    "Token",
    "Unauthorized",
    "Unhandled",
    "UnknownDispatcher",
    "VersionMismatch",
    "WireError",
    "WorkerLost",
    "__version__",
    "context",
    "handle",
    "method",
    "on",
    "remote",
    "service",
]


def __getattr__(name: str) -> Any:
    module = _LATER.get(name)
    if module is None:
        raise AttributeError(f"module 'tidewire' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(module), name)
    globals()[name] = value
    return value
