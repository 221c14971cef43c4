"""A hub, as its users hold it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidewire.errors import InvalidArgument
from tidewire.services.names import pattern_problem

if TYPE_CHECKING:
    from tidewire._binding import Listening

_CHANGES = "$hub.services.*"
_LIST = "$hub.services"


@dataclass(frozen=True)
class Token:
    """Lets a node join a hub, and says what it may do there.

    Args:
        token: The secret.
        user: Who it stands for; handlers see it as the user of a call.
        publish: Patterns of subjects that it may publish on.
        subscribe: Patterns that it may subscribe to, these or narrower ones.
        call: Patterns of subjects that it may call. The methods of a service are ``svc.<service>.<instance>.<method>``.

    Every node may ask its hub which services there are, and is told of those that come and go.
    """

    token: str
    user: str = ""
    publish: tuple[str, ...] = (">",)
    subscribe: tuple[str, ...] = (">",)
    call: tuple[str, ...] = (">",)

    def __post_init__(self) -> None:
        if not isinstance(self.token, str) or len(self.token) < 8:
            raise InvalidArgument("token: what was given is not allowed: give a string of 8 characters or more")
        if not isinstance(self.user, str):
            raise InvalidArgument(f"user: {self.user!r} is not allowed: give a string")
        for field in ("publish", "subscribe", "call"):
            patterns = getattr(self, field)
            if isinstance(patterns, str) or not all(isinstance(pattern, str) for pattern in patterns):
                raise InvalidArgument(f"{field}: {patterns!r} is not allowed: give a tuple of patterns")
            problem = next(filter(None, (pattern_problem(field, pattern) for pattern in patterns)), None)
            if problem is not None:
                raise InvalidArgument(problem)

    def __repr__(self) -> str:
        return f"Token(user={self.user!r})"


def grants(tokens: Iterable[Token]) -> list[tuple[str, str, list[str], list[str], list[str]]]:
    """Return tokens in the form that the hub takes.

    Raises:
        InvalidArgument: if one of them is none.
    """
    if isinstance(tokens, Token):
        raise InvalidArgument("tokens: a Token is not allowed: give a list of them, as in tokens=[token]")
    found: list[tuple[str, str, list[str], list[str], list[str]]] = []
    users: dict[str, str] = {}
    for token in tokens:
        if not isinstance(token, Token):
            raise InvalidArgument(f"tokens: a {type(token).__name__} is not allowed: give tw.Token objects")
        if token.token in users:
            raise InvalidArgument(
                f"tokens: those of the users {users[token.token]!r} and {token.user!r} are the same: give each user a token of its own"
            )
        users[token.token] = token.user
        subscribe, call = [*token.subscribe, _CHANGES], [*token.call, _LIST]
        found.append((token.token, token.user, list(token.publish), subscribe, call))
    return found


class Listener:
    """A place where other nodes can join.

    Attributes:
        url: Its address, with the real port.
    """

    def __init__(self, inner: Listening) -> None:
        self._inner = inner
        self.url: str = inner.url

    def close(self) -> None:
        """Take no more nodes in. Those that joined stay."""
        self._inner.close()

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Listener {self.url}>"
