"""A node that serves methods of random signatures, and the TypeScript that calls each of them.

    python signatures.py URL SEED OUT

Serves methods that compare their arguments with those that the TypeScript in OUT gives,
and prints a line once it is ready.
"""

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
import enum
import json
import random
import sys
import uuid
from collections.abc import AsyncIterator, Callable
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import msgspec
import tidewire as tw

METHODS = 120
EPOCH = dt.datetime(1970, 1, 1)
MICRO = dt.timedelta(microseconds=1)


class Side(enum.StrEnum):
    BUY = "buy"
    SELL = "sell"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclasses.dataclass(frozen=True)
class Kind:
    """A type: its hint, a function that makes a value and its text in TypeScript, and the type
    there if it may be a key.
    """

    hint: Any
    make: Callable[[], tuple[Any, str]]
    key: str = ""


class Signatures:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.leaves = [
            self.leaf(bool, lambda r: r.random() < 0.5, json.dumps),
            self.leaf(
                int, lambda r: r.choice([0, 7, -5, 2**53 - 1, 2**53, -(2**53) - 1, 2**64 - 1, -(2**63)]), integer
            ),
            self.leaf(Annotated[int, msgspec.Meta(ge=0, le=100)], lambda r: r.randint(0, 100), str, "number"),
            self.leaf(float, lambda r: r.choice([0.5, 2.0, -1e300, 3e-9]), repr),
            self.leaf(str, lambda r: r.choice(["", "a", "ö", "__proto__", '"']), json.dumps, "string"),
            self.leaf(bytes, lambda r: r.randbytes(r.randrange(4)), binary, "Uint8Array"),
            self.leaf(bytearray, lambda r: bytearray(r.randbytes(3)), binary),
            self.leaf(type(None), lambda r: None, lambda _: "null"),
            self.leaf(dt.datetime, lambda r: moment(r, r.random() < 0.5), date_time, "Date | LocalDateTime"),
            self.leaf(Annotated[dt.datetime, msgspec.Meta(tz=True)], lambda r: moment(r, True), date_time, "Date"),
            self.leaf(Annotated[dt.datetime, msgspec.Meta(tz=False)], lambda r: moment(r, False), date_time),
            self.leaf(dt.date, lambda r: moment(r, False).date(), local_date, "LocalDate"),
            self.leaf(dt.time, lambda r: moment(r, False).time(), local_time),
            self.leaf(dt.timedelta, lambda r: r.randint(-(10**12), 10**12) * MICRO, duration, "Duration"),
            self.leaf(
                Decimal, lambda r: Decimal(r.randint(-999, 999)) / 100, lambda v: f'new Decimal("{v}")', "Decimal"
            ),
            self.leaf(uuid.UUID, lambda r: uuid.UUID(int=r.getrandbits(128)), lambda v: f'new UUID("{v}")', "UUID"),
            self.leaf(complex, lambda r: complex(r.random(), 1), lambda v: f"new Complex({v.real}, {v.imag})"),
            self.leaf(Side, lambda r: r.choice(list(Side)), lambda v: f'"{v.value}"', "'buy' | 'sell'"),
            self.leaf(Level, lambda r: r.choice(list(Level)), lambda v: str(v.value), "1 | 2"),
            self.leaf(Literal["x", 3], lambda r: r.choice(["x", 3]), json.dumps, "'x' | 3"),
        ]
        self.expected: list[tuple[dict[str, Any], Any]] = []
        self.count = 0

    def leaf(self, hint: Any, make: Callable[[random.Random], Any], text: Callable[[Any], str], key: str = "") -> Kind:
        def one() -> tuple[Any, str]:
            value = make(self.rng)
            return value, text(value)

        return Kind(hint, one, key)

    def key(self) -> Kind:
        """A type of keys and of items of sets."""
        if self.rng.random() < 0.2:
            parts = [self.key() for _ in range(self.rng.randint(1, 2))]
            of = " | ".join(part.key for part in parts)
            return Kind(
                tuple[tuple(part.hint for part in parts)], lambda: joined(parts, f"tuple<{of}>(%s)"), f"Tuple<{of}>"
            )
        return self.rng.choice([kind for kind in self.leaves if kind.key])

    def kind(self, depth: int = 0) -> Kind:
        if depth > 2 or self.rng.random() < 0.4:
            return self.rng.choice(self.leaves)
        return self.rng.choice([self.items, self.tuple, self.set, self.map, self.optional, self.record])(depth + 1)

    def some(self, kind: Kind) -> list[tuple[Any, str]]:
        return [kind.make() for _ in range(self.rng.randrange(4))]

    def items(self, depth: int) -> Kind:
        item = self.kind(depth)
        make = self.rng.choice([list, tuple])
        hint = list[item.hint] if make is list else tuple[item.hint, ...]

        def one() -> tuple[Any, str]:
            made = self.some(item)
            return make(value for value, _ in made), f"[{', '.join(text for _, text in made)}]"

        return Kind(hint, one)

    def tuple(self, depth: int) -> Kind:
        parts = [self.kind(depth) for _ in range(self.rng.randint(1, 3))]
        return Kind(tuple[tuple(part.hint for part in parts)], lambda: joined(parts, "[%s]"))

    def set(self, depth: int) -> Kind:
        item = self.key()
        make = self.rng.choice([set, frozenset])

        def one() -> tuple[Any, str]:
            made = dict(self.some(item))
            return make(made), f"new {'Set' if make is set else 'FrozenSet'}<{item.key}>([{', '.join(made.values())}])"

        return Kind(make[item.hint], one)

    def map(self, depth: int) -> Kind:
        key, item = self.key(), self.kind(depth)

        def one() -> tuple[Any, str]:
            made = {k: (text, item.make()) for k, text in self.some(key)}
            value = {k: v for k, (_, (v, _)) in made.items()}
            pairs = [f"[{text}, {of}]" for text, (_, of) in made.values()]
            # Keys of text, and no keys at all, are an object.
            if all(isinstance(k, str) for k in made):
                return value, "{ " + ", ".join(f"[{text}]: {of}" for text, (_, of) in made.values()) + " }"
            return value, f"new Map<{key.key}, any>([{', '.join(pairs)}])"

        return Kind(dict[key.hint, item.hint], one)

    def optional(self, depth: int) -> Kind:
        kind = self.kind(depth)
        return Kind(kind.hint | None, lambda: (None, "null") if self.rng.random() < 0.5 else kind.make())

    def record(self, depth: int) -> Kind:
        fields = {f"f{at}": self.kind(depth) for at in range(self.rng.randint(1, 3))}
        self.count += 1
        name = f"Record{self.count}"
        hints = {field: kind.hint for field, kind in fields.items()}
        made = self.rng.choice(
            [
                lambda: dataclasses.make_dataclass(name, list(hints.items())),
                lambda: NamedTuple(name, list(hints.items())),
                lambda: TypedDict(name, hints),
                lambda: msgspec.defstruct(name, list(hints.items())),
            ]
        )()
        made.__module__ = __name__

        def one() -> tuple[Any, str]:
            values = {field: kind.make() for field, kind in fields.items()}
            text = ", ".join(f"{field}: {of}" for field, (_, of) in values.items())
            return made(**{field: value for field, (value, _) in values.items()}), "{ " + text + " }"

        return Kind(made, one)

    def method(self, name: str) -> tuple[Callable[..., Any], str]:
        """A method, and the TypeScript of two calls: mostly by position, and mostly by name."""
        rng = self.rng
        places = [(f"p{at}", self.kind()) for at in range(rng.randint(0, 3))]
        least = rng.randint(0, len(places))
        names = [(f"k{at}", self.kind(), rng.random() < 0.5) for at in range(rng.randint(0, 2))]
        rest = self.kind() if rng.random() < 0.3 else None
        result = self.kind()
        is_stream = rng.random() < 0.15
        # A default that no value equals: a call that leaves it out shows it.
        parts = [field if at < least else f"{field}=..." for at, (field, _) in enumerate(places)]
        parts += ["*rest" if rest else "*"] if rest or names else []
        parts += [field if required else f"{field}=..." for field, _, required in names]
        body = "for item in check(locals()): yield item" if is_stream else "return check(locals())"
        space: dict[str, Any] = {"check": self.check}
        exec(f"async def call({', '.join(parts)}):\n    {body}", space)  # noqa: S102
        made = space["call"]
        hints = {field: kind.hint for field, kind in places} | {field: kind.hint for field, kind, _ in names}
        made.__annotations__ = {**hints, "return": AsyncIterator[result.hint] if is_stream else result.hint}
        if rest:
            made.__annotations__["rest"] = rest.hint
        calls = [f'\tconst {name} = node.client<Services["{name}"]>("{name}");\n']
        for first in (rng.randint(least, len(places)), rng.randint(0, least)):
            by_place = places[:first]
            more = [rest.make() for _ in range(rng.randrange(3))] if rest and first == len(places) else []
            given = {field: kind.make() for field, kind in by_place}
            by_name = {field: kind.make() for field, kind in places[first:least]}
            by_name |= {field: kind.make() for field, kind, required in names if required or rng.random() < 0.5}
            texts = [text for _, text in given.values()] + [text for _, text in more]
            if by_name:
                texts.append("named({ " + ", ".join(f"{field}: {text}" for field, (_, text) in by_name.items()) + " })")
            whole = {field: value for field, (value, _) in {**given, **by_name}.items()}
            whole |= {field: ... for field, *_ in [*places, *names] if field not in whole}
            whole |= {"rest": tuple(value for value, _ in more)} if rest else {}
            back, text = result.make()
            self.expected.append((whole, [back] if is_stream else back))
            call = f"{name}.call({', '.join(texts)})"
            wanted = f'Result<"{name}">'
            calls.append(
                f"\tsame(await {'first' if is_stream else ''}({call}), {text} satisfies {wanted}, {json.dumps(call)});\n"
            )
        calls.append(f'\t// @ts-expect-error: its type is known\n\tSymbol() satisfies Result<"{name}">;\n')
        return made, "".join(calls)

    def check(self, given: dict[str, Any]) -> Any:
        wanted, back = self.expected.pop(0)
        if shown(given) != shown(wanted):
            raise ValueError(f"{shown(given)} arrived for {shown(wanted)}")
        return back


