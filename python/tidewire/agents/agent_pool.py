"""Pool of agents: one agent whose messages the workers of a pool handle."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any

from tidewire import _limits
from tidewire._handlers import Plan
from tidewire._node.actors import Options
from tidewire._node.ledger import Ledger
from tidewire.agents import handlers
from tidewire.agents.agent import Agent
from tidewire.agents.agent_state import AgentState
from tidewire.agents.in_worker import Maker, fields, probe, title_of
from tidewire.agents.registration import describe, enter, stopped_hook
from tidewire.agents.retry import Retry
from tidewire.errors import InvalidArgument, MessageExpired, PoolFailed, PoolStopped, TaskQuarantined
from tidewire.pools.pool import STOP_TIMEOUT_S, Pool
from tidewire.pools.task import FROM_AGENT
from tidewire.supervision import whole

if TYPE_CHECKING:
    from asyncio import Future

    from tidewire._runtime.steps import Steps
    from tidewire.agents.handlers import Table
    from tidewire.node import Node
    from tidewire.supervision import Mailbox

# One running message and one queued.
_PER_WORKER = 2
_FINAL = (TaskQuarantined, PoolFailed, PoolStopped)


@dataclass
class AgentOptions:
    """Options of ``Node.agent`` for the agent of a pool."""

    id: str | None = None
    type: str | None = None
    capabilities: Iterable[str] | None = None
    retry: Retry | None = None
    mailbox: int | Mailbox | None = None
    concurrency: int | None = None


class AgentPool(Pool):
    """A pool whose workers run agents; see ``Node.pool``. Other agents address them through
    ``pool.agent``.
    """

    agent: Agent

    def statistics(self) -> dict[str, Any]:
        """Return the statistics of the pool; ``agent`` is the id of its agent."""
        return {**super().statistics(), "agent": self.agent.id}

    def drain(self) -> None:
        """Drain the agent, then the pool. Returns at once."""
        self.agent._registered_state.ref.stop(True, None)

    def _ending(self, drain: bool = True, timeout: float | None = STOP_TIMEOUT_S) -> Steps[Ledger]:
        """Stop the agent, then the workers. The stop report counts tasks, and counts messages that
        the mailbox returned as returned.
        """
        deadline = None if timeout is None else monotonic() + timeout
        mailbox = yield from self.agent._stopping(drain, timeout)
        remaining_s = None if deadline is None else max(0.0, deadline - monotonic())
        return _combined_report((yield from super()._ending(drain, remaining_s)), mailbox)


def make(
    node: Node, target: Any, workers: Any, kind: Any, settings: dict[str, Any], options: AgentOptions
) -> AgentPool:
    """Make a pool of agents, and register its agent; see ``Node.pool``."""
    if settings.pop("batch", None) is not None:
        raise InvalidArgument("batch: a pool of agents takes messages one by one: leave it out, or give a function")
    prototype = probe(target)
    table = handlers.table_of(prototype)
    for topic, _ in table.topics:
        node._engine.check_pattern(topic)
    agent = _described_agent(prototype, target, options)
    agent_state = AgentState(node, node.agents, agent.id, _retry(options.retry, node), node.broker.queue_warning)
    agent_state.started = True
    maker = Maker(
        target, (agent.id, agent.type, frozenset(agent.capabilities)), agent_state if kind == "thread" else None
    )
    settings["name"] = agent.id if settings["name"] is None else settings["name"]
    pool = AgentPool(maker, workers, kind, **settings)
    pool.agent = agent
    _register(node, pool, agent_state, table, options)
    return pool


def _described_agent(prototype: Any, target: Any, options: AgentOptions) -> Agent:
    agent = Agent()
    declared = prototype if isinstance(prototype, Agent) else agent
    agent.id, agent.type, agent.capabilities = declared.id, declared.type, declared.capabilities
    describe(agent, agent, options.id, options.type, options.capabilities, title_of(target))
    return agent


def _retry(retry: Retry | None, node: Node) -> Retry:
    if retry is not None and not isinstance(retry, Retry):
        raise InvalidArgument(f"retry: {retry!r} is not allowed: give a tw.Retry, or None for the configuration's")
    return retry or node.broker.retry


def _register(node: Node, pool: AgentPool, agent_state: AgentState, table: Table, options: AgentOptions) -> None:
    workers_max = pool._options.scale.max
    concurrency = options.concurrency
    if concurrency is None:
        concurrency = min(_PER_WORKER * workers_max, int(_limits.CONCURRENCY.max))
    whole("concurrency", concurrency, _limits.CONCURRENCY)
    capacity = node.broker.agent_mailbox if options.mailbox is None else options.mailbox
    plan = Plan(
        _receiver(pool, agent_state, table), True, True, stopped=stopped_hook(agent_state, lambda: Pool.drain(pool))
    )
    pool.agent._agent_state_ = agent_state
    agent_state.ref = node._spawn_plan(lambda: plan, Options(pool.agent.id, capacity, concurrency=concurrency))
    enter(pool.agent, agent_state, table)
    pool._core.on_close.append(lambda: agent_state.ref.stop(True))


def _receiver(pool: AgentPool, agent_state: AgentState, table: Table) -> Any:
    """Return the handler of the pool's agent, which passes each message to a worker and awaits its
    outcome.
    """
    single = table.only()
    is_payload_only = single is not None and not (single.takes_message or single.wants_message)
    is_pickled = pool._options.kind == "process"

    async def receive(payload: Any, context: Any) -> Any:
        message = agent_state.begin(payload, context)
        if "context" not in table.kinds and agent_state.store_context(message):
            return None
        try:
            if is_pickled:
                is_bare = is_payload_only and not message.flags
                value = await _submit(pool, (message.payload,) if is_bare else (message.payload, fields(message)))
            else:
                value = await _submit(pool, (message.payload, message))
        except asyncio.CancelledError as error:
            agent_state.failed(message, error)
            raise
        except BaseException as error:
            if isinstance(error, MessageExpired) and message.expired:
                raise agent_state.expire(message) from None
            if agent_state.schedule_retry(message, error, final=isinstance(error, _FINAL)):
                return None
            raise
        agent_state.done(message)
        return value

    return receive


def _submit(pool: AgentPool, args: tuple[Any, ...]) -> Future[Any]:
    from tidewire.pools.results.futures import submitted

    try:
        task = pool._packing.task(args, {}, FROM_AGENT)
    except InvalidArgument as error:
        problem = (
            f"payload: {args[0]!r:.200} can't be pickled for a worker process ({error.__cause__}): send plain data"
        )
        raise InvalidArgument(problem) from error.__cause__
    future = submitted(pool, task, asyncio.get_running_loop())
    pool._submit(task)
    return future


def _combined_report(tasks: Ledger, mailbox: Ledger) -> Ledger:
    """Return the stop report of the tasks and of the messages that never became a task."""
    count = mailbox.returned
    returned = Ledger(count, 0, count, 0, mailbox.messages, stuck=mailbox.stuck, threads=mailbox.threads)
    return Ledger.total([tasks, returned])
