"""``tidewire up``: a hub until SIGTERM or Ctrl-C."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import webbrowser
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import Any

import tidewire as tw
from tidewire._binding import ChangeCounter
from tidewire._log import log
from tidewire._runtime import steps
from tidewire._urls import is_secured, without_secrets
from tidewire.commands.hub_file import HubJoin, HubSettings
from tidewire.commands.output import fail
from tidewire.config import Config
from tidewire.links.http import is_http
from tidewire.links.hub import Listener

Texts = Sequence[str]


def up(
    config: Path | None,
    options: Mapping[str, Any],
    tokens: Mapping[str, Texts],
    settings: Texts,
    as_json: bool,
    opens: bool = False,
    joins: tuple[str | None, str | None, Texts, Texts, str | None] = (None, None, (), (), None),
) -> int:
    """Run a hub, and return the exit code: that of ``fail`` if it could not start.

    Args:
        config: A TOML file: its table ``hub`` is for this command, the rest for the node.
        options: Values of the command line for the fields of ``HubSettings``; None for absent
            ones.
        tokens: Tokens of nodes that may join, as ``secret`` or ``user:secret``, by right: all,
            "inspect" or "admin". They replace those of the file.
        settings: ``KEY=VALUE`` with keys of the configuration.
        as_json: True to print data and errors as JSON.
        opens: True to open the console in the browser.
        joins: The URL of another hub to join, the name of this one there, exports and imports with
            commas, and a token. They replace the joins of the file.

    The first signal drains the calls that pass through the hub, within the timeout. A second signal
    ends the wait.
    """
    signals = _StopSignals()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signals.handle)
    try:
        grants = tuple(_token(text, right) for right, texts in tokens.items() for text in texts) or None
        hub_settings = HubSettings.of_file(config).changed(tokens=grants, join=_join_option(*joins), **options)
        node = tw.Node(
            hub_settings.nats or "mem://",
            # Other hubs of a cluster may have the same process id on their machines.
            name=_name(hub_settings) or f"hub-{os.getpid()}" + (f"-{os.urandom(4).hex()}" if hub_settings.nats else ""),
            config=Config(file=config, options=_options(settings)),
            data=hub_settings.data,
            inspect=hub_settings.console or None,
        )
        node.start()
        listeners = [_listen(node, url, hub_settings) for url in hub_settings.listen]
        listeners += [_listen_http(node, url, hub_settings) for url in hub_settings.http]
        for other in hub_settings.join:
            _join(node, other)
    except tw.TidewireError as error:
        return fail(error, as_json)
    urls = [listener.url for listener in listeners]
    data: dict[str, object] = {"hub": node.name, "urls": urls}
    text = f"hub {node.name} listens at {' and '.join(urls)}"
    if hub_settings.nats is not None:
        data["nats"] = without_secrets(hub_settings.nats)
        text += f" for the cluster at {data['nats']}"
    _print(data, text, as_json)
    if opens:
        open_page(urls[-1])
    signals.wait(node, lambda: signals.times > 0)
    for listener in listeners:
        if not is_http(listener.url):
            listener.close()
    deadline = monotonic() + hub_settings.timeout
    _drain(node, deadline, signals)
    dropped = node.statistics()["links"]["of_hub"]["dropped"]
    stop_report = steps.blocking(node._stopping(0.0 if signals.times > 1 else max(0.0, deadline - monotonic())))
    line = f"hub {node.name} has stopped: {stop_report}"
    if dropped:
        line += f"; {dropped} published messages were dropped: their receivers had no room (link_queue_bytes)"
    _print({"hub": node.name, "balanced": stop_report.balanced, "dropped": dropped}, line, as_json)
    return 0


def open_page(gateway: str) -> int:
    """Print the address of the console of a gateway, open it in the browser, and return 0."""
    page = f"{gateway.rstrip('/')}/console/"
    print(page, flush=True)
    webbrowser.open(page)
    return 0


class _StopSignals:
    """Counter of the stop signals of the hub.

    ``wait`` does not use a lock: a signal may arrive at another thread, and then does not wake a
    main thread that waits for a lock.
    """

    def __init__(self) -> None:
        self.times = 0
        self.change_counter = ChangeCounter()

    def handle(self, *_: object) -> None:
        self.times += 1
        self.change_counter.ring()

    def wait(self, node: tw.Node, is_met: Callable[[], bool]) -> None:
        """Wait for a condition. Signals and rings of other threads trigger a check."""
        while True:
            seen = self.change_counter.count
            if is_met():
                return
            node._engine.changed(self.change_counter, seen, None).wait()


def _join_option(
    url: str | None, own: str | None, exports: Texts, imports: Texts, token: str | None
) -> tuple[HubJoin, ...] | None:
    """Return the join of a command line, or None if it has none."""

    def names(texts: Texts) -> tuple[str, ...]:
        return tuple(name.strip() for text in texts for name in text.split(","))

    if url is not None:
        return (HubJoin(url, own, names(exports), names(imports), token),)
    lone_options = [option for option, value in (("as", own), ("export", exports), ("import", imports)) if value]
    if lone_options:
        raise tw.InvalidArgument(
            f"{lone_options[0]}: it is not allowed alone: give --join with the URL of the other hub"
        )
    return None


def _name(hub_settings: HubSettings) -> str | None:
    """Return the name of the hub, by default its name at another hub."""
    return hub_settings.name or next((other.as_ for other in hub_settings.join if other.as_), None)


def _join(node: tw.Node, other: HubJoin) -> None:
    files = (other.ca, other.cert, other.key)
    tls = tw.Tls(*files) if any(files) else None
    node.join(other.url, as_=other.as_, export=other.export, import_=other.import_, token=other.token, tls=tls)


def _listen(node: tw.Node, url: str, hub_settings: HubSettings) -> Listener:
    files = (hub_settings.ca, hub_settings.cert, hub_settings.key)
    tls = tw.Tls(*files) if any(files) and is_secured(url) else None
    return node.listen(url, tokens=hub_settings.tokens, insecure=hub_settings.insecure, tls=tls)


def _listen_http(node: tw.Node, url: str, hub_settings: HubSettings) -> Listener:
    url = url if "://" in url else f"http://{url}"
    settings = tw.Http(
        hub_settings.cors,
        hub_settings.hosts,
        hub_settings.http_files,
        hub_settings.http_limits,
        hub_settings.console,
        hub_settings.console_admin,
    )
    return node.listen(url, tokens=hub_settings.tokens, insecure=hub_settings.insecure, http=settings)


def _options(settings: Texts) -> dict[str, str]:
    options = {}
    for text in settings:
        key, divided, value = text.partition("=")
        if not divided or not key.strip():
            raise tw.InvalidArgument(
                f"set: {text!r} is not allowed: give KEY=VALUE, such as links.link_heartbeat_ms=1000"
            )
        options[key.strip()] = value
    return options


def _drain(node: tw.Node, deadline: float, signals: _StopSignals) -> None:
    connection = node._link()
    connection.goodbye()
    if connection.open_calls:
        detail = f"it waits for those that pass through it ({connection.open_calls}) until a second signal"
        log.warning("hub.draining", "%(node)s: takes no new calls; %(waits)s", node=node.name, waits=detail)

    def drain() -> None:
        with contextlib.suppress(tw.TidewireError):
            steps.blocking(connection.draining(deadline))
        drained.set()
        signals.change_counter.ring()

    drained = threading.Event()
    # In another thread, so that this one can receive a second signal.
    threading.Thread(target=drain, name="drain", daemon=True).start()
    signals.wait(node, lambda: drained.is_set() or signals.times > 1)


def _token(text: str, right: str) -> tw.Token:
    """Parse a token of a command line or the environment: ``secret`` or ``user:secret``."""
    user, _, secret = text.rpartition(":")
    is_admin = right == "admin"
    return tw.Token(secret, user=user, inspect=right != "", inspect_payloads=is_admin, admin=is_admin)


def _print(data: dict[str, object], text: str, as_json: bool) -> None:
    print(json.dumps(data) if as_json else text, flush=True)