def joined(parts: list[Kind], form: str) -> tuple[Any, str]:
    made = [part.make() for part in parts]
    return tuple(value for value, _ in made), form % ", ".join(text for _, text in made)


def shown(value: Any) -> str:
    """The types and values of all parts."""
    name = type(value).__name__
    if isinstance(value, dict):
        return f"{name}{sorted((shown(key), shown(one)) for key, one in value.items())}"
    if isinstance(value, set | frozenset):
        return f"{name}{sorted(map(shown, value))}"
    if isinstance(value, list | tuple):
        return f"{name}{[shown(one) for one in value]}"
    fields = getattr(value, "__dataclass_fields__", None) or getattr(value, "__struct_fields__", ())
    # The name of a zone does not travel.
    text = value.isoformat() if isinstance(value, dt.datetime) else repr(value)
    return f"{name}{[shown(getattr(value, field)) for field in fields] or text}"


def integer(value: int) -> str:
    return f"{value}n" if abs(value) >= 2**53 else str(value)


def binary(value: bytes) -> str:
    return f"Uint8Array.from({list(value)})"


def moment(rng: random.Random, zoned: bool) -> dt.datetime:
    made = EPOCH + rng.randint(-(10**13), 10**13) * rng.choice([1, 1000]) * MICRO
    return made.replace(tzinfo=dt.timezone(dt.timedelta(hours=rng.choice([0, 2])))) if zoned else made


