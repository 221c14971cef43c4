"""A good client: it calls itself over the hub, one call after the other, and says how long that
takes.
"""

from __future__ import annotations

import json
import select
import sys
import time

from link_frames import ANSWER, CALL, NORMAL, PING, PONG, REPLY, SUBSCRIBE, Raw, called, frame, subscribed

from attacks.target import Target

BYSTANDERS = 8
"""Links that only stay."""
PAUSE_S = 0.0005
PATIENCE_S = 40.0


class Lost(Exception):
    """A link of the good client has ended."""


class GoodClient:
    """Two links, of which one calls the other, and a few that only stay."""

    def __init__(self, target: Target) -> None:
        self._caller, self._answerer = target.joined("good"), target.joined("good")
        self._others = [target.joined("good") for _ in range(BYSTANDERS)]
        self._calls = 0
        self.lost = 0
        for one in (self._caller, self._answerer):
            one.socket.settimeout(PATIENCE_S)
        self._answerer.send(frame(SUBSCRIBE, subscribed(b"good.call"), id=1 << 32))
        self._next(self._answerer)

    def call(self) -> float:
        """Make a call, and return how many milliseconds it took."""
        self._calls += 1
        began = time.perf_counter()
        self._caller.send(frame(CALL, called(b"good.call", deadline_ms=0), b"\xc0", id=self._calls << 32))
        kind, exchange, _, _ = self._next(self._answerer)
        assert kind == CALL, kind
        self._answerer.send(frame(REPLY, b"", b"\xc0", NORMAL | ANSWER, exchange))
        kind, _, _, payload = self._next(self._caller)
        assert kind == REPLY, (kind, payload)
        return (time.perf_counter() - began) * 1e3

    def tend(self) -> None:
        """Answer the pings of those that only stay."""
        for one in select.select([other.socket for other in self._others], [], [], 0)[0]:
            raw = next(other for other in self._others if other.socket is one)
            came = raw.receive()
            if came is None:
                self._others.remove(raw)
                self.lost += 1
            elif came[0] == PING:
                raw.send(frame(PONG, id=came[1], flags=0))

    def _next(self, link: Raw) -> tuple[int, int, bytes, bytes]:
        while (came := link.receive()) is not None:
            if came[0] == PING:
                link.send(frame(PONG, id=came[1], flags=0))
            elif came[0] not in (PONG, 7):
                return came
        raise Lost


def main(target: Target) -> None:
    """Call until the input ends. For each line of it, say how the calls since the last one went."""
    client, took, ended = GoodClient(target), [], False
    print(json.dumps("ready"), flush=True)
    while not ended:
        try:
            took.append(client.call())
            client.tend()
        except (Lost, OSError):
            # Nothing is left to be measured.
            client.lost += 2
            ended = True
        if select.select([sys.stdin], [], [], PAUSE_S)[0] or ended:
            if not sys.stdin.readline():
                return
            took.sort()
            p99 = took[int(len(took) * 0.99)] if took else float("inf")
            said = {"calls": len(took), "p99": p99, "longest": max(took, default=float("inf")), "lost": client.lost}
            print(json.dumps(said), flush=True)
            took = []
