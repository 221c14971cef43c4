"""Fakes of services: a real node serves them, with answers that the test gives."""

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
    """A fake of a service, made by ``fake``. A node serves it as it serves the service.

    Attributes:
        calls: The first 10,000 calls, oldest first: the method, and the arguments that the caller
            gave, by the names of their parameters.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []


class in_turn(tuple[Any, ...]):
    """An answer of a fake with one outcome for each call: ``in_turn(TimeoutError("slow"), 2.5)``. A
    call after the last one raises AssertionError.
    """

    __slots__ = ()

    def __new__(cls, *outcomes: Any) -> Any:
        return super().__new__(cls, outcomes)


def fake(service: type, /, **answers: Any) -> Fake:
    """Return a fake of a service, for a real node: ``node.serve(fake(Pricing, quote=2.5))``.

    The fake has the name, the signatures and the visibility of the service. Calls reach it as they
    reach the service, and their arguments are checked and converted in the same way.

    Args:
        service: The class of the service. No object of it is made.
        answers: The answer of each method that the test needs. A value is returned, an exception
            is raised. A function gets the arguments of the method, without self; a plain function
            runs on a thread. ``in_turn`` has one outcome for each call. A stream takes an
            iterable, plain or asynchronous, or a function that returns one; items that are
            exceptions are raised. Event handlers and commands take answers, too.

    Returns:
        The fake. Its methods without an answer raise AssertionError. Event handlers and commands
        without an answer are not served.

    Raises:
        InvalidArgument: if the class has no such method, or an answer does not fit its method.
    """
    real = declaration_of(service)
    known = {*real.methods, *real.commands, *(event.name for event in real.events)}
    for name in answers.keys() - known:
        raise InvalidArgument(f"{real.title}: it has no method {name!r}: {nearest(name, known)}")

    def faked(one: Any) -> Any:
        return replace(one, function=_Answer(real.title, one, answers.get(one.name, in_turn())))

    declared = replace(
        real,
        methods={name: faked(method) for name, method in real.methods.items()},
        commands={name: faked(command) for name, command in real.commands.items() if name in answers},
        events=[faked(event) for event in real.events if event.name in answers],
    )
    kind: type[Fake] = type(f"Fake{service.__name__}", (Fake,), {DECLARED: declared})
    return kind()


class _Answer(Function):
    """A function of a service with an answer in place of its body."""

    def __init__(self, service: str, of: Any, answer: Any) -> None:
        super().__init__(of.function.call, of.function.attribute, of.function.owned, of.function.names)
        self.coroutine, self._service, self._name = True, service, of.name
        self._outcomes = iter(answer) if isinstance(answer, in_turn) else repeat(answer)
        written = inspect.signature(self.call)
        self._parameters = written.replace(parameters=list(written.parameters.values())[self.owned :])
        for outcome in answer if isinstance(answer, in_turn) else (answer,):
            self._check(outcome)

    def _check(self, outcome: Any) -> None:
        """Refuse an outcome that no call of the method has."""
        wanted, again = "", isinstance(outcome, (BaseException, AsyncIterable, Iterable))
        if callable(outcome):
            names = {name: name for name, one in self._parameters.parameters.items() if "VAR" not in one.kind.name}
            every = inspect.BoundArguments(self._parameters, OrderedDict(names))
            try:
                inspect.signature(outcome).bind(*every.args, **every.kwargs)
            except (TypeError, ValueError):
                wanted = f"a value, an exception object, or a function of ({', '.join(self._parameters.parameters)})"
        elif self.streams and (not again or isinstance(outcome, (AsyncIterator, Iterator))):
            wanted = "a list, or the function that makes the stream"
        if wanted:
            raise InvalidArgument(f"{self._service}.{self._name}: {short(outcome)} is not allowed: give {wanted}")

    def bound(self, target: Any) -> Callable[..., Any]:
        """Return what answers a call, and records it in the fake."""

        async def value(*args: Any, **kwargs: Any) -> Any:
            given = self._parameters.bind(*args, **kwargs)
            own = (self.signature.progress, *(self.signature.context or ()))
            arguments = {name: value for name, value in given.arguments.items() if name not in own}
            if len(target.calls) < _CALLS_MAX:
                target.calls.append((self._name, arguments))
            answer = next(self._outcomes, _END)
            if answer is _END:
                said = f"{self._service}.{self._name}({', '.join(f'{name}={short(arguments[name])}' for name in arguments)})"
                raise AssertionError(f"{said}: it has no answer left: give one, as in fake(..., {self._name}=...)")
            if callable(answer):
                in_loop = inspect.iscoroutinefunction(answer) or inspect.isasyncgenfunction(answer)
                call = functools.partial(answer, *given.args, **given.kwargs)
                answer = call() if in_loop else await asyncio.to_thread(call)
            return _given(await answer if inspect.isawaitable(answer) else answer)

        async def items(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            found = await value(*args, **kwargs)
            if isinstance(found, AsyncIterable):
                async for item in found:
                    yield _given(item)
                return
            rest: Iterator[Any] = iter(found)
            while (item := await asyncio.to_thread(next, rest, _END)) is not _END:
                yield _given(item)

        return items if self.streams else value


def _given(value: Any) -> Any:
    """Return a value, or raise it if it is an exception."""
    if isinstance(value, BaseException):
        raise value.with_traceback(None)
    return value
