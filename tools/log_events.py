"""The events that the Python package logs, read from its calls of `tidewire._log`."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

LEVELS = ("debug", "info", "warning", "error", "critical")
CALLED = rf"log\.({'|'.join(LEVELS)}|at)"
PLACEHOLDER = re.compile(r"%\((\w+)\)[-#0-9., ]*[a-z]")
Known = dict[str, ast.expr]


@dataclass
class LogEvent:
    """An event: its levels, texts and fields in all calls that log it."""

    levels: set[str] = field(default_factory=set)
    texts: list[str] = field(default_factory=list)
    fields: set[str] = field(default_factory=set)


def read_log_events(package: Path) -> dict[str, LogEvent]:
    """The events of a package by their names.

    Raises:
        ValueError: if a call logs an event whose name or text is not a literal.
    """
    events: defaultdict[str, LogEvent] = defaultdict(LogEvent)
    for path in sorted(package.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for call, known in logging_calls(tree):
            is_at = call.func.attr == "at" if isinstance(call.func, ast.Attribute) else False
            name, text = literal(argument(call, is_at, ""), known), literal(argument(call, 1 + is_at, "text"), known)
            if name is None or text is None:
                raise ValueError(f"{path}:{call.lineno}: name or text of the event is no literal: write it as one")
            event, text = events[name], PLACEHOLDER.sub(r"{\1}", text)
            event.levels |= levels(call.args[0], known) if is_at else {ast.unparse(call.func).removeprefix("log.")}
            event.texts += [text] if text not in event.texts else []
            event.fields |= keys(call, known) - {"text", "exc_info"}
    return dict(sorted(events.items()))


def logging_calls(tree: ast.Module) -> Iterator[tuple[ast.Call, Known]]:
    """Calls of `log`, each with the values that names had before it."""
    known: Known = {}
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    for function in functions:
        if isinstance(function.body[-1], ast.Return) and isinstance(function.body[-1].value, ast.Dict):
            known[f"self.{function.name}()"] = function.body[-1].value
    for node in sorted((node for node in ast.walk(tree) if hasattr(node, "lineno")), key=lambda node: node.lineno):
        if isinstance(node, ast.Assign):
            remember(node.targets[0], node.value, known)
        elif isinstance(node, ast.Call) and re.fullmatch(CALLED, ast.unparse(node.func)):
            yield node, known


def remember(target: ast.expr, value: ast.expr, known: Known) -> None:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for one, its in zip(target.elts, value.elts, strict=False):
            remember(one, its, known)
    else:
        known[ast.unparse(target)] = value


def argument(call: ast.Call, at: int, name: str) -> ast.expr | None:
    named = [one.value for one in call.keywords if one.arg == name]
    return call.args[at] if len(call.args) > at else named[0] if named else None


def literal(value: ast.expr | None, known: Known) -> str | None:
    """The text of an expression, with an ellipsis for each part that is computed."""
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        return value.value
    if isinstance(value, ast.JoinedStr):
        return "".join(literal(part, known) or " … " for part in value.values)
    return literal(known[value.id], {}) if isinstance(value, ast.Name) and value.id in known else None


def levels(value: ast.expr, known: Known) -> set[str]:
    """The levels that an expression can have; any, if it names none."""
    value = known.get(ast.unparse(value), value)
    named = {re.sub(r".*\.", "", ast.unparse(node)).lower() for node in ast.walk(value)}
    return named & {*LEVELS} or {"as the first"}


def keys(call: ast.Call, known: Known) -> set[str]:
    found = {one.arg for one in call.keywords if one.arg}
    for one in call.keywords:
        value = known.get(ast.unparse(one.value)) if one.arg is None else None
        if isinstance(value, ast.Dict):
            found |= {key.value for key in value.keys if isinstance(key, ast.Constant)}
    return found