def date_time(value: dt.datetime) -> str:
    if value.tzinfo is None:
        return f"new LocalDateTime({(value - EPOCH) // MICRO}n)"
    offset = value.utcoffset()
    micros = (value - EPOCH.replace(tzinfo=dt.UTC)) // MICRO
    if not offset and micros % 1000 == 0:
        return f"new Date({micros // 1000})"
    return f"new DateTime({micros // 1000}, {micros % 1000}, {offset // MICRO if offset else 'undefined'})"


def local_date(value: dt.date) -> str:
    return f"LocalDate.of({value.year}, {value.month}, {value.day})"


def local_time(value: dt.time) -> str:
    return f"new LocalTime({(dt.datetime.combine(EPOCH, value) - EPOCH) // MICRO})"


def duration(value: dt.timedelta) -> str:
    return f"new Duration({value.days}, {value.seconds}, {value.microseconds})"


async def main(url: str, seed: str, out: str) -> None:
    signatures = Signatures(int(seed))
    made = {f"service{at}": signatures.method(f"service{at}") for at in range(METHODS)}
    Path(out).write_text("".join(calls for _, calls in made.values()), encoding="utf-8")
    async with tw.Node(url, name="random") as node:
        for name, (method, _) in made.items():
            await node.serve({"call": method}, name=name)
        print(json.dumps({"url": url}), flush=True)
        await asyncio.to_thread(sys.stdin.read)


asyncio.run(main(*sys.argv[1:]))
