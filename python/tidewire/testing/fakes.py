"""Fakes of services: a real node serves them with the answers of a test."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections import OrderedDict
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from dataclasses import replace
from itertools import repeat
from typing import Any

from tidewire.errors import InvalidArgument
from tidewire.services.contract.declaration import declaration_of
from tidewire.services.contract.methods import Function
from tidewire.services.contract.names import nearest, short
from tidewire.values.plans import DECLARED

_CALLS_MAX = 10_000
_END: Any = object()


class Fake:
    """Fake of a service, made by ``fake``. A node serves it like the service itself.

    Attributes:
        calls: The first 10,000 calls, oldest first: the name of the method, and the arguments of
            the caller by parameter name.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []


class in_turn(tuple[Any, ...]):
    """Answer of a fake with one outcome per call: ``in_turn(TimeoutError("slow"), 2.5)``. A call
    after the last outcome raises AssertionError.
    """

    __slots__ = ()

    def __new__(cls, *outcomes: Any) -> Any:
        return super().__new__(cls, outcomes)


def fake(service: type, /, **answers: Any) -> Fake:
    """Return a fake of a service, for a real node: ``node.serve(fake(Pricing, quote=2.5))``.

    The fake has the name, the signatures and the visibility of the service. Its calls are routed
    like calls of the service, with the same checks and conversions of arguments.

    Args:
        service: Class of the service. It is not instantiated.
        answers: Answers by method name. A value is returned, an exception is raised. A function
            is called with the arguments of the method, without self; a plain function runs on a
            thread. ``in_turn`` has one outcome per call. The answer of a stream is an iterable,
            plain or asynchronous, or a function that returns one; items that are exceptions are
            raised. Event handlers and commands also have answers.

    Returns:
        The fake. Its methods without an answer raise AssertionError. Event handlers and commands
        without an answer are not served.

    Raises:
        InvalidArgument: if the class has no such method, or an answer does not match its method.
    """
    contract = declaration_of(service)
    names = {*contract.methods, *contract.commands, *(event.name for event in contract.events)}
    for name in answers.keys() - names:
        raise InvalidArgument(f"{contract.title}: it has no method {name!r}: {nearest(name, names)}")

    def faked(member: Any) -> Any:
        return replace(member, function=_Answer(contract.title, member, answers.get(member.name, in_turn())))

    declared = replace(
        contract,
        methods={name: faked(method) for name, method in contract.methods.items()},
        commands={name: faked(command) for name, command in contract.commands.items() if name in answers},
        events=[faked(event) for event in contract.events if event.name in answers],
    )
    kind: type[Fake] = type(f"Fake{service.__name__}", (Fake,), {DECLARED: declared})
    return kind()


class _Answer(Function):
    """Function of a service with an answer in place of its body."""

    def __init__(self, service: str, method: Any, answer: Any) -> None:
        super().__init__(method.function.call, method.function.attribute, method.function.owned, method.function.names)
        self.coroutine, self._service, self._name = True, service, method.name
        self._outcomes = iter(answer) if isinstance(answer, in_turn) else repeat(answer)
        signature = inspect.signature(self.call)
        self._parameters = signature.replace(parameters=list(signature.parameters.values())[self.owned :])
        for outcome in answer if isinstance(answer, in_turn) else (answer,):
            self._check(outcome)

    def _check(self, outcome: Any) -> None:
        """Refuse an outcome that does not match the method."""
        expected, is_repeatable = "", isinstance(outcome, (BaseException, AsyncIterable, Iterable))
        if callable(outcome):
            names = {
                name: name for name, member in self._parameters.parameters.items() if "VAR" not in member.kind.name
            }
            arguments = inspect.BoundArguments(self._parameters, OrderedDict(names))
            try:
                inspect.signature(outcome).bind(*arguments.args, **arguments.kwargs)
            except (TypeError, ValueError):
                expected = f"a value, an exception object, or a function of ({', '.join(self._parameters.parameters)})"
        elif self.streams and (not is_repeatable or isinstance(outcome, (AsyncIterator, Iterator))):
            expected = "a list, or the function that makes the stream"
        if expected:
            raise InvalidArgument(f"{self._service}.{self._name}: {short(outcome)} is not allowed: give {expected}")

    def bound(self, target: Any) -> Callable[..., Any]:
        """Return a function that records a call in the fake, and returns its answer."""

        async def value(*args: Any, **kwargs: Any) -> Any:
            bound = self._parameters.bind(*args, **kwargs)
            injected = (self.signature.progress, *(self.signature.context or ()))
            arguments = {name: value for name, value in bound.arguments.items() if name not in injected}
            if len(target.calls) < _CALLS_MAX:
                target.calls.append((self._name, arguments))
            answer = next(self._outcomes, _END)
            if answer is _END:
                call_text = f"{self._service}.{self._name}({', '.join(f'{name}={short(arguments[name])}' for name in arguments)})"
                raise AssertionError(f"{call_text}: it has no answer left: give one, as in fake(..., {self._name}=...)")
            if callable(answer):
                in_loop = inspect.iscoroutinefunction(answer) or inspect.isasyncgenfunction(answer)
                call = functools.partial(answer, *bound.args, **bound.kwargs)
                answer = call() if in_loop else await asyncio.to_thread(call)
            return _value_or_raise(await answer if inspect.isawaitable(answer) else answer)

        async def items(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            result = await value(*args, **kwargs)
            if isinstance(result, AsyncIterable):
                async for item in result:
                    yield _value_or_raise(item)
                return
            rest: Iterator[Any] = iter(result)
            while (item := await asyncio.to_thread(next, rest, _END)) is not _END:
                yield _value_or_raise(item)

        return items if self.streams else value


def _value_or_raise(value: Any) -> Any:
    """Return a value, or raise it if it is an exception."""
    if isinstance(value, BaseException):
        raise value.with_traceback(None)
    return value
