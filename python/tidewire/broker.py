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
    """Defaults of agents and pools, where a call gives no value. ``docs/reference/limits.md`` has
    the units and ranges.

    It is the table ``broker`` of a node's configuration: ``tw.Node(config={"broker":
    {"retry_limit": 3}})``, the table ``[broker]`` of a TOML file, or
    ``TIDEWIRE_BROKER__RETRY_LIMIT=3`` in the environment. ``node.broker`` is what is in force.

    Args:
        agent_mailbox: Messages that wait for one agent.
        agent_concurrency: Messages that an agent with coroutines handles at once.
        queue_warning: Messages or tasks that wait in one queue when a warning is logged.
        retry_limit: Further attempts at a message whose handler failed.
        retry_backoff_ms: Wait before the second attempt; it doubles.
        retry_backoff_max_ms: Longest wait between two attempts.
        pool_workers: Workers of a pool.
        pool_capacity: Tasks that wait in a pool.
        pool_batch_size: Tasks that a function which takes batches gets at once.
        pool_batch_budget_ms: How long the oldest task waits for its batch to fill.
        pool_target_wait_ms: Queueing time above which a pool that scales adds workers.
        pool_heartbeat_ms: How long a worker process that has a task may give no sign of life.
        pool_max_deliveries: How often a task is handed to a worker that ends over it.
        pool_restarts: Workers that may end within a minute without having finished a task.
        pool_backoff_ms: Wait before the second such worker is replaced; it doubles.
        pool_backoff_max_ms: Longest wait before a worker is replaced.
        pool_result_bytes: Largest pickled result of a worker process.

    Raises:
        ConfigError: if values are not allowed; it names all of them at once.
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
        """How agents try again where nothing else is said."""
        from tidewire.agents.retry import Retry

        return Retry(self.retry_limit, self.retry_backoff_ms, self.retry_backoff_max_ms)
