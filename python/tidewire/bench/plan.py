"""What to run: every workload, its contenders and their sizes, for each scale."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

Scale = Literal["smoke", "short", "full"]
Kind = Literal["ours", "peer", "channel", "limit"]
Program = Literal["rust", "rust-mimalloc", "pekko", "python-peers", "python-ours"]


@dataclass(frozen=True)
class Run:
    """One contender in one form: a program and its arguments."""

    contender: str
    kind: Kind
    program: Program
    form: str
    arguments: tuple[str, ...]

    @property
    def key(self) -> tuple[str, str]:
        """What tells it from the other runs of its case."""
        return self.contender, self.form


@dataclass(frozen=True)
class Case:
    """A workload: what is measured, in which unit, and by whom."""

    id: str
    title: str
    figure: str
    unit: str
    higher_is_better: bool
    runs: tuple[Run, ...]
    also: tuple[str, ...] = ()
    """Further figures of the same runs that belong into the table."""


@dataclass(frozen=True)
class Curve:
    """A picture: one figure of the same workload over a growing size."""

    id: str
    title: str
    x_title: str
    y_title: str
    points: tuple[tuple[int, tuple[Run, ...]], ...]


@dataclass(frozen=True)
class Plan:
    """Everything that one invocation runs."""

    scale: Scale
    repeat: int
    cases: tuple[Case, ...]
    curves: tuple[Curve, ...]

    def runs(self) -> int:
        """How many processes that is."""
        in_cases = sum(repeats(self, run) for case in self.cases for run in case.runs)
        return in_cases + sum(curve_repeats(self) * len(runs) for curve in self.curves for _, runs in curve.points)


def repeats(plan: Plan, run: Run) -> int:
    """A process of Pekko times three rounds after its warm-up, so that the short scale starts fewer of them."""
    return min(plan.repeat, 2) if run.program == "pekko" and plan.scale != "full" else plan.repeat


def curve_repeats(plan: Plan) -> int:
    """A picture needs a middle value only where there is time for it."""
    return plan.repeat if plan.scale == "full" else 1


def make(scale: Scale, repeat: int | None, only: Sequence[str]) -> Plan:
    """The plan for a scale, limited to the ids in ``only`` if there are any.

    Raises:
        ValueError: if ``only`` names no workload.
    """
    sizes = SIZES[scale]
    cases = [*native_cases(sizes, scale), *python_cases(sizes)]
    curves = list(native_curves(sizes))
    known = [case.id for case in cases] + [curve.id for curve in curves]
    wanted = {name.upper() for name in only}
    unknown = wanted - {name.upper() for name in known} - {name.split("-")[0].upper() for name in known}
    if unknown:
        raise ValueError(f"--only {','.join(sorted(unknown))}: not one of {', '.join(known)}")

    def chosen(name: str) -> bool:
        return not wanted or name.upper() in wanted or name.split("-")[0].upper() in wanted

    return Plan(
        scale=scale,
        repeat=repeat or sizes.repeat,
        cases=tuple(case for case in cases if chosen(case.id)),
        curves=tuple(curve for curve in curves if chosen(curve.id)),
    )


@dataclass(frozen=True)
class Sizes:
    """How much of everything a scale runs."""

    repeat: int
    storm: int
    exchange: int
    ping: int
    idle_pings: int
    asks: int
    asks_across: int
    actors: int
    timers: int
    fan_out: int
    bursts: int
    python_storm: int
    python_exchange: int
    python_asks: int
    python_actors: int
    all_forms: bool = False
    with_pekko: bool = True
    curve_actors: tuple[int, ...] = (2, 10, 50, 200, 1_000, 10_000)
    curve_idle: tuple[int, ...] = (10, 100, 1_000, 10_000, 100_000)
    curve_words: int = field(default=500_000)


SIZES: dict[Scale, Sizes] = {
    "smoke": Sizes(
        repeat=1, storm=50_000, exchange=200, ping=2_000, idle_pings=20, asks=5_000, asks_across=500, actors=2_000,
        timers=5_000, fan_out=200, bursts=5, python_storm=20_000, python_exchange=200, python_asks=1_000,
        python_actors=2_000, with_pekko=False, curve_actors=(2, 50), curve_idle=(10, 1_000), curve_words=20_000,
    ),
    "short": Sizes(
        repeat=3, storm=2_000_000, exchange=10_000, ping=100_000, idle_pings=500, asks=300_000, asks_across=20_000,
        actors=100_000, timers=300_000, fan_out=10_000, bursts=100, python_storm=300_000, python_exchange=2_000,
        python_asks=30_000, python_actors=100_000,
    ),
    "full": Sizes(
        repeat=7, storm=10_000_000, exchange=10_000, ping=500_000, idle_pings=5_000, asks=2_000_000,
        asks_across=100_000, actors=1_000_000, timers=1_000_000, fan_out=10_000, bursts=1_000,
        python_storm=2_000_000, python_exchange=10_000, python_asks=200_000, python_actors=1_000_000, all_forms=True,
        curve_actors=(2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000),
        curve_idle=(10, 100, 1_000, 10_000, 100_000, 1_000_000), curve_words=2_000_000,
    ),
}

TASKS = ("kameo", "ractor", "actix")
"""Actor libraries on tokio."""


def native_cases(sizes: Sizes, scale: Scale) -> Iterator[Case]:
    """A1 to A9 and the limits of the machine."""
    make_runs = Native(sizes)
    storm = ("--workload", "a1", "--count", str(sizes.storm))
    yield rate_case(
        "A1", "storm: 1 sender, 1 actor", "msg/s",
        make_runs.ours("tidewire", "tidewire-task", arguments=storm),
        make_runs.tasks(*TASKS, arguments=storm),
        make_runs.pekko(storm),
        make_runs.channels("tokio-mpsc", "kanal-async", arguments=storm),
        make_runs.threads("std-channel", "crossbeam", "kanal", "swap-vec", arguments=storm),
    )
    exchange = ("--workload", "a2", "--count", str(sizes.exchange))
    yield rate_case(
        "A2", "exchange: 50 actors, each to all others", "msg/s",
        make_runs.ours("tidewire", arguments=exchange),
        make_runs.tasks(*TASKS, arguments=exchange, threads=(1, 2)),
        make_runs.pekko(exchange),
        make_runs.channels("tokio-mpsc", "kanal-async", arguments=exchange, threads=(1, 2)),
        make_runs.threads("crossbeam", arguments=exchange),
    )
    ping = ("--workload", "a3-hot", "--count", str(sizes.ping))
    yield latency_case(
        "A3-hot", "ping-pong, round trip", ("p99_us", "p999_us"), "p50_us",
        make_runs.ours("tidewire", arguments=ping),
        make_runs.tasks(*TASKS, arguments=ping),
        make_runs.pekko(ping),
        make_runs.channels("tokio-mpsc", arguments=ping),
    )
    yield wake_ups(make_runs, sizes)
    yield from asks(make_runs, sizes)
    yield from spawns(make_runs, sizes)
    yield from timers(make_runs, sizes)
    yield many_idle(make_runs, sizes)
    fan_out = ("--workload", "a8", "--count", str(sizes.fan_out))
    yield rate_case(
        "A8", "fan-out to 50 subscribers", "deliveries/s",
        make_runs.ours("tidewire", "tidewire-task", arguments=fan_out),
        make_runs.tasks(*TASKS, arguments=fan_out),
        make_runs.channels("tokio-mpsc", arguments=fan_out),
    )
    burst = ("--workload", "a9", "--count", str(sizes.bursts))
    yield latency_case(
        "A9", "burst of 500 after idle, until the last is handled", ("p99_us",), "p50_us",
        make_runs.ours("tidewire", arguments=burst),
        make_runs.tasks(*TASKS, arguments=burst),
        make_runs.channels("tokio-mpsc", arguments=burst),
        make_runs.threads("std-channel", "crossbeam", "swap-vec", arguments=burst),
    )
    limit = ("--workload", "limit", "--count", "100000" if scale == "smoke" else "5000000")
    yield Case("LIMIT", "bare limits, each", "each_ns", "ns", False, tuple(make_runs.limits("atomic", "clock", arguments=limit)))


def wake_ups(make_runs: Native, sizes: Sizes) -> Case:
    """A3 across threads; the futex is the floor."""
    idle = ("--workload", "a3-idle", "--count", str(sizes.idle_pings))
    return latency_case(
        "A3-idle", "wake-up across threads after 1 ms idle, one way", ("p50_us", "p999_us"), "p99_us",
        make_runs.ours("tidewire", arguments=idle),
        make_runs.tasks(*TASKS, arguments=idle),
        make_runs.pekko(idle),
        make_runs.channels("tokio-mpsc", arguments=idle),
        make_runs.limits("futex", "condvar", arguments=idle),
    )


def asks(make_runs: Native, sizes: Sizes) -> Iterator[Case]:
    """A4, one after another and 64 in flight; asked from outside as well, where that is another thing."""
    inside = ("--workload", "a4", "--count", str(sizes.asks))
    across = ("--workload", "a4", "--count", str(sizes.asks_across))
    yield rate_case(
        "A4-seq", "ask, one after another", "asks/s",
        make_runs.ours("tidewire-task", arguments=inside),
        make_runs.ours("tidewire", arguments=across),
        make_runs.tasks(*TASKS, arguments=inside),
        make_runs.pekko(across),
        make_runs.channels("tokio-mpsc", arguments=inside),
    )
    many = (*inside, "--in-flight", "64")
    yield rate_case(
        "A4-x64", "ask, 64 in flight", "asks/s",
        make_runs.ours("tidewire-task", "tidewire", arguments=many),
        make_runs.tasks(*TASKS, arguments=many),
        make_runs.pekko(many),
        make_runs.channels("tokio-mpsc", arguments=many),
    )


def spawns(make_runs: Native, sizes: Sizes) -> Iterator[Case]:
    """A5: how fast, and how large."""
    spawn = ("--workload", "a5", "--count", str(sizes.actors))
    runs = (
        make_runs.ours("tidewire", arguments=spawn),
        make_runs.tasks("ractor", "actix", arguments=spawn),
        make_runs.tasks("kameo", arguments=spawn, threads=(2,)),
        make_runs.pekko(("--workload", "a5", "--count", str(min(sizes.actors, 100_000)))),
        make_runs.channels("tokio-mpsc", arguments=spawn),
    )
    yield rate_case("A5", "spawn", "actors/s", *runs, also=("bytes_each",))


def timers(make_runs: Native, sizes: Sizes) -> Iterator[Case]:
    """A6: scheduling and cancelling, and being on time."""
    cancelled = ("--workload", "a6", "--count", str(sizes.timers))
    yield rate_case(
        "A6", "timers: schedule and cancel", "timers/s",
        make_runs.ours("tidewire", arguments=cancelled),
        make_runs.tasks("kameo", "ractor", arguments=cancelled),
        make_runs.channels("tokio-mpsc", arguments=cancelled),
        also=("schedule_rate", "cancel_rate"),
    )
    due = ("--workload", "a6-due", "--count", str(min(sizes.timers, 100_000)))
    yield Case(
        "A6-due", "timers: the last of 100,000 due at 100 ms fires after", "last_after_ms", "ms", False,
        tuple(flat(
            make_runs.ours("tidewire", arguments=due),
            make_runs.tasks(*TASKS, arguments=due),
            make_runs.channels("tokio-mpsc", arguments=due),
        )),
    )


def many_idle(make_runs: Native, sizes: Sizes) -> Case:
    """A7: the storm again among a thousand that sleep."""
    storm = ("--workload", "a1", "--count", str(sizes.storm), "--idle", "1000")
    return rate_case(
        "A7", "storm among 1,000 idle actors", "msg/s",
        make_runs.ours("tidewire", "tidewire-task", arguments=storm),
        make_runs.tasks(*TASKS, arguments=storm),
        make_runs.pekko(storm),
        make_runs.channels("tokio-mpsc", arguments=storm),
    )


def python_cases(sizes: Sizes) -> Iterator[Case]:
    """P1 to P9: the same from Python."""
    storm = ("--workload", "p1", "--count", str(sizes.python_storm))
    slow = ("--workload", "p1", "--count", str(max(1_000, sizes.python_storm // 10)))
    yield rate_case(
        "P1", "Python storm", "msg/s",
        python_ours("functions", "functions-tell", "coroutines", "coroutines-send", arguments=storm),
        python_peers("asyncio-queue", "simple-queue", arguments=storm),
        python_peers("thread-queue", "seed-like", arguments=slow),
    )
    exchange = ("--workload", "p2", "--count", str(sizes.python_exchange))
    yield rate_case(
        "P2", "Python exchange: 50 actors", "msg/s",
        python_ours("functions", arguments=exchange),
        python_peers("asyncio-queue", arguments=exchange),
    )
    ask = ("--workload", "p4", "--count", str(sizes.python_asks))
    few = ("--workload", "p4", "--count", str(max(100, sizes.python_asks // 50)))
    yield latency_case(
        "P4-seq", "Python ask from a coroutine, one after another", ("p99_us",), "p50_us",
        python_ours("functions", "coroutines", arguments=ask),
        python_peers("asyncio-queue", arguments=ask),
        python_peers("seed-like", arguments=few),
    )
    yield rate_case(
        "P4-x64", "Python ask from coroutines, 64 in flight", "asks/s",
        python_ours("functions", "coroutines", arguments=(*ask, "--in-flight", "64")),
        python_peers("asyncio-queue", arguments=(*ask, "--in-flight", "64")),
        python_peers("seed-like", arguments=(*few, "--in-flight", "64")),
    )
    yield rate_case(
        "P7", "Python storm among 1,000 idle actors", "msg/s",
        python_ours("functions", "functions-tell", arguments=(*storm, "--idle", "1000")),
        python_peers("asyncio-queue", arguments=(*storm, "--idle", "1000")),
    )
    wake = ("--workload", "p3", "--count", str(max(20, sizes.idle_pings)))
    yield latency_case(
        "P3-idle", "Python wake-up across threads after 1 ms idle, one way", ("p50_us",), "p99_us",
        python_ours("functions", arguments=wake),
        python_peers("simple-queue", "thread-queue", arguments=wake),
        python_limits("bare-lock", arguments=wake),
    )
    fan_out = ("--workload", "p8", "--count", str(max(100, sizes.fan_out // 5)))
    yield rate_case(
        "P8", "Python fan-out to 50 subscribers", "deliveries/s",
        python_ours("functions", arguments=fan_out),
        python_peers("asyncio-queue", arguments=fan_out),
    )
    yield from python_costs(sizes)


def python_costs(sizes: Sizes) -> Iterator[Case]:
    """What Tidewire costs a Python process that does nothing."""
    quiet = python_ours("functions", arguments=("--workload", "p-cpu", "--idle", "1000"))
    yield Case("P-cpu", "idle CPU with 1,000 actors", "percent_of_core", "% of a core", False, tuple(quiet))
    memory = python_ours("functions", arguments=("--workload", "p-memory"))
    yield Case(
        "P-memory", "idle node above bare Python", "above_mb", "MB", False, tuple(memory), also=("bare_mb", "node_mb")
    )
    spawn = python_ours("functions", arguments=("--workload", "p5", "--count", str(sizes.python_actors)))
    yield Case("P5", "Python spawn", "rate", "actors/s", True, tuple(spawn), also=("bytes_each",))


def native_curves(sizes: Sizes) -> Iterator[Curve]:
    """The two pictures."""
    make_runs = Native(sizes)

    def exchange(actors: int) -> tuple[Run, ...]:
        share = max(1, sizes.curve_words // actors)
        arguments = ("--workload", "a2", "--actors", str(actors), "--count", str(share))
        ours = make_runs.mimalloc("tidewire", "ours", (2,), arguments)
        return (*ours, *(run for name in (*TASKS, "tokio-mpsc") for run in make_runs.mimalloc(name, "peer", (2,), arguments)))

    def storm(idle: int) -> tuple[Run, ...]:
        arguments = ("--workload", "a1", "--count", str(max(sizes.storm // 2, 10_000)), "--idle", str(idle))
        ours = make_runs.mimalloc("tidewire", "ours", (1,), arguments)
        return (*ours, *(run for name in ("actix", "tokio-mpsc") for run in make_runs.mimalloc(name, "peer", (1,), arguments)))

    yield Curve(
        "curve-actors", "Throughput as actors are added (exchange, 2 threads)", "actors", "messages/s",
        tuple((actors, exchange(actors)) for actors in sizes.curve_actors),
    )
    yield Curve(
        "curve-idle", "One storm among more and more idle actors", "idle actors", "messages/s",
        tuple((idle, storm(idle)) for idle in sizes.curve_idle),
    )


class Native:
    """Makes runs of the Rust and Java programs in the forms that a scale asks for."""

    def __init__(self, sizes: Sizes) -> None:
        self._all_forms = sizes.all_forms
        self._with_pekko = sizes.with_pekko

    def ours(self, *names: str, arguments: tuple[str, ...]) -> Iterator[Run]:
        """Tidewire on one thread and on two, with both allocators."""
        for name in names:
            yield from self._forms(name, "ours", (1, 2), arguments, both_allocators=True)

    def tasks(self, *names: str, arguments: tuple[str, ...], threads: tuple[int, ...] = (1,)) -> Iterator[Run]:
        """Actor libraries on tokio: in the short scale only the forms that are their fastest."""
        for name in names:
            yield from self._forms(name, "peer", (1, 2) if self._all_forms else threads, arguments)

    def channels(self, *names: str, arguments: tuple[str, ...], threads: tuple[int, ...] = (1,)) -> Iterator[Run]:
        """Channels between tokio tasks."""
        for name in names:
            yield from self._forms(name, "channel", (1, 2) if self._all_forms else threads, arguments)

    def threads(self, *names: str, arguments: tuple[str, ...]) -> Iterator[Run]:
        """Channels between threads; the number of threads is the workload's."""
        for name in names:
            yield Run(name, "channel", "rust", "system", ("--contender", name, *arguments))
            if self._all_forms:
                yield Run(name, "channel", "rust-mimalloc", "mimalloc", ("--contender", name, *arguments))

    def limits(self, *names: str, arguments: tuple[str, ...]) -> Iterator[Run]:
        """What the machine itself does."""
        for name in names:
            yield Run(name, "limit", "rust", "bare", ("--contender", name, *arguments))

    def pekko(self, arguments: tuple[str, ...]) -> Iterator[Run]:
        """Pekko as it comes, and with two threads and a throughput of 100."""
        if self._with_pekko:
            yield Run("pekko", "peer", "pekko", "default", ("--contender", "pekko", *arguments))
            yield Run("pekko", "peer", "pekko", "tuned", ("--contender", "pekko-tuned", *arguments))

    def mimalloc(self, name: str, kind: Kind, threads: tuple[int, ...], arguments: tuple[str, ...]) -> Iterator[Run]:
        """One allocator, for the pictures."""
        for number in threads:
            form = f"{number} thread{'s' if number > 1 else ''}, mimalloc"
            yield Run(name, kind, "rust-mimalloc", form, ("--contender", name, "--threads", str(number), *arguments))

    def _forms(
        self, name: str, kind: Kind, threads: tuple[int, ...], arguments: tuple[str, ...], *, both_allocators: bool = False
    ) -> Iterator[Run]:
        yield from self.mimalloc(name, kind, threads, arguments)
        if both_allocators or self._all_forms:
            for run in self.mimalloc(name, kind, threads, arguments):
                yield Run(name, kind, "rust", run.form.replace("mimalloc", "system"), run.arguments)


