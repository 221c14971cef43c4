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
    """Settings of the HTTP gateway of a hub, for ``node.listen("http://...", http=tw.Http(...))``.

    Args:
        cors: Allowed CORS origins such as ``"https://shop.example"``, ``"*"`` for all. The default
            is the origin of the gateway alone.
        hosts: Allowed ``Host`` names of the gateway of a hub without tokens, besides addresses and
            ``localhost``.
        files: Folder of files that are served at ``/files/`` without a token. They are read once,
            when the gateway begins to listen; names with a leading dot are skipped.
        limits: Limits by name, such as ``{"http_body_bytes": 1_000_000}``: the names with ``http_``
            on the page of limits.
        console: True to serve the operator console at ``/console/``. It reads the service ``$sys``
            of nodes with ``inspect=True``, with the rights of its user's token. At a hub without
            tokens only this machine may open it.
        console_admin: True to allow actions in the console of a hub without tokens; else it is
            read-only.

    Raises:
        InvalidArgument: if a field is not allowed; the error names it. ``listen`` refuses unknown
            limits and unreadable files.
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
    """Return True if a URL is that of a gateway."""
    return isinstance(url, str) and url.startswith((_GATEWAY, "https://"))
