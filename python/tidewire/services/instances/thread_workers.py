"""Thread workers of a service: actors that run its plain functions on the threads of a dispatcher,
one for each call under way.
"""

from __future__ import annotations

import itertools
from operator import methodcaller
from typing import TYPE_CHECKING

from tidewire._binding import ThreadWorkers
from tidewire._handlers import Plan
from tidewire._node.actors import Options
from tidewire.services.instances.concurrency_limits import ConcurrencyLimits
from tidewire.supervision import Mailbox

if TYPE_CHECKING:
    from tidewire._binding import ActorRef
    from tidewire.node import Node


_numbers = itertools.count(1)
"""Names of actors are unique in a node."""


def spawn_workers(
    node: Node, capacity: ConcurrencyLimits, dispatcher: str, parent: ActorRef | None, title: str | None = None
) -> ThreadWorkers:
    """Return the thread workers of one instance.

    Args:
        node: Where they live.
        capacity: How many there are at most, and how many calls wait at busy actors. Streams
            that go on are not among them.
        dispatcher: Dispatcher whose threads run them.
        parent: The actor after whose end they end, if there is one.
        title: Title of the service in their names, which errors and statistics show.
    """
    # Cancelled calls stay in a mailbox until their turn: it has to have an end too.
    mailbox = Mailbox(capacity.calls + capacity.waiting + capacity.streams)
    options = Options(mailbox=mailbox, dispatcher=dispatcher)
    spawn = node._spawner(lambda: Plan(methodcaller("run"), False, False), options, parent)
    names = (None if title is None else f"worker {next(_numbers)} of {title}" for _ in itertools.count())
    return ThreadWorkers(lambda: spawn(name=next(names)), capacity.calls, capacity.waiting)