def python_ours(*names: str, arguments: tuple[str, ...]) -> list[Run]:
    """Tidewire from Python, one run for each kind of handler and sender."""
    return [Run(f"tidewire {name}", "ours", "python-ours", "python", ("--contender", name, *arguments)) for name in names]


def python_peers(*names: str, arguments: tuple[str, ...]) -> list[Run]:
    """What Python has today."""
    return [Run(name, "peer", "python-peers", "python", ("--contender", name, *arguments)) for name in names]


def python_limits(*names: str, arguments: tuple[str, ...]) -> list[Run]:
    """What Python itself can do."""
    return [Run(name, "limit", "python-peers", "python", ("--contender", name, *arguments)) for name in names]


def rate_case(id: str, title: str, unit: str, *runs: Iterable[Run], also: tuple[str, ...] = ()) -> Case:
    """More is better."""
    return Case(id, title, "rate", unit, True, tuple(flat(*runs)), also)


def latency_case(id: str, title: str, also: tuple[str, ...], figure: str, *runs: Iterable[Run]) -> Case:
    """Less is better."""
    return Case(id, title, figure, "us", False, tuple(flat(*runs)), also)


def flat(*runs: Iterable[Run]) -> Iterator[Run]:
    """One after the other."""
    for some in runs:
        yield from some
