"""Call options: the arguments of ``client.with_(...)``."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tidewire.agents.message import PRIORITIES
from tidewire.errors import InvalidArgument
from tidewire.services.caller.policies import Policy
from tidewire.services.contract.names import headers_problem, nearest, short, timeout_problem

_NAMES = ("timeout", "priority", "instance", "policy", "headers")


@dataclass(frozen=True)
class CallOptions:
    """Options of calls.

    Attributes:
        timeout: Seconds until AskTimeout. None uses the timeout of the method, else 30 seconds; a
            stream has no default.
        priority: "urgent", "high", "normal" or "low": the priority in the queue.
        instance: The id of the called instance.
        policy: The balancing policy.
        headers: Headers for the handler, in ``tw.context().headers``.
        dice: Random state of the policy.
    """

    timeout: float | None = None
    priority: str = "normal"
    instance: str | None = None
    policy: Policy = field(default_factory=Policy)
    headers: Mapping[str, str] = field(default_factory=dict)
    dice: random.Random = field(default_factory=random.Random, repr=False, compare=False)

    def changed(self, changes: Mapping[str, Any]) -> CallOptions:
        """Return these options with some replaced; None keeps an option.

        Raises:
            InvalidArgument: if an option is not known, or its value is not allowed.
        """
        unknown = next((name for name in changes if name not in _NAMES), None)
        if unknown is not None:
            raise InvalidArgument(f"with_: {unknown}: there is no such option: {nearest(unknown, _NAMES)}")
        values = {name: value for name, value in changes.items() if value is not None}
        for name, check in _CHECKS.items():
            if name in values:
                values[name] = check(values[name])
        if "policy" in values:
            values["dice"] = random.Random(values["policy"].seed)
        if "instance" in values and values.get("policy", self.policy).kind == "all":
            raise InvalidArgument(
                f"with_: instance: {values['instance']!r} is not allowed beside policy='all': give one"
            )
        return dataclasses.replace(self, **values)


def _timeout(value: object) -> object:
    problem = timeout_problem("with_: timeout", value)
    if problem is not None:
        raise InvalidArgument(problem)
    return value


def _priority(value: object) -> object:
    if not isinstance(value, str) or value not in PRIORITIES:
        raise InvalidArgument(
            f"with_: priority: {short(value)} is not allowed: use 'urgent', 'high', 'normal' or 'low'"
        )
    return value


def _instance(value: object) -> object:
    if not isinstance(value, str) or not value:
        raise InvalidArgument(f"with_: instance: {short(value)} is not allowed: give the id of an instance")
    return value


def _headers(value: object) -> Mapping[str, str]:
    problem = headers_problem("with_: headers", value)
    if problem is not None:
        raise InvalidArgument(problem)
    headers: dict[str, str] = dict(value)  # type: ignore[call-overload]
    owned = next((name for name in headers if name.startswith("tw-")), None)
    if owned is not None:
        raise InvalidArgument(
            f"with_: headers: {owned!r} is not allowed: names that begin with tw- are Tidewire's own; choose another one"
        )
    return headers


_CHECKS = {"timeout": _timeout, "priority": _priority, "instance": _instance, "policy": Policy.of, "headers": _headers}
