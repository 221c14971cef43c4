"""The coordinator: asks the specialists in parallel, and joins what is there when the time is
up.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any

import tidewire as tw
from specialists import Question

PARTS = ("routes", "delays", "weather", "history", "taxiing")


@dataclass
class Answer:
    """Answers of the specialists, and the missing ones.

    Attributes:
        parts: Answer of each capability, and its seconds.
        missing: Why the others did not.
    """

    question: Question
    parts: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)


class Coordinator(tw.Agent):
    """Splits a question, and joins the answers before a deadline."""

    type = "coordinator"

    def __init__(self, deadline_s: float) -> None:
        self._deadline_s = deadline_s

    @tw.handle
    async def on_question(self, question: Question) -> Answer:
        """Return what is known when everybody has answered, or the time is up."""
        answer = Answer(question)
        await asyncio.gather(*(self._part(answer, capability) for capability in PARTS))
        return answer

    async def _part(self, answer: Answer, capability: str) -> None:
        began = time.perf_counter()
        try:
            part = await self.request(answer.question, capability=capability, timeout=self._deadline_s)
        except tw.AskTimeout:
            answer.missing[capability] = f"no answer within {self._deadline_s:g} s"
        except tw.TaskQuarantined as error:
            answer.missing[capability] = f"its worker died: {error}"
        except tw.TidewireError as error:
            answer.missing[capability] = str(error)
        else:
            answer.parts[capability] = part
        answer.seconds[capability] = time.perf_counter() - began
