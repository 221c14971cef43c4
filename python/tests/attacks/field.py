"""A hub of its own, a good client and an attacker, each in a process."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from link_certificates import certificates
from link_processes import Program, Programs, free_port

from attacks import CALM_FACTOR, LONGEST_MS, P99_MS, TRIES
from attacks.target import TOKENS, Target

_PARTNER = (
    ("partner", True),
    ("call", ["svc.bank.>", "agent.buyer"]),
    ("publish", ["news.>"]),
    ("serve", ["rome:pricing"]),
)
_PATTERNS = {
    "none": (("publish", []), ("subscribe", []), ("call", [])),
    "listener": (("publish", []), ("call", [])),
    "rome": _PARTNER,
    "rome2": _PARTNER,
}
_AGAIN_S = (1.0, 2.0)
"""Seconds before and of an attack that is tried again, at least."""
_FOLDER = Path(__file__).parents[1]
_PATHS = [str(_FOLDER), str(_FOLDER / "support")]


@dataclass
class Figures:
    """How it went with the good client and the hub.

    Attributes:
        p99: Milliseconds of the call that is longer than 99 in 100.
        longest: Milliseconds of the longest call.
        lost: Good links that were lost.
        peak_mib: By how much the hub has grown at most.
        problems: Other problems.
    """

    p99: float
    longest: float
    lost: int
    peak_mib: float
    problems: list[str]


@dataclass
class Outcome:
    """Outcome of an attack: the figures before it, and those of the best try.

    Attributes:
        allowance_ms: How much longer a good call may take than it may anyway, as the machine holds
            it up.
    """

    case: ModuleType
    calm: Figures
    worst: Figures
    allowance_ms: float
    tries: int = 1

    @property
    def holds(self) -> bool:
        return not self.broken

    @property
    def broken(self) -> list[str]:
        found, worst = list(self.worst.problems), self.worst
        p99_ms, longest_ms = P99_MS + self.allowance_ms, LONGEST_MS + self.allowance_ms
        if worst.p99 > p99_ms:
            found.append(f"p99 above {p99_ms:.1f} ms")
        if worst.longest > longest_ms:
            found.append(f"a call above {longest_ms:.0f} ms")
        if worst.lost:
            found.append("good links lost")
        if worst.peak_mib > self.case.MEMORY_MIB:
            found.append(f"memory above {self.case.MEMORY_MIB:g} MiB")
        return found


class Ground:
    """Where attacks take place: a hub and a good client, which are new for each attack, or after
    one that did not hold.

    Args:
        calm_s: Seconds before an attack.
        attack_s: Seconds of an attack.
        is_short: True if a hub that has held takes the next attack, too, and good calls are
            measured by the calm ones.
    """

    def __init__(self, calm_s: float, attack_s: float, is_short: bool) -> None:
        self._calm_s, self._attack_s, self._is_short = calm_s, attack_s, is_short
        self._calm_ms = 0.0
        """The longest of all calm calls so far: how long this machine holds up a good call by
        itself.
        """
        self._stack = contextlib.ExitStack()
        self._found: tuple[Program, Target, Program] | None = None

    def __enter__(self) -> Ground:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def tried(self, case: ModuleType) -> Outcome:
        """Attack a hub, and a new one if it does not hold."""
        best: Outcome | None = None
        for number in range(1, TRIES + 1):
            # One call in a hundred says little while there are few: what does not hold has more
            # time to show why.
            calm_s, attack_s = (self._calm_s, self._attack_s) if number == 1 else _AGAIN_S
            outcome = self._once(case, max(calm_s, self._calm_s), max(attack_s, self._attack_s))
            outcome.tries = number
            if best is None or len(outcome.broken) <= len(best.broken):
                best = outcome
            if not (outcome.holds and self._is_short):
                self._stack.close()
                self._found = None
            if outcome.holds:
                break
        assert best is not None
        return best

    def _once(self, case: ModuleType, calm_s: float, attack_s: float) -> Outcome:
        if self._found is None:
            self._found = self._stack.enter_context(_field())
            _said(self._found[2])
        hub, target, good = self._found
        _figures(good)
        time.sleep(calm_s)
        calm = Figures(peak_mib=0.0, problems=[], **_figures(good))
        self._calm_ms = max(self._calm_ms, calm.longest if calm.longest < float("inf") else 0.0)
        # However slow the machine is, a hub that stands still is found: no calm call counts for
        # more than this.
        allowance_ms = CALM_FACTOR * min(self._calm_ms, LONGEST_MS) if self._is_short else 0.0
        before = hub.forget_peak()
        hub.logged()
        began = time.monotonic()
        attacker = subprocess.Popen(
            [sys.executable, "-m", "attacks", "--attack", _name(case), target.text()], cwd=_FOLDER
        )
        problems = []
        try:
            end = time.monotonic() + attack_s
            if hasattr(case, "look"):
                problems = _looked(case, target)
            time.sleep(max(0.0, end - time.monotonic()))
        finally:
            attacker.kill()
            attacker.wait()
        if hub.process.poll() is not None:
            problems.append(f"the hub has ended with {hub.process.returncode}")
            figures = {"p99": float("inf"), "longest": float("inf"), "lost": -1}
            return Outcome(case, calm, Figures(peak_mib=0.0, problems=problems, **figures), allowance_ms)
        figures = _figures(good)
        if hasattr(case, "logged"):
            problems += case.logged(hub.logged(), time.monotonic() - began)
        peak = (hub.peak_bytes - before) / 2**20
        return Outcome(case, calm, Figures(peak_mib=peak, problems=problems, **figures), allowance_ms)


def _looked(case: ModuleType, target: Target) -> list[str]:
    try:
        said = case.look(target)
        return list(asyncio.run(said) if inspect.iscoroutine(said) else said)
    # Every refusal or loss of a good node is an effect of the attack.
    except Exception as error:  # noqa: BLE001
        return [f"{type(error).__name__}: {error}"]


@contextlib.contextmanager
def _field() -> Iterator[tuple[Program, Target, Program]]:
    with tempfile.TemporaryDirectory(prefix="tw-", dir="/tmp") as place:
        programs = Programs(Path(place))
        try:
            hub_toml = Path(place) / "hub.toml"
            made = certificates(Path(place)) if shutil.which("openssl") else None
            other = free_port()
            hub_toml.write_text(_settings(place, made, other))
            hub = programs.run("-m", "tidewire", "up", "--json", "--config", str(hub_toml))
            tide, ws, unix, *tls, web = json.loads(hub.line())["urls"]
            target = Target(tide, ws, hub.process.pid, web, unix, *(tls or ("",)), other)
            code = f"import sys; sys.path[:0] = {_PATHS!r}; from attacks.__main__ import main; main()"
            good = programs.run("-c", code, "--good", target.text())
            yield hub, target, good
        finally:
            programs.end()


def _settings(place: str, made: Path | None, other: int) -> str:
    listen = ["tide://127.0.0.1:0", "ws://127.0.0.1:0", f"tide+unix://{place}/hub.sock"]
    if made is not None:
        listen.append("tide+tls://127.0.0.1:0")
    lines = ["[hub]", f"listen = {json.dumps(listen)}", 'http = ["127.0.0.1:0"]']
    if made is not None:
        lines += [f'cert = "{made}/hub.pem"', f'key = "{made}/hub.key"']
    for user, token in TOKENS.items():
        lines += ["[[hub.tokens]]", f'token = "{token}"', f'user = "{user}"']
        lines += [f"{field} = {json.dumps(patterns)}" for field, patterns in _PATTERNS.get(user, ())]
    lines += ["[[hub.join]]", f'url = "tide://127.0.0.1:{other}"', 'as = "victim"']
    lines += ['export = ["bank", "agent:buyer", "orders.>"]', 'import = ["evil:billing", "evil:news.>"]']
    return "\n".join(lines)


def _figures(good: Program) -> dict[str, Any]:
    stdin = good.process.stdin
    assert stdin is not None
    stdin.write("\n")
    stdin.flush()
    said = _said(good)
    return {name: said[name] for name in ("p99", "longest", "lost")}


def _said(good: Program) -> Any:
    return json.loads(good.line())


def _name(case: ModuleType) -> str:
    return case.__name__.rpartition(".")[2]
