"""Rules for names of services and methods, and suggestions for names nearly right."""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Iterable, Mapping
from typing import Any

from tidewire._limits import CALL_HEADERS, NAME_BYTES, SUBJECT_BYTES, SUBJECT_TOKENS
from tidewire.errors import InvalidArgument
from tidewire.services.limits import CALL_TIMEOUT_MAX_S

VISIBILITIES = ("node", "private", "public")
"""Allowed callers: this process, the joined nodes, or all callers over HTTP, too."""

STANDBY, FAR = "~", "~~"
"""Prefixes of the ids of standby instances, and of instances at another hub: they receive calls
only if no instance is active, or all active ones are full.
"""

RESERVED = frozenset({"sync", "with_"})
"""Members of a client besides the methods of its service."""

_LISTED_MAX = 10
_short = reprlib.Repr()
_short.maxstring = _short.maxother = 80


def short(value: Any) -> str:
    """Return a value as text of bounded length, even if its repr fails."""
    return _short.repr(value)


def token_problem(field: str, value: object) -> str | None:
    """Return the error of an invalid token of a subject, or None."""
    if not isinstance(value, str) or not value or not _fits(value):
        return f"{field}: {short(value)} is not allowed: give one token without dots, blanks, '*' and '>'"
    if len(value.encode()) > NAME_BYTES.max:
        return f"{field}: {short(value)} is not allowed: give at most {NAME_BYTES.max} bytes"
    return None


def service_problem(field: str, value: object) -> str | None:
    """Return the error of an invalid name of a service, or None."""
    if isinstance(value, str) and value.startswith("$"):
        return f"{field}: {short(value)} is not allowed: names that begin with $ are for Tidewire's own services; rename it"
    return token_problem(field, value)


def method_problem(field: str, value: object) -> str | None:
    """Return the error of an invalid name of a method, or None."""
    if isinstance(value, str) and value.startswith("_"):
        return f"{field}: {value!r} is not allowed: names that begin with an underscore are not served; rename it"
    if value in RESERVED:
        return f"{field}: {value!r} is not allowed: every client has that itself; give another name with name="
    return token_problem(field, value)


def headers_problem(field: str, value: object) -> str | None:
    """Return the error of invalid headers of a message, or None."""
    texts = isinstance(value, Mapping) and all(isinstance(part, str) for item in value.items() for part in item)
    if texts and len(value) <= CALL_HEADERS.max:  # type: ignore[arg-type]
        return None
    return f"{field}: {short(value)} is not allowed: give at most {CALL_HEADERS.max} strings by strings"


def plain_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return headers in the form for sending.

    Raises:
        InvalidArgument: if they are not strings.
    """
    problem = headers_problem("headers", headers)
    if problem is not None:
        raise InvalidArgument(problem)
    return dict(headers)


def pattern_problem(field: str, value: object) -> str | None:
    """Return the error of an invalid pattern of subjects, or None."""
    fix = "give tokens divided by single dots, '*' for one token, '>' at the end for the rest"
    if not isinstance(value, str) or not value:
        return f"{field}: {short(value)} is not allowed: {fix}"
    tokens = value.split(".")
    if len(value.encode()) > SUBJECT_BYTES.max or len(tokens) > SUBJECT_TOKENS.max:
        return f"{field}: {short(value)} is not allowed: give at most {SUBJECT_TOKENS.max} tokens, {SUBJECT_BYTES.max} bytes"
    plain = tokens[:-1] if tokens[-1] == ">" else tokens
    if all(part == "*" or (part and _fits(part)) for part in plain):
        return None
    return f"{field}: {value!r} is not allowed: {fix}"


def visibility_problem(field: str, value: object) -> str | None:
    """Return the error of an invalid visibility, or None."""
    if isinstance(value, str) and value in VISIBILITIES:
        return None
    return f"{field}: {short(value)} is not allowed: use one of {', '.join(map(repr, VISIBILITIES))}"


def timeout_problem(field: str, value: object) -> str | None:
    """Return the error of an invalid timeout, or None."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if number and 0 < value <= CALL_TIMEOUT_MAX_S:  # type: ignore[operator]
        return None
    return f"{field}: {short(value)} is not allowed: give seconds, more than 0 and at most {CALL_TIMEOUT_MAX_S:,.0f}"


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the hint of an error about an unknown name: the nearest name, or the known ones."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    if not names:
        return "it has none"
    more = f" and {len(names) - _LISTED_MAX} more" if len(names) > _LISTED_MAX else ""
    return f"there are {', '.join(map(repr, names[:_LISTED_MAX]))}{more}"


def snake(name: str) -> str:
    """Return the name of a class as the name of its service: OrderBook becomes order_book."""
    parts: list[str] = []
    for at, letter in enumerate(name):
        begins = letter.isupper() and at > 0
        if begins and (not name[at - 1].isupper() or name[at + 1 : at + 2].islower()):
            parts.append("_")
        parts.append(letter.lower())
    return "".join(parts).lstrip("_").replace("__", "_")


def _fits(text: str) -> bool:
    return all(letter not in ".*>" and not letter.isspace() and letter.isprintable() for letter in text)
