"""AutoGen's agents on its runtime of one thread, under the workloads of agents: no Tidewire is
loaded here.

python autogen_agents.py --contender autogen-core --workload g1 --count 10000
"""

from __future__ import annotations

import asyncio
import sys
import time
from argparse import Namespace
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "tidewire_bench"))

from autogen_core import (
    AgentId,
    MessageContext,
    RoutedAgent,
    SingleThreadedAgentRuntime,
    TopicId,
    TypeSubscription,
    message_handler,
)
from measure import Figures, Tally, Workload, after, everybody, goals, in_loop, request_many, run

TOPIC = TopicId("words", "all")


@dataclass
class Word:
    """A message is a data class, or a model of Pydantic."""

    word: int


class Receiver(RoutedAgent):
    """An agent that hands words to the tally of its workload."""

    def __init__(self, handle: Callable[[int], object]) -> None:
        super().__init__("receives")
        self._handle = handle

    @message_handler
    async def receive(self, message: Word, ctx: MessageContext) -> None:
        self._handle(message.word)


class Echo(RoutedAgent):
    """An agent that answers with what it was asked."""

    def __init__(self) -> None:
        super().__init__("answers")

    @message_handler
    async def answer(self, message: Word, ctx: MessageContext) -> Word:
        return message


@asynccontextmanager
async def started() -> AsyncIterator[SingleThreadedAgentRuntime]:
    runtime = SingleThreadedAgentRuntime(ignore_unhandled_exceptions=False)
    runtime.start()
    yield runtime
    await runtime.stop_when_idle()
    await runtime.close()


async def receivers(runtime: SingleThreadedAgentRuntime, tallies: list[Tally]) -> None:
    """A published message reaches an agent of each type."""
    for number, tally in enumerate(tallies):
        kind, handle = f"receiver-{number}", tally.function()
        await Receiver.register(runtime, kind, lambda handle=handle: Receiver(handle))
        await runtime.add_subscription(TypeSubscription(TOPIC.type, kind))


async def published(options: Namespace, agents: int) -> Figures:
    """From the first word that is published to the last that is handled. Its queue has no bound, so
    that the sender gives way now and then.
    """
    arrived, start = asyncio.Event(), 0.0
    finish = after(agents, arrived.set)
    tallies = [Tally(options.count, finish) for _ in range(agents)]
    async with started() as runtime:
        await receivers(runtime, tallies)
        for goal in goals(options.count):
            arrived.clear()
            start = time.perf_counter()
            for word in range(goal):
                await runtime.publish_message(Word(word), TOPIC)
                if word % 100 == 99:
                    await asyncio.sleep(0)
            await arrived.wait()
    return everybody(tallies, start)


async def one_way(options: Namespace) -> Figures:
    return await published(options, 1)


async def broadcast(options: Namespace) -> Figures:
    return await published(options, options.actors)


async def request(options: Namespace) -> Figures:
    async with started() as runtime:
        await Echo.register(runtime, "echo", Echo)
        echo = AgentId("echo", "one")

        async def ask(word: int) -> int:
            answer: Word = await runtime.send_message(Word(word), echo)
            return answer.word

        return await request_many(ask, options)


CONTENDERS: dict[str, dict[str, Workload]] = {
    "autogen-core": {
        "g1": in_loop(one_way),
        "g2": in_loop(request),
        "g3": in_loop(request),
        "g4": in_loop(broadcast),
    }
}

if __name__ == "__main__":
    sys.exit(run(CONTENDERS))
