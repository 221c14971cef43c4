"""Main program of the parent, for worker processes: its definitions can be pickled only by name.

As with ``multiprocessing``, workers import the program as ``__mp_main__``, so that its block under
``if __name__ == "__main__":`` does not run again. Unlike there, they import it only when they
receive an object of it.
"""

from __future__ import annotations

import os
import pickle
import sys
import types
from typing import Any

_ALIAS = "__mp_main__"
_NAMES = (b"__main__", _ALIAS.encode())
"""Module names in pickles of its definitions: of the parent, and of its workers."""

Source = tuple[str, str]
"""Either ``("name", module)`` or ``("path", file)``."""

importing = False
"""True while this worker process imports the main program of its parent."""
_pending: Source | None = None


def source(main: Any) -> Source | None:
    """Return the source of the main program, or None without a file (a console, ``python -c``)."""
    name = getattr(getattr(main, "__spec__", None), "name", None)
    if name is not None:
        return None if name == "__main__" else ("name", name)
    path = getattr(main, "__file__", None)
    if path is None or not os.path.isfile(path):
        return None
    return "path", os.path.realpath(path)


def can_be_imported(main: Any) -> bool:
    """Return True if a worker can import the main program."""
    return source(main) is not None


def references_main(pickled: bytes) -> bool:
    """Return True if a pickle may refer to the main program."""
    return any(mark in pickled for mark in _NAMES)


def set_parent_source(main_source: Source | None) -> None:
    """Set the source of the parent's main program, which is imported on demand."""
    global _pending
    _pending = main_source


def loads(pickled: bytes) -> Any:
    """Unpickle, after an import of the parent's main program if the pickle refers to it."""
    if _pending is not None and references_main(pickled):
        _import()
    return pickle.loads(pickled)


def _import() -> None:
    global importing, _pending
    main_source, _pending = _pending, None
    assert main_source is not None
    importing = True
    try:
        _become_main(_run(main_source))
    except BaseException:
        _pending = main_source
        raise
    finally:
        importing = False


def _run(main_source: Source) -> dict[str, Any]:
    import runpy

    kind, location = main_source
    if kind == "name":
        return runpy.run_module(location, run_name=_ALIAS, alter_sys=True)
    return runpy.run_path(location, run_name=_ALIAS)


def _become_main(names: dict[str, Any]) -> None:
    module = types.ModuleType(_ALIAS)
    module.__dict__.update(names)
    sys.modules["__main__"] = sys.modules[_ALIAS] = module
