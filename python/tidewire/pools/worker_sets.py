"""The workers of a pool, by their kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidewire.errors import InvalidArgument
from tidewire.pools import function as functions
from tidewire.pools import main_module
from tidewire.pools.core import Core
from tidewire.pools.process_workers import ProcessWorkers
from tidewire.pools.restart_backoff import Replacing
from tidewire.pools.supervisor import WorkerSet
from tidewire.pools.thread_workers import ThreadWorkers


def make_crew(core: Core, function: Callable[..., Any] | str, replacing: Replacing) -> WorkerSet:
    """Return the workers of a pool, which start with its supervisor.

    Raises:
        InvalidArgument: if the function is none, can't be sent to a process, or this process must
            not have processes.
    """
    if functions.is_agent(function):
        raise InvalidArgument(
            f"function: {function!r} is an agent, and an agent lives in a node: use node.pool(...) with its class"
        )
    if core.options.kind == "thread":
        return ThreadWorkers(core, functions.for_thread(function), replacing)
    if main_module.importing:
        raise InvalidArgument(
            "kind: a worker process that imports its parent's program can't make a pool of processes: "
            "make it under `if __name__ == '__main__':`"
        )
    return ProcessWorkers(core, functions.spec_for_process(function, core.options.pickler), replacing)
