"""The team of the clerk: durable agents that settle claims together. The knowledge of each agent is
its state.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import tidewire as tw

OPEN_AT_ONCE = 8
BUDGET = 100_000


@dataclass
class Open:
    """The customers begin: so many claims, and after which answers of this process it is stopped in
    the middle.
    """

    claims: int


@dataclass
class Claim:
    """Request of a customer."""

    number: int
    customer: str
    cents: int


@dataclass
class Lookup:
    """The clerk asks the archivist who somebody is."""

    file: int
    customer: str


@dataclass
class Record:
    """The archivist has found how often somebody was asked about before."""

    file: int
    earlier: int


@dataclass
class Case:
    """The clerk asks the assessor what a claim is worth."""

    file: int
    claim: Claim
    earlier: int


@dataclass
class Verdict:
    """The assessor has decided."""

    file: int
    cents: int
    left: int


@dataclass
class Answer:
    """Answer to a customer."""

    claim: int
    text: str


def claim(number: int) -> Claim:
    """Return a claim; the same in each run."""
    return Claim(number, f"customer-{number * 7 % 5}", 100 + number * 37 % 900)


def granted(cents: int, earlier: int, left: int) -> int:
    """Return what a claim is worth: less with each earlier one, and no more than is left."""
    return min(cents * 10 // (10 + earlier), left)


def told(file: int, record: Claim, earlier: int, cents: int, left: int) -> str:
    """Return an answer in words."""
    return f"file {file}: {record.customer}, claim {earlier + 1}, gets {cents} of {record.cents} cents; {left} are left"


@dataclass
class Queue:
    """State of the counter."""

    wanted: int = 0
    asked: int = 0
    answers: dict[int, str] = field(default_factory=dict)


class Counter(tw.Agent):
    """Hands the claims of customers to the clerk, a few at a time, and collects the answers."""

    def __init__(self, pause_at: int, say: Callable[[str], None]) -> None:
        self.state = Queue()
        self.pause_at, self.say = pause_at, say

    @tw.handle
    async def on_open(self, opened: Open) -> None:
        if not self.state.wanted:
            self.state.wanted = opened.claims
            for _ in range(OPEN_AT_ONCE):
                await self.ask_next()
        if len(self.state.answers) == self.state.wanted:
            self.say("done")

    @tw.handle
    async def on_answer(self, answer: Answer) -> None:
        self.state.answers[answer.claim] = answer.text
        await self.ask_next()
        if len(self.state.answers) == self.pause_at:
            self.say("middle")
            # The program is killed here, with its state changed and nothing of it written.
            await asyncio.Event().wait()
        if len(self.state.answers) == self.state.wanted:
            self.say("done")

    async def ask_next(self) -> None:
        """Hand over the next claim, if there is one."""
        if self.state.asked < self.state.wanted:
            await self.send(claim(self.state.asked), to="clerk", durable=True)
            self.state.asked += 1

    @tw.handle(kind="request")
    async def on_question(self, _: str) -> dict[int, str]:
        return self.state.answers


@dataclass
class Files:
    """State of the clerk."""

    newest: int = 0
    open: dict[int, Case] = field(default_factory=dict)


class Clerk(tw.Agent):
    """Gives each claim a file, asks the others about it, and answers."""

    def __init__(self) -> None:
        self.state = Files()

    @tw.handle
    async def on_claim(self, claimed: Claim) -> None:
        self.state.newest += 1
        file = self.state.newest
        self.state.open[file] = Case(file, claimed, 0)
        await self.send(Lookup(file, claimed.customer), to="archivist", durable=True)

    @tw.handle
    async def on_record(self, record: Record) -> None:
        case = self.state.open[record.file]
        case.earlier = record.earlier
        await self.send(case, to="assessor", durable=True)

    @tw.handle
    async def on_verdict(self, verdict: Verdict) -> None:
        case = self.state.open.pop(verdict.file)
        text = told(case.file, case.claim, case.earlier, verdict.cents, verdict.left)
        await self.send(Answer(case.claim.number, text), to="counter", durable=True)


class Archivist(tw.Agent):
    """Knows how often it was asked about whom."""

    def __init__(self) -> None:
        self.state: dict[str, int] = {}

    @tw.handle
    async def on_lookup(self, lookup: Lookup) -> None:
        earlier = self.state.get(lookup.customer, 0)
        self.state[lookup.customer] = earlier + 1
        await self.send(Record(lookup.file, earlier), to="clerk", durable=True)


@dataclass
class Purse:
    """State of the assessor."""

    left: int = BUDGET


class Assessor(tw.Agent):
    """Grants money as long as there is some."""

    def __init__(self) -> None:
        self.state = Purse()

    @tw.handle
    async def on_case(self, case: Case) -> None:
        cents = granted(case.claim.cents, case.earlier, self.state.left)
        self.state.left -= cents
        await self.send(Verdict(case.file, cents, self.state.left), to="clerk", durable=True)


def plainly(count: int) -> dict[int, str]:
    """Compute the answers with a loop."""
    seen: dict[str, int] = {}
    left, answers = BUDGET, {}
    for number in range(count):
        one = claim(number)
        earlier = seen.get(one.customer, 0)
        seen[one.customer] = earlier + 1
        cents = granted(one.cents, earlier, left)
        left -= cents
        answers[number] = told(number + 1, one, earlier, cents, left)
    return answers
