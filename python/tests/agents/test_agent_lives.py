"""How agents come and go: hooks, ids that are used again, lookups meanwhile, and what is left of
those that have gone.
"""

from __future__ import annotations

import gc
import sys
import threading
import tracemalloc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import tidewire as tw
from agent_support import PATIENCE, nothing


class Echo(tw.Agent):
    def receive(self, payload: object) -> str:
        return self.id


@pytest.fixture
def hurried() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("hurried")
def test_a_start_hook_can_send_at_once(node: tw.Node) -> None:
    arrived = threading.Semaphore(0)

    class Greets(tw.Agent):
        def started(self) -> None:
            self.tell(self.id, to="host")

        def receive(self, payload: object) -> None:
            """Handle."""

    node.agent(lambda payload: arrived.release(), id="host")
    for n in range(2_000):
        node.agent(Greets, id=f"guest-{n}")
    for _ in range(2_000):
        assert arrived.acquire(timeout=PATIENCE)
    assert len(node.dead_letters) == 0


def test_an_agent_whose_start_fails_leaves_nothing_in_the_directory(node: tw.Node) -> None:
    class Fails(tw.Agent):
        capabilities = ("work",)

        def started(self) -> None:
            raise ValueError("not today")

        def receive(self, payload: object) -> None:
            """Handle."""

    watched = node.agent(Fails, id="a", supervision=tw.Supervision("stop"))
    watched.ref.stop(timeout=PATIENCE).wait()
    assert list(node.agents) == []
    assert "a" not in node.agents and node.agents.list(capability="work") == []
    with pytest.raises(tw.NoSuchTarget, match="registered are 'sender'"):
        node.agent(nothing, id="sender").tell(1, capability="work")


def test_an_object_can_be_registered_again_while_its_former_self_still_stops(node: tw.Node) -> None:
    release = threading.Event()

    class Slow(Echo):
        def stopped(self) -> None:
            assert release.wait(PATIENCE)

    echo = node.agent(Slow(), id="before", capabilities=["old"])
    stopping = echo.ref.stop(timeout=PATIENCE)
    assert node.agent(echo, id="after", capabilities=["new"]) is echo
    release.set()
    stopping.wait()
    assert [agent.id for agent in node.agents] == ["after"] and "before" not in node.agents
    assert node.agents.list(capability="old") == [] and node.agents.list(capability="new") == [echo]
    asker = node.agent(nothing, id="asker")
    assert asker.sync.request(1, capability="new", timeout=PATIENCE) == "after"


def test_attributes_that_are_changed_later_do_not_disturb_the_directory(node: tw.Node) -> None:
    echo = node.agent(Echo(), id="a", type="kind", capabilities=["work"])
    echo.id, echo.type, echo.capabilities = "b", "other", ()
    echo.sync.stop()
    assert list(node.agents) == [] and "a" not in node.agents and "b" not in node.agents
    assert node.agents.list(type="kind") == node.agents.list(type="other") == node.agents.list(capability="work") == []
    with pytest.raises(tw.NoSuchTarget, match="registered are 'sender'"):
        node.agent(nothing, id="sender").tell(1, capability="work")
    node.agent(nothing, id="a")


def test_odd_ids_are_ids_like_others(node: tw.Node) -> None:
    asker = node.agent(nothing, id="asker")
    for odd in (" ", "a\0b", "ü" * 100, "*", "news.>", "a/b", "\U0001f600", "None", "pool:x"):
        echo = node.agent(Echo, id=odd, type=odd, capabilities=[odd])
        for target in ({"to": odd}, {"type": odd}, {"capability": odd}):
            assert asker.sync.request(1, timeout=PATIENCE, **target) == odd
        echo.sync.stop()
        assert odd not in node.agents


