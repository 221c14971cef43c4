"""Pools of a node, with its settings and its dead letters."""

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
    agent_options: tuple[Any, ...],
) -> Pool:
    """Make a pool with the settings of a node. Its dead tasks become dead letters of the node. Any
    option of agents makes it a pool of agents.
    """
    config = node.broker
    letters = PoolDeadLetters(node, options["on_dead"])
    settings = {**options, "on_dead": letters.add, "batch": _batch(batch, config)}
    if options["restarts"] is None:
        settings["restarts"] = Restarts(
            config.pool_restarts, backoff_ms=config.pool_backoff_ms, backoff_max_ms=config.pool_backoff_max_ms
        )
    pool: Pool
    worker_count = workers if workers is not None else config.pool_workers
    if all(value is None for value in agent_options) and not is_agent(function):
        pool = Pool(function, worker_count, kind, **settings)
        letters.open(pool)
        # Registered before its first task, for the statistics.
        live.add(pool)
        return pool
    # Imported late, as programs without agents need not load it.
    from tidewire.agents import agent_pool

    pool = agent_pool.make(node, function, worker_count, kind, settings, agent_pool.AgentOptions(*agent_options))
    try:
        letters.open(pool)
    except BaseException:
        pool.agent._registered_state.ref.stop(False, 0.0)
        raise
    pool.start()
    return pool


class PoolDeadLetters:
    """Dead letters of a pool: they store dead tasks, and resubmit them on a requeue."""

    def __init__(self, node: Node, on_dead: Any) -> None:
        self._node = weakref.ref(node)
        self._on_dead = on_dead
        self._ref: ActorRef | None = None

    def open(self, pool: Pool) -> None:
        """Spawn the actor of the dead letters, which submits each requeued message as a task."""
        node = self._node()
        assert node is not None
        pool_ref = weakref.ref(pool)

        def resubmit(task: Task) -> None:
            pool = pool_ref()
            if pool is not None:
                pool._submit(pool._packing.task(task.args, task.kwargs))

        self._ref = ref = node.spawn(resubmit, name=f"{POOL}{pool.name}")
        # The stop frees the name for the next pool.
        pool._core.on_close.append(lambda: ref.stop(False, _CLOSE_S))

    def add(self, task: Task, reason: str, error: BaseException | None) -> None:
        """Store a dead task, unless its submitter cancelled it.

        A task of the pool's agent is not stored here: its message becomes a dead letter of the
        agent.
        """
        node, letter_reason = self._node(), None if task.key == FROM_AGENT else _REASONS.get(reason, "failed")
        if node is not None and self._ref is not None and letter_reason is not None:
            node._give_up(self._ref, task, letter_reason, _text(reason, error))
        if self._on_dead is not None:
            self._on_dead(task, reason, error)


def _text(reason: str, error: BaseException | None) -> str:
    if error is None:
        return reason
    has_full_text = isinstance(error, TidewireError) and not isinstance(error, PayloadTooLarge)
    return str(error) if has_full_text else f"{type(error).__name__}: {error}"


def _batch(batch: Any, config: BrokerConfig) -> Any:
    """Return the batch of a pool: True selects the settings of the node, a number sets the size."""
    if batch is True:
        return Batch(config.pool_batch_size, config.pool_batch_budget_ms)
    if isinstance(batch, int) and not isinstance(batch, bool):
        return Batch(batch, config.pool_batch_budget_ms)
    return None if batch is False else batch
