"""Thread workers of a service: actors that run its plain functions on the threads of a dispatcher,
one for each call under way.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tidewire._handlers import Plan
from tidewire._node.actors import Options
from tidewire.errors import ActorStopped, MailboxFull
from tidewire.services.instances.concurrency_limits import ConcurrencyLimits
from tidewire.supervision import Mailbox

if TYPE_CHECKING:
    from tidewire._binding import ActorRef, Pending, RemoteCall
    from tidewire.node import Node


_numbers = itertools.count(1)
"""Names of actors are unique in a node."""


class Member:
    """A thread worker, and how many jobs it has."""

    __slots__ = ("actor", "jobs")

    def __init__(self, actor: ActorRef) -> None:
        self.actor = actor
        self.jobs = 0


class WorkerCall:
    """Something to run, who runs it, and the call of another node that it answers, if it does."""

    __slots__ = ("_workers", "call", "member", "work")

    def __init__(self, workers: ThreadWorkers, work: Callable[[], Any], call: RemoteCall | None = None) -> None:
        self._workers = workers
        self.work = work
        self.call = call
        self.member: Member | None = None

    def run(self) -> Any:
        """Run it. The actor is free for the next job afterwards."""
        try:
            return self.work()
        finally:
            self.over()

    def over(self) -> None:
        """Say that it has run, or never will."""
        self._workers.give_back(self)


class ThreadWorkers:
    """The actors of one instance. They are made when they are needed, and stay.

    Args:
        node: Where they live.
        capacity: How many there are at most, and how many calls wait at busy actors. Streams
            that go on are not among them.
        dispatcher: Dispatcher whose threads run them.
        parent: The actor after whose end they end, if there is one.
        title: Title of the service in their names, which errors and statistics show.
    """

    def __init__(
        self,
        node: Node,
        capacity: ConcurrencyLimits,
        dispatcher: str,
        parent: ActorRef | None,
        title: str | None = None,
    ) -> None:
        self._node = node
        self._capacity = capacity
        # Cancelled calls stay in a mailbox until their turn: it has to have an end too.
        self._mailbox = Mailbox(capacity.calls + capacity.waiting + capacity.streams)
        self._dispatcher = dispatcher
        self._parent = parent
        self._title = title
        # The lock protects who is free, and who has which job.
        self._lock = threading.RLock()
        self._members: list[Member] = []
        self._jobs = 0
        self._turn = 0
        self._closed = False
        # Made at once, so that a dispatcher that does not exist is found before the first call.
        self._free = [self._spawn()]

    @property
    def actors(self) -> list[ActorRef]:
        """The actors there are."""
        return [member.actor for member in list(self._members)]

    @property
    def idle(self) -> int:
        """How many of them have nothing to do."""
        return len(self._free)

    def ask(self, work: Callable[[], Any], timeout: float | None, priority: str) -> tuple[Pending, WorkerCall]:
        """Have something run, and return its reply to come.

        Raises:
            ActorStopped: if the service is stopping.
            MailboxFull: if too many wait.
        """
        job = WorkerCall(self, work)
        actor = self._hand(job, self._capacity.calls + self._capacity.waiting)
        try:
            return actor.ask(job, timeout, priority), job
        except BaseException:
            job.over()
            raise

    def tell(
        self, work: Callable[[], Any], priority: str, most: int | None = None, call: RemoteCall | None = None
    ) -> None:
        """Have something run, for a call of another node if one is given.

        Raises:
            ActorStopped: if the service is stopping.
            MailboxFull: if ``most`` jobs run or wait.
        """
        job = WorkerCall(self, work, call)
        actor = self._hand(job, most)
        try:
            actor.tell(job, priority)
        except BaseException:
            job.over()
            raise

    def close(self) -> None:
        """Make no more actors, as those there are will be stopped."""
        with self._lock:
            self._closed = True
            self._free.clear()

    def end(self) -> None:
        """Close, and stop all actors at once."""
        self.close()
        for actor in self.actors:
            actor.stop(drain=False, timeout=0.0)

    def give_back(self, job: WorkerCall) -> None:
        """Let the actor of a job take another one. A second time does nothing."""
        with self._lock:
            member, job.member = job.member, None
            if member is None:
                return
            member.jobs -= 1
            self._jobs -= 1
            if not member.jobs and not self._closed:
                self._free.append(member)

    def _hand(self, job: WorkerCall, most: int | None) -> ActorRef:
        """Return the actor that a job goes to, if there are not as many as ``most`` already."""
        with self._lock:
            if most is not None and self._jobs >= most:
                raise MailboxFull(
                    f"service_waiting={self._capacity.waiting}: so many calls wait already: try again later"
                )
            # The one that was busy last: what it needs is still at hand.
            member = self._free.pop() if self._free else None
            if member is None and self._closed:
                raise ActorStopped("its service is stopping: call another instance")
            if member is None and len(self._members) < self._capacity.calls:
                # Calls that wait while the parent stops get on with the actors there are.
                with contextlib.suppress(ActorStopped):
                    member = self._spawn()
            if member is None:
                self._turn = (self._turn + 1) % len(self._members)
                member = self._members[self._turn]
            member.jobs += 1
            self._jobs += 1
            job.member = member
            return member.actor

    def _spawn(self) -> Member:
        def plan() -> Plan:
            return Plan(_receive, takes_context=False, coroutine=False)

        name = None if self._title is None else f"worker {next(_numbers)} of {self._title}"
        options = Options(name=name, mailbox=self._mailbox, dispatcher=self._dispatcher)
        member = Member(self._node._spawn_plan(plan, options, self._parent))
        self._members.append(member)
        return member


def _receive(job: WorkerCall) -> Any:
    return job.run()
