"""Values that can't be sent: the failure is at the sender and names the place; hooks stand in for
objects that are not data.
"""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from typing import Any

import pytest
import tidewire as tw
from tidewire.errors import InvalidArgument, PayloadTooLarge, WireError
from tidewire.values import decode, encode

DEPTH = 64
"""Limit ``value_depth`` of docs/reference/limits.md."""


@dataclasses.dataclass
class Item:
    price: Any


def function() -> None:
    """No data."""


async def coroutine() -> None:
    """No data either."""


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"orders": [1, 2, 3, Item(function)]}, r"value\['orders'\]\[3\]\.price: a function \(<function function"),
        ([object()], r"value\[0\]: an object \(<object object"),
        (({"a": {3: int}},), r"value\[0\]\['a'\]\[3\]: a type \(<class 'int'>\)"),
        ({function: 1}, r"value\[<function function at \w+>\]: a function"),
        ({function}, r"value\[<function function at \w+>\]: a function"),
        (asyncio, "value: a module"),
        (threading.Lock(), "value: a lock"),
        ((x for x in ()), "value: a generator"),
        (range(3), "value: a range"),
        ([2**64], r"value\[0\]: 18446744073709551616 has more than 64 bits: send it as text"),
        ([-(2**63) - 1], r"value\[0\]: -9223372036854775809 has more than 64 bits"),
        ({"n": 10**5000}, r"value\['n'\]: .* has more than 64 bits"),
        (["ok", "\ud800"], r"value\[1\]: '\\ud800' holds one half of a pair of surrogates"),
        ([NotImplemented], r"value\[0\]: a NotImplementedType"),
    ],
    ids=lambda case: case[:25] if isinstance(case, str) else "",
)
def test_a_refused_value_is_named_with_its_path(value: Any, text: str) -> None:
    with pytest.raises(InvalidArgument, match=f"^{text}"):
        encode(value)


def test_the_path_begins_with_the_name_that_the_call_gives() -> None:
    with pytest.raises(InvalidArgument, match=r"^arguments\[1\]: "):
        encode((1, function), name="arguments")


def test_an_object_whose_text_fails_is_refused_all_the_same() -> None:
    class Silent:
        def __repr__(self) -> str:
            raise RuntimeError

    with pytest.raises(InvalidArgument, match=r"value\[0\]: a Silent \(<class "):
        encode([Silent()])


def test_a_field_that_is_not_set_is_refused() -> None:
    item = Item(1)
    del item.price
    with pytest.raises(InvalidArgument, match=r"value\[0\]: .*price"):
        encode([item])


def nested(levels: int, wrap: Any) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = wrap(value)
    return value


WRAPS = {
    "list": lambda inner: [inner],
    "tuple": lambda inner: (inner,),
    "dict": lambda inner: {"a": inner},
    "key": lambda inner: {inner: 1} if not isinstance(inner, dict) else {"a": inner},
    "frozenset": lambda inner: frozenset([inner]),
    "record": Item,
    "error": ValueError,
}


@pytest.mark.parametrize("wrap", WRAPS.values(), ids=WRAPS)
def test_values_are_nested_up_to_the_limit_and_no_deeper(wrap: Any) -> None:
    most = DEPTH // 2 if wrap is ValueError else DEPTH
    deepest = nested(most, wrap)
    assert repr(decode(encode(deepest))) == repr(deepest)
    if wrap is not ValueError:
        with pytest.raises(InvalidArgument, match="nested deeper than 64 levels: flatten it"):
            encode(nested(most + 1, wrap))
        with pytest.raises(WireError, match="nested deeper than 64 levels"):
            decode(b"\x91" * 65 + b"\xc0")


def test_a_container_that_contains_itself_is_named() -> None:
    ring: dict[str, Any] = {"to": [1, {}]}
    ring["to"][1]["back"] = ring["to"]
    with pytest.raises(
        InvalidArgument, match=r"^value\['x'\]\['to'\]: a list that contains itself can't be sent: break"
    ):
        encode({"x": ring})
    item = Item([])
    item.price.append(item)
    with pytest.raises(InvalidArgument, match=r"^value(\.price)?: an? (Item|list) that contains itself"):
        encode(item)


