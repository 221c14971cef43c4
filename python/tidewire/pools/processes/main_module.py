"""Main program of the parent, for worker processes: its definitions can be pickled only by name.

As with ``multiprocessing``, the program is imported under the name ``__mp_main__``, so that what it
does under ``if __name__ == "__main__":`` is not done again. Unlike there, this happens only when
something from it arrives.
"""

from __future__ import annotations

import os
import pickle
import sys
import types
from typing import Any

_ALIAS = "__mp_main__"
_MARKS = (b"__main__", _ALIAS.encode())
"""What is defined in it is pickled under one of these names: the other one in a worker, which has
it from its parent.
"""

Source = tuple[str, str]
"""Either ``("name", module)`` or ``("path", file)``."""

importing = False
"""Whether this process is a worker that runs the main program of its parent right now."""
_pending: Source | None = None


def source(main: Any) -> Source | None:
    """Return where the main program comes from, or None if it has no file (a console, ``python
    -c``).
    """
    name = getattr(getattr(main, "__spec__", None), "name", None)
    if name is not None:
        return None if name == "__main__" else ("name", name)
    path = getattr(main, "__file__", None)
    if path is None or not os.path.isfile(path):
        return None
    return "path", os.path.realpath(path)


def can_be_imported(main: Any) -> bool:
    """Tell whether a worker can import what is defined in the main program."""
    return source(main) is not None


def mentions(pickled: bytes) -> bool:
    """Tell whether something in a pickle may come from the main program."""
    return any(mark in pickled for mark in _MARKS)


def expect(where: Source | None) -> None:
    """Note where the main program of the parent is. It is imported when it is needed."""
    global _pending
    _pending = where


def loads(pickled: bytes) -> Any:
    """Unpickle, with the parent's main program if that is needed."""
    if _pending is not None and mentions(pickled):
        _import()
    return pickle.loads(pickled)


def _import() -> None:
    global importing, _pending
    where, _pending = _pending, None
    assert where is not None
    importing = True
    try:
        _become_main(_run(where))
    except BaseException:
        _pending = where
        raise
    finally:
        importing = False


def _run(where: Source) -> dict[str, Any]:
    import runpy

    kind, place = where
    if kind == "name":
        return runpy.run_module(place, run_name=_ALIAS, alter_sys=True)
    return runpy.run_path(place, run_name=_ALIAS)


def _become_main(names: dict[str, Any]) -> None:
    module = types.ModuleType(_ALIAS)
    module.__dict__.update(names)
    sys.modules["__main__"] = sys.modules[_ALIAS] = module
