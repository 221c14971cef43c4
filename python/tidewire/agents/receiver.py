"""The message callback of an agent, called by the engine."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import replace
from types import CoroutineType
from typing import TYPE_CHECKING, Any

from tidewire import _trace_context
from tidewire._handlers import Plan
from tidewire.agents.agent_state import AgentState
from tidewire.agents.handlers import Handler, Table
from tidewire.agents.message import Message
from tidewire.errors import InvalidArgument, LeaseLost, Unhandled

if TYPE_CHECKING:
    from tidewire._binding import ThreadWorkers
    from tidewire.agents.durable import Durable


def plan(
    agent_state: AgentState,
    table: Table,
    started: Any,
    started_takes_context: bool,
    stopped: Any,
    workers: Callable[[], ThreadWorkers] | None = None,
) -> Plan:
    """Return the plan of the agent's actor. ``workers`` spawns the threads that run plain handlers
    of a durable agent.
    """
    handlers = table.all()
    only = table.only()
    coroutine = any(handler.coroutine for handler in handlers)
    # The fast path has no context, which tells if a bare payload may be retried.
    is_fast = only is not None and not (only.takes_message or only.wants_message) and agent_state.retry.limit == 0
    is_fast = is_fast and _trace_context.spans is None
    receive: Callable[..., Any]
    if agent_state.durable is not None:
        return Plan(
            _durable_receiver(agent_state, agent_state.durable, table, started, workers),
            takes_context=True,
            coroutine=True,
            stopped=stopped,
        )
    if only is not None and is_fast:
        receive = (
            _fast_coroutine_receiver(agent_state, only.call) if coroutine else _fast_receiver(agent_state, only.call)
        )
    else:
        receive = _coroutine_receiver(agent_state, table) if coroutine else _receiver(agent_state, table)
    return Plan(
        handler=receive,
        takes_context=not is_fast,
        coroutine=coroutine,
        started=started,
        started_takes_context=started_takes_context,
        stopped=stopped,
    )


def _fast_receiver(agent_state: AgentState, call: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a receiver for one plain function of payloads, without a lookup per message."""

    def receive(message: Any) -> Any:
        if message.__class__ is not Message:
            payload = message
        elif not message.flags:
            payload = message.payload
        else:
            return _receive_flagged(message)
        try:
            value = call(payload)
        except BaseException as error:
            if agent_state.schedule_retry(message, error):
                return None
            raise
        agent_state.failed_in_row = 0
        return value

    def _receive_flagged(message: Message) -> Any:
        agent_state.begin(message, None)
        if agent_state.store_context(message):
            return None
        return _run_handler(agent_state, message, call, message.payload)

    return receive


def _fast_coroutine_receiver(agent_state: AgentState, call: Callable[[Any], Any]) -> Callable[[Any], Any]:
    async def receive(message: Any) -> Any:
        if message.__class__ is not Message:
            payload = message
        else:
            payload = message.payload
            if message.flags:
                agent_state.begin(message, None)
                if agent_state.store_context(message):
                    return None
        try:
            value = await call(payload)
        except asyncio.CancelledError as error:
            agent_state.failed(message, error)
            raise
        except BaseException as error:
            if agent_state.schedule_retry(message, error):
                return None
            raise
        if message.__class__ is Message and message.flags:
            agent_state.done(message)
        agent_state.failed_in_row = 0
        return value

    return receive


def _receiver(agent_state: AgentState, table: Table) -> Callable[[Any, Any], Any]:
    def receive(message: Any, context: Any) -> Any:
        message = agent_state.begin(message, context)
        handler = _handler_of(agent_state, table, message)
        if handler is None:
            return None
        return _run_handler(agent_state, message, call_handler, handler, message)

    return receive


def _run_handler(agent_state: AgentState, message: Message, call: Callable[..., Any], *args: Any) -> Any:
    try:
        value = _checked_value(call(*args))
    except BaseException as error:
        if agent_state.schedule_retry(message, error):
            return None
        raise
    agent_state.done(message)
    return value


