"""Pytest plugin with nodes, hubs, streams and processes as fixtures."""

from __future__ import annotations

import functools
import inspect
import random
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tidewire.links.hub import Listener
    from tidewire.node import Node
    from tidewire.testing.clock import Clock
    from tidewire.testing.cluster import Cluster


def pytest_addoption(parser: pytest.Parser) -> None:
    option = "run tests with histories once, with this seed"
    parser.getgroup("tidewire").addoption("--tidewire-seed", type=int, help=option)


def pytest_configure(config: pytest.Config) -> None:
    marker = "tidewire(seed=0, histories=1): repeat the test with the seeds seed, seed + 1 and so on (tidewire_seed)"
    config.addinivalue_line("markers", marker)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test once per history, each time with new fixtures."""
    marker = metafunc.definition.get_closest_marker("tidewire")
    if marker is None:
        return
    first, seed_option = marker.kwargs.get("seed", 0), metafunc.config.getoption("--tidewire-seed")
    seeds = range(first, first + marker.kwargs.get("histories", 1)) if seed_option is None else [seed_option]
    metafunc.fixturenames.append("tidewire_seed")
    metafunc.parametrize("tidewire_seed", seeds, indirect=True, ids="seed={}".format)


def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Add the command that replays a failed history to its report."""
    if call.excinfo and "tidewire_seed" in getattr(item, "fixturenames", ()) and hasattr(item, "callspec"):
        item.add_report_section(call.when, "replay", f"pytest {item.nodeid!r}")


@pytest.fixture
def tidewire_seed(request: pytest.FixtureRequest) -> int:
    """Seed of this history; 0 without the marker ``tidewire``."""
    seed: int = getattr(request, "param", 0)
    random.seed(seed)
    return seed


@pytest.fixture
def tidewire_node(request: pytest.FixtureRequest) -> Iterator[Node]:
    """Started node in memory: on the event loop of a coroutine test, or else for plain threads
    through ``node.sync``. Its stop report is checked after the test.
    """
    yield from _node(request)


@pytest.fixture
def tidewire_streams(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Node]:
    """Node like ``tidewire_node``, with streams, buckets and leases in a temporary folder."""
    yield from _node(request, data=tmp_path / "tidewire")


def _node(request: pytest.FixtureRequest, **options: Any) -> Iterator[Node]:
    import tidewire as tw
    from tidewire.testing import assert_balanced

    node = tw.Node(**options)
    test = request.node.obj
    if not inspect.iscoroutinefunction(test):
        with node:
            yield node
    else:

        @functools.wraps(test)
        async def run_in_node(*args: Any, **kwargs: Any) -> None:
            async with node:
                await test(*args, **kwargs)

        request.node.obj = run_in_node  # any plugin for coroutine tests runs it
        yield node
    assert_balanced(node)


@pytest.fixture
def tidewire_hub(tmp_path: Path) -> Iterator[Listener]:
    """Hub in this process with its own streams: ``tw.Node(tidewire_hub.url)`` joins it."""
    import tidewire as tw

    with tw.Node(name="hub", data=tmp_path / "hub") as node:
        yield node.listen("tide://127.0.0.1:0")


@pytest.fixture
def tidewire_cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Hub in its own process, which can start further processes. Processes have ``kill``, ``stop``,
    ``cont`` and ``restart``; their links have ``partition``, ``delay``, ``drop`` and ``heal``.
    """
    from tidewire.testing.cluster import Cluster

    cluster = Cluster(tmp_path / "hub")
    yield cluster
    cluster.close()


@pytest.fixture
def tidewire_clock() -> Iterator[Clock]:
    """Virtual clock: while all threads sleep, it jumps to the next deadline."""
    from tidewire.testing.clock import Clock

    with Clock() as clock:
        yield clock
