"""The task of a submit: its function and arguments, pickled."""

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
    """Makes the tasks of one pool: those for processes carry their arguments as they travel."""

    def __init__(self, options: Options) -> None:
        self._takes_batches = options.batch is not None
        self._travels = options.kind == "process"
        # The trace context, if there are spans, goes before the arguments.
        self._lead: Callable[[], tuple[Any, ...]] = tuple
        if options.traced is not None:
            self._lead = lambda: (fields_for_workers(),)
        self._dumps = dumps_of(options.pickler if self._travels else "pickle")

    def task(self, args: tuple[Any, ...], kwargs: dict[str, Any], key: int = 0) -> Task:
        """Return a new task, which the answer that waits for it knows by ``key``.

        Raises:
            InvalidArgument: if an argument can't be pickled, or a function that takes batches gets
                more than one value.
            PayloadTooLarge: if the pickled arguments are too large.
        """
        if self._takes_batches and (len(args) != 1 or kwargs):
            raise InvalidArgument(
                f"args: a pool with batch takes one value per task, not {len(args)} and {len(kwargs)} by name: submit(value)"
            )
        lead = self._lead()
        return Task(args, kwargs, _packed(lead, args, kwargs, self._dumps) if self._travels else lead or None, key)

    def range(
        self, values: list[Any], key: int, answer: InFlightTasks
    ) -> tuple[Task | TaskRange | None, Exception | None]:
        """Return new tasks, one for each value, which the answer knows by keys from ``key`` on; and
        the error of the first value that can't travel, which ends the tasks.
        """
        lead, unfit = self._lead(), None
        payload: list[Any] | None = [lead] * len(values) if lead else None
        if self._travels and (lead or not are_plain(values)):
            payload = []
            try:
                for value in values:
                    payload.append(_packed(lead, (value,), {}, self._dumps))
            except Exception as error:  # noqa: BLE001
                unfit, values = error, values[: len(payload)]
        if not values:
            return None, unfit
        unit = TaskRange(values, payload, key, answer)
        return (unit.part(0, 1) if unit.count == 1 else unit), unfit


def _packed(lead: tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any], dumps: Dumps) -> Any:
    try:
        payload = pack_arguments(lead + args, kwargs, dumps)
    except Exception as error:
        raise InvalidArgument(unpicklable(args, kwargs, error, dumps)) from error
    if type(payload) is bytes and len(payload) > limits.POOL_TASK_BYTES.max:
        raise PayloadTooLarge(
            f"args: {len(payload):,} bytes are more than {limits.POOL_TASK_BYTES.max:,}: send a path or a part"
        )
    return payload
