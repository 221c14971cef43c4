"""Functions of the workers of the pools under test. A module of its own, so that worker processes
import little.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import tidewire as tw


def increment(n: int) -> int:
    return n + 1


def kind_of(value: Any) -> str:
    return type(value).__name__


def arguments(*args: Any, **kwargs: Any) -> tuple[Any, ...]:
    return args, kwargs


def pid(_: Any) -> int:
    return os.getpid()


def work(microseconds: int) -> int:
    """Keep a core busy for about this long."""
    end = time.perf_counter_ns() + microseconds * 1_000
    while time.perf_counter_ns() < end:
        pass
    return microseconds


def noted(folder: str, n: int) -> int:
    """Leave a mark for each time that this was called."""
    with open(f"{folder}/{n}", "a") as file:
        file.write("x")
    work(300)
    return n


def for_ever(_: Any) -> None:
    threading.Event().wait()


def hang_if(n: int) -> int:
    if n < 0:
        for_ever(n)
    return n


def wait_for(path: str) -> str:
    """Wait until the other end of a named pipe is closed."""
    Path(path).read_bytes()
    return path


def wait_if_path(value: Any) -> Any:
    return wait_for(value) if isinstance(value, str) else value


def divide(a: int, b: int) -> float:
    return a / b


def die_if(n: int) -> int:
    if n < 0:
        os._exit(3)
    return n


def die(_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def raise_it(error: BaseException) -> None:
    raise error


class Awkward(Exception):
    def __init__(self, a: int, b: int) -> None:
        super().__init__("awkward")


class Locked(Exception):
    def __init__(self) -> None:
        super().__init__("locked")
        self.lock = threading.Lock()


def raise_awkward(_: Any) -> None:
    raise Awkward(1, 2)


def raise_locked(_: Any) -> None:
    raise Locked


def give_lock(_: Any) -> Any:
    return threading.Lock()


def give_bytes(count: int) -> bytes:
    return bytes(count)


class Bomb:
    def __reduce__(self) -> Any:
        return divide, (1, 0)


def give_bomb(_: Any) -> Bomb:
    return Bomb()


def talk(text: str) -> str:
    print(text)
    os.write(1, b"raw\n")
    print("err " + text, file=sys.stderr)
    return text


def leave_child(path: str) -> int:
    """Fork a child that stays until the named pipe is closed, past the hooks of Python, and die."""
    import ctypes

    child = ctypes.PyDLL(None).fork()
    if child == 0:
        wait_for(path)
        os._exit(0)
    os._exit(9)


def leave_thread(_: Any) -> None:
    """Leave a thread behind for which the interpreter would wait at its end."""
    threading.Thread(target=threading.Event().wait).start()


def close_all_files(_: Any) -> None:
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))


def mutate(values: list[int]) -> list[int]:
    values.append(0)
    return values


def double_all(batch: list[Any]) -> list[Any]:
    return [value * 2 for value in batch]


def sizes(batch: list[Any]) -> list[int]:
    return [len(batch)] * len(batch)


def too_few(batch: list[Any]) -> list[Any]:
    return batch[1:]


def die_in_batch(batch: list[int]) -> list[int]:
    if any(n < 0 for n in batch):
        os._exit(3)
    return batch


async def later(n: int) -> int:
    import asyncio

    await asyncio.sleep(0)
    return n + 1


class Adder:
    """A callable object that can be pickled."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __call__(self, m: int) -> int:
        return self.n + m


def say_and_hang(path: str) -> None:
    """Write to a named pipe, and never come back."""
    Path(path).write_bytes(b"x")
    threading.Event().wait()


def stay(path: str | None, way: str) -> None:
    """Write to a named pipe, and stay until the task is cancelled, or for ever."""
    if path is not None:
        Path(path).write_bytes(b"x")
        while way != "ask" or not tw.context().cancelled:
            if way == "report":
                tw.context().progress(0.5, "on")
            work(100)


def stay_if_path(value: Any) -> Any:
    """Stay until the task is cancelled, if the value is a named pipe."""
    if isinstance(value, str):
        stay(value, "report")
    return value


async def stay_awaiting(path: str | None, way: str) -> None:
    import asyncio

    if path is not None:
        Path(path).write_bytes(b"x")
        await asyncio.sleep(1_000)


def report_to_its_end(count: int) -> int:
    for n in range(count):
        tw.context().progress(n / count)
    tw.context().progress(1, "done")
    return count


def chore(folder: str, n: int, style: int) -> int:
    """Leave a mark at the begin and one at the end of work with checks, or without."""
    for mark in "be":
        with open(f"{folder}/{n}", "a") as file:
            file.write(mark)
        for _ in range(style * 10 if mark == "b" else 0):
            work(1_000)
            if style == 1:
                tw.context().progress(0.5)
    return n


def look_at_batch(batch: list[str]) -> list[str]:
    """Wait for the first value, a named pipe, and tell whether all tasks were cancelled."""
    wait_for(batch[0])
    return [str(tw.context().cancelled)] * len(batch)


def deed(folder: str, item: tuple[int, str]) -> int:
    """Leave a mark, and return the number, or end in another way. ``die once`` returns at its
    second call.
    """
    n, way = item
    with open(f"{folder}/{n}", "a") as file:
        file.write("x")
        calls = file.tell()
    if way == "die" or (way == "die once" and calls == 1):
        os._exit(3)
    if way == "hang":
        for_ever(n)
    return n // (way != "raise")
