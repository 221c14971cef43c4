"""Declared commands of services: the options of ``@tw.command``, and the marked methods."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tidewire._limits import COMMAND_CONCURRENCY
from tidewire.services.contract import docstrings, type_hints
from tidewire.services.contract.durable import is_whole
from tidewire.services.contract.info import ServiceCommand
from tidewire.services.contract.methods import Function, function_problems
from tidewire.services.contract.names import method_problem, short
from tidewire.services.contract.schema import Writer

START = ("id", "key", "priority")
"""Options of the start of a command, besides its arguments."""
_SECONDS_MAX = 1e9
_RETRIES_MAX = 1_000


@dataclass(frozen=True)
class CommandMark:
    """Options of ``@tw.command``."""

    name: str | None = None
    timeout: float | None = 3_600.0
    retries: int = 3
    exclusive: str | None = None
    concurrency: int = 1
    keep: float = 86_400.0


@dataclass
class Command:
    """A command of a declared service."""

    name: str
    function: Function
    mark: CommandMark

    @functools.cached_property
    def result(self) -> Callable[[Any], Any] | None:
        """Conversion of a result to its annotation, or None if it needs none."""
        from tidewire.services.caller.results import result_of

        return result_of(self.function.hints.of.get("return", Any))

    def info(self) -> ServiceCommand:
        """Return the description of the command."""
        function, mark = self.function, self.mark
        inner = type_hints.innermost(function.call)
        return ServiceCommand(
            self.name,
            docstrings.first_line(inner),
            Writer().parameters(function.signature, function.hints, inner),
            Writer().result(function.hints.of.get("return", Any)),
            function.signature.progress is not None,
            mark.exclusive,
            mark.timeout,
            mark.retries,
        )

    def problems(self) -> list[str]:
        """Return all problems of the declaration."""
        title, mark = self.name if isinstance(self.name, str) else short(self.name), self.mark
        found = [method_problem(f"{title}: name", self.name)]
        if mark.timeout is not None and not _seconds(mark.timeout):
            found.append(f"{title}: timeout: {short(mark.timeout)} is not allowed: give seconds above 0, or None")
        if not _seconds(mark.keep):
            found.append(f"{title}: keep: {short(mark.keep)} is not allowed: give seconds above 0")
        if not is_whole(mark.retries, 0, _RETRIES_MAX):
            found.append(f"{title}: retries: {short(mark.retries)} is not allowed: give 0 to {_RETRIES_MAX:,}")
        if not is_whole(mark.concurrency, 1, COMMAND_CONCURRENCY.max):
            found.append(
                f"{title}: concurrency: {short(mark.concurrency)} is not allowed: give 1 to {COMMAND_CONCURRENCY.max:,}"
            )
        if mark.exclusive not in (None, "key"):
            found.append(f'{title}: exclusive: {short(mark.exclusive)} is not allowed: give "key", or leave it out')
        found.extend(function_problems(title, self.function))
        found.extend(_parameter_problems(title, self.function))
        return [problem for problem in found if problem is not None]


def progress_problem(title: str, function: Function) -> str | None:
    """Return the error of a ``tw.Progress`` outside of a command, or None."""
    for one in _parameters(function):
        if type_hints.is_progress(one.annotation):
            return f"{title}: {one.name}: a tw.Progress is for commands: mark it with @tw.command, or leave it out"
    return None


def _parameter_problems(title: str, function: Function) -> list[str]:
    parameters = _parameters(function)
    problems = [
        f"{title}: {one.name}: the start of a command takes {one.name}= itself: give the parameter another name"
        for one in parameters
        if one.name in START
    ]
    if sum(type_hints.is_progress(one.annotation) for one in parameters) > 1:
        problems.append(f"{title}: a command takes one tw.Progress: remove the others")
    rest = [at for at, one in enumerate(parameters) if one.kind is one.VAR_POSITIONAL]
    misplaced = [
        one.name
        for one in parameters[: rest[0] if rest else 0]
        if type_hints.is_progress(one.annotation) or type_hints.is_context(one.annotation)
    ]
    problems.extend(f"{title}: {name}: it comes before *args: move it after" for name in misplaced)
    inner = type_hints.innermost(function.call)
    if inspect.isasyncgenfunction(inner) or inspect.isgeneratorfunction(inner):
        problems.append(f"{title}: a command can't be a generator: report with tw.Progress, and return the result")
    return problems


def _parameters(function: Function) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function.call).parameters.values())[int(function.owned) :]
    except (TypeError, ValueError):
        return []


def _seconds(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < _SECONDS_MAX
