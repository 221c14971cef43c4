"""Pools that belong to a node: its settings, its dead letters, its end."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from tidewire.dead_letters import POOL
from tidewire.errors import PayloadTooLarge, TidewireError
from tidewire.pools.function import is_agent
from tidewire.pools.live_pools import live
from tidewire.pools.options import Batch, Restarts, Scale
from tidewire.pools.pool import Pool
from tidewire.pools.task import FROM_AGENT, Task

if TYPE_CHECKING:
    from tidewire._binding import ActorRef
    from tidewire.broker import BrokerConfig
    from tidewire.node import Node

_CLOSE_S = 1.0
_REASONS = {"abandoned": "stopped", "cancelled": None}


def make(
    node: Node,
    function: Any,
    workers: int | Scale | None,
    kind: Any,
    batch: Any,
    options: dict[str, Any],
    of_agent: tuple[Any, ...],
) -> Pool:
    """Make a pool with the settings of a node. Tasks that the pool gives up go to the node's dead
    letters. One option of agents makes the pool one of agents, whatever its function is.
    """
    config = node.broker
    letters = PoolDeadLetters(node, options["on_dead"])
    settings = {**options, "on_dead": letters.add, "batch": _batch(batch, config)}
    if options["restarts"] is None:
        settings["restarts"] = Restarts(
            config.pool_restarts, backoff_ms=config.pool_backoff_ms, backoff_max_ms=config.pool_backoff_max_ms
        )
    pool: Pool
    chosen = workers if workers is not None else config.pool_workers
    if all(value is None for value in of_agent) and not is_agent(function):
        pool = Pool(function, chosen, kind, **settings)
        letters.open(pool)
        # It shows in statistics before its first task.
        live.add(pool)
        return pool
    # Agents are loaded by programs that have some.
    from tidewire.agents import agent_pool

    pool = agent_pool.make(node, function, chosen, kind, settings, agent_pool.AgentOptions(*of_agent))
    try:
        letters.open(pool)
    except BaseException:
        pool.agent._registered_state.ref.stop(False, 0.0)
        raise
    pool.start()
    return pool


class PoolDeadLetters:
    """Turns tasks that were given up into dead letters, and submits them again when they are
    requeued.
    """

    def __init__(self, node: Node, also: Any) -> None:
        self._node = weakref.ref(node)
        self._also = also
        self._ref: ActorRef | None = None

    def open(self, pool: Pool) -> None:
        """Give the letters of a pool an address: an actor that submits each message as a task."""
        node = self._node()
        assert node is not None
        whole = weakref.ref(pool)

        def again(task: Task) -> None:
            pool = whole()
            if pool is not None:
                pool._submit(pool._packing.task(task.args, task.kwargs))

        self._ref = ref = node.spawn(again, name=f"{POOL}{pool.name}")
        # The name is free for the next pool.
        pool._core.on_close.append(lambda: ref.stop(False, _CLOSE_S))

    def add(self, task: Task, reason: str, error: BaseException | None) -> None:
        """Keep a task that was given up. One that its submitter cancelled is not kept: nobody
        misses it.

        One of the pool's agent is a dead letter of that agent, if its message is given up.
        """
        node, letter_reason = self._node(), None if task.key == FROM_AGENT else _REASONS.get(reason, "failed")
        if node is not None and self._ref is not None and letter_reason is not None:
            node._give_up(self._ref, task, letter_reason, _text(reason, error))
        if self._also is not None:
            self._also(task, reason, error)


def _text(reason: str, error: BaseException | None) -> str:
    if error is None:
        return reason
    plain = isinstance(error, TidewireError) and not isinstance(error, PayloadTooLarge)
    return str(error) if plain else f"{type(error).__name__}: {error}"


def _batch(batch: Any, config: BrokerConfig) -> Any:
    """Return the batch of a pool; True means the node's settings, a number a size."""
    if batch is True:
        return Batch(config.pool_batch_size, config.pool_batch_budget_ms)
    if isinstance(batch, int) and not isinstance(batch, bool):
        return Batch(batch, config.pool_batch_budget_ms)
    return None if batch is False else batch
