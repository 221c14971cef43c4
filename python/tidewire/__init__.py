"""Tidewire: one messaging runtime from a function call to a cluster.

>>> import tidewire as tw
>>> with tw.Node() as node:
...     double = node.spawn(lambda n: n * 2)
...     node.sync.ask(double, 21)
42
"""

from __future__ import annotations

from typing import Any

from tidewire._runtime import process_state as _process_state  # noqa: F401 - before every other module

_NAMES = {
    "tidewire._binding": "ActorRef Context Pending Run Subscription Timer __version__",
    "tidewire._campaigns.campaign": "Campaign campaign campaigns open_campaign",
    "tidewire._campaigns.latin_hypercube": "latin_hypercube",
    "tidewire._campaigns.parameters": "grid",
    "tidewire._campaigns.precision": "Precision",
    "tidewire._campaigns.report": "Report",
    "tidewire._node.health": "Health",
    "tidewire._node.ledger": "Ledger Stuck Terminated",
    "tidewire._runtime.signals": "run",
    "tidewire.agents.agent": "Agent",
    "tidewire.agents.directory": "Directory",
    "tidewire.agents.handlers": "handle",
    "tidewire.agents.inbox_store": "DeadMessage DurableInfo PastMessage",
    "tidewire.agents.message": "Message",
    "tidewire.agents.receipt": "Receipt",
    "tidewire.agents.retry": "Retry",
    "tidewire.broker": "BrokerConfig",
    "tidewire.config": "Config",
    "tidewire.dead_letters": "DeadLetter DeadLetters",
    "tidewire.errors": """
        ActorStopped AlreadyStarted AskCycle AskTimeout CallCancelled CampaignError
        CodeChanged ConfigError DataCorrupt DataInUse ForkedError HomeBusy HomeError
        HomeUnavailable InvalidArgument InvalidSubject LeaseHeld LeaseLost LimitExceeded LinkLost
        MailboxFull MessageExpired NameTaken NoReply NoResponders NoSuchCampaign Overloaded
        NoSuchTarget NodeStopped NotFound PayloadTooLarge PoolFailed PoolStopped
        PublishFailed RemoteError RemoteGone RevisionConflict SettingsDiffer StaleDelivery
        StoreUnavailable StreamFull TaskQuarantined TaskTimeout TidewireError Unauthorized
        Unhandled UnknownDispatcher Unsupported VersionMismatch WireError WorkerLost
    """,
    "tidewire.link_config": "LinkConfig",
    "tidewire.links.announcements": "NodeInfo",
    "tidewire.links.federation": "Federation",
    "tidewire.links.http": "Http",
    "tidewire.links.hub": "Listener Token",
    "tidewire.links.tls": "Tls",
    "tidewire.node": "Node",
    "tidewire.objects.marks": "Remote remote",
    "tidewire.objects.proxy": "RemoteFunction RemoteObject",
    "tidewire.pools.options": "Batch Restarts Scale",
    "tidewire.pools.pool": "Pool",
    "tidewire.service_config": "ServiceConfig",
    "tidewire.services.caller.calls": "Answer",
    "tidewire.services.caller.client": "Client NoSuchMethod",
    "tidewire.services.caller.policies": "Policy",
    "tidewire.services.contract.declare": "Service command method on service",
    "tidewire.services.contract.info": "InstanceInfo MethodInfo ServiceInfo",
    "tidewire.services.instance_watch": "InstanceChange",
    "tidewire.services.instances.context": "CallContext context",
    "tidewire.services.instances.serve": "Served",
    "tidewire.services.instances.single_active": "SingleActive",
    "tidewire.streams.bucket": "Bucket Entry",
    "tidewire.streams.command_info": "CommandInfo",
    "tidewire.streams.command_run": "CommandRun SyncCommandRun",
    "tidewire.streams.consumer": "Consumer",
    "tidewire.streams.event": "DeadEvent Event",
    "tidewire.streams.lease": "Lease",
    "tidewire.streams.progress": "CommandProgress Progress",
    "tidewire.streams.publisher": "Ack Publisher",
    "tidewire.streams.schedule": "Schedule",
    "tidewire.streams.stream": "ConsumerInfo Stream StreamInfo",
    "tidewire.subscription": "Envelope SubscriptionStream",
    "tidewire.supervision": "Mailbox Supervision",
}
"""Public names by module; ``__init__.pyi`` has their types. A module is loaded at its first use:
worker processes start faster, and a program with actors alone loads no services.
"""
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_MODULES)  # noqa: PLE0605 - type checkers read the stub


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module 'tidewire' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