@pytest.mark.promise("P5.6")
def test_a_handler_can_make_and_stop_agents(node: tw.Node) -> None:
    class Maker(tw.Agent):
        def receive(self, payload: str) -> str:
            made = self.node.agent(Echo, id=payload)
            answer: str = self.sync.request(1, to=made.id, timeout=PATIENCE)
            made.sync.stop()
            return answer

    node.agent(Maker, id="maker")
    asker = node.agent(nothing, id="asker")
    for n in range(50):
        assert asker.sync.request(f"made-{n}", to="maker", timeout=PATIENCE) == f"made-{n}"
    assert sorted(agent.id for agent in node.agents) == ["asker", "maker"]


@pytest.mark.usefixtures("hurried")
def test_lookups_from_four_threads_find_the_right_ones_while_others_come_and_go(node: tw.Node) -> None:
    for n in range(1_000):
        node.agent(nothing, id=f"agent-{n}", type=f"type-{n % 3}", capabilities=["all", f"only-{n % 50}"])
    sender = node.agent(nothing, id="sender")
    wrong: list[object] = []
    over = threading.Event()

    def look(which: int) -> None:
        for n in range(150):
            try:
                sender.tell(n, capability=f"only-{which}")
                sender.tell(n, type="type-1", capability="all")
                assert len(node.agents.list(capability=f"only-{which}")) == 20
                assert node.agents.find("agent-5").id == "agent-5"
                with pytest.raises(tw.NoSuchTarget, match="registered are"):
                    sender.tell(n, to="nobody")
            except BaseException as error:  # noqa: BLE001
                wrong.append(error)

    def come_and_go() -> None:
        while not over.is_set():
            node.agent(nothing, id="guest", type="guest", capabilities=["all", "guests"]).sync.stop()

    guests = threading.Thread(target=come_and_go)
    threads = [threading.Thread(target=look, args=(which,)) for which in (7, 8, 9, 10)]
    for thread in (guests, *threads):
        thread.start()
    for thread in threads:
        thread.join(PATIENCE * 2)
        assert not thread.is_alive()
    over.set()
    guests.join(PATIENCE)
    assert wrong == []
    assert len(node.agents) == 1_001
    assert node.agents.list(capability="guests") == []


def test_agents_that_stopped_leave_nothing_behind(node: tw.Node) -> None:
    class Heavy:
        """Something that an agent holds."""

    sender = node.agent(nothing, id="sender")
    held: list[weakref.ref[Any]] = []
    threads = threading.active_count()
    for n in range(300):
        box: list[tw.Agent] = []

        def handler(payload: object, box: list[tw.Agent] = box, heavy: Any = None) -> str:
            return box[0].id

        class Own(tw.Agent):
            heavy = Heavy()

            @tw.handle(topic="news.*")
            def on_news(self, payload: object) -> None:
                """Handle."""

            def receive(self, payload: object) -> str:
                return self.id

        agent = node.agent(Own(), id=f"a-{n}", capabilities=[f"c-{n}"])
        box.append(agent)
        held.append(weakref.ref(agent))
        agent.subscribe(f"more.{n}")
        endless: list[Any] = []
        endless.append(endless)
        sender.tell(endless, to=agent.id)
        assert sender.sync.request(1, to=agent.id, timeout=PATIENCE) == agent.id
        agent.sync.stop()
        del agent, box, endless, handler
    gc.collect()
    assert sum(agent() is not None for agent in held) <= 1, "the last one is still named by its class body"
    assert [agent.id for agent in node.agents] == ["sender"]
    assert len(node.statistics()["actors"]) == 1
    assert sender.publish("news.x", 1) == 0
    assert sender.publish("more.1", 1) == 0
    assert threading.active_count() == threads


def test_the_memory_of_a_node_does_not_grow_with_the_agents_that_it_had(node: tw.Node) -> None:
    def come_and_go(first: int, count: int) -> None:
        for n in range(first, first + count):
            node.agent(nothing, id=f"a-{n}", type=f"t-{n}", capabilities=[f"c-{n}"]).sync.stop()

    come_and_go(0, 200)
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        come_and_go(200, 1_000)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 100_000, f"{grown} bytes in the lives of 1,000 agents"
