"""Tidewire: one messaging runtime from a function call to a cluster.

>>> import tidewire as tw
>>> with tw.Node() as node:
...     double = node.spawn(lambda n: n * 2)
...     node.sync.ask(double, 21)
42
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidewire._runtime import half_loaded as _half_loaded  # noqa: F401 - before every other module

if TYPE_CHECKING:
    from tidewire._binding import ActorRef, Context, Pending, Run, Subscription, Timer, __version__
    from tidewire._campaigns.campaign import Campaign, campaign, campaigns, open_campaign
    from tidewire._campaigns.latin_hypercube import latin_hypercube
    from tidewire._campaigns.parameters import grid
    from tidewire._campaigns.precision import Precision
    from tidewire._campaigns.report import Report
    from tidewire._node.ledger import Ledger, Stuck, Terminated
    from tidewire._runtime.signals import run
    from tidewire._typed import Client
    from tidewire.agents.agent import Agent
    from tidewire.agents.directory import Directory
    from tidewire.agents.handlers import handle
    from tidewire.agents.inbox_store import DeadMessage, DurableInfo, PastMessage
    from tidewire.agents.message import Message
    from tidewire.agents.receipt import Receipt
    from tidewire.agents.retry import Retry
    from tidewire.broker import BrokerConfig
    from tidewire.config import Config
    from tidewire.dead_letters import DeadLetter, DeadLetters
    from tidewire.errors import (
        ActorStopped,
        AlreadyStarted,
        AskCycle,
        AskTimeout,
        CallCancelled,
        CampaignError,
        CodeChanged,
        ConfigError,
        DataCorrupt,
        DataInUse,
        HomeBusy,
        HomeError,
        HomeUnavailable,
        InvalidArgument,
        InvalidSubject,
        LeaseHeld,
        LeaseLost,
        LimitExceeded,
        LinkLost,
        MailboxFull,
        MessageExpired,
        NameTaken,
        NodeStopped,
        NoReply,
        NoResponders,
        NoSuchCampaign,
        NoSuchTarget,
        NotFound,
        PayloadTooLarge,
        PoolFailed,
        PoolStopped,
        PublishFailed,
        RemoteError,
        RemoteGone,
        RevisionConflict,
        SettingsDiffer,
        StaleDelivery,
        StoreUnavailable,
        StreamFull,
        TaskQuarantined,
        TaskTimeout,
        TidewireError,
        Unauthorized,
        Unhandled,
        UnknownDispatcher,
        Unsupported,
        VersionMismatch,
        WireError,
        WorkerLost,
    )
    from tidewire.link_config import LinkConfig
    from tidewire.links.announcements import NodeInfo
    from tidewire.links.http import Http
    from tidewire.links.hub import Listener, Token
    from tidewire.links.tls import Tls
    from tidewire.node import Node
    from tidewire.objects.marks import Remote, remote
    from tidewire.objects.proxy import RemoteFunction, RemoteObject
    from tidewire.pools.options import Batch, Restarts, Scale
    from tidewire.pools.pool import Pool
    from tidewire.service_config import ServiceConfig
    from tidewire.services.caller.calls import Answer
    from tidewire.services.caller.client import NoSuchMethod
    from tidewire.services.caller.policies import Policy
    from tidewire.services.contract.declare import Service, command, method, on, service
    from tidewire.services.contract.info import InstanceInfo, MethodInfo, ServiceInfo
    from tidewire.services.instance_watch import InstanceChange
    from tidewire.services.instances.context import CallContext, context
    from tidewire.services.instances.serve import Served
    from tidewire.services.instances.single_active import SingleActive
    from tidewire.streams.bucket import Bucket, Entry
    from tidewire.streams.command_info import CommandInfo
    from tidewire.streams.command_run import CommandRun, SyncCommandRun
    from tidewire.streams.consumer import Consumer
    from tidewire.streams.event import DeadEvent, Event
    from tidewire.streams.lease import Lease
    from tidewire.streams.progress import CommandProgress, Progress
    from tidewire.streams.publisher import Ack, Publisher
    from tidewire.streams.schedule import Schedule
    from tidewire.streams.stream import ConsumerInfo, Stream, StreamInfo
    from tidewire.subscription import Envelope, SubscriptionStream
    from tidewire.supervision import Mailbox, Supervision

# Loaded when it is first used: worker processes begin sooner, and a program that uses only actors
# loads no services.
_LATER = {
    "ActorRef": "tidewire._binding",
    "ActorStopped": "tidewire.errors",
    "Agent": "tidewire.agents.agent",
    "AlreadyStarted": "tidewire.errors",
    "Answer": "tidewire.services.caller.calls",
    "AskCycle": "tidewire.errors",
    "AskTimeout": "tidewire.errors",
    "Batch": "tidewire.pools.options",
    "BrokerConfig": "tidewire.broker",
    "CallCancelled": "tidewire.errors",
    "CallContext": "tidewire.services.instances.context",
    "Campaign": "tidewire._campaigns.campaign",
    "CampaignError": "tidewire.errors",
    "Client": "tidewire.services.caller.client",
    "DataCorrupt": "tidewire.errors",
    "DataInUse": "tidewire.errors",
    "HomeBusy": "tidewire.errors",
    "HomeError": "tidewire.errors",
    "HomeUnavailable": "tidewire.errors",
    "LeaseHeld": "tidewire.errors",
    "LeaseLost": "tidewire.errors",
    "NotFound": "tidewire.errors",
    "PublishFailed": "tidewire.errors",
    "RevisionConflict": "tidewire.errors",
    "SettingsDiffer": "tidewire.errors",
    "StaleDelivery": "tidewire.errors",
    "StreamFull": "tidewire.errors",
    "Unsupported": "tidewire.errors",
    "Ack": "tidewire.streams.publisher",
    "Publisher": "tidewire.streams.publisher",
    "Bucket": "tidewire.streams.bucket",
    "Entry": "tidewire.streams.bucket",
    "Consumer": "tidewire.streams.consumer",
    "Event": "tidewire.streams.event",
    "DeadEvent": "tidewire.streams.event",
    "DeadMessage": "tidewire.agents.inbox_store",
    "DurableInfo": "tidewire.agents.inbox_store",
    "PastMessage": "tidewire.agents.inbox_store",
    "Lease": "tidewire.streams.lease",
    "Schedule": "tidewire.streams.schedule",
    "Stream": "tidewire.streams.stream",
    "SingleActive": "tidewire.services.instances.single_active",
    "StreamInfo": "tidewire.streams.stream",
    "CommandInfo": "tidewire.streams.command_info",
    "CommandProgress": "tidewire.streams.progress",
    "CommandRun": "tidewire.streams.command_run",
    "Progress": "tidewire.streams.progress",
    "SyncCommandRun": "tidewire.streams.command_run",
    "command": "tidewire.services.contract.declare",
    "ConsumerInfo": "tidewire.streams.stream",
    "CodeChanged": "tidewire.errors",
    "Config": "tidewire.config",
    "ConfigError": "tidewire.errors",
    "Context": "tidewire._binding",
    "DeadLetter": "tidewire.dead_letters",
    "DeadLetters": "tidewire.dead_letters",
    "Directory": "tidewire.agents.directory",
    "Envelope": "tidewire.subscription",
    "Http": "tidewire.links.http",
    "InstanceChange": "tidewire.services.instance_watch",
    "InstanceInfo": "tidewire.services.contract.info",
    "InvalidArgument": "tidewire.errors",
    "InvalidSubject": "tidewire.errors",
    "Ledger": "tidewire._node.ledger",
    "LimitExceeded": "tidewire.errors",
    "LinkConfig": "tidewire.link_config",
    "LinkLost": "tidewire.errors",
    "Listener": "tidewire.links.hub",
    "Mailbox": "tidewire.supervision",
    "MailboxFull": "tidewire.errors",
    "Message": "tidewire.agents.message",
    "MessageExpired": "tidewire.errors",
    "MethodInfo": "tidewire.services.contract.info",
    "NameTaken": "tidewire.errors",
    "NoReply": "tidewire.errors",
    "NoResponders": "tidewire.errors",
    "NoSuchCampaign": "tidewire.errors",
    "NoSuchMethod": "tidewire.services.caller.client",
    "NoSuchTarget": "tidewire.errors",
    "Node": "tidewire.node",
    "NodeInfo": "tidewire.links.announcements",
    "NodeStopped": "tidewire.errors",
    "PayloadTooLarge": "tidewire.errors",
    "Pending": "tidewire._binding",
    "Policy": "tidewire.services.caller.policies",
    "Pool": "tidewire.pools.pool",
    "PoolFailed": "tidewire.errors",
    "PoolStopped": "tidewire.errors",
    "Precision": "tidewire._campaigns.precision",
    "Receipt": "tidewire.agents.receipt",
    "Remote": "tidewire.objects.marks",
    "RemoteError": "tidewire.errors",
    "RemoteFunction": "tidewire.objects.proxy",
    "RemoteGone": "tidewire.errors",
    "RemoteObject": "tidewire.objects.proxy",
    "Report": "tidewire._campaigns.report",
    "Restarts": "tidewire.pools.options",
    "Retry": "tidewire.agents.retry",
    "Run": "tidewire._binding",
    "Scale": "tidewire.pools.options",
    "Served": "tidewire.services.instances.serve",
    "Service": "tidewire.services.contract.declare",
    "ServiceConfig": "tidewire.service_config",
    "ServiceInfo": "tidewire.services.contract.info",
    "StoreUnavailable": "tidewire.errors",
    "Stuck": "tidewire._node.ledger",
    "Subscription": "tidewire._binding",
    "SubscriptionStream": "tidewire.subscription",
    "Supervision": "tidewire.supervision",
    "TaskQuarantined": "tidewire.errors",
    "TaskTimeout": "tidewire.errors",
    "Terminated": "tidewire._node.ledger",
    "TidewireError": "tidewire.errors",
    "Timer": "tidewire._binding",
    "Tls": "tidewire.links.tls",
    "Token": "tidewire.links.hub",
    "Unauthorized": "tidewire.errors",
    "Unhandled": "tidewire.errors",
    "UnknownDispatcher": "tidewire.errors",
    "VersionMismatch": "tidewire.errors",
    "WireError": "tidewire.errors",
    "WorkerLost": "tidewire.errors",
    "__version__": "tidewire._binding",
    "campaign": "tidewire._campaigns.campaign",
    "campaigns": "tidewire._campaigns.campaign",
    "context": "tidewire.services.instances.context",
    "grid": "tidewire._campaigns.parameters",
    "handle": "tidewire.agents.handlers",
    "latin_hypercube": "tidewire._campaigns.latin_hypercube",
    "method": "tidewire.services.contract.declare",
    "on": "tidewire.services.contract.declare",
    "open_campaign": "tidewire._campaigns.campaign",
    "run": "tidewire._runtime.signals",
    "remote": "tidewire.objects.marks",
    "service": "tidewire.services.contract.declare",
}

__all__ = [
    "Ack",
    "ActorRef",
    "ActorStopped",
    "Agent",
    "AlreadyStarted",
    "Answer",
    "AskCycle",
    "AskTimeout",
    "Batch",
    "BrokerConfig",
    "Bucket",
    "CallCancelled",
    "CallContext",
    "Campaign",
    "CampaignError",
    "Client",
    "CodeChanged",
    "CommandInfo",
    "CommandProgress",
    "CommandRun",
    "Config",
    "ConfigError",
    "Consumer",
    "ConsumerInfo",
    "Context",
    "DataCorrupt",
    "DataInUse",
    "DeadEvent",
    "DeadLetter",
    "DeadLetters",
    "DeadMessage",
    "Directory",
    "DurableInfo",
    "Entry",
    "Envelope",
    "Event",
    "HomeBusy",
    "HomeError",
    "HomeUnavailable",
    "Http",
    "InstanceChange",
    "InstanceInfo",
    "InvalidArgument",
    "InvalidSubject",
    "Lease",
    "LeaseHeld",
    "LeaseLost",
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
    "NoSuchCampaign",
    "NoSuchMethod",
    "NoSuchTarget",
    "Node",
    "NodeInfo",
    "NodeStopped",
    "NotFound",
    "PastMessage",
    "PayloadTooLarge",
    "Pending",
    "Policy",
    "Pool",
    "PoolFailed",
    "PoolStopped",
    "Precision",
    "Progress",
    "PublishFailed",
    "Publisher",
    "Receipt",
    "Remote",
    "RemoteError",
    "RemoteFunction",
    "RemoteGone",
    "RemoteObject",
    "Report",
    "Restarts",
    "Retry",
    "RevisionConflict",
    "Run",
    "Scale",
    "Schedule",
    "Served",
    "Service",
    "ServiceConfig",
    "ServiceInfo",
    "SettingsDiffer",
    "SingleActive",
    "StaleDelivery",
    "StoreUnavailable",
    "Stream",
    "StreamFull",
    "StreamInfo",
    "Stuck",
    "Subscription",
    "SubscriptionStream",
    "Supervision",
    "SyncCommandRun",
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
    "Unsupported",
    "VersionMismatch",
    "WireError",
    "WorkerLost",
    "__version__",
    "campaign",
    "campaigns",
    "command",
    "context",
    "grid",
    "handle",
    "latin_hypercube",
    "method",
    "on",
    "open_campaign",
    "remote",
    "run",
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


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
