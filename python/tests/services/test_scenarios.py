"""The scenarios of `spec/scenarios`, which nodes of every language play."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import tidewire as tw
from service_support import PATIENCE, soon

FOLDER = Path(__file__).parents[3] / "spec" / "scenarios"
SCENARIOS = {
    f"{file.stem}: {one['name']}": one for file in sorted(FOLDER.glob("*.json")) for one in json.loads(file.read_text())
}


class Stage:
    """Events of handlers, and the signals that let them go on."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.begun: asyncio.Queue[tuple[str, str]] = asyncio.Queue(1_000)
        self.cancelled: asyncio.Queue[str] = asyncio.Queue(1_000)
        self.doors: defaultdict[str, threading.Semaphore] = defaultdict(lambda: threading.Semaphore(0))
        self.doors_soon: defaultdict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(0))

    def say(self, queue: asyncio.Queue[Any], what: Any) -> None:
        self.loop.call_soon_threadsafe(queue.put_nowait, what)

    def let_go(self, id: str) -> None:
        self.doors[id].release()
        self.doors_soon[id].release()

    async def inside(self, id: str, instance: str) -> str:
        self.say(self.begun, (id, instance))
        try:
            await self.doors_soon[id].acquire()
        # A stream that is closed gets a CancelledError, too, where it awaits.
        except BaseException:
            self.say(self.cancelled, id)
            raise
        return instance

    def inside_plainly(self, id: str, instance: str) -> str:
        self.say(self.begun, (id, instance))
        while not self.doors[id].acquire(timeout=0.01):
            if tw.context().cancelled:
                self.say(self.cancelled, id)
                break
        return instance


class Failed(Exception):
    pass


def soon_room(stage: Stage, instance: str) -> Any:
    class Room:
        @tw.method
        async def hold(self, id: str) -> str:
            return await stage.inside(id, instance)

        @tw.method(idempotent=True)
        async def steady(self, id: str) -> str:
            return await stage.inside(id, instance)

        @tw.method
        async def keep(self, id: str, function: Any) -> str:
            return await stage.inside(id, instance)

        @tw.method
        async def fail(self, id: str) -> str:
            raise Failed(await stage.inside(id, instance))

        @tw.method
        async def items(self, id: str) -> AsyncIterator[str]:
            yield await stage.inside(id, instance)

    return Room()


def plain_room(stage: Stage, instance: str) -> Any:
    class Room:
        @tw.method
        def hold(self, id: str) -> str:
            return stage.inside_plainly(id, instance)

        @tw.method(idempotent=True)
        def steady(self, id: str) -> str:
            return stage.inside_plainly(id, instance)

        @tw.method
        def keep(self, id: str, function: Any) -> str:
            return stage.inside_plainly(id, instance)

        @tw.method
        def fail(self, id: str) -> str:
            raise Failed(stage.inside_plainly(id, instance))

        @tw.method
        def items(self, id: str) -> Iterator[str]:
            yield stage.inside_plainly(id, instance)

    return Room()


class World:
    def __init__(self, scenario: dict[str, Any], room: Any, url: str) -> None:
        self.scenario, self.room, self.url = scenario, room, url
        self.stage = Stage()
        self.hub: tw.Node | None = None
        self.nodes: dict[str, tw.Node] = {}
        self.served: dict[str, Any] = {}
        self.calls: dict[str, asyncio.Task[str]] = {}
        self.ended: list[str] = []
        self.leaving: dict[str, asyncio.Task[Any]] = {}

    async def begin(self) -> None:
        await self.hub_starts()
        for instance in self.scenario["instances"]:
            await self.serve(instance)
        self.nodes["caller"] = await tw.Node(self.url, name="caller").__aenter__()
        await self.known(self.scenario["instances"])

    async def end(self) -> None:
        for node in [*self.nodes.values(), self.hub]:
            if node is not None:
                await node.stop(timeout=0.0)

    async def play(self, do: str, **given: Any) -> None:
        if "as" in given:
            given["how"] = given.pop("as")
        await getattr(self, do)(**given)

    async def call(self, id: str, method: str, timeout_s: float = 2 * PATIENCE, **options: Any) -> None:
        room = self.nodes["caller"].client("room").with_(timeout=timeout_s, **options)

        async def made() -> Any:
            if method == "items":
                (item,) = [item async for item in room.items(id)]
                return item
            return await getattr(room, method)(id, *([lambda: None] if method == "keep" else []))

        self.calls[id] = asyncio.create_task(made())

    async def begins(self, id: str, at: str | None = None) -> None:
        begun, instance = await self.stage.begun.get()
        assert begun == id
        assert at in (None, instance)

    async def waits(self, instance: str, count: int) -> None:
        while self.served[instance].statistics()["waiting"] != count:
            await asyncio.sleep(0.001)

    async def let_go(self, id: str) -> None:
        self.stage.let_go(id)

    async def ends(self, id: str, how: str) -> None:
        task = self.calls.pop(id)
        await asyncio.wait([task])
        error = task.exception()
        name = type(error).__name__ if isinstance(error, tw.TidewireError) else "RemoteError"
        assert ("ok" if error is None else name) == how, error

    async def cancel(self, id: str) -> None:
        task = self.calls.pop(id)
        task.cancel()
        await asyncio.wait([task])

    async def cancelled(self, id: str) -> None:
        while id not in self.ended:
            self.ended.append(await self.stage.cancelled.get())
        self.ended.remove(id)

    async def remote(self, node: str, given: int, held: int) -> None:
        await self.nodes[node].until(lambda now: now["remote"] == {"given": given, "held": held})

    async def known(self, instances: list[str]) -> None:
        caller = self.nodes["caller"]
        changes = caller.watch_services("room")
        while not any(
            one.name == "room" and sorted(one.instances) == sorted(instances) for one in await caller.services()
        ):
            await anext(changes)

    async def serve(self, instance: str) -> None:
        node = self.nodes[instance] = await tw.Node(self.url, name=instance).__aenter__()
        room = self.room(self.stage, instance)
        self.served[instance] = await node.serve(room, name="room", instance=instance, **self.scenario["limits"])

    async def leave(self, instance: str) -> None:
        self.leaving[instance] = asyncio.create_task(self.nodes.pop(instance).stop(PATIENCE))
        await asyncio.sleep(0)

    async def gone(self, instance: str) -> None:
        await self.leaving.pop(instance)

    async def hub_stops(self) -> None:
        hub, self.hub = self.hub, None
        assert hub is not None
        await hub.stop(timeout=0.0)

    async def hub_starts(self) -> None:
        self.hub = await tw.Node(name="hub").__aenter__()
        self.hub.listen(self.url)

    async def joined(self) -> None:
        await self.nodes["caller"].until(lambda now: "dropped" in now["links"])


@pytest.mark.parametrize("room", [soon_room, plain_room])
@pytest.mark.parametrize("name", SCENARIOS)
async def test_a_scenario_is_played_as_in_every_language(name: str, room: Any, tmp_path: Path) -> None:
    world = World(SCENARIOS[name], room, f"tide+unix://{tmp_path}/hub.sock")
    await soon(world.begin())
    try:
        for step in SCENARIOS[name]["steps"]:
            print(step)
            await soon(world.play(**step))
        assert world.stage.begun.empty()
        assert world.stage.cancelled.empty()
        assert not (world.ended or world.calls)
    finally:
        await soon(world.end())
