"""One random history of calls, streams and objects over links, beside what must come of each:
``link_history.py SEED [STEPS] [LOOP] [PLACE]``.

The loop is ``asyncio``, ``uvloop``, or ``threads``, where calls that give one value are made by
plain threads; the place is ``tcp`` or ``unix``.

The same number gives the same history, apart from what the threads and sockets do at the same time.
A watchdog ends one that hangs, with the tracebacks of all threads; a history that went well says
so.
"""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import logging
import random
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import tidewire as tw

STEPS = 60
AT_ONCE = 8
WATCHDOG_S = 60.0
PATIENCE_S = 20.0
SIZES = (0, 1, 200, 5_000, 70_000, 300_000)


class Expected(Exception):
    """Exception of a method that was asked to raise."""


class Box:
    """A service that counts what has begun and ended in it."""

    def __init__(self, counts: Counter[str]) -> None:
        self._counts = counts

    async def echo(self, value: bytes) -> bytes:
        return value

    def plainly(self, value: bytes) -> bytes:
        return value

    async def fail(self, what: str) -> None:
        raise Expected(what)

    async def hang(self) -> None:
        self._counts["begun"] += 1
        try:
            await asyncio.Event().wait()
        finally:
            self._counts["ended"] += 1

    async def count(self, most: int, size: int, fails: bool) -> AsyncIterator[bytes]:
        self._counts["begun"] += 1
        try:
            for n in range(most):
                yield n.to_bytes(4, "big") + bytes(size)
            if fails:
                raise Expected(str(most))
        finally:
            await asyncio.sleep(0)
            self._counts["ended"] += 1

    def count_plainly(self, most: int, size: int, fails: bool) -> Iterator[bytes]:
        self._counts["begun"] += 1
        try:
            for n in range(most):
                yield n.to_bytes(4, "big") + bytes(size)
            if fails:
                raise Expected(str(most))
        finally:
            self._counts["ended"] += 1

    async def total(self, items: AsyncIterator[int], most: int) -> int:
        total = 0
        async for item in items:
            total += item
            most -= 1
            if not most:
                break
        return total

    async def apply(self, function: Callable[[int], Awaitable[int]], value: int) -> int:
        return await function(value)

    async def same(self, function: Any) -> Any:
        return function


