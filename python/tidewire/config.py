"""The configuration of a node: from code, a TOML file and the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidewire._numbers import Numbers
from tidewire.errors import ConfigError

# Defaults of a node in Python: one thread runs at a time, the others replace a blocked one.
_DEFAULTS: dict[str, Any] = {"stall_us": 10_000, "dispatchers": {"default": {"threads": 8}}}


@dataclass(frozen=True)
class Config:
    """Settings of a node. Absent settings keep their defaults; ``docs/reference/limits.md`` lists
    them all.

    Options win over the environment, the environment over the TOML file, the file over the values
    given here.

    Args:
        values: Nested tables, such as ``{"mailbox_capacity": 1000, "dispatchers": {"io":
            {"threads": 4}}}``.
        file: A TOML file with the same tables, or None.
        environment: Environment variables; the default is ``os.environ``.
            ``TIDEWIRE_DISPATCHERS__IO__THREADS=4`` sets ``dispatchers.io.threads``.
        options: Settings of a command line: keys such as ``"links.link_heartbeat_ms"``, and
            their values as text.
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    file: str | Path | None = None
    environment: Mapping[str, str] | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("values", "options"):
            value = getattr(self, name)
            if not isinstance(value, Mapping):
                raise _problem(f"{name}: {value!r} is not a table: give a dict, or the path of a TOML file as file=")

    @classmethod
    def of(cls, source: Config | Mapping[str, Any] | str | Path | None) -> Config:
        """Make a configuration from the argument of ``tw.Node(config=...)``: a Config, a mapping,
        the path of a TOML file, or None.

        Raises:
            ConfigError: if it is of another type.
        """
        if source is None:
            return cls()
        if isinstance(source, Config):
            return source
        if isinstance(source, Mapping):
            return cls(values=source)
        if isinstance(source, (str, Path)):
            return cls(file=source)
        raise _problem(
            f"config: {source!r} is not a configuration: give a tw.Config, a dict, or the path of a TOML file"
        )

    def layers(self) -> tuple[dict[str, Any], tuple[str, str] | None, list[tuple[str, str]], list[tuple[str, str]]]:
        """Return the code, file, environment and option layers, as the engine takes them."""
        environment = os.environ if self.environment is None else self.environment
        variables = [(name, value) for name, value in environment.items() if name.startswith("TIDEWIRE_")]
        values = {key: value.to_dict() if isinstance(value, Numbers) else value for key, value in self.values.items()}
        return _merge(_DEFAULTS, values, "config"), self._text(), variables, list(self.options.items())

    def _text(self) -> tuple[str, str] | None:
        if self.file is None:
            return None
        try:
            return str(self.file), Path(self.file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise _problem(f"config: the file {str(self.file)!r} can't be read: {error}") from error


def _merge(low: Mapping[str, Any], high: Mapping[str, Any], path: str) -> dict[str, Any]:
    merged = dict(low)
    for key, value in high.items():
        if not isinstance(key, str):
            raise _problem(f"{path}: the key {key!r} is not a string")
        below = merged.get(key)
        if isinstance(value, Mapping):
            merged[key] = _merge(below if isinstance(below, Mapping) else {}, value, f"{path}.{key}")
        else:
            merged[key] = value
    return merged


def _problem(text: str) -> ConfigError:
    return ConfigError(text, problems=[text])
