"""The workloads of the compiled contenders."""

from __future__ import annotations

from collections.abc import Iterator

from .model import Case, Curve, Kind, Run, Scale, Sizes, alone, flat, latency_case, rate_case

TASKS = ("ractor", "actix")
"""Actor libraries on tokio."""


def native_cases(sizes: Sizes, scale: Scale) -> Iterator[Case]:
    """A1 to A9 and the limits of the machine."""
    make_runs = Native(sizes)
    storm = ("--workload", "a1", "--count", str(sizes.storm))
    yield rate_case(
        "A1",
        "storm: 1 sender, 1 actor",
        "msg/s",
        make_runs.ours("tidewire", "tidewire-task", arguments=storm),
        make_runs.tasks(*TASKS, arguments=storm),
        make_runs.pekko(storm),
        make_runs.channels("tokio-mpsc", arguments=storm),
        make_runs.threads("std-channel", "swap-vec", arguments=storm),
    )
    exchange = ("--workload", "a2", "--count", str(sizes.exchange))
    yield rate_case(
        "A2",
        "exchange: 50 actors, each to all others",
        "msg/s",
        make_runs.ours("tidewire", arguments=exchange),
        make_runs.tasks(*TASKS, arguments=exchange, threads=(1, 2)),
        make_runs.pekko(exchange),
        make_runs.channels("tokio-mpsc", arguments=exchange, threads=(1, 2)),
        make_runs.threads("std-channel", arguments=exchange),
    )
    ping = ("--workload", "a3-hot", "--count", str(sizes.ping))
    yield latency_case(
        "A3-hot",
        "ping-pong, round trip",
        ("p99_us", "p999_us"),
        "p50_us",
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
        "A8",
        "fan-out to 50 subscribers",
        "deliveries/s",
        make_runs.ours("tidewire", "tidewire-task", arguments=fan_out),
        make_runs.tasks(*TASKS, arguments=fan_out),
        make_runs.channels("tokio-mpsc", arguments=fan_out),
    )
    burst = ("--workload", "a9", "--count", str(sizes.bursts))
    yield latency_case(
        "A9",
        "burst of 500 after idle, until the last is handled",
        ("p99_us",),
        "p50_us",
        make_runs.ours("tidewire", arguments=burst),
        make_runs.tasks(*TASKS, arguments=burst),
        make_runs.channels("tokio-mpsc", arguments=burst),
        make_runs.threads("std-channel", "swap-vec", arguments=burst),
    )
    limit = ("--workload", "limit", "--count", "100000" if scale == "smoke" else "5000000")
    bare = tuple(make_runs.limits("atomic", "clock", arguments=limit))
    yield Case("LIMIT", "bare limits, each", "each_ns", "ns", False, bare)


def wake_ups(make_runs: Native, sizes: Sizes) -> Case:
    """A3 across threads; the futex is the floor."""
    idle = ("--workload", "a3-idle", "--count", str(sizes.idle_pings))
    return latency_case(
        "A3-idle",
        "wake-up across threads after 1 ms idle, one way",
        ("p50_us", "p999_us"),
        "p99_us",
        make_runs.ours("tidewire", arguments=idle),
        make_runs.tasks(*TASKS, arguments=idle),
        make_runs.pekko(idle),
        make_runs.channels("tokio-mpsc", arguments=idle),
        make_runs.limits("futex", "condvar", arguments=idle),
    )


def asks(make_runs: Native, sizes: Sizes) -> Iterator[Case]:
    """A4, one after another and 64 in flight; asked from outside as well, where that is another
    thing.
    """
    inside = ("--workload", "a4", "--count", str(sizes.asks))
    across = ("--workload", "a4", "--count", str(sizes.asks_across))
    yield rate_case(
        "A4-seq",
        "ask, one after another",
        "asks/s",
        make_runs.ours("tidewire-task", arguments=inside),
        make_runs.ours("tidewire", arguments=across),
        make_runs.tasks(*TASKS, arguments=inside),
        make_runs.pekko(across),
        make_runs.channels("tokio-mpsc", arguments=inside),
    )
    many = (*inside, "--in-flight", "64")
    yield rate_case(
        "A4-x64",
        "ask, 64 in flight",
        "asks/s",
        make_runs.ours("tidewire-task", "tidewire", arguments=many),
        make_runs.tasks(*TASKS, arguments=many),
        make_runs.pekko(many),
        make_runs.channels("tokio-mpsc", arguments=many),
    )


def spawns(make_runs: Native, sizes: Sizes) -> Iterator[Case]:
    """A5: how fast, and how large."""
    spawn = ("--workload", "a5", "--count", str(sizes.actors))
    runs = (
        make_runs.ours("tidewire", "tidewire-fn", arguments=spawn),
        make_runs.tasks(*TASKS, arguments=spawn),
        make_runs.pekko(("--workload", "a5", "--count", str(min(sizes.actors, 100_000)))),
        make_runs.channels("tokio-mpsc", arguments=spawn),
    )
    yield rate_case("A5", "spawn", "actors/s", *runs, also=("bytes_each",))


