#!/usr/bin/env python3
"""Databases and brokers for tests and benchmarks: Debian's packages, on free ports of 127.0.0.1, in
a temporary folder.

python tools/servers.py postgres -- COMMAND...        runs COMMAND with TIDEWIRE_TEST_POSTGRES set
python tools/servers.py postgres redis -- COMMAND...  several: TIDEWIRE_TEST_REDIS, _RABBITMQ,
                                                      _NATS and _PROMETHEUS
python tools/servers.py nats-cluster -- COMMAND...    three NATS servers with routes, n1, n2 and n3:
                                                      TIDEWIRE_TEST_NATS_CLUSTER
python tools/servers.py postgres                      prints {"TIDEWIRE_TEST_POSTGRES": "..."} and
                                                      obeys standard input: the lines stop, start,
                                                      restart, kill (SIGKILL), freeze (SIGSTOP) and
                                                      thaw (SIGCONT), for all or with a name such as
                                                      n2, each answered by a line; ends when the
                                                      input ends

Servers write to disk as they usually do only with --durable. Each ends with whoever started it,
also when that is killed: a keeper process sees the end of its input, stops them and removes the
folder; and if the keeper is killed, the kernel stops them. From Python: ``with
servers.started("postgres") as addresses``.
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
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from server_programs import ROOT, Missing, as_user, end, free_port, install, nats_server, other_user, postgres_folder

START_TIMEOUT_S = 120.0
LINES_KEPT = 40
NATS_VERSION = "2.15.1"


@dataclass(frozen=True)
class Options:
    """How servers run: with synced writes or without; of NATS, which version, and what is added to
    its configuration.
    """

    durable: bool = False
    nats_version: str = NATS_VERSION
    nats_config: str = ""


class Server:
    """One program that serves, in a folder of its own, as a user that may run it."""

    package = ""
    user = ""
    ready = ""
    stop_signal = signal.SIGTERM

    def __init__(self, folder: Path, options: Options) -> None:
        self.folder = folder
        self.name = folder.name
        self.options = options
        self.durable = options.durable
        self.port = free_port()
        self.prepare()
        self.give(self.folder)
        self._process: subprocess.Popen[str] | None = None
        self._said: collections.deque[str] = collections.deque(maxlen=LINES_KEPT)

    def addresses(self) -> dict[str, str]:
        """The environment of those who use it."""
        raise NotImplementedError

    def command(self) -> list[str]:
        """Command of the server, in the foreground."""
        raise NotImplementedError

    def prepare(self) -> None:
        """Lays what it needs in its folder."""

    def environment(self) -> dict[str, str]:
        return dict(os.environ)

    @classmethod
    def install(cls, options: Options) -> None:
        """Installs the program where that is possible.

        Raises:
            Missing: if it isn't, with what to do.
        """
        install(cls.package)

    def parts(self) -> Sequence[Server]:
        """The servers that orders may name."""
        return (self,)

    def start(self) -> None:
        """Starts it and waits until it says that it is ready.

        Raises:
            Missing: if it ends instead, with what it said last.
        """
        if self._process is None:
            self.launch()
            self.wait_until_ready()

    def launch(self) -> None:
        """Starts it."""
        self._ready = threading.Event()
        self._process = process = subprocess.Popen(
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
        threading.Thread(target=self._listen, args=(process, self._ready), daemon=True).start()

    def wait_until_ready(self) -> None:
        """Waits until it says that it is ready.

        Raises:
            Missing: if it ends instead, with what it said last.
        """
        process = self._process
        assert process is not None
        if not self._ready.wait(START_TIMEOUT_S) or process.poll() is not None:
            self.kill()
            raise Missing(f"{self.package} did not start: {' | '.join(list(self._said)[-5:]) or 'it said nothing'}")

    def stop(self) -> None:
        """Stops it in order; kills what doesn't stop."""
        self.thaw()
        if self._process is not None:
            end(self._process, self.stop_signal)
            self._process = None

    def kill(self) -> None:
        """Ends it as a crash does."""
        if self._process is not None:
            end(self._process, signal.SIGKILL)
            self._process = None

    def freeze(self) -> None:
        """Takes its time away: it answers nothing, and its sockets stay."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Lets a frozen one go on."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGCONT)

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
            if any(word in line for word in self.ready.split("|")):
                ready.set()
        ready.set()


class Postgres(Server):
    """PostgreSQL, whose user has a password. It stops as in a crash, which loses nothing that was
    committed.
    """

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


class Prometheus(Server):
    """Prometheus, with the alerts of deploy/. It scrapes the hubs that `targets.json` in its folder
    lists.
    """

    package = "prometheus"
    ready = "Server is ready to receive web requests"

    def prepare(self) -> None:
        (self.folder / "prometheus.yml").write_text(
            f"""
            global: {{scrape_interval: 250ms, evaluation_interval: 250ms}}
            rule_files: ["{ROOT / "deploy/prometheus/alerts.yml"}"]
            scrape_configs:
              - job_name: tidewire
                file_sd_configs: [{{files: ["{self.folder / "targets.json"}"], refresh_interval: 1s}}]
            """
        )

    def addresses(self) -> dict[str, str]:
        return {"TIDEWIRE_TEST_PROMETHEUS": f"http://127.0.0.1:{self.port}"}

    def command(self) -> list[str]:
        config, data = self.folder / "prometheus.yml", self.folder / "data"
        address = f"--web.listen-address=127.0.0.1:{self.port}"
        return ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={data}", address]


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


class Nats(Server):
    """A NATS server with JetStream in its folder."""

    package = "nats-server"
    ready = "Server is ready"
    cluster = ""

    def addresses(self) -> dict[str, str]:
        return {"TIDEWIRE_TEST_NATS": f"nats://127.0.0.1:{self.port}"}

    @classmethod
    def install(cls, options: Options) -> None:
        nats_server(options.nats_version)

    def prepare(self) -> None:
        always = "sync_interval: always" if self.durable else ""
        (self.folder / "server.conf").write_text(
            f'''
            server_name: "{self.name}"
            listen: "127.0.0.1:{self.port}"
            jetstream {{ store_dir: "{self.folder / "data"}", {always} }}
            {self.cluster}
            {self.options.nats_config}
            '''
        )

    def command(self) -> list[str]:
        return [str(nats_server(self.options.nats_version)), "--config", str(self.folder / "server.conf")]


class NatsMember(Nats):
    """A NATS server of a cluster: ready when it knows who leads."""

    ready = "JetStream cluster new metadata leader|Self is new JetStream cluster metadata leader"

    def __init__(self, folder: Path, options: Options, cluster: str) -> None:
        self.cluster = cluster
        super().__init__(folder, options)


class NatsCluster(Server):
    """Three NATS servers with routes between them."""

    package = "nats-server"

    def prepare(self) -> None:
        routes = [free_port() for _ in range(3)]
        self.members: list[NatsMember] = []
        for number, port in enumerate(routes, 1):
            others = ", ".join(f'"nats://127.0.0.1:{other}"' for other in routes if other != port)
            place = self.folder / f"n{number}"
            place.mkdir()
            cluster = f'cluster {{ name: "tidewire", listen: "127.0.0.1:{port}", routes: [{others}] }}'
            self.members.append(NatsMember(place, self.options, cluster))

    def addresses(self) -> dict[str, str]:
        return {
            "TIDEWIRE_TEST_NATS_CLUSTER": "nats://" + ",".join(f"127.0.0.1:{member.port}" for member in self.members)
        }

    @classmethod
    def install(cls, options: Options) -> None:
        nats_server(options.nats_version)

    def parts(self) -> Sequence[Server]:
        return self.members

    def start(self) -> None:
        for member in self.members:
            member.launch()
        for member in self.members:
            member.wait_until_ready()
        # The leader places nothing on a server before it has the first report of that server.
        limit = time.monotonic() + START_TIMEOUT_S
        while not self._takes_replicas():
            if time.monotonic() > limit:
                raise Missing("nats-cluster did not start: it makes no stream of three replicas")
            time.sleep(0.05)

    def _takes_replicas(self) -> bool:
        """Make and delete a stream of three replicas. False if a server is not seen yet."""
        with socket.create_connection(("127.0.0.1", self.members[0].port), 10.0) as link, link.makefile("rwb") as io:
            io.write(b"CONNECT {}\r\nSUB reply 1\r\n")
            for call, body in ("CREATE", b'{"name":"trial","num_replicas":3}'), ("DELETE", b""):
                io.write(b"PUB $JS.API.STREAM.%s.trial reply %d\r\n%s\r\n" % (call.encode(), len(body), body))
                io.flush()
                line = b""
                while not line.startswith(b"MSG"):
                    line = io.readline()
                    if not line:
                        return False
                if b'"error"' in io.read(int(line.split()[-1])):
                    return False
        return True

    def stop(self) -> None:
        for member in self.members:
            member.stop()


SERVERS: Mapping[str, type[Server]] = {
    "postgres": Postgres,
    "redis": Redis,
    "rabbitmq": RabbitMQ,
    "prometheus": Prometheus,
    "nats": Nats,
    "nats-cluster": NatsCluster,
}


@contextmanager
def started(
    *names: str, durable: bool = False, nats_version: str = NATS_VERSION, nats_config: Path | None = None
) -> Iterator[dict[str, str]]:
    """Servers while the block runs: the variables that say where they are.

    Raises:
        Missing: if one can't be installed or started.
    """
    config = ["--nats-config", str(nats_config)] if nats_config else []
    options = [*(["--durable"] if durable else []), "--nats-version", nats_version, *config]
    command = [sys.executable, __file__, *names, *options]
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


def keep(names: Sequence[str], options: Options) -> int:
    """Starts servers, prints where they are, does what the input says until it ends, and stops
    them.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    folder = Path(tempfile.mkdtemp(prefix="tidewire-servers-"))
    folder.chmod(0o755)
    servers: list[Server] = []
    try:
        for name in names:
            SERVERS[name].install(options)
            (folder / name).mkdir()
            servers.append(SERVERS[name](folder / name, options))
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
    """Reads what to do, and to which server if it names one, until the input ends."""
    orders: dict[str, list[Callable[[Server], None]]] = {
        "stop": [lambda server: server.stop()],
        "start": [lambda server: server.start()],
        "restart": [lambda server: server.stop(), lambda server: server.start()],
        "kill": [lambda server: server.kill()],
        "freeze": [lambda server: server.freeze()],
        "thaw": [lambda server: server.thaw()],
    }
    for line in sys.stdin:
        order, _, name = line.strip().partition(" ")
        named = [part for server in servers for part in server.parts() if part.name == name] if name else servers
        if order not in orders or not named:
            say({"error": f"{line.strip()!r} is no order of a server that runs; there are {', '.join(orders)}"})
            continue
        for step in orders[order]:
            for server in named:
                step(server)
        say({"done": line.strip()})


def say(what: Mapping[str, str]) -> None:
    print(json.dumps(what), flush=True)


def main() -> int:
    cut = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    arguments, command = sys.argv[1:cut], sys.argv[cut + 1 :]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("servers", nargs="+", choices=sorted(SERVERS))
    parser.add_argument("--durable", action="store_true", help="as if the data mattered")
    parser.add_argument("--nats-version", default=NATS_VERSION, help="the version of nats-server")
    parser.add_argument("--nats-config", type=Path, help="a file that is added to the configuration of nats-server")
    options = parser.parse_args(arguments)
    if not command:
        added = options.nats_config.read_text() if options.nats_config else ""
        return keep(options.servers, Options(options.durable, options.nats_version, added))
    try:
        given = {name: value for name, value in vars(options).items() if name != "servers"}
        with started(*options.servers, **given) as addresses:
            return subprocess.run(command, env={**os.environ, **addresses}, check=False).returncode
    except Missing as problem:
        print(f"servers: {problem}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
