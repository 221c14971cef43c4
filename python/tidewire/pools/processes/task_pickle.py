"""Tasks of submits, with pickled arguments for processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidewire import _limits as limits
from tidewire._tracing.process_spans import fields_for_workers
from tidewire.errors import InvalidArgument, PayloadTooLarge
from tidewire.pools.options import Options
from tidewire.pools.processes.pickler import Dumps, dumps_of
from tidewire.pools.processes.wire import are_plain, pack_arguments, unpicklable
from tidewire.pools.results.answers import InFlightTasks
from tidewire.pools.task import Task, TaskRange


class Packing:
    """Factory of the tasks of one pool. Tasks for processes have encoded arguments."""

    def __init__(self, options: Options) -> None:
        self._takes_batches = options.batch is not None
        self._is_pickled = options.kind == "process"
        # With spans, the trace context precedes the arguments.
        self._prefix: Callable[[], tuple[Any, ...]] = tuple
        if options.traced is not None:
            self._prefix = lambda: (fields_for_workers(),)
        self._dumps = dumps_of(options.pickler if self._is_pickled else "pickle")

    def task(self, args: tuple[Any, ...], kwargs: dict[str, Any], key: int = 0) -> Task:
        """Return a new task. Its receiver identifies it by ``key``.

        Raises:
            InvalidArgument: if an argument can't be pickled, or a pool with batches gets more than
                one value.
            PayloadTooLarge: if the pickled arguments are too large.
        """
        if self._takes_batches and (len(args) != 1 or kwargs):
            raise InvalidArgument(
                f"args: a pool with batch takes one value per task, not {len(args)} and {len(kwargs)} by name: submit(value)"
            )
        prefix = self._prefix()
        return Task(args, kwargs, _pack(prefix, args, kwargs, self._dumps) if self._is_pickled else prefix or None, key)

    def range(
        self, values: list[Any], key: int, answer: InFlightTasks
    ) -> tuple[Task | TaskRange | None, Exception | None]:
        """Return new tasks, one per value, with consecutive keys from ``key``. A value that can't
        be pickled ends them, and its error is returned too.
        """
        prefix, pickle_error = self._prefix(), None
        payload: list[Any] | None = [prefix] * len(values) if prefix else None
        if self._is_pickled and (prefix or not are_plain(values)):
            payload = []
            try:
                for value in values:
                    payload.append(_pack(prefix, (value,), {}, self._dumps))
            except Exception as error:  # noqa: BLE001
                pickle_error, values = error, values[: len(payload)]
        if not values:
            return None, pickle_error
        unit = TaskRange(values, payload, key, answer)
        return (unit.part(0, 1) if unit.count == 1 else unit), pickle_error


def _pack(prefix: tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any], dumps: Dumps) -> Any:
    try:
        payload = pack_arguments(prefix + args, kwargs, dumps)
    except Exception as error:
        raise InvalidArgument(unpicklable(args, kwargs, error, dumps)) from error
    if type(payload) is bytes and len(payload) > limits.POOL_TASK_BYTES.max:
        raise PayloadTooLarge(
            f"args: {len(payload):,} bytes are more than {limits.POOL_TASK_BYTES.max:,}: send a path or a part"
        )
    return payload
