"""The workloads of the Python contenders."""

from __future__ import annotations

from collections.abc import Iterator

from .model import Case, Kind, Program, Run, Sizes, alone, latency_case, rate_case


def python_cases(sizes: Sizes) -> Iterator[Case]:
    """P1 to P9: the same from Python."""
    storm = ("--workload", "p1", "--count", str(sizes.python_storm))
    slow = ("--workload", "p1", "--count", str(max(1_000, sizes.python_storm // 10)))
    yield rate_case(
        "P1",
        "Python storm",
        "msg/s",
        python_ours("functions", "functions-tell", "coroutines", "coroutines-send", arguments=storm),
        python_peers("asyncio-queue", arguments=storm),
        python_queues("simple-queue", arguments=storm),
        python_queues("thread-queue", arguments=slow),
    )
    exchange = ("--workload", "p2", "--count", str(sizes.python_exchange))
    yield rate_case(
        "P2",
        "Python exchange: 50 actors",
        "msg/s",
        python_ours("functions", arguments=exchange),
        python_peers("asyncio-queue", arguments=exchange),
    )
    ask = ("--workload", "p4", "--count", str(sizes.python_asks))
    yield latency_case(
        "P4-seq",
        "Python ask from a coroutine, one after another",
        ("p99_us",),
        "p50_us",
        python_ours("functions", "coroutines", arguments=ask),
        python_peers("asyncio-queue", arguments=ask),
    )
    yield rate_case(
        "P4-x64",
        "Python ask from coroutines, 64 in flight",
        "asks/s",
        python_ours("functions", "coroutines", arguments=(*ask, "--in-flight", "64")),
        python_peers("asyncio-queue", arguments=(*ask, "--in-flight", "64")),
    )
    yield rate_case(
        "P7",
        "Python storm among 1,000 idle actors",
        "msg/s",
        python_ours("functions", "functions-tell", arguments=(*storm, "--idle", "1000")),
        alone(python_ours("functions", "functions-tell", arguments=storm)),
        python_peers("asyncio-queue", arguments=(*storm, "--idle", "1000")),
    )
    wake = ("--workload", "p3", "--count", str(max(20, sizes.idle_pings)))
    yield latency_case(
        "P3-idle",
        "Python wake-up across threads after 1 ms idle, one way",
        ("p50_us",),
        "p99_us",
        python_ours("functions", arguments=wake),
        python_queues("simple-queue", "thread-queue", arguments=wake),
        python_limits("bare-lock", arguments=wake),
    )
    fan_out = ("--workload", "p8", "--count", str(max(100, sizes.fan_out // 5)))
    yield rate_case(
        "P8",
        "Python fan-out to 50 subscribers",
        "deliveries/s",
        python_ours("functions", arguments=fan_out),
        python_peers("asyncio-queue", arguments=fan_out),
    )
    yield from python_costs(sizes)


def python_costs(sizes: Sizes) -> Iterator[Case]:
    """Cost of Tidewire in an idle Python process."""
    quiet = python_ours("functions", arguments=("--workload", "p-cpu", "--idle", "1000"))
    yield Case("P-cpu", "idle CPU with 1,000 actors", "percent_of_core", "% of a core", False, tuple(quiet))
    memory = python_ours("functions", arguments=("--workload", "p-memory"))
    yield Case(
        "P-memory", "idle node above bare Python", "above_mb", "MB", False, tuple(memory), also=("bare_mb", "node_mb")
    )
    spawn = python_ours("functions", arguments=("--workload", "p5", "--count", str(sizes.python_actors)))
    yield Case("P5", "Python spawn", "rate", "actors/s", True, tuple(spawn), also=("bytes_each",))


def python_ours(*names: str, arguments: tuple[str, ...]) -> list[Run]:
    """Tidewire from Python, one run for each kind of handler and sender."""
    return python_runs("ours", "python-ours", names, arguments)


def python_peers(*names: str, arguments: tuple[str, ...]) -> list[Run]:
    """Peers that Python has today."""
    return python_runs("peer", "python-peers", names, arguments)


def python_queues(*names: str, arguments: tuple[str, ...]) -> list[Run]:
    """Bare queues between threads: no handler, no bound (simple-queue) or a slow one."""
    return python_runs("channel", "python-peers", names, arguments)


def python_limits(*names: str, arguments: tuple[str, ...]) -> list[Run]:
    """Limits of Python itself."""
    return python_runs("limit", "python-peers", names, arguments)


def python_runs(kind: Kind, program: Program, names: tuple[str, ...], arguments: tuple[str, ...]) -> list[Run]:
    """A run for each name."""
    prefix = "tidewire " if kind == "ours" else ""
    return [Run(prefix + name, kind, program, "python", ("--contender", name, *arguments)) for name in names]
