"""Random programs of one node, with an oracle: actors, coroutines, agents, pools, timers, asks and
stops, all drawn from a number.

Each runs in a process of its own under a watchdog, and is replayed by its number:

    python python/tests/support/random_programs.py 17             # one, with its story
    python python/tests/support/random_programs.py 1-500 --loop uvloop --dev
    python python/tests/support/random_programs.py --seconds 600  # as many as there is time for
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import contextlib
import faulthandler
import importlib.util
import logging
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import random_budget
import tidewire as tw

WATCHDOG_S = 60.0
STOP_S = 20.0
SLACK_S = 5.0
LOOPS = ("asyncio", "uvloop", "threads")


class Note:
    """A message of a program. It is one object from its sender to its end."""

    __slots__ = ("__weakref__", "hops", "number")

    def __init__(self, number: int, hops: int) -> None:
        self.number = number
        self.hops = hops

    def __repr__(self) -> str:
        return f"Note({self.number})"


class Program:
    """One program: what it does is drawn from ``draws``, what became of each message is counted."""

    def __init__(self, number: int) -> None:
        self.draws = random.Random(number)
        self.lock = threading.Lock()
        self.numbers = 0
        self.accepted: set[int] = set()
        self.dropped: set[int] = set()
        self.handled: collections.Counter[int] = collections.Counter()
        self.attempts: collections.Counter[int] = collections.Counter()
        self.returned: collections.Counter[int] = collections.Counter()
        self.refs: list[tw.ActorRef] = []
        self.agents: list[Any] = []
        self.pools: list[Any] = []
        self.timers: list[tuple[tw.Timer, int, bool]] = []
        self.receipts: list[tuple[Any, int]] = []
        self.asks: list[tuple[int, Any]] = []
        self.most: dict[int, int] = {}
        self.problems: list[str] = []
        self.tasks = 0
        self.task_ends: collections.Counter[str] = collections.Counter()

    # Fate of messages

    def note(self, hops: int) -> Note:
        with self.lock:
            self.numbers += 1
            return Note(self.numbers, hops)

    def draw(self, note: Note, what: str) -> random.Random:
        """Return the draws of one message, the same in every run whichever thread asks."""
        return random.Random(f"{note.number} {what}")

    def took(self, note: Note, accepted: object) -> None:
        """Note whether a mailbox has taken a message."""
        with self.lock:
            (self.dropped if accepted is False else self.accepted).add(note.number)

    def begins(self, note: Note) -> None:
        """Note an attempt; some of them fail."""
        with self.lock:
            self.attempts[note.number] += 1
            attempt = self.attempts[note.number]
        if self.draw(note, f"fails {attempt}").random() < 0.15:
            raise ValueError(f"{note} fails on purpose")

    def ends(self, note: Note) -> None:
        with self.lock:
            self.handled[note.number] += 1

    def later_refs(self, at: int, note: Note) -> list[tw.ActorRef]:
        """Return to whom a handler passes on: only to those behind it, so that nobody waits in a
        ring.
        """
        behind = self.refs[at + 1 :]
        if not behind or note.hops <= 0:
            return []
        draws = self.draw(note, "next")
        return [draws.choice(behind) for _ in range(draws.choice((0, 1, 1, 2)))]

    def tell(self, ref: tw.ActorRef, note: Note) -> None:
        with contextlib.suppress(tw.MailboxFull, tw.ActorStopped):
            self.took(
                note, ref.tell(note, priority=self.draw(note, "lane").choice(("urgent", "high", "normal", "low")))
            )

    # Actors

    def plain(self, at: int) -> Callable[[Note], int]:

        def receive(note: Note) -> int:
            self.begins(note)
            for ref in self.later_refs(at, note):
                self.tell(ref, self.note(note.hops - 1))
            self.ends(note)
            return note.number

        return receive

    def coroutine(self, at: int) -> Callable[[Note], Any]:
        """Return a handler that is a coroutine: it waits, sends and asks."""

        async def receive(note: Note) -> int:
            draws = self.draw(note, "waits")
            for _ in range(draws.choice((0, 0, 1, 3))):
                await asyncio.sleep(0)
            self.begins(note)
            for ref in self.later_refs(at, note):
                following = self.note(note.hops - 1)
                how = draws.choice(("tell", "send", "ask"))
                try:
                    if how == "tell":
                        self.tell(ref, following)
                    elif how == "send":
                        self.took(following, await ref.send(following))
                    else:
                        with self.lock:
                            self.accepted.add(following.number)
                        value = await ref.ask(following, timeout=STOP_S)
                        if value is not None and value != following.number:
                            self.problems.append(f"{following} was answered with {value!r}")
                except (tw.MailboxFull, tw.ActorStopped):
                    with self.lock:
                        self.accepted.discard(following.number)
                except (ValueError, tw.TidewireError):
                    # The error of the handler, or the end of the actor that had the message.
                    pass
            self.ends(note)
            return note.number

        return receive

    def make_actors(self, node: tw.Node) -> None:
        for at in range(self.draws.randint(2, 6)):
            coroutine = self.draws.random() < 0.5
            deliveries = self.draws.choice((1, 1, 2, 3))
            policy = self.draws.choice(("resume", "resume", "restart"))
            supervision = tw.Supervision(policy, max_deliveries=deliveries, max_restarts=1_000, backoff_ms=0)
            # Messages that find no room would have to be looked for: here all of them have some,
            # apart from policies that drop.
            overflow = self.draws.choice(("wait", "fail", "drop_new", "drop_old"))
            size = self.draws.choice((1, 3, 50)) if overflow.startswith("drop") else 5_000
            handler = self.coroutine(at) if coroutine else self.plain(at)
            concurrency = self.draws.choice((1, 1, 4)) if coroutine else 1
            box = tw.Mailbox(size, overflow)  # type: ignore[arg-type]
            self.refs.append(node.spawn(handler, mailbox=box, concurrency=concurrency, supervision=supervision))

    def make_agents(self, node: tw.Node) -> None:
        """Register agents, some of which try again."""
        for at in range(self.draws.randint(0, 2)):
            coroutine = self.draws.random() < 0.5
            base = len(self.refs)
            handler = self.coroutine(base) if coroutine else self.plain(base)
            tries = tw.Retry(self.draws.choice((0, 2)), backoff_ms=1)
            self.agents.append(node.agent(handler, id=f"agent-{at}", retry=tries))

    def make_pools(self, node: tw.Node) -> None:
        """Make pools of threads, whose tasks tell actors."""

        def work(note: Note) -> int:
            draws = self.draw(note, "task")
            if draws.random() < 0.2:
                raise ValueError("on purpose")
            if self.refs and draws.random() < 0.5:
                self.tell(draws.choice(self.refs), self.note(1))
            return note.number

        for at in range(self.draws.randint(0, 2)):
            self.pools.append(node.pool(work, workers=self.draws.randint(1, 3), name=f"pool-{at}"))

    def schedule(self, node: tw.Node) -> None:
        """Set timers: soon, much later, repeating; some are cancelled."""
        for _ in range(self.draws.randint(0, 6)):
            ref, delay = self.draws.choice(self.refs), self.draws.choice((0.0, 0.001, 0.01, 3_600.0))
            note = self.note(0)
            timer = node.schedule(delay, ref, note)
            self.timers.append((timer, note.number, self.draws.random() < 0.3 and timer.cancel()))

    # The oracle

    def ended(self, node: tw.Node, took_s: float) -> None:
        """Look whether each message, ask, receipt, timer and task has had one end."""
        ledger = node.ledger
        assert ledger is not None
        expect = self.problems.append
        if not ledger.balanced:
            expect(f"the ledger does not balance: {ledger}")
        if ledger.stuck or ledger.threads:
            expect(f"stuck: {ledger}")
        if took_s > STOP_S + SLACK_S:
            expect(f"the stop took {took_s:.1f} s")
        letters = node.dead_letters.list()
        dead = collections.Counter(_number(letter.message) for letter in letters if _number(letter.message))
        waits = {number for _, number, _ in self.timers}
        for timer, number, cancelled in self.timers:
            outcome = timer.outcome().wait()
            if cancelled and outcome != "cancelled":
                expect(f"timer {number} was cancelled, and is {outcome}")
            if outcome == "delivered":
                self.accepted.add(number)
            elif outcome == "cancelled" and self.attempts[number]:
                expect(f"timer {number} was cancelled, and told")
        for number in sorted(self.accepted):
            ends = (self.handled[number] > 0) + dead[number] + self.returned[number]
            if ends != 1 or self.handled[number] > 1:
                expect(
                    f"message {number} has {ends} ends: handled {self.handled[number]}, dead {dead[number]}, "
                    f"returned {self.returned[number]}, {self.attempts[number]} attempts"
                )
        for number in self.dropped - waits:
            if self.attempts[number] or dead[number] != 1:
                expect(f"message {number} was dropped: {self.attempts[number]} attempts, {dead[number]} letters")
        for receipt, number in self.receipts:
            state = receipt.state
            if state not in ("handled", "failed", "expired") or (state == "handled") != (self.handled[number] > 0):
                expect(f"the receipt of message {number} is {state}, handled {self.handled[number]}")
        if sum(self.task_ends.values()) != self.tasks:
            expect(f"{self.tasks} tasks have {self.task_ends}")

    # Steps of the program

    def step_of(self) -> str:
        """Do one thing that does not wait, and return what it was; or return what is to be waited
        for.
        """
        what = self.draws.choices(
            ("tell", "ask", "send", "agent", "task", "stop", "idle", "pause"), (20, 8, 8, 8, 8, 2, 1, 4)
        )[0]
        if what == "tell":
            self.tell(self.draws.choice(self.refs), self.note(self.draws.randint(0, 3)))
        return what


def _number(message: object) -> int:
    inner = getattr(message, "payload", message)
    return inner.number if isinstance(inner, Note) else 0


async def run_on_loop(program: Program) -> None:
    began = 0.0
    waiting: list[asyncio.Future[Any]] = []

    async def asks(ref: tw.ActorRef, note: Note) -> None:
        with program.lock:
            program.accepted.add(note.number)
        try:
            await ref.ask(note, timeout=STOP_S)
        except (tw.MailboxFull, tw.ActorStopped):
            with program.lock:
                if not program.attempts[note.number]:
                    program.accepted.discard(note.number)
        except (ValueError, tw.TidewireError):
            pass

    async def submits(pool: Any, note: Note) -> None:
        try:
            await pool.submit(note)
            program.task_ends["done"] += 1
        except ValueError:
            program.task_ends["failed"] += 1

    async with tw.Node(config={"dead_letters": 100_000}) as node:
        make(program, node)
        for _ in range(program.draws.randint(20, 150)):
            what = program.step_of()
            ref = program.draws.choice(program.refs)
            if what == "ask":
                waiting.append(asyncio.ensure_future(asks(ref, program.note(2))))
            elif what == "send":
                note = program.note(2)
                with contextlib.suppress(tw.MailboxFull, tw.ActorStopped):
                    program.took(note, await ref.send(note))
            elif what == "agent" and program.agents:
                note = program.note(1)
                receipt = await program.agents[0].send(note, to=program.draws.choice(program.agents).id, receipt=True)
                program.took(note, True)
                program.receipts.append((receipt, note.number))
            elif what == "task" and program.pools:
                program.tasks += 1
                waiting.append(asyncio.ensure_future(submits(program.draws.choice(program.pools), program.note(0))))
            elif what == "stop" and len(program.refs) > 1:
                ledger = await ref.stop(drain=program.draws.random() < 0.5, timeout=STOP_S)
                count_returned(program, ledger)
            elif what == "idle":
                await node.idle(STOP_S)
            elif what == "pause":
                await asyncio.sleep(program.draws.choice((0, 0, 0.001)))
        if program.draws.random() < 0.5:
            await asyncio.gather(*waiting)
        began = time.monotonic()
    took_s = time.monotonic() - began
    await asyncio.wait_for(asyncio.gather(*waiting), SLACK_S)
    # In a thread: outcomes are waited for by blocking.
    await asyncio.to_thread(program.ended, node, took_s)


def run_on_threads(program: Program) -> None:
    with tw.Node(config={"dead_letters": 100_000}) as node:
        make(program, node)
        for _ in range(program.draws.randint(20, 150)):
            what = program.step_of()
            ref, note = program.draws.choice(program.refs), program.note(2)
            try:
                if what in ("ask", "send"):
                    with program.lock:
                        program.accepted.add(note.number)
                    if what == "ask":
                        node.sync.ask(ref, note, timeout=STOP_S)
                    elif node.sync.send(ref, note) is False:
                        program.accepted.discard(note.number)
                        program.dropped.add(note.number)
                elif what == "task" and program.pools:
                    program.tasks += 1
                    program.draws.choice(program.pools).sync.submit(note)
                    program.task_ends["done"] += 1
                elif what == "stop" and len(program.refs) > 1:
                    count_returned(program, node.sync.stop(ref, drain=program.draws.random() < 0.5, timeout=STOP_S))
                elif what == "idle":
                    node.sync.idle(STOP_S)
            except (tw.MailboxFull, tw.ActorStopped):
                if not program.attempts[note.number]:
                    program.accepted.discard(note.number)
            except ValueError:
                program.task_ends["failed"] += what == "task"
            except tw.TidewireError:
                pass
        began = time.monotonic()
    program.ended(node, time.monotonic() - began)


def make(program: Program, node: tw.Node) -> None:
    program.make_actors(node)
    program.make_agents(node)
    program.make_pools(node)
    program.schedule(node)


def count_returned(program: Program, ledger: tw.Ledger) -> None:
    if not ledger.balanced:
        program.problems.append(f"the ledger of a stop does not balance: {ledger}")
    for message in ledger.messages:
        program.returned[_number(message)] += 1


def run(number: int, loop: str) -> list[str]:
    """Run one program, and return what is wrong."""
    logging.getLogger("tidewire").setLevel(logging.CRITICAL)
    # With -X dev asyncio warns of what takes long, and how busy the machine is decides that.
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    faulthandler.dump_traceback_later(WATCHDOG_S - 5, exit=True)
    program = Program(number)
    if loop == "threads":
        run_on_threads(program)
    elif loop == "uvloop":
        import uvloop  # type: ignore[import-not-found]

        made = uvloop.new_event_loop()
        try:
            made.run_until_complete(run_on_loop(program))
        finally:
            made.close()
    else:
        asyncio.run(run_on_loop(program))
    faulthandler.cancel_dump_traceback_later()
    return program.problems


def in_process(number: int, loop: str, dev: bool) -> str | None:
    """Run one program in a process of its own, and return what went wrong."""
    command = [sys.executable, *(["-X", "dev"] if dev else []), __file__, str(number), "--loop", loop, "--here"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=WATCHDOG_S, check=False, env=environment)
    except subprocess.TimeoutExpired as late:
        return f"{number} on {loop} does not end\n{late.stderr or ''}"
    if ran.returncode == 0 and not ran.stderr:
        return None
    return f"{number} on {loop}: exit {ran.returncode}\n{ran.stdout}{ran.stderr}"


def run_all(numbers: Iterable[int], loops: Iterable[str], dev: bool, at_once: int) -> list[str]:
    """Run programs in processes of their own, and return what went wrong."""
    loops = list(loops)
    programs = ((number, loop) for number in numbers for loop in loops)
    lock, wrong = threading.Lock(), list[str]()

    def play() -> None:
        # The next number is drawn once there is a place for it: numbers may end with their time.
        while True:
            with lock:
                program = next(programs, None)
            if program is None:
                return
            said = in_process(*program, dev)
            if said is not None:
                wrong.append(said)

    with ThreadPoolExecutor(at_once) as pool:
        for played in [pool.submit(play) for _ in range(at_once)]:
            played.result()
    return wrong


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("numbers", nargs="?", default="0-", help="a number, or the first and the last: 1-500")
    parser.add_argument("--seconds", type=float, default=random_budget.SECONDS, help="for numbers without a last one")
    parser.add_argument("--loop", choices=[*LOOPS, "all"], default="all")
    parser.add_argument("--dev", action="store_true", help="with -X dev")
    parser.add_argument("--here", action="store_true", help="in this process")
    options = parser.parse_args()
    first, is_range, last = options.numbers.partition("-")
    if options.here:
        problems = run(int(first), options.loop)
        print("\n".join(problems))
        return 1 if problems else 0
    # Where uvloop is not installed there is nothing to learn from it.
    there = [loop for loop in LOOPS if loop != "uvloop" or importlib.util.find_spec("uvloop") is not None]
    loops = there if options.loop == "all" else [options.loop]
    if is_range and not last:
        numbers: Iterable[int] = random_budget.seeds("random programs", options.seconds, int(first))
    else:
        numbers = range(int(first), int(last or first) + 1)
    wrong = run_all(numbers, loops, options.dev, os.cpu_count() or 1)
    print("\n".join(wrong) or "nothing is wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