class History:
    """Does random things over links, many at once, and looks at what comes of each."""

    def __init__(self, seed: int, loop: str = "asyncio", place: str = "tcp") -> None:
        self.dice = random.Random(seed)
        self._by_threads, self._place = loop == "threads", place
        self.counts: Counter[str] = Counter()
        self.notes: list[str] = []

    async def run(self, steps: int) -> None:
        # With -X dev asyncio reports what takes longer, and how busy the machine is decides that.
        asyncio.get_running_loop().slow_callback_duration = PATIENCE_S
        with tempfile.TemporaryDirectory(prefix="tw-", dir="/tmp") as folder:
            await self._run(steps, "tide://127.0.0.1:0" if self._place == "tcp" else f"tide+unix://{folder}/hub")

    async def _run(self, steps: int, place: str) -> None:
        config = {"links": {"link_shared_bytes": self.dice.choice((0, 1 << 24))}}
        async with tw.Node(name="hub", config=config) as hub:
            url = hub.listen(place).url
            async with tw.Node(url, name="a", config=config) as a, tw.Node(url, name="b", config=config) as b:
                nodes = [hub, a, b]
                served = [await node.serve(Box(self.counts), name=f"box-{node.name}") for node in nodes]
                for node in nodes:
                    # A call of an unknown method has to be awaited, as it may give one value.
                    await node.until(lambda now: len(now["links"]["services"]) == len(nodes))
                room = asyncio.Semaphore(AT_ONCE)
                await asyncio.gather(*(self._step(number, nodes, room) for number in range(steps)))
                await self._is_quiet(nodes, served)

    async def _step(self, number: int, nodes: list[tw.Node], room: asyncio.Semaphore) -> None:
        caller, callee = self.dice.sample(nodes, 2)
        what = self.dice.choice((self.calls, self.fails, self.hangs, self.reads, self.leaves, self.gives, self.lends))
        priority = self.dice.choice(("urgent", "high", "normal", "low"))
        # Drawn here, so that the history does not hang on what is done first.
        dice = random.Random(self.dice.random())
        box = caller.client(f"box-{callee.name}").with_(priority=priority)
        self.notes.append(f"{number}: {caller.name} to {callee.name}, {priority}: {what.__name__}")
        async with room:
            try:
                await what(box, dice)
            except BaseException as error:
                raise AssertionError(f"step {self.notes[number]}") from error

    async def calls(self, box: Any, dice: random.Random) -> None:
        value = dice.randbytes(dice.choice(SIZES))
        method = dice.choice(("echo", "plainly"))
        for got in await asyncio.gather(*(self._value(box, method, value) for _ in range(dice.randint(1, 5)))):
            assert got == value

    async def fails(self, box: Any, dice: random.Random) -> None:
        what = str(dice.random())
        try:
            await self._value(box, "fail", what)
        except Expected as error:
            assert error.args == (what,)
        else:
            raise AssertionError("it did not fail")

    async def _value(self, box: Any, method: str, *args: Any) -> Any:
        if self._by_threads:
            return await asyncio.to_thread(getattr(box.sync, method), *args)
        return await getattr(box, method)(*args)

    async def hangs(self, box: Any, dice: random.Random) -> None:
        task = asyncio.create_task(_awaited(box.hang))
        for _ in range(dice.randint(0, 20)):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    async def reads(self, box: Any, dice: random.Random) -> None:
        most, fails, readers = dice.choice((0, 1, 7, 150)), dice.random() < 0.5, dice.randint(1, 3)
        size = dice.choice(SIZES if most < 10 else SIZES[:4])
        stream = dice.choice((box.count, box.count_plainly))(most, size, fails)
        seen: list[int] = []

        async def read() -> None:
            async for item in stream:
                assert len(item) == 4 + size
                seen.append(int.from_bytes(item[:4], "big"))
                if dice.random() < 0.2:
                    await asyncio.sleep(0)

        ends = await asyncio.gather(*(read() for _ in range(readers)), return_exceptions=True)
        assert sorted(seen) == list(range(most)) and (readers > 1 or seen == sorted(seen)), seen
        errors = [end for end in ends if end is not None]
        assert [type(error) for error in errors] == [Expected] * fails, ends

    async def leaves(self, box: Any, dice: random.Random) -> None:
        stream = dice.choice((box.count, box.count_plainly))(1_000_000, dice.choice(SIZES[:4]), False)
        most = dice.randint(0, 100)
        if dice.random() < 0.3:
            return
        for n in range(most):
            assert int.from_bytes((await anext(stream))[:4], "big") == n
        if dice.random() < 0.7:
            before = self.counts["ended"]
            await stream.aclose()
            assert not most or self.counts["ended"] > before

    async def gives(self, box: Any, dice: random.Random) -> None:
        most, take = dice.choice((0, 3, 200)), dice.choice((1, 50, 1_000))

        async def numbers() -> AsyncIterator[int]:
            self.counts["begun"] += 1
            try:
                for n in range(most):
                    yield n
            finally:
                await asyncio.sleep(0)
                self.counts["ended"] += 1

        assert await box.total(numbers(), take) == sum(range(min(most, take)))

    async def lends(self, box: Any, dice: random.Random) -> None:
        amount = dice.randrange(1_000)

        async def add(value: int) -> int:
            await asyncio.sleep(0)
            return value + amount

        if dice.random() < 0.5:
            assert await self._value(box, "same", add) is add
        else:
            assert await box.apply(add, 7) == 7 + amount

    async def _is_quiet(self, nodes: list[tw.Node], served: list[Any]) -> None:
        """Nothing is left of what was done: no handler, no generator, no object."""

        def is_quiet(_: object) -> bool:
            gc.collect()
            objects = [node.statistics()["remote"] for node in nodes]
            counts = [(one.statistics()["in_flight"], one.statistics()["waiting"]) for one in served]
            is_over = self.counts["begun"] == self.counts["ended"] and set(counts) == {(0, 0)}
            return is_over and all(one == {"given": 0, "held": 0} for one in objects)

        try:
            until = asyncio.get_running_loop().time() + PATIENCE_S
            while not is_quiet(None):
                assert asyncio.get_running_loop().time() < until
                # Counts of handlers are told to nobody who waits for a node.
                await asyncio.sleep(0.02)
        except AssertionError:
            left = (
                [(node.statistics()["links"], node.statistics()["remote"]) for node in nodes],
                [one.statistics() for one in served],
            )
            raise AssertionError(f"something is left: {self.counts}, {left}") from None


async def _awaited(method: Callable[..., Any], *args: Any) -> Any:
    return await method(*args)


def main(seed: int, steps: int = STEPS, loop: str = "asyncio", place: str = "tcp") -> None:
    faulthandler.dump_traceback_later(WATCHDOG_S, exit=True)
    # Handlers that fail as they are told to are logged, and nothing else is expected on stderr.
    logging.getLogger("tidewire").setLevel(logging.CRITICAL)
    history = History(seed, loop, place)
    try:
        if loop == "uvloop":
            import uvloop  # type: ignore[import-not-found]

            made = uvloop.new_event_loop()
            try:
                made.run_until_complete(history.run(steps))
            finally:
                made.close()
        else:
            asyncio.run(history.run(steps))
    except BaseException:
        print("\n".join(history.notes), file=sys.stderr)
        raise
    print(f"history {seed}: well", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]), *sys.argv[3:])
