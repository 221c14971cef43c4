"""Methods of a node for agents and worker pools."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Iterable
from types import EllipsisType
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, Unpack, overload

from tidewire._node.base import Base
from tidewire._unknown_options import refuse_unknown
from tidewire.broker import BrokerConfig
from tidewire.supervision import Mailbox, Supervision

if TYPE_CHECKING:
    from tidewire._typed import AgentPoolOptions
    from tidewire.agents.agent import Agent
    from tidewire.agents.directory import Directory
    from tidewire.agents.retry import Retry
    from tidewire.errors import LinkLost
    from tidewire.node import Node
    from tidewire.pools.options import Batch, Kind, OnCancel, OnDead, Overflow, Restarts, Scale
    from tidewire.pools.pool import Pool
    from tidewire.pools.processes.pickler import Pickler

_P = ParamSpec("_P")
_M = TypeVar("_M", bound=Any)
_R = TypeVar("_R")


class Agents(Base):
    """Agents and worker pools of a node."""

    _broker: BrokerConfig
    _agents: Directory | None
    _pools: list[Pool]

    @property
    def broker(self) -> BrokerConfig:
        """The effective settings of agents and pools."""
        return self._broker

    @property
    def agents(self) -> Directory:
        """The live agents: ``get(id)``, ``list(type=..., capability=...)``."""
        if self._agents is None:
            from tidewire.agents.directory import Directory

            with self._lock:
                self._agents = self._agents or Directory(
                    self._engine.change_counter.ring, functools.partial(_cut_error, self._self)
                )
        return self._agents

    def agent(
        self,
        handler: Any,
        *,
        id: str | None = None,
        type: str | None = None,
        capabilities: Iterable[str] | None = None,
        retry: Retry | None = None,
        mailbox: int | Mailbox | None = None,
        dispatcher: str = "default",
        concurrency: int | None = None,
        supervision: Supervision | None = None,
        durable: Literal["inbox", "state"] | None = None,
    ) -> Agent:
        """Register an agent: an actor that is found by its id, its type and its capabilities.

        Args:
            handler: ``def f(payload)`` or ``def f(payload, message)``, plain or async; or an object
                with ``receive`` and methods marked by ``@tw.handle``; or a class of such objects,
                or a ``functools.partial`` of one. A parameter annotated as ``tw.Message`` receives
                the message itself.
            id: Unique id among live agents and named actors; the default is the type with a number.
            type: Type of the agent.
            capabilities: Its capabilities.
            retry: Retry policy of messages whose handler failed; the default is the
                configuration's, without retries.
            mailbox: A capacity, or a ``tw.Mailbox``; the default is the configuration's
                ``agent_mailbox``.
            dispatcher: Name of the dispatcher that runs it. Coroutines run on the node's event
                loop.
            concurrency: Most messages that an agent with coroutines handles at once.
            supervision: Reaction to failures; the default is "resume". "restart" makes a new
                object, and so needs a class or a ``functools.partial`` of one.
            durable: ``"inbox"``: messages sent with ``durable=True`` survive the process, each is
                handled at least once. ``"state"``: the object's ``state`` survives, too. It is
                stored atomically with the acknowledgment of each message and the durable messages
                that its handler has sent. One of the processes that register the id runs the agent;
                ``await agent.active()`` waits until it is this one. Failover takes 1.5 s, or is
                immediate when the link of the process ends.

        Returns:
            The agent: the object itself if it is a ``tw.Agent``, else a handle of it.

        Raises:
            InvalidArgument: if the handler can't be an agent, or an option is not allowed.
            NameTaken: if a live agent or actor has this id.
            NodeStopped: if the node has been stopped.
        """
        from tidewire.agents.registration import register

        self._check()
        options = (id, type, capabilities, retry, mailbox, dispatcher, concurrency, supervision, durable)
        return register(self._as_node, handler, *options)

    @overload
    def pool(
        self,
        function: type[Any],
        workers: int | Scale | None = None,
        kind: Kind = ...,
        batch: Batch | int | bool | None = None,
        **options: Unpack[AgentPoolOptions],
    ) -> Pool: ...

    @overload
    def pool(
        self,
        function: Callable[_P, Coroutine[Any, Any, _R]],
        workers: int | Scale | None = None,
        kind: Kind = ...,
        batch: None = None,
        **options: Unpack[AgentPoolOptions],
    ) -> Pool[_P, _R]: ...

    @overload
    def pool(
        self,
        function: Callable[_P, _R],
        workers: int | Scale | None = None,
        kind: Kind = ...,
        batch: None = None,
        **options: Unpack[AgentPoolOptions],
    ) -> Pool[_P, _R]: ...

    @overload
    def pool(
        self,
        function: Callable[[list[_M]], list[_R]],
        workers: int | Scale | None = None,
        kind: Kind = ...,
        *,
        batch: Batch | int | bool,
        **options: Unpack[AgentPoolOptions],
    ) -> Pool[[_M], _R]: ...

    @overload
    def pool(
        self,
        function: Any,
        workers: int | Scale | None = None,
        kind: Kind = ...,
        batch: Batch | int | bool | None = None,
        **options: Unpack[AgentPoolOptions],
    ) -> Pool: ...

    def pool(
        self,
        function: Callable[..., Any] | str,
        workers: int | Scale | None = None,
        kind: Kind = "thread",
        batch: Batch | int | bool | None = None,
        *,
        name: str | None = None,
        capacity: int | None = None,
        overflow: Overflow = "wait",
        task_timeout: float | None = None,
        heartbeat_timeout: float | EllipsisType | None = ...,
        max_deliveries: int | None = None,
        restarts: Restarts | None = None,
        result_bytes_max: int | None = None,
        on_dead: OnDead | None = None,
        pickler: Pickler = "auto",
        on_cancel: OnCancel = "interrupt",
        id: str | None = None,
        type: str | None = None,
        capabilities: Iterable[str] | None = None,
        retry: Retry | None = None,
        mailbox: int | Mailbox | None = None,
        concurrency: int | None = None,
        **unknown: Any,
    ) -> Pool:
        """Create a pool of supervised workers of one function: ``await pool.submit(x)``, ``async
        for y in pool.map(xs)``.

        The other options are those of ``tw.Pool`` and ``agent``. The configuration has the defaults
        of ``capacity``, ``heartbeat_timeout``, ``max_deliveries`` and ``result_bytes_max``.

        Args:
            function: The function of the workers, or its import path ``"package.module:name"``.
                With a class of agents, or a ``functools.partial`` of one, each worker makes an
                instance, and together they are one agent. With ``id``, ``type`` or ``capabilities``
                a function, or a path, becomes such an agent, too.
            workers: Number of workers, or a ``tw.Scale``; the default is the configuration's
                ``pool_workers``.
            kind: "thread", or "process" for CPU-bound work.
            batch: The function takes a list of queued arguments, and returns a list of as many
                results: a ``tw.Batch``, the largest size, or True for the configuration's.
            concurrency: For agents, most messages that the workers have taken from the mailbox; two
                per worker by default.

        Returns:
            The pool. It stops with the node, after the actors. Abandoned tasks become dead letters
            of the node, and ``requeue`` submits them again.

        Raises:
            InvalidArgument: if an argument is not allowed, or the function can't be sent to a
                process.
            NameTaken: if the node has a pool of this name.
            NodeStopped: if the node has been stopped.
        """
        from tidewire.pools.node_pools import make

        self._check()
        refuse_unknown(unknown, Agents.pool)
        config = self._broker
        options = {
            "name": name,
            "capacity": config.pool_capacity if capacity is None else capacity,
            "overflow": overflow,
            "task_timeout": task_timeout,
            "heartbeat_timeout": config.pool_heartbeat_ms / 1_000 if heartbeat_timeout is ... else heartbeat_timeout,
            "max_deliveries": config.pool_max_deliveries if max_deliveries is None else max_deliveries,
            "restarts": restarts,
            "result_bytes_max": config.pool_result_bytes if result_bytes_max is None else result_bytes_max,
            "on_dead": on_dead,
            "pickler": pickler,
            "on_cancel": on_cancel,
        }
        agent_options = (id, type, capabilities, retry, mailbox, concurrency)
        pool = make(self._as_node, function, workers, kind, batch, options, agent_options)
        self._pools = [*self._live_pools(), pool]
        return pool

    def _live_pools(self) -> list[Pool]:
        return [pool for pool in self._pools if pool.ledger is None]


def _cut_error(node_of: Callable[[], Node | None], title: str) -> LinkLost | None:
    """Return the error for an agent that is not found while the connection to NATS is lost."""
    node = node_of()
    connection = None if node is None else node._connection
    return None if connection is None or not connection.is_cut else connection.cut(title)
