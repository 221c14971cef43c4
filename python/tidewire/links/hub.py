"""Public handle of a hub, and its tokens."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidewire import _limits
from tidewire._limits import Limit
from tidewire.errors import InvalidArgument
from tidewire.services.contract.names import pattern_problem, short, token_problem

if TYPE_CHECKING:
    from tidewire._binding import Gateway, Listening

_LIMITS = (_limits.HUB_LINKS, _limits.LINK_SUBSCRIPTIONS, _limits.LINK_IN_FLIGHT, _limits.LINK_QUEUE_BYTES)

_RIGHTS = ("publish", "subscribe", "call", "answer", "serve")
_OPERATOR_RIGHTS = ("inspect", "inspect_payloads", "admin", "partner")

Grant = tuple[str, str, list[list[str] | None], list[str], dict[str, int]]
"""A token in the form of the hub: the secret, the user, patterns and names for each of ``_RIGHTS``,
the rights of operators and partners, limits by name.
"""


@dataclass(frozen=True)
class Token:
    """Token that lets a node join a hub, with its rights there.

    Args:
        token: The secret.
        user: User of the token, which handlers see as the user of a call.
        publish: Patterns of subjects that it may publish on. None, here and for ``subscribe`` and
            ``call``, allows all; for a token with ``inspect``, ``inspect_payloads``, ``admin`` or
            ``partner`` it allows none.
        subscribe: Patterns that it may subscribe to, including narrower ones.
        call: Patterns of subjects that it may call. The methods of a service are
            ``svc.<service>.<instance>.<method>``.
        answer: Patterns on which it may subscribe and reply to requests, including narrower ones.
            Agents reply on ``agent.<id>``. Other subscriptions receive no requests. None allows all
            if the token may publish, subscribe to and call everything, else none.
        serve: Names of services that it may serve, ``"*"`` for all. None: as for ``answer``.
        inspect: Right to inspect nodes, streams, buckets, leases and commands, in the console and
            in programs, without payloads.
        inspect_payloads: Right to inspect, and to read events, values and results.
        admin: Right to inspect, to purge streams, requeue dead letters, pause consumers, change
            keys, release leases, cancel and retry commands, pause and cancel campaigns, and scale
            and drain pools.
        partner: Token of another hub: it has only the rights of the fields above, and sees only the
            services that it may call, without nodes.
        hub_links: Most nodes that are joined with it at once. None, here and below, is the limit of
            the hub.
        link_subscriptions: Most subscriptions of one node. A node itself uses up to three: for
            services, for exported objects, and for its statistics.
        link_in_flight: Most calls, streams, subscriptions and long messages that one node may have
            open.
        link_queue_bytes: Most bytes that are queued for one node.

    Every node may list the services of its hub, and is notified of changes. The node of the hub
    uses the first token: its patterns apply to that node, its limits do not.

    Raises:
        InvalidArgument: if a field is not allowed; the error names it. ``listen`` refuses limits
            above those of the hub.
    """

    token: str
    user: str = ""
    publish: tuple[str, ...] | None = None
    subscribe: tuple[str, ...] | None = None
    call: tuple[str, ...] | None = None
    answer: tuple[str, ...] | None = None
    serve: tuple[str, ...] | None = None
    hub_links: int | None = None
    link_subscriptions: int | None = None
    link_in_flight: int | None = None
    link_queue_bytes: int | None = None
    inspect: bool = False
    inspect_payloads: bool = False
    admin: bool = False
    partner: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.token, str) or len(self.token) < 8:
            raise InvalidArgument("token: the value is not allowed: give a string of 8 characters or more")
        if not isinstance(self.user, str):
            raise InvalidArgument(f"user: {self.user!r} is not allowed: give a string")
        for field in _RIGHTS:
            texts = getattr(self, field)
            if isinstance(texts, str) or not all(isinstance(text, str) for text in texts or ()):
                kind = "names of services" if field == "serve" else "patterns"
                raise InvalidArgument(f"{field}: {texts!r} is not allowed: give a tuple of {kind}")
            problem_of = token_problem if field == "serve" else pattern_problem
            problems = (problem_of(field, text) for text in texts or () if (field, text) != ("serve", "*"))
            if problem := next(filter(None, problems), None):
                raise InvalidArgument(problem)
        for field in _OPERATOR_RIGHTS:
            if not isinstance(getattr(self, field), bool):
                raise InvalidArgument(f"{field}: {short(getattr(self, field))} is not allowed: give True or False")
        for limit in _LIMITS:
            value = getattr(self, limit.name)
            if value is not None and not _is_allowed(value, limit):
                fix = f"give {limit.min} to {limit.max} {limit.unit}, or None for as many as the hub allows"
                raise InvalidArgument(f"{limit.name}: {short(value)} is not allowed: {fix}")

    def limits(self) -> dict[str, int]:
        """Return its own limits by name, without those of the hub."""
        values = {limit.name: getattr(self, limit.name) for limit in _LIMITS}
        return {name: value for name, value in values.items() if value is not None}

    def __repr__(self) -> str:
        return f"Token(user={self.user!r})"


def _is_allowed(value: object, limit: Limit) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and limit.min <= value <= limit.max


def grants(tokens: Iterable[Token], hub_limits: Mapping[str, int]) -> list[Grant]:
    """Return tokens in the form for the hub.

    Args:
        tokens: The tokens.
        hub_limits: The limits of the hub, by name.

    Raises:
        InvalidArgument: if a value is no Token, two tokens are the same, or one has a limit above
            that of the hub.
    """
    if isinstance(tokens, Token):
        raise InvalidArgument("tokens: a Token is not allowed: give a list of them, as in tokens=[token]")
    found: list[Grant] = []
    users: dict[str, str] = {}
    for number, token in enumerate(tokens):
        if not isinstance(token, Token):
            raise InvalidArgument(f"tokens: a {type(token).__name__} is not allowed: give tw.Token objects")
        if token.token in users:
            raise InvalidArgument(
                f"tokens: those of the users {users[token.token]!r} and {token.user!r} are the same: give each user a token of its own"
            )
        users[token.token] = token.user
        limits = token.limits()
        for name, value in limits.items():
            if value > hub_limits[name]:
                fix = f"give at most that, or raise links.{name} of the hub"
                raise InvalidArgument(
                    f"tokens[{number}].{name}: {value} is more than {name}={hub_limits[name]} of the hub: {fix}"
                )
        patterns = [getattr(token, field) for field in _RIGHTS]
        rights = [None if texts is None else list(texts) for texts in patterns]
        operator = [field for field in _OPERATOR_RIGHTS if getattr(token, field)]
        if operator and number == 0:
            fix = "the hub itself uses the first token: give one for that before it"
            raise InvalidArgument(f"tokens[0].{operator[0]}: True is not allowed: {fix}")
        found.append((token.token, token.user, rights, operator, limits))
    return found


class Listener:
    """An address where other nodes can join, open when ``listen`` returns. An await returns it at
    once.

    Attributes:
        url: Its address, with the real port.
    """

    def __init__(self, inner: Listening | Gateway) -> None:
        self._inner = inner
        self.url: str = inner.url

    def close(self) -> None:
        """Stop listening. Joined nodes stay."""
        self._inner.close()

    def __await__(self) -> Generator[Any, Any, Listener]:
        return self
        yield

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Listener {self.url}>"