def test_more_bytes_than_allowed_are_refused() -> None:
    for value in (b"x" * 10_000, "x" * 10_000, [b"x" * 90] * 100, bytearray(10_000), list(range(10_000))):
        assert decode(encode(value, bytes_max=len(encode(value)) + 64)) == value
        with pytest.raises(PayloadTooLarge, match=r"^value: it takes more than payload_bytes=9000: send less"):
            encode(value, bytes_max=9_000)
    assert encode(1, bytes_max=1) == b"\1"


def test_shared_values_cannot_fill_the_memory() -> None:
    value: Any = ["x" * 1_000]
    for _ in range(50):
        value = [value] * 10
    with pytest.raises(PayloadTooLarge):
        encode(value, bytes_max=1_000_000)
    with pytest.raises(PayloadTooLarge, match=str(tw.LinkConfig().payload_bytes)):
        encode([b"x" * 1_000_000] * 300)


@pytest.mark.parametrize(
    "options", [{"bytes_max": -1}, {"bytes_max": True}, {"bytes_max": "9"}, {"hook": 3}, {"name": 3}]
)
def test_arguments_that_do_not_fit_are_named(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match=f"{next(iter(options))}: .* is not allowed: give"):
        encode(1, **options)


class Service:
    """An object that stays where it is."""


def test_a_hook_stands_in_for_what_is_not_data() -> None:
    kept: list[Any] = []

    def keep(thing: Any) -> dict[str, int]:
        kept.append(thing)
        return {"number": len(kept)}

    service = Service()
    blob = encode({"call": function, "to": [service], "plain": Item(1)}, keep)
    assert kept == [function, service]
    assert decode(blob, lambda stands: ("here", stands["number"])) == {
        "call": ("here", 1),
        "to": [("here", 2)],
        "plain": Item(1),
    }
    with pytest.raises(WireError, match="refers to a function or an object"):
        decode(blob)


def test_a_hook_that_has_nothing_or_fails() -> None:
    with pytest.raises(InvalidArgument, match=r"value\[0\]: a function"):
        encode([function], lambda thing: None)
    # The stand-in of an object is data: the hook is not asked again.
    with pytest.raises(InvalidArgument, match=r"value\[0\]: a function"):
        encode([function], lambda thing: thing)
    with pytest.raises(ZeroDivisionError):
        encode([function], lambda thing: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        decode(encode([function], lambda thing: 1), lambda stands: stands // 0)


@pytest.mark.parametrize("make", [list, tuple, dict, set], ids=lambda make: make.__name__)
def test_a_container_that_changes_while_it_is_written(make: Any) -> None:
    """A hook that changes what is being written meets an error or no difference; never a crash."""
    things = [Service() for _ in range(40)]
    value: Any = {thing: thing for thing in things} if make is dict else make(things)

    def change(thing: Any) -> int:
        if make is list:
            value.clear()
        elif make is set:
            value.discard(things[-1])
            value.discard(things[0])
        elif make is dict:
            value.pop(things[20], None)
            value.setdefault("more", 1)
            value.setdefault("and more", 1)
        return 1

    if make in (list, tuple):
        assert decode(encode(value, change), lambda stands: stands) == make([1] * 40)
    else:
        with pytest.raises(InvalidArgument, match="changed while it was written"):
            encode(value, change)


def test_a_dict_whose_keys_change_is_no_crash() -> None:
    value: Any = {Service(): number for number in range(8)}

    def change(thing: Any) -> int:
        # As many as before, in other places.
        value.pop(thing)
        value[Service()] = 1
        return id(thing)

    with pytest.raises(InvalidArgument, match="changed while it was written"):
        while True:
            encode(value, change)


def test_a_bytearray_cannot_shrink_before_it_is_copied() -> None:
    data = bytearray(10_000)
    with pytest.raises(BufferError):
        encode([data, function], lambda thing: data.clear() or 1)  # type: ignore[func-returns-value]
    data.clear()
