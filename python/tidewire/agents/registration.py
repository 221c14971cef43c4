"""Registration of functions and objects as agents."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from tidewire import _handlers, _limits
from tidewire._handlers import Plan
from tidewire._node.actors import Options
from tidewire.agents import handlers, receiver
from tidewire.agents.agent import Agent
from tidewire.agents.agent_state import AgentState
from tidewire.agents.retry import Retry
from tidewire.errors import InvalidArgument

if TYPE_CHECKING:
    from tidewire._binding import Context, ThreadWorkers
    from tidewire.agents.durable import Durable, Mode
    from tidewire.node import Node
    from tidewire.supervision import Mailbox, Supervision

_numbers = itertools.count(1)
# The builtin by another name: `type` is an argument here.
builtin_type = type


def register(
    node: Node,
    target: Any,
    id: str | None,
    type: str | None,
    capabilities: Iterable[str] | None,
    retry: Retry | None,
    mailbox: int | Mailbox | None,
    dispatcher: str,
    concurrency: int | None,
    supervision: Supervision | None,
    durable: Mode | None,
) -> Agent:
    """Register an agent; see ``Node.agent``."""
    factory = target if _is_factory(target) else None
    instance = target if factory is None else factory()
    table = handlers.table_of(instance)
    on_failure = getattr(supervision, "on_failure", None)
    if factory is None and handlers.is_object(instance):
        _handlers.check_restart(on_failure, instance, "handler")
    if on_failure == "restart" and durable is not None:
        raise InvalidArgument(
            "supervision: on_failure='restart' is not allowed with durable=: a failed handler leaves the stored state as it "
            "was; choose 'resume' or 'stop'"
        )
    for topic, _ in table.topics:
        node._engine.check_pattern(topic)
    agent = instance if isinstance(instance, Agent) else Agent()
    if agent._agent_state_ is not None and agent._agent_state_.ref.alive:
        raise InvalidArgument(f"handler: {agent!r} is registered already: make another object for another agent")
    describe(agent, instance, id, type, capabilities)
    config = node.broker
    if retry is not None and not isinstance(retry, Retry):
        raise InvalidArgument(f"retry: {retry!r} is not allowed: give a tw.Retry, or None for the configuration's")
    agent_state = AgentState(node, node.agents, agent.id, retry or config.retry, config.queue_warning)
    agent_state.max_deliveries = getattr(supervision, "max_deliveries", 1)
    workers = None
    if durable is not None:
        concurrency = 1 if concurrency is None else concurrency
        agent_state.durable = _durable(agent, instance, agent_state, table, durable, id, concurrency)
        workers = partial(_workers, agent_state, concurrency, dispatcher)
    plan = _plan(agent_state, agent, instance, table, factory, workers)
    if concurrency is None:
        concurrency = config.agent_concurrency if plan.coroutine else 1
    capacity = config.agent_mailbox if mailbox is None else mailbox
    previous = agent._agent_state_
    # Set first, as the start hook runs at once on another thread and may send.
    agent._agent_state_ = agent_state
    try:
        agent_state.ref = node._spawn_plan(
            lambda: plan, Options(agent.id, capacity, dispatcher, concurrency, supervision)
        )
    except BaseException:
        agent._agent_state_ = previous
        raise
    if agent_state.durable is None:
        enter(agent, agent_state, table)
    else:
        # Other agents find it once it is active.
        agent_state.durable.begin()
    return agent


def _is_factory(target: Any) -> bool:
    """Return True if a target is a class of agents, or a ``functools.partial`` of one."""
    if isinstance(target, partial) and isinstance(target.func, builtin_type):
        from tidewire.pools.function import is_agent

        return is_agent(target)
    return isinstance(target, builtin_type)


def _durable(
    agent: Agent, instance: Any, agent_state: AgentState, table: handlers.Table, mode: Any, id: Any, concurrency: Any
) -> Durable:
    from tidewire.agents.durable import MODES, Durable

    if mode not in MODES:
        raise InvalidArgument(f'durable: {mode!r} is not allowed: give "inbox", "state" or None')
    if id is None and not builtin_type(agent).id:
        raise InvalidArgument("id: a durable agent needs one, by which it is found again: give id=")
    if mode == "state" and concurrency != 1:
        raise InvalidArgument(
            f"concurrency: {concurrency!r} is not allowed: an agent with state handles one message at a time"
        )
    if not isinstance(concurrency, int) or concurrency < 1:
        raise InvalidArgument(f"concurrency: {concurrency!r} is not allowed: give a number from 1 on")
    return Durable(agent, instance, agent_state, mode, concurrency, lambda: _enter_active(agent, agent_state, table))


def _workers(agent_state: AgentState, concurrency: int, dispatcher: str) -> ThreadWorkers:
    from tidewire.services.instances.concurrency_limits import ConcurrencyLimits
    from tidewire.services.instances.thread_workers import spawn_workers

    return spawn_workers(agent_state.node, ConcurrencyLimits(concurrency, 0, 0, 1), dispatcher, agent_state.ref)


def enter(agent: Agent, agent_state: AgentState, table: handlers.Table) -> None:
    """Add an agent to the directory, and announce it to other nodes. Stop it if it is refused."""
    try:
        agent_state.directory.add(agent)
        for topic, _ in table.topics:
            agent.subscribe(topic)
    except BaseException:
        agent_state.ref.stop(drain=False, timeout=0.0)
        agent_state.close()
        raise
    connection = agent_state.node._connection
    if connection is not None and connection.is_joined:
        connection.agents.announce(agent)
    if agent_state.closed:
        # It ended in the meantime.
        agent_state.directory.remove(agent_state)
        agent_state.withdraw()


def _enter_active(agent: Agent, agent_state: AgentState, table: handlers.Table) -> None:
    """Announce a durable agent that became active here. Its remote entry is removed first, as the
    hub may report its old node late.
    """
    connection = agent_state.node._connection
    if connection is not None:
        connection.agents.remove(agent.id)
    enter(agent, agent_state, table)


def describe(
    agent: Agent,
    instance: Any,
    id: str | None,
    type: str | None,
    capabilities: Iterable[str] | None,
    title: str | None = None,
) -> None:
    """Set id, type and capabilities of an agent: those of the call, else those of its class."""
    declared = instance if instance is agent else agent
    name = id if id is not None else declared.id
    type_name = type if type is not None else declared.type
    values = capabilities if capabilities is not None else declared.capabilities
    for field, value in (("id", name), ("type", type_name)):
        if not isinstance(value, str) or (field == "id" and id is not None and not value):
            raise InvalidArgument(f"{field}: {value!r} is not allowed: give a string that is not empty")
        _check_text(field, value)
        if len(value.encode()) > _limits.NAME_BYTES.max:
            raise InvalidArgument(
                f"{field}: {value[:40]!r}... is not allowed: give at most {_limits.NAME_BYTES.max} bytes"
            )
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise InvalidArgument(f"capabilities: {values!r} is not allowed: give several strings, such as ['quote']")
    names = list(values)
    invalid = [one for one in names if not isinstance(one, str) or not one]
    if invalid or len(names) > _limits.CAPABILITIES.max:
        problem = f"{invalid[0]!r}" if invalid else f"{len(names)} of them"
        raise InvalidArgument(f"capabilities: {problem} is not allowed: give up to {_limits.CAPABILITIES.max} strings")
    for one in names:
        _check_text("capabilities", one)
    default_name = str(title or getattr(instance, "__name__", builtin_type(instance).__name__))
    agent.id = name or f"{type_name or default_name.strip('<>')}-{next(_numbers)}"
    agent.type, agent.capabilities = type_name, frozenset(names)


def _check_text(field: str, value: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"{field}: {value!r} is not allowed: half of a surrogate pair is no text") from error


def _plan(
    agent_state: AgentState,
    agent: Agent,
    instance: Any,
    table: handlers.Table,
    factory: Any,
    workers: Callable[[], ThreadWorkers] | None = None,
) -> Plan:
    hooks = _Hooks(instance)
    started = None if hooks.started is None else _start_hook(agent_state, hooks)
    agent_state.started = started is None
    plan = receiver.plan(agent_state, table, started, True, stopped_hook(agent_state, hooks.stopped), workers)
    if factory is None:
        return plan

    def make() -> Plan:
        replacement = factory()
        if isinstance(replacement, Agent):
            replacement.id, replacement.type, replacement.capabilities = agent.id, agent.type, agent.capabilities
            replacement._agent_state_ = agent_state
        return _plan(agent_state, agent, replacement, handlers.table_of(replacement), factory)

    return Plan(
        plan.handler,
        plan.takes_context,
        plan.coroutine,
        plan.started,
        plan.started_takes_context,
        plan.stopped,
        None,
        make,
    )


class _Hooks:
    """Start and stop hooks of a user object."""

    def __init__(self, instance: Any) -> None:
        self.started = _hook(instance, "started")
        self.stopped = _hook(instance, "stopped")
        self.started_takes_context = False
        if self.started is not None:
            count = _handlers._count_positional(self.started, f"{builtin_type(instance).__qualname__}.started", (0, 1))
            self.started_takes_context = count == 1


def _hook(instance: Any, name: str) -> Callable[..., Any] | None:
    hook = getattr(instance, name, None)
    return hook if callable(hook) else None


def _start_hook(agent_state: AgentState, hooks: _Hooks) -> Callable[[Context], Any]:
    call, takes_context = hooks.started, hooks.started_takes_context
    assert call is not None

    async def started_later(context: Context) -> None:
        agent_state.ref = context.me
        await (call(context) if takes_context else call())
        agent_state.started = True

    def started(context: Context) -> None:
        agent_state.ref = context.me
        _ = call(context) if takes_context else call()
        agent_state.started = True

    return started_later if _handlers.is_coroutine(call) else started


def stopped_hook(agent_state: AgentState, call: Callable[[], Any] | None) -> Callable[[], Any]:
    """Return the stop hook of an agent: it runs the user hook, and then closes the agent."""

    async def stopped_later() -> None:
        try:
            assert call is not None
            await call()
        finally:
            agent_state.close()

    def stopped() -> None:
        try:
            if call is not None:
                call()
        finally:
            agent_state.close()

    return stopped_later if call is not None and _handlers.is_coroutine(call) else stopped
