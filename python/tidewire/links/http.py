"""The settings of an HTTP gateway."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path

from tidewire.errors import ConfigError, InvalidArgument
from tidewire.services.contract.names import short

_CONSOLE = Path(__file__).parents[1] / "console"
_GATEWAY = "http://"


@dataclass(frozen=True)
class Http:
    """How a hub is reached over HTTP, for ``node.listen("http://...", http=tw.Http(...))``.

    Args:
        cors: Origins such as ``"https://shop.example"`` whose pages may call from a browser,
            ``"*"`` for all. By default only the gateway's own pages may.
        hosts: Names under which the gateway of a hub without tokens may be reached, besides
            addresses and ``localhost``.
        files: A folder whose files everybody gets at ``/files/``, without a token. They are read
            once, when the gateway begins to listen; names that begin with a dot are left out.
        limits: Limits by their names, such as ``{"http_body_bytes": 1_000_000}``; those that begin
            with ``http_`` on the page of limits.
        console: Serves the operator console at ``/console/``. It reads the service ``$sys`` of
            nodes with ``inspect=True``, and has the rights of the token that its user gives. At a
            hub without tokens only this machine may open it.
        console_admin: At a hub without tokens the console may also act, not only look.

    Raises:
        InvalidArgument: if a field is not allowed; it names the field. ``listen`` refuses limits
            that there are not, and files that can't be read.
    """

    cors: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    files: str | PathLike[str] | None = None
    limits: Mapping[str, int] = field(default_factory=dict)
    console: bool = False
    console_admin: bool = False

    def __post_init__(self) -> None:
        for name in ("cors", "hosts"):
            texts = getattr(self, name)
            if isinstance(texts, str) or not all(isinstance(text, str) and text for text in texts):
                raise InvalidArgument(f"{name}: {short(texts)} is not allowed: give a tuple of text")
        for origin in self.cors:
            if origin != "*" and ("://" not in origin or origin.endswith("/")):
                raise InvalidArgument(
                    f"cors: {origin!r} is not allowed: give origins such as https://shop.example, or *"
                )
        if not isinstance(self.files, (str, PathLike, type(None))) or self.files == "":
            raise InvalidArgument(f"files: {short(self.files)} is not allowed: give the path of a folder, or None")
        for name, value in self.limits.items():
            if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 63:
                raise InvalidArgument(f"limits: {name}={short(value)} is not allowed: give a whole number")

    def console_files(self) -> tuple[str, bool] | None:
        """Return the folder of the console and True if it may act, or None without a console.

        Raises:
            ConfigError: if this installation was built without the console.
        """
        if not self.console:
            return None
        if not (_CONSOLE / "index.html").is_file():
            text = "console: this installation has none: install a wheel, or build it with `make .make/console`"
            raise ConfigError(text, problems=[text])
        return str(_CONSOLE), self.console_admin


def is_http(url: object) -> bool:
    """Return whether a URL is that of a gateway."""
    return isinstance(url, str) and url.startswith((_GATEWAY, "https://"))
