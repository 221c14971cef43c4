"""The settings of agents and worker pools."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from tidewire import _limits
from tidewire._numbers import Numbers

if TYPE_CHECKING:
    from tidewire.agents.retry import Retry


@dataclass(frozen=True)
class BrokerConfig(Numbers):
    """Default settings of agents and pools. ``docs/reference/limits.md`` has the units and ranges.

    It is the table ``broker`` of a node's configuration: ``tw.Node(config={"broker":
    {"retry_limit": 3}})``, the table ``[broker]`` of a TOML file, or
    ``TIDEWIRE_BROKER__RETRY_LIMIT=3`` in the environment. ``node.broker`` has the effective
    settings.

    Args:
        agent_mailbox: Capacity of the mailbox of an agent, in messages.
        agent_concurrency: Most messages that an agent with coroutines handles at once.
        queue_warning: Length of a queue, in messages or tasks, from which a warning is logged.
        retry_limit: Retries of a message whose handler failed.
        retry_backoff_ms: Delay before the first retry; it doubles with each one.
        retry_backoff_max_ms: Longest delay before a retry.
        pool_workers: Number of workers of a pool.
        pool_capacity: Capacity of the queue of a pool, in tasks.
        pool_batch_size: Most tasks in one batch of a function that takes batches.
        pool_batch_budget_ms: Longest wait of the oldest task for its batch to fill.
        pool_target_wait_ms: Queueing time above which a scaling pool adds workers.
        pool_heartbeat_ms: Heartbeat timeout of a worker process with a task.
        pool_max_deliveries: Most deliveries of a task whose worker dies.
        pool_restarts: Workers that may die within a minute before they finish a task.
        pool_backoff_ms: Delay before the second such worker is replaced; it doubles with each one.
        pool_backoff_max_ms: Longest delay before a worker is replaced.
        pool_result_bytes: Largest pickled result of a worker process.

    Raises:
        ConfigError: if values are not allowed; the error lists all of them.
    """

    agent_mailbox: int = _limits.AGENT_MAILBOX.default
    agent_concurrency: int = _limits.AGENT_CONCURRENCY.default
    queue_warning: int = _limits.QUEUE_WARNING.default
    retry_limit: int = _limits.RETRY_LIMIT.default
    retry_backoff_ms: int = _limits.RETRY_BACKOFF_MS.default
    retry_backoff_max_ms: int = _limits.RETRY_BACKOFF_MAX_MS.default
    pool_workers: int = _limits.POOL_WORKERS.default
    pool_capacity: int = _limits.POOL_CAPACITY.default
    pool_batch_size: int = _limits.POOL_BATCH_SIZE.default
    pool_batch_budget_ms: int = _limits.POOL_BATCH_BUDGET_MS.default
    pool_target_wait_ms: int = _limits.POOL_TARGET_WAIT_MS.default
    pool_heartbeat_ms: int = _limits.POOL_HEARTBEAT_MS.default
    pool_max_deliveries: int = _limits.POOL_MAX_DELIVERIES.default
    pool_restarts: int = _limits.POOL_RESTARTS.default
    pool_backoff_ms: int = _limits.POOL_BACKOFF_MS.default
    pool_backoff_max_ms: int = _limits.POOL_BACKOFF_MAX_MS.default
    pool_result_bytes: int = _limits.POOL_RESULT_BYTES.default

    _table: ClassVar[str] = "broker"

    @property
    def retry(self) -> Retry:
        """Default retry policy of agents."""
        from tidewire.agents.retry import Retry

        return Retry(self.retry_limit, self.retry_backoff_ms, self.retry_backoff_max_ms)
