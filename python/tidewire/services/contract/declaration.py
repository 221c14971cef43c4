"""Declaration of a service: a class, an object or a mapping of functions."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tidewire._limits import SERVICE_METHODS
from tidewire.errors import InvalidArgument
from tidewire.services.contract import docstrings, type_hints
from tidewire.services.contract.command import Command, CommandMark, progress_problem
from tidewire.services.contract.methods import Event, EventMark, Function, Method, MethodMark
from tidewire.services.contract.names import service_problem, short, snake, visibility_problem
from tidewire.values.plans import DECLARED as _DECLARED

MARKS = "__tidewire_marks__"
"""Attribute of a function with its marks."""
ONLY_MARKED = "__tidewire_only_marked__"
"""Attribute of the base class of services: only marked methods are served."""


@dataclass
class Declaration:
    """A declared service.

    Attributes:
        name: Default name of the service.
        description: The first line of its docstring.
        visibility: Default visibility: the allowed callers.
        methods: Its methods by name.
        events: Its event handlers.
        commands: Its commands by name.
        title: Name in error messages.
        named: True if the name is explicit, so that derived classes inherit it.
    """

    name: str
    description: str = ""
    visibility: str = "private"
    methods: dict[str, Method] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    commands: dict[str, Command] = field(default_factory=dict)
    title: str = ""
    named: bool = False


def declaration_of(target: Any, name: str | None = None) -> Declaration:
    """Return the declaration of an object, a function or a mapping of functions.

    Args:
        target: The object to serve, or the class of a client.
        name: Name of the service, or None for the name of the target.

    Raises:
        InvalidArgument: if it can't be served; the message names all problems.
    """
    found = _find(target, name)
    if name is not None and name != found.name:
        found = dataclasses.replace(found, name=name)
    problem = service_problem("name", found.name)
    if problem is not None:
        raise InvalidArgument(problem)
    if not found.methods and not found.events and not found.commands:
        raise InvalidArgument(f"{found.title}: it has no methods: mark some with @tw.method")
    return found


def is_declared(target: Any) -> bool:
    """Return True if a class is declared as a service."""
    return isinstance(target, type) and hasattr(target, _DECLARED)


def _find(target: Any, name: str | None) -> Declaration:
    if isinstance(target, type):
        return vars(target).get(_DECLARED) or of_class(target, None, None, depth=0)
    if isinstance(target, Mapping):
        return _of_functions(target, name)
    if inspect.isroutine(target) or isinstance(target, functools.partial):
        called = getattr(type_hints.innermost(target), "__name__", "")
        if called == "<lambda>" and name is None:
            raise InvalidArgument(f"name: {target!r} has none: a lambda is served with name=")
        return _of_functions({name if called == "<lambda>" else called: target}, name or called)
    if target is None or isinstance(target, (str, bytes, int, float, list, tuple, set, frozenset)):
        raise InvalidArgument(
            f"target: {short(target)} can't be served: give an object with methods, a function, or a dict of functions"
        )
    return _find(type(target), name)


def of_class(cls: type, name: str | None, visibility: str | None, depth: int) -> Declaration:
    """Return the declaration of a class.

    Args:
        cls: The class.
        name: Name of the service.
        visibility: Allowed callers.
        depth: Number of frames up to its definition, or 0 if it is defined already.
    """
    base = next((vars(base)[_DECLARED] for base in cls.__mro__[1:] if _DECLARED in vars(base)), None)
    if name is None and base is not None and base.named:
        name = base.name
    if visibility is None:
        visibility = "private" if base is None else base.visibility
    default = snake(cls.__name__) if name is None else name
    found = Declaration(default, docstrings.first_line(cls), visibility, title=cls.__qualname__, named=name is not None)
    functions = {attribute: _function(cls, attribute) for attribute in _attributes(cls)}
    marked = {key: func for key, func in functions.items() if func is not None and _marks(cls, key)}
    public = {key: func for key, func in functions.items() if func is not None and not key.startswith("_")}
    served = marked if marked or getattr(cls, ONLY_MARKED, False) else public
    outer = (
        type_hints.outer_names([type_hints.innermost(func.call) for func in served.values()], depth) if depth else {}
    )
    problems: list[str] = []
    for attribute, function in served.items():
        function.names = {**outer, cls.__name__: cls}
        _add(found, attribute, function, _marks(cls, attribute) or [MethodMark()], problems)
    problems.extend(
        filter(None, [service_problem("name", found.name), visibility_problem("visibility", found.visibility)])
    )
    return _validated(found, problems)


def _of_functions(functions: Mapping[Any, Any], name: str | None) -> Declaration:
    if name is None:
        raise InvalidArgument("name: functions have none in common: serve a dict of functions with name=")
    found = Declaration(name, title=f"service {short(name)}")
    problems: list[str] = []
    if not functions:
        problems.append("it has no methods: give at least one function")
    for key, call in functions.items():
        if not callable(call) or isinstance(call, type):
            problems.append(f"{short(key)}: {short(call)} is not allowed: give a function")
            continue
        _add(found, key, Function(call), [MethodMark()], problems)
    if len(functions) == 1 and not problems:
        found.description = docstrings.first_line(next(iter(functions.values())))
    return _validated(found, problems)


def _validated(found: Declaration, problems: list[str]) -> Declaration:
    count = len(found.methods) + len(found.events) + len(found.commands)
    if count > SERVICE_METHODS.max:
        problems.append(f"methods: {count:,} are not allowed: declare at most {SERVICE_METHODS.max:,}")
    if len(problems) == 1:
        raise InvalidArgument(f"{found.title}: {problems[0]}")
    if problems:
        raise InvalidArgument("\n  ".join([f"{found.title}: {len(problems)} problems:", *problems]))
    return found


def _add(found: Declaration, attribute: Any, function: Function, marks: list[Any], problems: list[str]) -> None:
    """Add a function under each of its marks, or add its problems."""
    kinds = Counter(type(mark) for mark in marks)
    for kind, decorator in ((MethodMark, "method"), (CommandMark, "command")):
        if kinds[kind] > 1:
            problems.append(f"{attribute}: marked by @tw.{decorator} {kinds[kind]} times: mark it once")
    if kinds[CommandMark] and len(kinds) > 1:
        problems.append(f"{attribute}: a command is nothing else: take @tw.method or @tw.on away")
    if not kinds[CommandMark] and (problem := progress_problem(attribute, function)) is not None:
        problems.append(problem)
    for mark in marks:
        if isinstance(mark, CommandMark):
            command = Command(attribute if mark.name is None else mark.name, function, mark)
            wrong = command.problems() or _name_problems(found, attribute, command.name)
            problems.extend(problem for problem in wrong if problem not in problems)
            if not wrong:
                found.commands[command.name] = command
            continue
        if isinstance(mark, EventMark):
            event = Event(attribute, function, mark)
            durable = mark.durable.name
            other = next(
                (one.name for one in found.events if durable is not None and one.mark.durable.name == durable), None
            )
            if other is not None:
                problems.append(
                    f"{attribute}: durable: {durable!r} is the consumer of {other} too: give each handler its own"
                )
            problems.extend(problem for problem in event.problems() if problem not in problems)
            found.events.append(event)
            continue
        method = Method(attribute if mark.name is None else mark.name, function, mark)
        wrong = method.problems()
        if mark.name is None and function.owned and getattr(function.call, "__name__", "") == "<lambda>":
            wrong.append(f"{attribute}: a lambda has no name for a traceback: give name=, or use def")
        wrong = wrong or _name_problems(found, attribute, method.name)
        problems.extend(problem for problem in wrong if problem not in problems)
        if not wrong:
            found.methods[method.name] = method


def _name_problems(found: Declaration, attribute: Any, name: str) -> list[str]:
    other = found.methods.get(name) or found.commands.get(name)
    if other is None:
        return []
    return [f"{attribute}: name: {name!r} is the name of {other.function.attribute} too: give each method its own"]


def _marks(cls: type, attribute: str) -> list[Any]:
    """Return the marks of a method; an overriding method inherits them."""
    for base in cls.__mro__:
        raw = vars(base).get(attribute)
        found = getattr(getattr(raw, "__func__", raw), MARKS, None)
        if found:
            return list(found)
    return []


def _attributes(cls: type) -> list[str]:
    bases = [base for base in reversed(cls.__mro__) if base is not object and ONLY_MARKED not in vars(base)]
    return list(dict.fromkeys(attribute for base in bases for attribute in vars(base)))


def _function(cls: type, attribute: str) -> Function | None:
    raw = inspect.getattr_static(cls, attribute, None)
    if isinstance(raw, (staticmethod, classmethod)):
        return Function(raw.__func__, attribute, owned=isinstance(raw, classmethod))
    if inspect.isfunction(raw) or isinstance(raw, functools.partialmethod):
        return Function(raw, attribute, owned=True) if inspect.isfunction(raw) else None
    return Function(raw, attribute) if isinstance(raw, functools.partial) else None