def _coroutine_receiver(agent_state: AgentState, table: Table) -> Callable[[Any, Any], Any]:
    async def receive(message: Any, context: Any) -> Any:
        message = agent_state.begin(message, context)
        handler = _handler_of(agent_state, table, message)
        if handler is None:
            return None
        try:
            value = call_handler(handler, message)
            if handler.coroutine or value.__class__ is CoroutineType:
                value = await value
        except asyncio.CancelledError as error:
            agent_state.failed(message, error)
            raise
        except BaseException as error:
            if agent_state.schedule_retry(message, error):
                return None
            raise
        agent_state.done(message)
        return value

    return receive


def _durable_receiver(
    agent_state: AgentState, durable: Durable, table: Table, started: Any, spawn: Callable[[], ThreadWorkers] | None
) -> Callable[..., Any]:
    """Return a receiver that runs each handler in a state transaction."""
    # Imported here: most agents are not durable.
    from tidewire.agents import state_transaction

    workers: ThreadWorkers | None = None

    async def receive(payload: Any, context: Any) -> Any:
        nonlocal workers
        if payload is state_transaction.BEGIN:
            durable.restore()
            if started is not None and (start := started(context)) is not None:
                await start
            return None
        transaction = durable.begin_transaction(payload)
        message = agent_state.begin(payload, context)
        handler = _handler_of(agent_state, table, message)
        if handler is None:
            return None
        token = state_transaction.current.set(transaction)
        try:
            if handler.coroutine:
                value = await call_handler(handler, message)
            else:
                assert spawn is not None
                workers = workers or spawn()
                # The context variables connect the sends of the handler with its transaction.
                call = functools.partial(copy_context().run, _call_blocking, handler, message)
                value = await workers.ask(call, None, "normal")[0]
            await durable.commit(transaction)
        except BaseException as error:
            durable.restore()
            if transaction.arrival is not None:
                agent_state.failed_in_row += 1
                is_lease_lost = isinstance(error, (asyncio.CancelledError, LeaseLost)) and not durable.is_active
                transaction.arrival.error = (
                    None if is_lease_lost or isinstance(error, asyncio.CancelledError) else error
                )
            elif isinstance(error, asyncio.CancelledError):
                agent_state.failed(message, error)
            elif agent_state.schedule_retry(message, error):
                return None
            raise
        finally:
            state_transaction.current.reset(token)
        agent_state.done(message)
        return value

    return receive


def _call_blocking(handler: Handler, message: Message) -> Any:
    return _checked_value(call_handler(handler, message))


def _handler_of(agent_state: AgentState, table: Table, message: Message) -> Handler | None:
    """Return the handler of a message, or None if its shared context was stored."""
    if "context" not in table.kinds and agent_state.store_context(message):
        return None
    handler, spans = table.find(message) or Handler(unhandled, False, True, False), _trace_context.spans
    if spans is None:
        return handler
    return replace(handler, call=spans.consumer(agent_state.id, message.headers, handler.call, handler.coroutine))


def unhandled(message: Message) -> None:
    """Raise Unhandled for a message without a handler."""
    topic = "" if message.topic is None else f" on the topic {message.topic!r}"
    raise Unhandled(
        f"no handler takes a message of kind {message.kind!r}{topic} with a {type(message.payload).__name__}: "
        "add one with @tw.handle, or a method receive or unhandled"
    )


def _checked_value(value: Any) -> Any:
    """Return the value of a plain handler. A coroutine is refused here, so that receipts and
    retries see the error.
    """
    if value.__class__ is not CoroutineType:
        return value
    value.close()
    raise InvalidArgument(
        f"handler: it returned {value!r}, which a thread of a dispatcher can't await: make the handler itself `async def`"
    )


def call_handler(handler: Handler, message: Message) -> Any:
    """Call a handler with its payload, its message, or both."""
    if handler.takes_message:
        return handler.call(message.payload, message)
    return handler.call(message if handler.wants_message else message.payload)
