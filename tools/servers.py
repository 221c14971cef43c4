#!/usr/bin/env python3
"""Databases and brokers for tests and benchmarks: Debian's packages, on free ports of 127.0.0.1, in a temporary folder.

python tools/servers.py postgres -- COMMAND...        runs COMMAND with TIDEWIRE_TEST_POSTGRES=postgres://... set
python tools/servers.py postgres redis -- COMMAND...  several; TIDEWIRE_TEST_REDIS, TIDEWIRE_TEST_RABBITMQ
python tools/servers.py postgres                      prints {"TIDEWIRE_TEST_POSTGRES": "..."} and obeys standard input: the lines
                                                      stop, start and restart, each answered by a line; ends when the input ends

Servers write to disk as they usually do only with --durable. Each ends with whoever started it, also when that is killed: a keeper
process sees the end of its input, stops them and removes the folder; and if the keeper is killed, the kernel stops them.
From Python: ``with servers.started("postgres") as addresses``.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

START_TIMEOUT_S, STOP_TIMEOUT_S = 120.0, 10.0
LINES_KEPT = 40
PORTS = range(20_000, 32_768)


class Missing(Exception):
    """A server could not be installed or started."""


class Server:
    """One program that serves, in a folder of its own, as a user that may run it."""

    package = ""
    user = ""
    ready = ""
    stop_signal = signal.SIGTERM

    def __init__(self, folder: Path, *, durable: bool) -> None:
        self.folder = folder
        self.durable = durable
        self.port = free_port()
        self.prepare()
        self.give(self.folder)
        self._process: subprocess.Popen[str] | None = None
        self._said: collections.deque[str] = collections.deque(maxlen=LINES_KEPT)

    def addresses(self) -> dict[str, str]:
        """The environment of those who use it."""
        raise NotImplementedError

    def command(self) -> list[str]:
        """What runs in the foreground."""
        raise NotImplementedError

    def prepare(self) -> None:
        """Lays what it needs in its folder."""

    def environment(self) -> dict[str, str]:
        return dict(os.environ)

    def start(self) -> None:
        """Starts it and waits until it says that it is ready.

        Raises:
            Missing: if it ends instead, with what it said last.
        """
        if self._process is not None:
            return
        ready = threading.Event()
        process = subprocess.Popen(
            as_user(self.user, self.stop_signal, self.command()),
            cwd=self.folder,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        threading.Thread(target=self._listen, args=(process, ready), daemon=True).start()
        come = ready.wait(START_TIMEOUT_S)
        if not come or process.poll() is not None:
            end(process, signal.SIGKILL)
            raise Missing(f"{self.package} did not start: {' | '.join(list(self._said)[-5:]) or 'it said nothing'}")
        self._process = process

    def stop(self) -> None:
        """Stops it in order; kills what doesn't stop."""
        if self._process is not None:
            end(self._process, self.stop_signal)
            self._process = None

    def as_user(self, command: Sequence[str]) -> None:
        """Runs a command that prepares something, as the server's user."""
        done = subprocess.run(
            as_user(self.user, signal.SIGKILL, command),
            cwd=self.folder,
            env=self.environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise Missing(f"{' '.join(command[:1])} failed: {(done.stderr or done.stdout).strip()}")

    def give(self, folder: Path) -> None:
        """Gives a folder to the server's user."""
        if other_user(self.user):
            uid, gid = pwd.getpwnam(self.user).pw_uid, pwd.getpwnam(self.user).pw_gid
            for place in (folder, *folder.rglob("*")):
                os.chown(place, uid, gid)

    def _listen(self, process: subprocess.Popen[str], ready: threading.Event) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._said.append(line.strip())
            if self.ready in line:
                ready.set()
        ready.set()


class Postgres(Server):
    """PostgreSQL, whose user has a password. It stops as in a crash, which loses nothing that was committed."""

    package = "postgresql"
    user = "postgres"
    ready = "database system is ready to accept connections"
    stop_signal = signal.SIGQUIT

    def prepare(self) -> None:
        self.password = secrets.token_hex(8)
        (self.folder / "password").write_text(self.password)
        self.give(self.folder)
        self.as_user(
            [
                *[str(postgres_folder() / "initdb"), "-D", str(self.folder / "data"), "--username=tidewire"],
                *["--pwfile", str(self.folder / "password"), "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C"],
                *([] if self.durable else ["--no-sync"]),
            ]
        )

    def addresses(self) -> dict[str, str]:
        return {"TIDEWIRE_TEST_POSTGRES": f"postgres://tidewire:{self.password}@127.0.0.1:{self.port}/postgres"}

    def command(self) -> list[str]:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": "",
            "lc_messages": "C",
            **({} if self.durable else {"fsync": "off", "full_page_writes": "off"}),
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return [str(postgres_folder() / "postgres"), "-D", str(self.folder / "data"), *options]


class Redis(Server):
    """Redis, in memory."""

    package = "redis-server"
    ready = "Ready to accept connections"

    def addresses(self) -> dict[str, str]:
        return {"TIDEWIRE_TEST_REDIS": f"redis://127.0.0.1:{self.port}/0"}

    def command(self) -> list[str]:
        kept = ["--appendonly", "yes"] if self.durable else ["--appendonly", "no"]
        return [*["redis-server", "--bind", "127.0.0.1", "--port", str(self.port), "--save", ""], *kept]


class RabbitMQ(Server):
    """RabbitMQ, with a port mapper of its own."""

    package = "rabbitmq-server"
    user = "rabbitmq"
    ready = "completed with"

    def prepare(self) -> None:
        self.mapper_port, self.peer_port = free_port(), free_port()
        (self.folder / "plugins").write_text("[].\n")
        self._mapper: subprocess.Popen[str] | None = None

    def addresses(self) -> dict[str, str]:
        return {"TIDEWIRE_TEST_RABBITMQ": f"amqp://guest:guest@127.0.0.1:{self.port}/"}

    def command(self) -> list[str]:
        return ["/usr/lib/rabbitmq/bin/rabbitmq-server"]

    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "HOME": str(self.folder),
            "ERL_EPMD_PORT": str(self.mapper_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"tidewire{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(self.peer_port),
            "RABBITMQ_MNESIA_BASE": str(self.folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(self.folder / "log"),
            "RABBITMQ_PID_FILE": str(self.folder / "pid"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "plugins"),
            "RABBITMQ_CONFIG_FILE": str(self.folder / "none"),
            "RABBITMQ_CONF_ENV_FILE": str(self.folder / "none"),
        }

    def start(self) -> None:
        if self._mapper is None:
            mapper = ["epmd", "-port", str(self.mapper_port), "-address", "127.0.0.1"]
            self._mapper = subprocess.Popen(as_user(self.user, signal.SIGKILL, mapper), text=True, cwd=self.folder)
        super().start()

    def stop(self) -> None:
        super().stop()
        if self._mapper is not None:
            end(self._mapper, signal.SIGKILL)
            self._mapper = None


SERVERS: Mapping[str, type[Server]] = {"postgres": Postgres, "redis": Redis, "rabbitmq": RabbitMQ}


@contextmanager
def started(*names: str, durable: bool = False) -> Iterator[dict[str, str]]:
    """Servers while the block runs: the variables that say where they are.

    Raises:
        Missing: if one can't be installed or started.
    """
    command = [sys.executable, __file__, *names, *(["--durable"] if durable else [])]
    keeper = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert keeper.stdin is not None and keeper.stdout is not None
    try:
        said = json.loads(keeper.stdout.readline() or '{"error": "its keeper was killed"}')
        if "error" in said:
            raise Missing(said["error"])
        yield said
    finally:
        keeper.stdin.close()
        keeper.wait()


def keep(names: Sequence[str], *, durable: bool) -> int:
    """Starts servers, prints where they are, does what the input says until it ends, and stops them."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    folder = Path(tempfile.mkdtemp(prefix="tidewire-servers-"))
    folder.chmod(0o755)
    servers: list[Server] = []
    try:
        for name in names:
            install(SERVERS[name].package)
            (folder / name).mkdir()
            servers.append(SERVERS[name](folder / name, durable=durable))
            servers[-1].start()
        addresses = {key: value for server in servers for key, value in server.addresses().items()}
        say({**addresses, "TIDEWIRE_TEST_SERVERS": str(folder)})
        obey(servers)
    except Missing as problem:
        say({"error": str(problem)})
        return 1
    finally:
        for server in servers:
            server.stop()
        shutil.rmtree(folder, ignore_errors=True)
    return 0


def obey(servers: Sequence[Server]) -> None:
    """Reads what to do until the input ends."""
    orders: dict[str, list[Callable[[Server], None]]] = {
        "stop": [lambda server: server.stop()],
        "start": [lambda server: server.start()],
        "restart": [lambda server: server.stop(), lambda server: server.start()],
    }
    for line in sys.stdin:
        if line.strip() not in orders:
            say({"error": f"{line.strip()!r} is no order; there are {', '.join(orders)}"})
            continue
        for order in orders[line.strip()]:
            for server in servers:
                order(server)
        say({"done": line.strip()})


def say(what: Mapping[str, str]) -> None:
    print(json.dumps(what), flush=True)


def as_user(user: str, on_death: signal.Signals, command: Sequence[str]) -> list[str]:
    """A command that gets a signal when its starter dies, as another user if this one is root and the server wouldn't have it."""
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
    mend = f"install it with: apt-get install {package}"
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        raise Missing(f"{package} is not installed, and only root can do that here; {mend}")
    print(f"installing {package}", file=sys.stderr, flush=True)
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    for command in (["apt-get", "update"], ["apt-get", "install", "-y", "--no-install-recommends", package]):
        done = subprocess.run(command, env=quiet, capture_output=True, text=True, check=False)
    if not installed(package):
        raise Missing(f"{package} could not be installed: {done.stderr.strip()[-300:]}; {mend}")


def main() -> int:
    cut = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    arguments, command = sys.argv[1:cut], sys.argv[cut + 1 :]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("servers", nargs="+", choices=sorted(SERVERS))
    parser.add_argument("--durable", action="store_true", help="as if the data mattered")
    options = parser.parse_args(arguments)
    if not command:
        return keep(options.servers, durable=options.durable)
    try:
        with started(*options.servers, durable=options.durable) as addresses:
            return subprocess.run(command, env={**os.environ, **addresses}, check=False).returncode
    except Missing as problem:
        print(f"servers: {problem}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
