"""``tidewire console``: the operator console of a hub or of a data folder, in the browser."""

from __future__ import annotations

from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import tidewire as tw
from tidewire.commands.output import fail
from tidewire.commands.place import require_data_folder
from tidewire.commands.up import open_page, up

_TIMEOUT_S = 5.0


def console(url: str, data: Path | None) -> int:
    """Open the console of the hub at an HTTP address, or start a hub of a data folder and open its
    console. Return the exit code.
    """
    try:
        if data is None:
            return open_page(_gateway(url))
        require_data_folder("data", data)
    except tw.TidewireError as error:
        return fail(error, False)
    options = {"listen": (), "http": ("127.0.0.1:0",), "console": True, "console_admin": True, "data": data}
    return up(None, options, {}, (), False, opens=True)


def _gateway(url: str) -> str:
    """Return the address of a gateway that serves a console.

    Raises:
        InvalidArgument: if it is no HTTP address.
        LinkLost: if the gateway does not answer.
        NotFound: if it serves no console.
    """
    gateway = url.rstrip("/") if "://" in url else f"http://{url}"
    if not gateway.startswith(("http://", "https://")):
        raise tw.InvalidArgument(
            f"url: {url!r} is not allowed: give the HTTP address of the hub, such as http://127.0.0.1:8420"
        )
    fix = "start the hub with `tidewire up --http 127.0.0.1:8420 --console`"
    try:
        urlopen(f"{gateway}/console/hub.json", timeout=_TIMEOUT_S).close()
    except HTTPError as error:
        raise tw.NotFound(f"url: {gateway} serves no console (HTTP {error.code}): {fix}") from None
    except OSError as error:
        raise tw.LinkLost(f"url: {gateway} does not answer ({error}): {fix}") from None
    return gateway
