"""Argument check of a call: the signature of its method, and the conversion of plain data to its
types.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import is_ as _is
from typing import Any

from tidewire.errors import InvalidArgument
from tidewire.services.caller.items import named
from tidewire.services.contract.conversion import UNFIT, converter
from tidewire.services.contract.names import nearest, short
from tidewire.services.contract.type_hints import TypeHints, is_context, is_progress, text

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)

Arguments = tuple[tuple[Any, ...], Mapping[str, Any]]


@dataclass(frozen=True)
class Parameter:
    """One parameter of a method.

    Attributes:
        name: Its name.
        required: True if it has no default.
        default: Its default; ``inspect.Parameter.empty`` without one.
        hint: Its type.
        exact: The class whose direct objects need no check.
        convert: Converts a value, or raises; None if every value fits.
    """

    name: str
    required: bool
    default: Any
    hint: Any
    exact: type | None
    convert: Callable[[Any], Any] | None


class Signature:
    """Parameters of a method, without self, the context and the progress of a command.

    Args:
        function: The function, or None if its parameters are unknown; it accepts everything then.
        hints: Its annotations.
        skip: Number of leading parameters that the caller does not pass: 1 for self.
    """

    def __init__(self, function: Callable[..., Any] | None, hints: TypeHints, skip: int) -> None:
        self.positional: list[Parameter] = []
        self.named: dict[str, Parameter] = {}
        self.rest: Parameter | None = None
        self.rest_named: Parameter | None = None
        self.context: tuple[str, int | None] | None = None
        self.progress: str | None = None
        self.open = function is None
        for found in () if function is None else list(inspect.signature(function).parameters.values())[skip:]:
            self._add(found, hints)
        self._least = sum(parameter.required for parameter in self.positional)
        self._must_name = any(p.required and p not in self.positional for p in self.named.values())
        every = [*self.positional, *self.named.values(), self.rest, self.rest_named]
        # None: some must be named.
        self.counts = None if self._must_name else (self._least, len(self.positional))
        self.arity = None if self._must_name else ([p.name for p in self.positional], self._least, False)
        self.plain = all(parameter is None or parameter.convert is None for parameter in every)
        self.exact = [parameter.exact for parameter in self.positional]
        # Empty: some may be given by position only.
        names = [parameter.name for parameter in self.positional]
        self.by_name = names if all(name in self.named for name in names) else []

    @property
    def parameters(self) -> list[Parameter]:
        """The named parameters, in order."""
        return list({p.name: p for p in [*self.positional, *self.named.values()]}.values())

    def binds(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
        """Return True if arguments certainly bind; else ``check`` decides."""
        return not kwargs and not self._must_name and self._least <= len(args) <= len(self.positional)

    def fits(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
        """Return True if bound arguments certainly need no conversion; else ``convert`` decides."""
        if self.plain:
            return True
        if kwargs or len(args) > len(self.exact):
            return False
        return all(map(_is, map(type, args), self.exact))

    def check(self, title: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Check that arguments bind.

        Raises:
            InvalidArgument: if one is missing, passed twice, too many or unknown; the error names
                all of them.
        """
        if self.binds(args, kwargs):
            return
        if not self.open:
            problems = self._problems(args, kwargs)
            if problems:
                raise InvalidArgument(f"{title}: {'; '.join(problems)}")

    def convert(self, title: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Arguments:
        """Return arguments that have the types that the method wants; those that have them already
        stay the same objects.

        Raises:
            InvalidArgument: if a value does not fit.
        """
        if self.plain:
            return args, kwargs
        converted: list[Any] | None = None
        for at, value in enumerate(args):
            parameter = self.positional[at] if at < len(self.positional) else self.rest
            if parameter is None or parameter.exact is value.__class__ or parameter.convert is None:
                continue
            new_value = _fit(title, parameter, value)
            if new_value is not value:
                converted = list(args) if converted is None else converted
                converted[at] = new_value
        return (args if converted is None else tuple(converted)), (
            self._convert_named(title, kwargs) if kwargs else kwargs
        )

    def with_context(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], context: Any) -> Arguments:
        """Return the arguments with the context where the method takes it."""
        assert self.context is not None
        name, at = self.context
        if at is not None and at <= len(args):
            return (*args[:at], context, *args[at:]), kwargs
        return args, {**kwargs, name: context}

    def _add(self, found: inspect.Parameter, hints: TypeHints) -> None:
        annotation = hints.unresolved.get(found.name, hints.of.get(found.name, Any))
        if is_context(annotation) or is_context(hints.of.get(found.name)):
            self.context = (found.name, len(self.positional) if found.kind in _POSITIONAL else None)
            return
        if is_progress(annotation) or is_progress(hints.of.get(found.name)):
            self.progress = found.name
            return
        parameter = _parameter(found, hints.of.get(found.name, Any))
        if found.kind in _POSITIONAL:
            self.positional.append(parameter)
        if found.kind in _NAMED:
            self.named[found.name] = parameter
        if found.kind is found.VAR_POSITIONAL:
            self.rest = parameter
        if found.kind is found.VAR_KEYWORD:
            self.rest_named = parameter

    def _convert_named(self, title: str, kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
        converted: dict[str, Any] | None = None
        for name, value in kwargs.items():
            parameter = self.named.get(name, self.rest_named)
            if parameter is None or parameter.exact is value.__class__ or parameter.convert is None:
                continue
            new_value = _fit(title, parameter, value, name)
            if new_value is not value:
                converted = dict(kwargs) if converted is None else converted
                converted[name] = new_value
        return kwargs if converted is None else converted

    def _problems(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[str]:
        problems = []
        limit = len(self.positional)
        if len(args) > limit and self.rest is None:
            problems.append(f"{len(args)} positional arguments were given: give at most {limit}")
        bound = {parameter.name for parameter in self.positional[: len(args)]}
        for name in kwargs:
            if name in bound and name in self.named:
                problems.append(f"{name}: given twice, by position and by name: give it once")
            elif name not in self.named and self.rest_named is None:
                problems.append(f"{name}: there is no such parameter: {nearest(name, self.named)}")
        missing = [p for p in self.parameters if p.required and p.name not in bound and p.name not in kwargs]
        problems.extend(f"{p.name}: missing: give {_expected(p.hint)}" for p in missing)
        return problems


def _parameter(found: inspect.Parameter, hint: Any) -> Parameter:
    exact, convert = converter(hint)
    if found.default is not found.empty and convert is not None and found.default is None:
        # `qty: int = None` allows None.
        convert = _or_none(convert)
    required = found.default is found.empty and found.kind in (*_POSITIONAL, found.KEYWORD_ONLY)
    return Parameter(found.name, required, found.default, hint, exact, convert)


def _or_none(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else convert(value)


def _fit(title: str, parameter: Parameter, value: Any, name: str | None = None) -> Any:
    assert parameter.convert is not None
    try:
        return named(parameter.convert(value), f"{title}: {name or parameter.name}")
    except UNFIT as error:
        raise InvalidArgument(
            f"{title}: {name or parameter.name}: {short(value)} is not allowed: give {_expected(parameter.hint)} ({error})"
        ) from None


def _expected(hint: Any) -> str:
    return "a value" if hint is Any else text(hint)
