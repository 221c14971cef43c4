"""One method, or one event handler, of a declared service."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tidewire import _handlers
from tidewire.services.caller.argument_check import Signature
from tidewire.services.contract import docstrings, type_hints
from tidewire.services.contract.durable import DurableMark
from tidewire.services.contract.info import EventInfo, MethodInfo, narrower
from tidewire.services.contract.names import method_problem, pattern_problem, short, timeout_problem, visibility_problem
from tidewire.services.contract.schema import Writer


@dataclass(frozen=True)
class MethodMark:
    """Options of ``@tw.method``."""

    name: str | None = None
    idempotent: bool = False
    timeout: float | None = None
    visibility: str | None = None
    safe: bool = False
    prompt: bool = False
    cost: str | None = None


@dataclass(frozen=True)
class EventMark:
    """Options of ``@tw.on``."""

    subject: str
    queue: str | None = None
    durable: DurableMark = DurableMark(None)  # noqa: RUF009 - it can't be changed


@dataclass
class Function:
    """A function of a service, with its evaluated annotations.

    Attributes:
        call: The function as written: with self, if ``owned``.
        attribute: Its attribute of the object, or None for a standalone function.
        owned: True if its first parameter is self.
        names: Values of the names in its annotations that the functions around its class
            define.
    """

    call: Callable[..., Any]
    attribute: str | None = None
    owned: bool = False
    names: Mapping[str, Any] = field(default_factory=dict)

    @functools.cached_property
    def hints(self) -> type_hints.TypeHints:
        """Its annotations, evaluated at the first use: a class may refer to later classes."""
        return type_hints.read(self.call, self.names)

    @functools.cached_property
    def signature(self) -> Signature:
        """Parameters of the function."""
        try:
            inspect.signature(self.call)
        except (TypeError, ValueError):
            # Builtins without a signature are accepted.
            return Signature(None, self.hints, 0)
        return Signature(self.call, self.hints, int(self.owned))

    @functools.cached_property
    def coroutine(self) -> bool:
        """True if it runs on the event loop."""
        inner = type_hints.innermost(self.call)
        if inspect.isasyncgenfunction(inner) or _handlers.is_coroutine(self.call):
            return True
        return type_hints.is_async_stream(self.hints.of.get("return")) and not inspect.isgeneratorfunction(inner)

    @functools.cached_property
    def streams(self) -> bool:
        """True if its result is a stream."""
        inner = type_hints.innermost(self.call)
        if inspect.isasyncgenfunction(inner) or inspect.isgeneratorfunction(inner):
            return True
        return type_hints.stream_item(self.hints.of.get("return"))[0]

    def bound(self, target: Any) -> Callable[..., Any]:
        """Return the callable for a served object."""
        if self.attribute is None:
            return self.call
        found: Callable[..., Any] = getattr(target, self.attribute)
        return found


@dataclass
class Method:
    """A method of a declared service."""

    name: str
    function: Function
    mark: MethodMark

    @functools.cached_property
    def result(self) -> Callable[[Any], Any] | None:
        """Conversion of a remote result, or of an item of one, to its annotation."""
        # Needed by callers alone.
        from tidewire.services.caller.results import result_of

        return result_of(type_hints.stream_item(self.function.hints.of.get("return", Any))[1])

    @functools.cached_property
    def cost(self) -> tuple[int, str] | None:
        """Position and name of the cost argument."""
        if self.mark.cost is None:
            return None
        names = [one.name for one in self.function.signature.parameters]
        return (names.index(self.mark.cost), self.mark.cost) if self.mark.cost in names else None

    def info(self, visibility: str) -> MethodInfo:
        """Return its description in a service of this visibility."""
        return self._described(narrower(self.mark.visibility or visibility, visibility))

    def problems(self) -> list[str]:
        """Return all problems of the declaration."""
        title, mark = self.name if isinstance(self.name, str) else short(self.name), self.mark
        found = [method_problem(f"{title}: name", self.name)]
        if mark.visibility is not None:
            found.append(visibility_problem(f"{title}: visibility", mark.visibility))
        if mark.timeout is not None:
            found.append(timeout_problem(f"{title}: timeout", mark.timeout))
        for option, value in (("idempotent", mark.idempotent), ("safe", mark.safe), ("prompt", mark.prompt)):
            if not isinstance(value, bool):
                found.append(f"{title}: {option}: {short(value)} is not allowed: give True or False")
        if mark.prompt is True and self.function.streams:
            found.append(f"{title}: prompt: a stream is not allowed: return a text or a list of messages")
        if mark.cost is not None and not self._has_parameter(mark.cost):
            found.append(f"{title}: cost: {short(mark.cost)} is not allowed: give the name of a parameter")
        return [problem for problem in found if problem is not None] + function_problems(title, self.function)

    def _has_parameter(self, name: object) -> bool:
        try:
            return name in list(inspect.signature(self.function.call).parameters)[int(self.function.owned) :]
        except (TypeError, ValueError):
            return False

    def _described(self, visibility: str) -> MethodInfo:
        writer, function = Writer(), self.function
        return MethodInfo(
            self.name,
            docstrings.first_line(type_hints.innermost(function.call)),
            writer.parameters(function.signature, function.hints, type_hints.innermost(function.call)),
            writer.result(function.hints.of.get("return", Any)),
            function.streams,
            self.mark.idempotent or self.mark.safe,
            self.mark.timeout,
            visibility,
            tuple(dict.fromkeys(writer.notes)),
            self.mark.safe,
            self.mark.prompt,
            self.mark.cost,
        )


@dataclass
class Event:
    """An event handler of a declared service."""

    name: str
    function: Function
    mark: EventMark

    def info(self) -> EventInfo:
        """Return its description."""
        inputs = self.function.signature.parameters
        message = Writer().value(inputs[0].hint, inputs[0].name) if inputs else {}
        described = docstrings.first_line(type_hints.innermost(self.function.call))
        return EventInfo(self.mark.subject, self.mark.queue, self.name, described, message)

    def problems(self) -> list[str]:
        """Return all problems of the declaration."""
        queue = self.mark.queue
        found = [pattern_problem(f"{self.name}: subject", self.mark.subject)]
        if queue is not None and (not isinstance(queue, str) or not queue):
            found.append(f"{self.name}: queue: {short(queue)} is not allowed: give a name, or None")
        durable = self.mark.durable
        found.extend(durable.problems(self.name))
        if queue is not None and durable.name is not None:
            found.append(
                f"{self.name}: queue: it is not allowed with durable=: those who serve it compete already; leave it out"
            )
        found.extend(function_problems(self.name, self.function))
        if not any(found):
            found.append(_event_problem(self.name, self.function, durable.name is not None))
        return [problem for problem in found if problem is not None]


@dataclass(frozen=True)
class Bound:
    """A method of a served object."""

    name: str
    call: Callable[..., Any]
    signature: Signature
    coroutine: bool
    streams: bool
    visibility: str


def function_problems(title: str, function: Function) -> list[str]:
    """Return all problems of a function that prevent remote calls."""
    try:
        parameters = list(inspect.signature(function.call).parameters.values())
    except (TypeError, ValueError):
        return []
    problems = []
    if function.owned:
        first = parameters.pop(0) if parameters else None
        if first is None or not _is_self(first):
            reason = "it takes none" if first is None else f"its first parameter is {first.name!r}"
            problems.append(f"{title}: self is missing, {reason}: add self, or make it a @staticmethod")
    if inspect.isbuiltin(function.call):
        return problems
    problems.extend(
        f"{title}: {one.name}: positional-only parameters can't be given by name, as some callers do: remove the '/'"
        for one in parameters
        if one.kind is one.POSITIONAL_ONLY
    )
    return problems


def _is_self(first: inspect.Parameter) -> bool:
    if first.kind is first.VAR_POSITIONAL:
        return True
    positional = first.kind in (first.POSITIONAL_ONLY, first.POSITIONAL_OR_KEYWORD)
    return positional and (first.name in ("self", "cls") or first.name.startswith("_"))


def _event_problem(title: str, function: Function, is_durable: bool) -> str | None:
    inner = type_hints.innermost(function.call)
    if inspect.isasyncgenfunction(inner) or inspect.isgeneratorfunction(inner):
        return f"{title}: an event handler can't be a generator, as its items have no reader: return instead"
    try:
        parameters = list(inspect.signature(function.call).parameters.values())[int(function.owned) :]
    except (TypeError, ValueError):
        return None
    inputs = [one for one in parameters if not type_hints.is_context(one.annotation)]
    events = [one for one in inputs if type_hints.is_event(one.annotation)] if is_durable else []
    if len(events) > 1:
        return f"{title}: {events[1].name}: a handler takes one tw.Event: remove the others"
    if len(inputs) > len(events):
        inputs = [one for one in inputs if one not in events]
    needed = [one for one in inputs if one.default is one.empty and one.kind is not one.VAR_POSITIONAL]
    by_position = inputs and inputs[0].kind not in (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD)
    if len(needed) > 1 or not by_position:
        return f"{title}: an event handler takes one message, a tw.CallContext, and a tw.Event if it is durable: remove the other parameters"
    return None
