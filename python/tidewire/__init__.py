"""Tidewire: one messaging runtime from a function call to a cluster.

>>> import tidewire as tw
>>> with tw.Node() as node:
...     double = node.spawn(lambda n: n * 2)
...     node.sync.ask(double, 21)
42
"""

from __future__ import annotations

from tidewire._binding import ActorRef, Context, Pending, Subscription, Timer, __version__
from tidewire._ledger import Ledger, Stuck, Terminated
from tidewire.config import Config
from tidewire.dead_letters import DeadLetter, DeadLetters
from tidewire.errors import (
    ActorStopped,
    AlreadyStarted,
    AskCycle,
    AskTimeout,
    ConfigError,
    InvalidArgument,
    InvalidSubject,
    LimitExceeded,
    LinkLost,
    MailboxFull,
    NameTaken,
    NodeStopped,
    NoReply,
    NoResponders,
    NoSuchTarget,
    PayloadTooLarge,
    RemoteError,
    TidewireError,
    Unauthorized,
    UnknownDispatcher,
)
from tidewire.node import Node
from tidewire.subscription import Envelope, SubscriptionStream
from tidewire.supervision import Mailbox, Supervision

__all__ = [
    "ActorRef",
    "ActorStopped",
    "AlreadyStarted",
    "AskCycle",
    "AskTimeout",
    "Config",
    "ConfigError",
    "Context",
    "DeadLetter",
    "DeadLetters",
    "Envelope",
    "InvalidArgument",
    "InvalidSubject",
    "Ledger",
    "LimitExceeded",
    "LinkLost",
    "Mailbox",
    "MailboxFull",
    "NameTaken",
    "NoReply",
    "NoResponders",
    "NoSuchTarget",
    "Node",
    "NodeStopped",
    "PayloadTooLarge",
    "Pending",
    "RemoteError",
    "Stuck",
    "Subscription",
    "SubscriptionStream",
    "Supervision",
    "Terminated",
    "TidewireError",
    "Timer",
    "Unauthorized",
    "UnknownDispatcher",
    "__version__",
]