def timers(make_runs: Native, sizes: Sizes) -> Iterator[Case]:
    """A6: scheduling and cancelling, and being on time."""
    cancelled = ("--workload", "a6", "--count", str(sizes.timers))
    yield rate_case(
        "A6",
        "timers: schedule and cancel",
        "timers/s",
        make_runs.ours("tidewire", arguments=cancelled),
        make_runs.tasks("ractor", arguments=cancelled),
        make_runs.channels("tokio-mpsc", arguments=cancelled),
        also=("schedule_rate", "cancel_rate"),
    )
    due = ("--workload", "a6-due", "--count", str(min(sizes.timers, 100_000)))
    yield Case(
        "A6-due",
        "timers: the last of 100,000 due at 100 ms fires after",
        "last_after_ms",
        "ms",
        False,
        tuple(
            flat(
                make_runs.ours("tidewire", arguments=due),
                make_runs.tasks(*TASKS, arguments=due),
                make_runs.channels("tokio-mpsc", arguments=due),
            )
        ),
    )


def many_idle(make_runs: Native, sizes: Sizes) -> Case:
    """A7: the storm again among a thousand that sleep, and in the same turns without them: the
    limit is ourselves alone.
    """
    storm = ("--workload", "a1", "--count", str(sizes.storm))
    idle = (*storm, "--idle", "1000")
    return rate_case(
        "A7",
        "storm among 1,000 idle actors",
        "msg/s",
        make_runs.ours("tidewire", "tidewire-task", arguments=idle),
        alone(make_runs.ours("tidewire", "tidewire-task", arguments=storm)),
        make_runs.tasks(*TASKS, arguments=idle),
        make_runs.pekko(idle),
        make_runs.channels("tokio-mpsc", arguments=idle),
    )


def native_curves(sizes: Sizes) -> Iterator[Curve]:
    """The two pictures."""
    make_runs = Native(sizes)

    def exchange(actors: int) -> tuple[Run, ...]:
        share = max(1, sizes.curve_words // actors)
        arguments = ("--workload", "a2", "--actors", str(actors), "--count", str(share))
        ours = make_runs.mimalloc("tidewire", "ours", (2,), arguments)
        theirs = (make_runs.mimalloc(name, "peer", (2,), arguments) for name in (*TASKS, "tokio-mpsc"))
        return (*ours, *flat(*theirs))

    def storm(idle: int) -> tuple[Run, ...]:
        arguments = ("--workload", "a1", "--count", str(max(sizes.storm // 2, 10_000)), "--idle", str(idle))
        ours = make_runs.mimalloc("tidewire", "ours", (1,), arguments)
        theirs = (make_runs.mimalloc(name, "peer", (1,), arguments) for name in ("actix", "tokio-mpsc"))
        return (*ours, *flat(*theirs))

    yield Curve(
        "curve-actors",
        "Throughput as actors are added (exchange, 2 threads)",
        "actors",
        "messages/s",
        tuple((actors, exchange(actors)) for actors in sizes.curve_actors),
    )
    yield Curve(
        "curve-idle",
        "One storm among more and more idle actors",
        "idle actors",
        "messages/s",
        tuple((idle, storm(idle)) for idle in sizes.curve_idle),
    )


class Native:
    """Makes runs of the Rust and Java programs in the forms that a scale asks for."""

    def __init__(self, sizes: Sizes) -> None:
        self._all_forms = sizes.all_forms
        self._with_pekko = sizes.with_pekko

    def ours(self, *names: str, arguments: tuple[str, ...]) -> Iterator[Run]:
        """Tidewire on one thread and on two."""
        for name in names:
            yield from self._forms(name, "ours", (1, 2), arguments)

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
        """Limits of the machine itself."""
        for name in names:
            yield Run(name, "limit", "rust", "bare", ("--contender", name, *arguments))

    def pekko(self, arguments: tuple[str, ...]) -> Iterator[Run]:
        """Pekko with two threads and a throughput of 100, where it is fastest; in the full scale
        also as it comes.
        """
        if self._with_pekko and self._all_forms:
            yield Run("pekko", "peer", "pekko", "default", ("--contender", "pekko", *arguments))
        if self._with_pekko:
            yield Run("pekko", "peer", "pekko", "tuned", ("--contender", "pekko-tuned", *arguments))

    def mimalloc(self, name: str, kind: Kind, threads: tuple[int, ...], arguments: tuple[str, ...]) -> Iterator[Run]:
        """One allocator, for the pictures."""
        for number in threads:
            form = f"{number} thread{'s' if number > 1 else ''}, mimalloc"
            yield Run(name, kind, "rust-mimalloc", form, ("--contender", name, "--threads", str(number), *arguments))

    def _forms(self, name: str, kind: Kind, threads: tuple[int, ...], arguments: tuple[str, ...]) -> Iterator[Run]:
        yield from self.mimalloc(name, kind, threads, arguments)
        if self._all_forms:
            for run in self.mimalloc(name, kind, threads, arguments):
                yield Run(name, kind, "rust", run.form.replace("mimalloc", "system"), run.arguments)
